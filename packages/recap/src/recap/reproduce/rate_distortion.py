"""E5: distortion-rate functions of belief laws, between Fano's form and the best codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting

from ..information import k_median
from ..information import rate_distortion as distortion_rate
from ..reach import greedy_law
from ..witness import best_clique
from .problems import Models, Problem, count, paper, problems

_SLACK = 1e-9


@dataclass(frozen=True)
class RateDistortion(Models):
    """D_t(R) of the belief at one time under the greedy policy (section 6, E5)."""

    models: tuple[str, ...] = ("tiger", "cheese")
    times: Counts = (4, 3)  # one for each model
    memory: Counts = (1, 2, 3, 4, 5, 6, 8)
    rates: Count = 17  # points of the curve


@paper.experiment(
    smoke=RateDistortion(rates=6, memory=(1, 2, 3, 4)),
    laptop=RateDistortion(models=("tiger", "cheese", "4x3", "light-maze"), times=(4, 3, 3, 3)),
    paper=RateDistortion(models=("tiger", "cheese", "4x3", "light-maze"), times=(7, 5, 4, 5), rates=100),
    minutes={"laptop": 0.3},
)
def rate_distortion(config: RateDistortion, run: Run) -> None:
    """Fano form <= D(log K) <= best K-subset, and the counting form <= best K-subset."""
    curves, points, violations = [], [], 0
    for problem, t in run.progress(
        zip(problems(config, run.seed), config.times, strict=False), "models", count(config)
    ):
        found = _points(problem, t, config)
        points.append(found)
        violations += int((found.fano > found.distortion + _SLACK).sum())
        violations += int((found.distortion > found.k_median + _SLACK).sum())
        violations += int((np.maximum(found.counting, found.fano_code) > found.k_median + _SLACK).sum())
        law, matrix = _source(problem, t)
        for rate in np.linspace(0, np.log(max(config.memory)), config.rates):
            curves.append(
                {"model": f"{problem.name}, t={t}", "rate": rate, "distortion": distortion_rate(law, matrix, rate)}
            )
    run.measure("order_violations", violations)
    run.table("curve", pd.DataFrame(curves))
    run.table("points", pd.concat(points))


def _source(problem: Problem, t: int) -> tuple[np.ndarray, np.ndarray]:
    beliefs, law = greedy_law(problem.pomdp, problem.vf, t)
    return law, problem.vf.distortion(beliefs)


def _points(problem: Problem, t: int, config: RateDistortion) -> pd.DataFrame:
    law, matrix = _source(problem, t)
    beliefs, _ = greedy_law(problem.pomdp, problem.vf, t)
    order = np.argsort(-law, kind="stable")
    rows = []
    for K in config.memory:
        witness = best_clique(problem.vf, beliefs[order], law[order], K, t, 1.0)
        rows.append(
            {
                "model": f"{problem.name}, t={t}", "K": K, "rate": np.log(K),
                "fano": 0.0 if witness is None else witness.distortion_bound(np.log(K)),
                "fano_code": 0.0 if witness is None else witness.bound(K, "fano"),
                "counting": 0.0 if witness is None else witness.bound(K),
                "distortion": distortion_rate(law, matrix, np.log(K)), "k_median": k_median(law, matrix, K)[0],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


@paper.figures(rate_distortion)
def rate_distortion_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    curve, points = tables["curve"], tables["points"]
    curve, points = curve[curve.seed == curve.seed.min()], points[points.seed == points.seed.min()]
    models = list(dict.fromkeys(curve.model))
    fig, axes = plotting.subplots(1, len(models), figsize=(3.6 * len(models), 3.6), squeeze=False)
    for ax, model in zip(axes[0], models, strict=True):
        line, dots = curve[curve.model == model], points[points.model == model]
        ax.plot(line.rate, line.distortion, color=plotting.COLOURS[0], label="D(R)")
        ax.plot(dots.rate, dots.k_median, "s", color=plotting.COLOURS[1], label="best code of K words")
        ax.plot(dots.rate, dots.counting, "^", color=plotting.COLOURS[2], label="counting form of a witness")
        ax.plot(dots.rate, dots.fano_code, "v", color=plotting.COLOURS[3], label="Fano form")
        ax.set(title=model, xlabel="rate R = log K (nats)")
    axes[0, 0].set_ylabel("distortion (value)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4)
    return {"rate_distortion": fig}
