"""C2 (iii): does the Jensen gap of two memory states tell what merging them costs, better than their distance does?"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from claimlab import Count, Run, plotting

from ..codebook import RECAP
from ..controller import Controller
from ..merging import merge_table
from .problems import Models, Problem, count, paper, problems


@dataclass(frozen=True)
class Merging(Models):
    """Merge every pair of nodes of a near-optimal controller (section 5, C2)."""

    models: tuple[str, ...] = ("cheese", "4x3", "shuttle")
    largest: Count = 12  # memory states of the controller, fewer where fewer reach V*
    near: float = 1e-4  # a controller is optimal when its score is within this of 1


@paper.experiment(
    smoke=Merging(models=("shuttle",)),
    laptop=Merging(),
    paper=Merging(models=("cheese", "4x3", "shuttle", "4x4", "light-maze", "rocksample-3-2", "cheng.D3-5", "ejs1")),
    minutes={"laptop": 0.3},
)
def merging(config: Merging, run: Run) -> None:
    """Rank correlation of the gap, and of the L2 distance, with the exact loss of merging two nodes."""
    advantage, tables = [], []
    for problem in run.progress(problems(config, run.seed), "models", count(config)):
        pairs = merge_table(problem.pomdp, _controller(problem, config), problem.vf)
        pairs.insert(0, "model", problem.name)
        tables.append(pairs)
        advantage.append(spearmanr(pairs.gap, pairs.loss).statistic - spearmanr(pairs.distance, pairs.loss).statistic)
    run.table("pairs", pd.concat(tables))
    run.measure("models_gap_beats_distance", int((np.array(advantage) > 0).sum()))
    run.measure("rank_advantage", float(np.mean(advantage)))


def _controller(problem: Problem, config: Merging) -> Controller:
    """The smallest controller found that reaches V*, or the one of the largest size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        path = RECAP(config.largest, seed=problem.seed).fit(problem.pomdp, problem.vf, problem.sample).path_
    for K in sorted(path):
        if problem.score(path[K].value(problem.pomdp)) >= 1 - config.near:
            return path[K]
    return path[config.largest]


@paper.figures(merging)
def merging_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    pairs = tables["pairs"]
    models = list(dict.fromkeys(pairs.model))
    fig, axes = plotting.subplots(2, len(models), figsize=(3.6 * len(models), 5.6), squeeze=False)
    for column, model in enumerate(models):
        rows = pairs[pairs.model == model]
        for ax, x in zip(axes[:, column], ("gap", "distance"), strict=True):
            ax.plot(rows[x], rows.loss, "o", ms=4, alpha=0.6)
            ax.set_title(f"{model}: rank correlation {spearmanr(rows[x], rows.loss).statistic:.2f}")
            ax.set_xlabel({"gap": "occupancy-weighted Jensen gap", "distance": "L2 distance of beliefs"}[x])
    for ax in axes[:, 0]:
        ax.set_ylabel("exact loss when merged")
    return {"merging": fig}
