"""E4: time from context to slots on a real language model, every method in the same run (claim X8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from transformers import LlamaConfig, LlamaForCausalLM

from claimlab import Count, Counts, Run, plotting
from claimlab.smollm import load_causal_lm

from ..arms import Shape, get_arm
from ..baselines import MemoryTokens
from ..frozen_lm import FrozenLM
from .declaration import paper

METHODS = ("comprexit", "icae", "fivehundredx", "beacon", "mean_pool")


@dataclass(frozen=True)
class SpeedConfig:
    """Which model, how long the contexts, how often."""

    model: str = "smollm2"  # a name for `load_causal_lm`, or `random`: a tiny random Llama
    lengths: Counts = (512,)  # tokens of context
    ratios: Counts = (4, 8)
    repeats: Count = 3  # after one to warm up; methods take turns
    queries: Count = 10  # of 16 tokens each, answered from one compressed context


@paper.experiment(
    smoke=SpeedConfig(model="random", lengths=(64,), repeats=1),
    laptop=SpeedConfig(),
    paper=SpeedConfig(model="meta-llama/Llama-3.2-1B", lengths=(512, 8192), repeats=20),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"laptop": 2.0, "paper": 30},
    needs={"paper": "a GPU and Llama-3.2-1B (model=…: a local folder or a hub name)"},
)
def speed(config: SpeedConfig, run: Run) -> None:
    """Compression time of every method, adapters unmerged and merged, and the time to answer ten questions."""
    lm = FrozenLM(load_causal_lm(config.model)[0] if config.model != "random" else tiny_model())
    lm.model.to(run.device)
    rows = []
    for ratio in config.ratios:
        shape = Shape(max_slots=max(config.lengths) // min(config.ratios))
        methods = {name: get_arm(name).build(lm, shape, ratio).eval() for name in METHODS}
        for name in ("icae", "fivehundredx"):
            method = methods[name]
            assert isinstance(method, MemoryTokens)
            methods[f"{name}_merged"] = method.merged()
        for length in config.lengths:
            ids = torch.from_numpy(run.rng.integers(3, lm.config.vocab_size, size=(1, length))).to(run.device)
            mask = torch.ones_like(ids, dtype=torch.bool)
            calls: dict[str, Callable[[], object]] = {
                name: lambda method=method, ids=ids: method.compress(ids) for name, method in methods.items()
            }
            calls["forward"] = lambda ids=ids, mask=mask: lm.hidden_states(ids, mask)
            for name, seconds in alternate(calls, config.repeats, run).items():
                rows += [(ratio, length, name, s) for s in seconds]
    table = pd.DataFrame(rows, columns=["ratio", "length", "method", "seconds"])
    run.table("compression", table)

    median = table.groupby(["ratio", "length", "method"])["seconds"].median().unstack("method")
    unmerged = median[["icae", "fivehundredx", "beacon"]].min(axis=1) / median["comprexit"]
    merged = median[["icae_merged", "fivehundredx_merged", "beacon"]].min(axis=1) / median["comprexit"]
    run.measure("fastest_unmerged_over_ours", unmerged.min(), timing=True)
    run.measure("fastest_merged_over_ours", merged.min(), timing=True)
    run.measure("beacon_over_ours", (median["beacon"] / median["comprexit"]).min(), timing=True)
    run.measure("mean_pool_over_ours", (median["mean_pool"] / median["comprexit"]).min(), timing=True)
    run.measure("modules_over_forward", (median["comprexit"] / median["forward"] - 1).max(), timing=True)
    _time_to_answer(lm, config, run)


@torch.no_grad()
def _time_to_answer(lm: FrozenLM, config: SpeedConfig, run: Run) -> None:
    """Compress once and read ten questions, against reading the full context for each of them."""
    length, ratio = config.lengths[0], config.ratios[0]
    ids = torch.from_numpy(run.rng.integers(3, lm.config.vocab_size, size=(1, length))).to(run.device)
    query = torch.from_numpy(run.rng.integers(3, lm.config.vocab_size, size=(1, 16))).to(run.device)
    ours, full = (get_arm(name).build(lm, Shape(), ratio).eval() for name in ("comprexit", "full"))

    def answer(method) -> None:
        compressed = method.compress(ids)
        for _ in range(config.queries):
            lm.read(compressed, query)

    seconds = alternate({"ours": lambda: answer(ours), "full": lambda: answer(full)}, max(1, config.repeats // 3), run)
    run.measure("full_over_ours_ten_questions", np.median(seconds["full"]) / np.median(seconds["ours"]), timing=True)
    run.measure("kv_memory_ratio", length / ours.compress(ids).mask.shape[1])


def alternate(calls: dict[str, Callable[[], object]], repeats: int, run: Run) -> dict[str, list[float]]:
    """Seconds of each call, in turns, after one call each to warm up; no gradients."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for turn in run.progress(range(repeats + 1), "turns"):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                if run.device.type == "cuda":
                    torch.cuda.synchronize()
                if turn > 0:
                    seconds[name].append(time.perf_counter() - start)
    return seconds


def tiny_model() -> LlamaForCausalLM:
    """A random Llama of 2 layers, for trying every step of the experiment."""
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
    )


@paper.figures(speed)
def speed_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Compression time over ComprExIT's, by method and ratio."""
    table = tables["compression"]
    median = table.groupby(["ratio", "length", "method"])["seconds"].median().unstack("method")
    relative = median.div(median["comprexit"], axis=0)
    order = [c for c in relative.mean().sort_values().index]
    fig, ax = plotting.subplots(figsize=(6.4, 3.6))
    for index, (key, row) in enumerate(relative.iterrows()):
        ratio, length = key  # pyright: ignore[reportGeneralTypeIssues]
        label = f"ratio {ratio}, {length} tokens"
        ax.barh(
            [i + 0.35 * index for i in range(len(order))], row[order], 0.32, label=label, color=plotting.COLOURS[index]
        )
    ax.set_yticks([i + 0.17 for i in range(len(order))], [name.replace("_", " ") for name in order])
    ax.axvline(2, color="black", linestyle=":", linewidth=1)
    ax.set(xlabel="compression time / ComprExIT's (dotted: the claimed factor 2)")
    ax.legend(fontsize="small")
    return {"speed": fig}
