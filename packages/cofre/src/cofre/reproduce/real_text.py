"""Token-level text through the package's loader, judged by a pretrained language model (SmolLM2; optional)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from claimlab import Count, Run, stats
from claimlab.smollm import load_causal_lm

from ..data import array_source, compact_vocabulary, pack, read_documents
from ..diffusion import nelbo
from ..fixed_point import SJFB
from ..judge import CausalJudge
from ..metrics import is_degenerate, unigram_entropy
from ..models import FixedPointDenoiser, MaskedDenoiser
from ..objectives import MaskedObjective
from ..reuse import ReuseRule
from ..sampling import sample
from ..schedules import allocate
from ..training import Recipe, train
from .declaration import paper

RECIPE = Recipe(
    steps=150, batch_size=16, learning_rate=3e-3, warmup=20, decay="cosine", betas=(0.9, 0.99), ema_decay=0.95
)


@dataclass(frozen=True)
class RealTextConfig:
    """Real documents, cut into tokens of the judge's own tokenizer, or into words where there is no judge."""

    documents: str | None = None  # .jsonl, .parquet or .txt; bundled documentation if not given
    judge: str | None = "smollm2"  # asset, local folder or hub name; none: words, and no GenPPL
    characters: Count = 400_000  # of the documents, at most
    length: Count = 32
    hidden: Count = 64
    heads: Count = 4
    recipe: Recipe = RECIPE
    budget: Count = 48
    step_cost: Count = 6
    samples: Count = 96


class Words:
    """A tokenizer of words and marks, for use without a pretrained one."""

    eos_token_id = 0

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of the words, new ones in the order in which they are met."""
        return [self.ids.setdefault(word, len(self.ids) + 1) for word in re.findall(r"\w+|[^\w\s]", text)]


@paper.experiment(
    smoke=RealTextConfig(
        characters=20_000,
        hidden=16,
        heads=2,
        recipe=Recipe(steps=3, batch_size=8, learning_rate=2e-3, ema_decay=0.9),
        samples=8,
    ),
    laptop=RealTextConfig(),
    paper=RealTextConfig(characters=2_000_000, hidden=256, length=128, samples=512),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"laptop": 3, "paper": 600},
)
def real_text(config: RealTextConfig, run: Run) -> None:
    """Train MDLM and FP-MDLM on real tokens; GenPPL of their samples under a pretrained language model."""
    model, tokenizer = (None, Words()) if config.judge is None else load_causal_lm(config.judge)
    sequences, table = _load(config, tokenizer)
    judge = None if model is None else CausalJudge(model, table)
    held_out, training = sequences[: config.samples], sequences[config.samples :]
    vocab = len(table)
    torch.manual_seed(run.seed)
    shape = {"hidden": config.hidden, "heads": config.heads, "positions": "relative"}
    arms = {
        "mdlm": MaskedDenoiser(vocab, config.length, blocks=12, **shape).to(run.device),
        "fp": FixedPointDenoiser(vocab, config.length, **shape).to(run.device),
    }
    steps = config.budget // config.step_cost
    data_entropy = float(unigram_entropy(held_out, vocab).mean())
    rows = []
    for arm, denoiser in arms.items():
        generator = torch.Generator().manual_seed(run.seed)
        objective = MaskedObjective(SJFB(generator=generator) if arm == "fp" else None, generator=generator)
        source = array_source(training, generator=torch.Generator().manual_seed(run.seed + 1), device=run.device)
        trained = train(
            denoiser, source, objective, config.recipe, progress=lambda steps, arm=arm: run.progress(steps, arm)
        )
        generator = torch.Generator().manual_seed(run.seed + 2)
        bound = nelbo(trained, held_out.to(run.device), 4, generator=generator)
        run.measure(f"nelbo_{arm}", stats.mean(bound.cpu().numpy()))
        if arm == "fp":
            drawn = sample(
                trained, config.samples, steps=steps, iterations=allocate(config.budget, steps),
                reuse=ReuseRule("three_state"), generator=generator,
            )  # fmt: skip
        else:
            drawn = sample(trained, config.samples, steps=config.budget // 12, generator=generator)
        rows.append(_judged(arm, drawn.tokens, drawn.block_passes, vocab, data_entropy, judge))
    rows.append(_judged("data", held_out, 0.0, vocab, data_entropy, judge))
    table = pd.DataFrame(rows)
    run.table("judged", table)
    run.measure("degenerate_rows", int(table["degenerate"].sum()))
    for row in rows:
        run.measure(f"entropy_{row['arm']}", row["entropy"])
        if judge is not None:
            run.measure(f"gen_ppl_{row['arm']}", row["gen_ppl"], low=row["low"], high=row["high"])


def _load(config: RealTextConfig, tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed sequences with symbols 0, 1, …, and the tokenizer's id of each symbol.

    Raises:
        ValueError: if the text gives too few sequences.
    """
    texts = _up_to(read_documents(config.documents), config.characters)
    rows = list(pack((tokenizer.encode(text) for text in texts), config.length, tokenizer.eos_token_id))
    if len(rows) < 2 * config.samples:
        raise ValueError(
            f"the documents give {len(rows)} sequences of {config.length} tokens, {2 * config.samples} needed"
        )
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return compact_vocabulary(torch.stack(rows)[order])


def _up_to(texts: Iterable[str], characters: int) -> Iterable[str]:
    for text in texts:
        if characters <= 0:
            return
        yield text[:characters]
        characters -= len(text)


def _judged(
    arm: str, tokens: torch.Tensor, passes: float, vocab: int, data_entropy: float, judge: CausalJudge | None
) -> dict:
    """A row of the table: GenPPL with its bootstrap interval over samples, entropy, and whether it is degenerate."""
    row = {"arm": arm, "block_passes": passes}
    if judge is not None:
        interval = stats.bootstrap(judge.nll(tokens).double().mean(1).numpy(), resamples=1000)
        row |= dict(zip(("gen_ppl", "low", "high"), np.exp(interval).tolist(), strict=True))
    entropy = float(unigram_entropy(tokens, vocab).mean())
    return row | {"entropy": entropy, "degenerate": is_degenerate(entropy, data_entropy)}
