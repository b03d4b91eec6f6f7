"""E1: Algorithm 1 on guessing games and absolute losses: Theorem A, growth with L*, number of redraws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Count, Counts, Run, plotting, stats
from oco_memory import Box, MemoryOGD, lazy_ew_bound, lazy_ew_doubling_bound, memory_ogd_eta, play, play_finite
from oco_memory.instances import LossList, absolute_losses, sign_losses

from .paper import paper

FLIP = 0.1


@dataclass(frozen=True)
class NonsmoothConfig:
    """Bounds and rates of the lazy method on non-smooth losses."""

    horizon: Count = 8000  # rounds
    memory: Count = 5
    cells: Count = 65  # grid points of [-1, 1]
    informative: Counts = (100, 200, 400, 800, 1600, 3200, 6400)  # rounds with a loss
    sequences: Count = 6  # a setting
    runs: Count = 20  # a sequence


@paper.experiment(
    smoke=NonsmoothConfig(horizon=600, informative=(100, 200, 400), sequences=1, runs=10),
    laptop=NonsmoothConfig(),
    paper=NonsmoothConfig(horizon=1_000_000, informative=tuple(100 * 2**k for k in range(13)), sequences=10, runs=50),
    seeds={"smoke": 2, "laptop": 5, "paper": 10},
    minutes={"laptop": 0.5, "paper": 60},
)
def nonsmooth(config: NonsmoothConfig, run: Run) -> None:
    """Algorithm 1 on biased and fair signs and absolute losses: bound, slope in L*, redraws."""
    box = Box(np.array([-1.0]), np.array([1.0]))
    points = box.grid(config.cells)
    ogd_eta = memory_ogd_eta(box.diameter, 0.5, config.memory, config.horizon)
    rows = []
    for kind, n, losses in run.progress(list(_instances(config, run.rng)), "instances"):
        known = play_finite(losses, points, eta="known", runs=config.runs, random_state=run.rng)
        doubling = play_finite(losses, points, eta="doubling", runs=config.runs, random_state=run.rng)
        ogd = play(MemoryOGD(box, config.memory, ogd_eta), losses)
        clock = known.eta_mean * known.unary_totals - known.redraws
        rows.append(
            {
                "instance": kind,
                "informative": n,
                "l_star": known.l_star,
                "regret": known.totals.mean() - known.l_star,
                "regret_doubling": doubling.totals.mean() - known.l_star,
                "regret_ogd": ogd.total - known.l_star,
                "regret_bound": lazy_ew_bound(known.eta_mean, known.l_star, len(points), config.memory) - known.l_star,
                "over_bound_se": _excess(
                    known.totals, lazy_ew_bound(known.eta_mean, known.l_star, len(points), config.memory)
                ),
                "doubling_over_bound_se": _excess(
                    doubling.totals, lazy_ew_doubling_bound(known.l_star, len(points), config.memory)
                ),
                "total_over_bound": known.totals.mean()
                / lazy_ew_bound(known.eta_mean, known.l_star, len(points), config.memory),
                "redraws": known.redraws.mean(),
                "redraws_allowed": (known.eta_mean * known.unary_totals).mean(),
                "redraws_over_se": _excess(-clock, 0.0),
            }
        )
    frame = pd.DataFrame(rows)
    run.table("regret", frame)
    biased = frame[frame.instance == "biased signs"].groupby("informative").mean(numeric_only=True)
    run.measure("slope", stats.loglog_slope(biased.l_star, biased.regret).value)
    run.measure("slope_doubling", stats.loglog_slope(biased.l_star, biased.regret_doubling).value)
    run.measure("bound_holds", bool((frame.over_bound_se <= 3).all()))
    run.measure("doubling_bound_holds", bool((frame.doubling_over_bound_se <= 3).all()))
    run.measure("largest_total_over_bound", frame.total_over_bound.max())
    run.measure("redraws_within_bound", bool((frame.redraws_over_se <= 3).all()))
    run.measure("redraws_share_of_rounds", (biased.redraws / biased.index.to_numpy()).max())
    ogd_over_lazy = biased.regret_ogd / biased.regret
    run.measure("ogd_over_lazy_smallest_lstar", ogd_over_lazy.iloc[0])
    run.measure("ogd_over_lazy_largest_lstar", ogd_over_lazy.iloc[-1])


def _instances(config: NonsmoothConfig, rng: np.random.Generator) -> list[tuple[str, int, LossList]]:
    games = []
    for n in config.informative:
        for _ in range(config.sequences):
            games.append(("biased signs", n, sign_losses(config.horizon, n, FLIP, config.memory, rng)))
    longest = config.informative[-1]
    for _ in range(config.sequences):
        games.append(("fair signs", longest, sign_losses(config.horizon, longest, 0.5, config.memory, rng)))
        for noise in (0.0, 0.2, 1.0):
            target = float(rng.uniform(-0.5, 0.5))
            length = min(config.horizon, 2000)
            games.append(("absolute", length, absolute_losses(length, target, noise, config.memory, rng)))
    return games


def _excess(values: np.ndarray, limit: float) -> float:
    """By how many standard errors the mean is above the limit."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    excess = float(values.mean() - limit)
    return excess / error if error > 0 else (0.0 if excess <= 0 else np.inf)


@paper.figures(nonsmooth)
def nonsmooth_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["regret"]
    biased = frame[frame.instance == "biased signs"]
    per_seed = biased.groupby(["seed", "informative"], as_index=False).mean(numeric_only=True)
    centre = per_seed.groupby("informative").l_star.transform("mean")
    fig, ax = plotting.subplots()
    columns = {
        "regret": "Algorithm 1, L* known",
        "regret_doubling": "Algorithm 1, doubling",
        "regret_ogd": "gradient descent tuned to T",
        "regret_bound": "Theorem A",
    }
    long = pd.concat(
        [per_seed.assign(l_star=centre, method=name, y=per_seed[column]) for column, name in columns.items()]
    )
    plotting.mean_curve(ax, long, x="l_star", y="y", by="method")
    x = np.sort(centre.unique())
    anchor = per_seed[per_seed.informative == per_seed.informative.median()].regret.mean()
    ax.plot(x, anchor * np.sqrt(x / np.median(x)), "k:", label="slope 1/2")
    ax.set(xscale="log", yscale="log", xlabel="loss L* of the best fixed decision", ylabel="policy regret")
    ax.set_title(f"Biased signs, {int(FLIP * 100)} % flipped")
    ax.legend()
    return {"regret_vs_lstar": fig}
