"""E5: real text and a real language model: how well slots stand in for their context, before and after training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting, stats
from claimlab.smollm import load_causal_lm

from ..arms import Shape, get_arm
from ..compressor import Compressor
from ..data import text
from ..frozen_lm import FrozenLM
from ..model import norm_ratio
from ..training import Recipe, cache_states, train
from .declaration import paper

SHORT = Recipe(steps=40, learning_rate=1e-3)


@dataclass(frozen=True)
class RealTextConfig:
    """Windows of Python's documentation: `context` tokens are compressed, the next `continuation` predicted."""

    model: str = "smollm2"
    data: Path | None = None  # a local data set in the `datasets` format instead of Python's documentation
    context: Count = 96
    continuation: Count = 32
    ratio: Count = 4
    train_windows: Count = 80
    test_windows: Count = 24
    samples: Count = 3  # continuations shown
    recipe: Recipe = SHORT
    batch_size: Count = 4


@paper.experiment(
    smoke=RealTextConfig(
        context=16, continuation=4, train_windows=2, test_windows=2, samples=1, recipe=Recipe(1, 1e-3), batch_size=1
    ),
    laptop=RealTextConfig(),
    paper=RealTextConfig(
        model="meta-llama/Llama-3.2-1B",
        context=512,
        continuation=128,
        train_windows=50_000,
        test_windows=1000,
        recipe=Recipe(steps=954, learning_rate=1e-4, accumulation=32),
        batch_size=64,
    ),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"laptop": 4.0, "paper": 6000},
    needs={"paper": "GPUs, Llama-3.2-1B (model=…), SlimPajama-6B in the datasets format (data=…)"},
)
def real_text(config: RealTextConfig, run: Run) -> None:
    """Held-out likelihood of the continuation given slots, the full, a truncated and no context."""
    model, tokenizer = load_causal_lm(config.model)
    lm = FrozenLM(model.to(run.device))
    texts = text.python_documentation() if config.data is None else text.read_dataset(config.data)
    needed = config.train_windows + config.test_windows
    if config.data is None:
        # Whole topics go to one side, so that no test window continues a training window.
        texts = [texts[i] for i in run.rng.permutation(len(texts))]  # pyright: ignore[reportIndexIssue, reportArgumentType]
    ids = text.windows(tokenizer, _enough(texts, tokenizer, needed, config), config.context + config.continuation)
    if len(ids) < needed:
        raise ValueError(f"expected {needed} windows of text, found {len(ids)}")
    test, held = ids[: config.test_windows].to(run.device), ids[config.test_windows : needed].to(run.device)
    contexts = held[:, : config.context]
    states = cache_states(lm, contexts) if config.data is None else None

    shape = Shape(window=min(128, config.context), max_slots=config.context)
    nll: dict[str, np.ndarray] = {}
    for name in ("full", "truncated", "none"):
        nll[name] = held_out(get_arm(name).build(lm, shape, config.ratio), test, config)
    methods: dict[str, Compressor] = {}
    curves = []
    for name in ("comprexit", "mean_pool", "prompt"):
        torch.manual_seed(run.seed)
        method = methods[name] = get_arm(name).build(lm, shape, config.ratio)
        before = held_out(method, test, config)
        batches = text.continuation_batches(
            held, config.context, config.batch_size, np.random.default_rng(run.seed), states
        )
        points = train(
            method,
            batches,
            config.recipe,
            every=max(1, config.recipe.steps // 6),
            progress=lambda steps, name=name: run.progress(steps, name),
        )
        nll[f"{name}_untrained"], nll[name] = before, held_out(method, test, config)
        curves += [(name, p.step, p.loss) for p in points]
        if name == "comprexit":
            run.measure("training_loss_fell", points[0].loss - points[-1].loss)
            run.measure("slot_norm_ratio", norm_ratio(method.compress(test[:1, : config.context]), lm))
            method.save_pretrained(run.scratch / "comprexit")
    for name, values in nll.items():
        run.measure(f"nll_{name}", stats.mean(values))
    for name in ("comprexit_untrained", "mean_pool", "none", "truncated", "prompt"):
        run.measure(f"gain_over_{name}", stats.paired_difference(nll[name], nll["comprexit"]))
    closed = stats.bootstrap(
        (nll["none"], nll["comprexit"], nll["full"]), lambda none, ours, full, axis=-1: _share(none, ours, full, axis)
    )
    run.measure("share_of_context_gain", closed)
    run.table(
        "nll",
        pd.DataFrame([(name, *stats.mean(v)) for name, v in nll.items()], columns=["context", "nll", "low", "high"]),
    )
    run.table("training", pd.DataFrame(curves, columns=["method", "step", "loss"]))
    run.table("samples", _generations(lm, tokenizer, methods, shape, test[: config.samples], config))


def _share(none: np.ndarray, ours: np.ndarray, full: np.ndarray, axis: int) -> np.ndarray:
    """Part of what the full context gains over none that the slots gain."""
    return (none.mean(axis) - ours.mean(axis)) / (none.mean(axis) - full.mean(axis))


def _enough(texts, tokenizer, windows: int, config: RealTextConfig):
    """As many texts as give the windows, so that a large data set is not read to its end."""
    length = config.context + config.continuation
    found = 0
    for one in texts:
        yield one
        found += len(tokenizer(one, add_special_tokens=False, verbose=False)["input_ids"]) // length
        if found >= windows:
            return


@torch.no_grad()
def held_out(method: Compressor, ids: torch.Tensor, config: RealTextConfig, batch: int = 8) -> np.ndarray:
    """Nats for one token of each window's continuation."""
    method.eval()
    parts = []
    for rows in ids.split(batch):
        example = text.continuation_batch(rows, config.context)
        parts.append(method.token_nll(example.context_ids, None, example.target_ids, example.labels).mean(1))
    return torch.cat(parts).cpu().double().numpy()


def _generations(lm, tokenizer, methods, shape, ids, config) -> pd.DataFrame:
    """What each context makes the model write, side by side."""
    readers = {name: get_arm(name).build(lm, shape, config.ratio) for name in ("full", "truncated", "none")}
    rows = []
    for number, window in enumerate(ids):
        context, rest = window[None, : config.context], window[config.context :]
        decoded = {"context": tokenizer.decode(context[0]), "true continuation": tokenizer.decode(rest)}
        for name, method in {**readers, "comprexit": methods["comprexit"], "mean_pool": methods["mean_pool"]}.items():
            with torch.no_grad():
                compressed = method.compress(context)
            # The first token of the continuation is given, so that every reader starts at the same place.
            new = method.generate(compressed, rest[None, :1], max_new_tokens=config.continuation)
            decoded[name] = tokenizer.decode(torch.cat([rest[:1], new[0]]))
        rows += [(number, name, value) for name, value in decoded.items()]
    return pd.DataFrame(rows, columns=["window", "reader", "text"])


@paper.figures(real_text)
def real_text_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Held-out negative log-likelihood by what the model reads."""
    labels = {
        "full": "full context (96 tokens)",
        "truncated": "last 24 tokens",
        "none": "no context",
        "comprexit": "ComprExIT, 24 slots",
        "comprexit_untrained": "ComprExIT, untrained",
        "mean_pool": "mean pooling, 24 slots",
        "mean_pool_untrained": "mean pooling, untrained",
        "prompt": "prompt tuning, 24 vectors",
        "prompt_untrained": "random vectors",
    }
    table = tables["nll"].iloc[::-1].sort_values("nll", ascending=False, kind="stable")
    fig, ax = plotting.subplots(figsize=(6.4, 3.6))
    spread = [table["nll"] - table["low"], table["high"] - table["nll"]]
    ours = ["#D55E00" if name.startswith("comprexit") else "#0072B2" for name in table["context"]]
    ax.barh(
        [labels[name] for name in table["context"]], table["nll"], xerr=spread, color=ours, error_kw={"linewidth": 1}
    )
    ax.set(xlabel="held-out nats per token (95 % interval over windows)")
    return {"real_text": fig}
