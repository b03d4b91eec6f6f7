"""E4: what each part of the objective and of the design brings; how well J predicts the value of arbitrary codes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from claimlab import Count, Counts, Run, plotting

from ..baselines import baseline
from ..codebook import RECAP, Designer, code_of_vectors
from .problems import NEEDS, Models, Problem, count, paper, problems

_ALL = {"nu": 1.0}
ARMS: dict[str, dict] = {
    "decision start": {},
    "all three terms": _ALL,
    "no distortion": {**_ALL, "mu": 0.0, "start": "random"},
    "no closure": {**_ALL, "lam": 0.0},
    "no witness": {"nu": 0.0},
    "L2 encoder": {"encoder": "l2"},
    "no Lloyd, no swap": {"lloyd": False},
    "open loop": {"closed_loop": False},
    "nested": {"nested": True},
}
_TERMS = ("no distortion", "no closure", "no witness")


@dataclass(frozen=True)
class Ablation(Models):
    """One part changed at a time (section 6, E4); a value below the best constant action counts as that action's."""

    memory: Counts = (3, 4, 6)
    kmeans_starts: Count = 4  # as many as RECAP has restarts
    codebooks: Count = 150  # random codebooks of the J-versus-gap scatter
    codebook_size: Count = 5


@paper.experiment(
    smoke=Ablation(models=("tiger", "1d", "parr95"), memory=(4,), codebooks=20),
    laptop=Ablation(),
    paper=Ablation(memory=(3, 4, 6, 8, 12), codebooks=1_000, n_beliefs=5_000),
    seeds={"smoke": 2, "laptop": 5, "paper": 5},
    minutes={"laptop": 1.5},
    needs=NEEDS,
)
def ablation(config: Ablation, run: Run) -> None:
    """Decision-aware against k-means start, and each term of the objective left out."""
    rows, scatter = [], []
    for problem in run.progress(problems(config, run.seed), "models", count(config)):
        for K in config.memory:
            for arm, value in _values(problem, K, config).items():
                rows.append({"model": problem.name, "K": K, "arm": arm, "score": max(0.0, problem.score(value))})
        scatter.append(_scatter(problem, config, run.rng))
    scores = pd.DataFrame(rows)
    mean = scores.groupby("arm").score.mean()
    run.table("scores", scores)
    run.measure("start_advantage", mean["decision start"] - mean["k-means start"])
    run.measure("worst_removal_gain", max(mean[term] for term in _TERMS) - mean["all three terms"])
    codes = pd.concat(scatter)
    run.table("codebooks", codes)
    for column in ("objective", "inertia"):
        correlations = [_rank(group[column], group.gap) for _, group in codes.groupby("model")]
        known = [value for value in correlations if np.isfinite(value)]
        run.measure(f"{column}_rank_correlation", float(np.median(known)) if known else float("nan"))


def _rank(x: pd.Series, y: pd.Series) -> float:
    """Spearman's rank correlation; NaN where either does not vary (it says nothing then)."""
    return float("nan") if min(np.ptp(x), np.ptp(y)) < 1e-6 else float(spearmanr(x, y).statistic)


def _values(problem: Problem, K: int, config: Ablation) -> dict[str, float]:
    pomdp, vf, sample = problem.pomdp, problem.vf, problem.sample
    values = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for arm, options in ARMS.items():
            settings = {"nested": False, "seed": problem.seed, **options}
            values[arm] = RECAP(K, **settings).fit(pomdp, vf, sample).value_
    values["k-means start"] = max(
        baseline("kmeans+cl", pomdp, K, vf, sample, seed=1_000 * problem.seed + start).value(pomdp)
        for start in range(config.kmeans_starts)
    )
    return values


def _scatter(problem: Problem, config: Ablation, rng: np.random.Generator) -> pd.DataFrame:
    """J, k-means inertia and the exact open-loop gap of random codebooks."""
    pomdp, vf, (beliefs, weights) = problem.pomdp, problem.vf, problem.sample
    designer = Designer(pomdp, vf, problem.sample, RECAP(config.codebook_size))
    size = min(config.codebook_size, len(vf.alphas))
    rows = []
    for _ in range(config.codebooks):
        code = code_of_vectors(vf, rng.choice(len(vf.alphas), size, replace=False), problem.sample)
        distance = ((beliefs[:, None] - code.beliefs) ** 2).sum(axis=2).min(axis=1)
        rows.append(
            {
                "model": problem.name, "objective": designer.objective(code)["J"], "inertia": float(weights @ distance),
                "gap": problem.optimum - code.controller(pomdp).value(pomdp),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


@paper.figures(ablation)
def ablation_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    scores = tables["scores"].groupby(["seed", "arm"], as_index=False).score.mean()
    order = ["k-means start", *ARMS]
    mean = scores.groupby("arm").score.agg(["mean", "min", "max"]).loc[order]
    fig, ax = plotting.subplots(figsize=(6.4, 4.2))
    colours = [plotting.COLOURS[1] if arm == "k-means start" else plotting.COLOURS[0] for arm in order]
    ax.barh(order, mean["mean"], color=colours)
    ax.hlines(order, mean["min"], mean["max"], color="black", lw=1.5)
    ax.invert_yaxis()
    ax.set(xlabel="normalised score (black: range over seeds)")

    # Where every code ends in the same value there is nothing to rank.
    ranks = {model: _rank(rows.objective, rows.gap) for model, rows in tables["codebooks"].groupby("model", sort=False)}
    ranks = {model: rank for model, rank in ranks.items() if np.isfinite(rank)}
    if not ranks:
        return {"ablation": fig}
    columns = min(4, len(ranks))
    height = -(-len(ranks) // columns)
    scatter, axes = plotting.subplots(height, columns, figsize=(3.2 * columns, 2.4 * height), squeeze=False)
    for panel in axes.flat[len(ranks) :]:
        panel.set_axis_off()
    for panel, (model, rank) in zip(axes.flat, ranks.items(), strict=False):
        rows = tables["codebooks"].query("model == @model")
        panel.plot(rows.objective, rows.gap, ".", ms=3, alpha=0.5)
        panel.set_title(f"{model}: rank correlation {rank:.2f}", fontsize=9)
    for panel in axes[:, 0]:
        panel.set_ylabel("exact gap")
    for panel in axes[-1]:
        panel.set_xlabel("objective J")
    return {"ablation": fig, "objective_gap": scatter}
