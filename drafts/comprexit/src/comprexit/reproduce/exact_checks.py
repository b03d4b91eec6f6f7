"""E1: parameters counted on the published models' shapes, the plan against POT's arithmetic, reading without loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from claimlab import Count, Run

from ..baselines import ICAE, FullContext, MemoryConfig
from ..frozen_lm import FrozenLM
from ..model import ComprExIT, parameter_count
from ..transport import sinkhorn_log
from .declaration import paper

# Llama 3.2 1B, 3.2 3B and 3.1 8B, from their public configurations.
SHAPES: dict[str, dict[str, Any]] = {
    "1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, tie=True),
    "3b": dict(hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, tie=True),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, tie=False),
}


@dataclass(frozen=True)
class ExactConfig:
    """Checks that need no training."""

    models: tuple[str, ...] = ("1b", "3b", "8b")
    windows: Count = 64  # transport problems of 128 positions and 32 slots


@paper.experiment(smoke=ExactConfig(windows=4), laptop=ExactConfig(), paper=ExactConfig(), deterministic=True)
def exact_checks(config: ExactConfig, run: Run) -> None:
    """Trainable parameters of the published shapes, exactness of the plan's marginals, and of reading."""
    rows = []
    for name in config.models:
        lm = FrozenLM(published_shape(name))
        total = sum(p.numel() for p in lm.model.parameters())
        ours, icae = ComprExIT(lm), ICAE(lm, MemoryConfig())
        adapters = icae.num_trainable - icae.memory.numel()
        rows.append((name, total, ours.num_trainable, adapters))
        run.measure(f"share_{name}", ours.num_trainable / total)
        run.measure(f"formula_error_{name}", ours.num_trainable - parameter_count(lm.hidden_size, lm.num_states - 1))
        if name == "1b":
            run.measure("parameters_over_icae", ours.num_trainable / adapters)
    run.table("parameters", pd.DataFrame(rows, columns=["model", "language_model", "comprexit", "icae_lora"]))

    generator = torch.Generator().manual_seed(0)
    cost = 2 * torch.rand(config.windows, 128, 32, generator=generator, dtype=torch.float64)
    a = torch.rand(config.windows, 128, generator=generator, dtype=torch.float64)
    a = a / a.sum(-1, keepdim=True)
    b = torch.full((config.windows, 32), 1 / 32, dtype=torch.float64)
    plan = sinkhorn_log(cost, a, b)
    run.measure("column_error", (plan.sum(1) - b).abs().max() * 32)
    run.measure("row_error", ((plan.sum(2) - a).abs().sum(1)).max())

    torch.manual_seed(0)
    lm = FrozenLM(
        LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2))
    )
    context, query = torch.randint(3, 64, (2, 16)), torch.randint(3, 64, (2, 6))
    whole = torch.cat([torch.full_like(context[:, :1], lm.bos_token_id), context, query], dim=1)
    with torch.no_grad():
        read = lm.read(FullContext(lm).compress(context), query)
        run.measure("reading_error", (read - lm.model(whole).logits[:, -7:]).abs().max())


def published_shape(name: str) -> LlamaForCausalLM:
    """A model of that size without its weights: nothing is allocated."""
    shape = dict(SHAPES[name])
    tie = shape.pop("tie")
    with torch.device("meta"):
        return LlamaForCausalLM(
            LlamaConfig(vocab_size=128_256, num_key_value_heads=8, tie_word_embeddings=bool(tie), **shape)
        )
