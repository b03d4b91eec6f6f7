"""E4: Algorithm 2 on smooth losses: its bound, its growth with L*, its regret and its speed beside Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.ticker import NullFormatter

from claimlab import Count, Counts, Run, costs, plotting, stats
from oco_memory import (
    Ball,
    Box,
    FirstOrderOGD,
    LazyExponentialWeights,
    QuadraticMemoryLoss,
    best_fixed,
    play,
    play_finite,
    self_confident_bound,
    smooth_ogd_bound,
    tuned_eta_smooth,
    unary_table,
)
from oco_memory.instances import quadratic_losses, random_smooth_losses, target_losses

from .paper import paper

STEP_SHARES = (0.05, 0.3, 0.9)  # of 1/(m beta), the largest step that Theorem B allows
QUADRATIC_RANGE = 1.62  # of the rotated quadratics on the unit ball: (1 + 1/2 + 0.3)^2 / 2


@dataclass(frozen=True)
class SmoothBoundConfig:
    """Theorem B on random smooth losses; regret against L*; sweep of memory and smoothness."""

    instances: Count = 200  # random games a seed
    rounds: Count = 300  # a game
    dims: Counts = (1, 2, 3)
    horizons: Counts = (1000, 4000, 16_000, 64_000)  # regret against L*, which grows with T
    sweep_memories: Counts = (1, 2, 5, 10, 20)
    sweep_scales: tuple[float, ...] = (0.25, 1.0, 4.0)  # factors of the losses, and so of beta


@paper.experiment(
    smoke=SmoothBoundConfig(instances=15, rounds=40, horizons=(250, 500, 1000), sweep_memories=(1, 5)),
    laptop=SmoothBoundConfig(),
    paper=SmoothBoundConfig(
        instances=2000,
        rounds=2000,
        dims=(1, 3, 10, 100, 1000),
        horizons=(1000, 10_000, 100_000, 1_000_000),
        sweep_memories=(1, 2, 5, 10, 20, 50),
    ),
    seeds={"smoke": 2, "laptop": 3, "paper": 10},
    minutes={"laptop": 2.0, "paper": 600},
)
def smooth_bound(config: SmoothBoundConfig, run: Run) -> None:
    """Theorem B, and its self-confident form, on random quadratic, Huber and softplus losses; regret against L*."""
    rows = []
    for _ in run.progress(range(config.instances), "instances"):
        rows += _bound_rows(config, run.rng)
    frame = pd.DataFrame(rows)
    run.table("bounds", frame)
    constant, adaptive = frame[frame.step != "self-confident"], frame[frame.step == "self-confident"]
    run.measure("bound_holds", bool((constant.total <= constant.bound).all()))
    run.measure("self_confident_bound_holds", bool((adaptive.total <= adaptive.bound).all()))
    run.measure("largest_total_over_bound", (constant.total / constant.bound).max())
    growth = pd.DataFrame([_regret_row(rounds, run.rng) for rounds in run.progress(config.horizons, "horizons")])
    run.table("growth", growth)
    run.measure("slope", stats.loglog_slope(growth.l_star, growth.regret).value)
    run.table("sweep", pd.DataFrame(_sweep_rows(config, run.rng)))


def _bound_rows(config: SmoothBoundConfig, rng: np.random.Generator) -> list[dict]:
    dim, memory = int(rng.choice(config.dims)), int(rng.integers(1, 7))
    losses = random_smooth_losses(config.rounds, dim, memory, rng)
    ball = Ball(np.zeros(dim), 1.0)
    kept = [loss for loss in losses[memory - 1 :] if loss is not None]
    betas = [loss.beta for loss in kept]
    beta = max(b for b in betas if b is not None)
    is_quadratic = isinstance(kept[0], QuadraticMemoryLoss)
    l_star = best_fixed(losses, ball, "quadratic" if is_quadratic else "scipy")[1]
    start = ball.project(rng.standard_normal(dim))
    steps: list[tuple[str, float | str]] = [(f"{share:g}/(m beta)", share / (memory * beta)) for share in STEP_SHARES]
    steps += [("tuned", tuned_eta_smooth(l_star, beta, memory, ball.diameter)), ("self-confident", "self-confident")]
    rows = []
    for name, eta in steps:
        total = play(FirstOrderOGD(ball, memory, beta, eta, start), losses).total
        if isinstance(eta, str):
            bound = self_confident_bound(l_star, beta, memory, ball.diameter)
        else:
            bound = smooth_ogd_bound(eta, l_star, beta, memory, ball.diameter)
        kind = type(kept[0]).__name__
        rows.append(
            {"loss": kind, "dim": dim, "memory": memory, "step": name, "l_star": l_star, "total": total, "bound": bound}
        )
    return rows


def _regret_row(rounds: int, rng: np.random.Generator) -> dict:
    """Targets 0 or 1 at random in [-1, 1]: L* = T/8, so regret against L* needs T to grow."""
    box = Box(np.array([-1.0]), np.array([1.0]))
    losses = target_losses(rng.integers(0, 2, size=rounds).astype(float), np.full(5, 0.2), QuadraticMemoryLoss)
    result = play(FirstOrderOGD(box, 5, x0=np.array([-1.0])), losses)
    l_star = best_fixed(losses, box)[1]
    return {"horizon": rounds, "l_star": l_star, "regret": result.total - l_star}


def _sweep_rows(config: SmoothBoundConfig, rng: np.random.Generator) -> list[dict]:
    """Regret over memory and smoothness, noise amplitude 0.3, two dimensions."""
    rows = []
    for memory in config.sweep_memories:
        for scale in config.sweep_scales:
            base = quadratic_losses(max(10 * memory, config.rounds), 2, memory, 0.3, rng)
            losses = [
                QuadraticMemoryLoss(loss.C, loss.a, scale) for loss in base if isinstance(loss, QuadraticMemoryLoss)
            ]
            ball = Ball(np.zeros(2), 1.0)
            l_star = best_fixed(losses, ball)[1]
            for eta in ("self-confident", "adagrad-norm"):
                total = play(FirstOrderOGD(ball, memory, eta=eta), losses).total
                rows.append({"memory": memory, "scale": scale, "eta": eta, "l_star": l_star, "regret": total - l_star})
    return rows


@dataclass(frozen=True)
class SmoothComparisonConfig:
    """Algorithm 2 beside Algorithm 1 on rotated quadratics."""

    rounds: Count = 2000
    dims: Counts = (1, 2, 3)
    memories: Counts = (2, 5)
    instances: Count = 6  # a setting
    cells: Counts = (65, 65, 21)  # grid points an axis in 1, 2, 3 dimensions
    runs: Count = 10
    timing_cells: Counts = (17, 33, 65, 129)  # an axis in two dimensions
    timing_rounds: Count = 200


@paper.experiment(
    smoke=SmoothComparisonConfig(
        rounds=200, instances=2, cells=(33, 17, 9), runs=5, timing_cells=(17, 65), timing_rounds=30
    ),
    laptop=SmoothComparisonConfig(),
    paper=SmoothComparisonConfig(rounds=50_000, memories=(2, 5, 10, 20), instances=30, cells=(257, 129, 41), runs=50),
    seeds={"smoke": 2, "laptop": 5, "paper": 10},
    minutes={"laptop": 1.0, "paper": 600},
)
def smooth_comparison(config: SmoothComparisonConfig, run: Run) -> None:
    """Regret of both algorithms with noise (L* > 0) and without, in 1, 2 and 3 dimensions; time a round."""
    rows = []
    for dim in run.progress(config.dims, "dimensions"):
        for memory in config.memories:
            for amplitude in (0.3, 0.0):
                for _ in range(config.instances):
                    rows.append(_compare(config, dim, memory, amplitude, run.rng))
    frame = pd.DataFrame(rows)
    run.table("comparison", frame)
    noisy, perfect = frame[frame.amplitude > 0], frame[frame.amplitude == 0]
    lower = noisy.regret_gradient < noisy.regret_lazy
    run.measure("share_lower", float(lower.mean()))
    mean_ratio = noisy.groupby("dim")[["regret_lazy", "regret_gradient"]].mean()
    ratio = mean_ratio.regret_lazy / mean_ratio.regret_gradient
    run.measure("ratio_growth_with_dim", ratio.loc[config.dims[-1]] / ratio.loc[config.dims[0]])
    run.measure("share_lower_without_noise", float((perfect.regret_gradient < perfect.regret_lazy).mean()))
    run.measure("largest_grid_gap", frame.grid_gap.max())
    timing = _timings(config, run.rng)
    run.table("timing", timing)
    at = timing.set_index("cells").time_ratio
    run.measure("time_ratio_65", at.loc[65], timing=True)
    run.measure("time_ratio_largest_grid", at.iloc[-1], timing=True)


def _compare(config: SmoothComparisonConfig, dim: int, memory: int, amplitude: float, rng: np.random.Generator) -> dict:
    losses = quadratic_losses(config.rounds, dim, memory, amplitude, rng)
    ball = Ball(np.zeros(dim), 1.0)
    l_star = best_fixed(losses, ball)[1]
    start = np.append(np.zeros(dim - 1), 1.0)
    gradient = play(FirstOrderOGD(ball, memory, x0=start), losses)
    points = ball.grid(config.cells[dim - 1])
    lazy = play_finite(
        losses,
        points,
        eta="known",
        runs=config.runs,
        loss_range=QUADRATIC_RANGE,
        random_state=rng,
        table=unary_table(losses, points),
    )
    return {
        "dim": dim,
        "memory": memory,
        "amplitude": amplitude,
        "l_star": l_star,
        "regret_gradient": gradient.total - l_star,
        "regret_lazy": lazy.totals.mean() - l_star,
        "grid_gap": lazy.l_star - l_star,
    }


def _timings(config: SmoothComparisonConfig, rng: np.random.Generator) -> pd.DataFrame:
    """Median of time(Algorithm 1) / time(Algorithm 2) a round over grids in two dimensions."""
    losses = quadratic_losses(config.timing_rounds, 2, 5, 0.3, rng)
    ball = Box(-np.ones(2), np.ones(2))
    rows = []
    for cells in config.timing_cells:
        lazy = LazyExponentialWeights(ball, 5, cells=cells, loss_range=10.0, random_state=0)
        gradient = FirstOrderOGD(ball, 5, 1.0)

        def drive(learner: LazyExponentialWeights | FirstOrderOGD) -> None:
            for loss in losses:
                learner.play()
                learner.update(loss)

        ratio = costs.paired_ratio(lambda lazy=lazy: drive(lazy), lambda gradient=gradient: drive(gradient), repeats=5)
        rows.append({"cells": cells, "points": cells**2, "time_ratio": ratio.value})
    return pd.DataFrame(rows)


@paper.figures(smooth_bound)
def smooth_figures(tables: dict[str, pd.DataFrame]) -> dict:
    growth = tables["growth"].copy()
    growth["l_star"] = growth.groupby("horizon").l_star.transform("mean")
    fig, (left, right) = plotting.subplots(1, 2, figsize=(9.5, 4.0))
    plotting.mean_curve(left, growth, x="l_star", y="regret")
    l_star = growth.l_star.unique()
    middle = growth[growth.l_star == np.sort(l_star)[len(l_star) // 2]].regret.mean()
    left.plot(l_star, middle * np.sqrt(l_star / np.sort(l_star)[len(l_star) // 2]), "k:", label="slope 1/2")
    left.set(
        xscale="log",
        yscale="log",
        xlabel="loss L* of the best fixed decision",
        ylabel="policy regret",
        title="Algorithm 2, random targets",
    )
    left.xaxis.set_minor_formatter(NullFormatter())
    left.legend()
    sweep = tables["sweep"]
    adaptive = sweep[sweep.eta == "self-confident"].assign(
        scale=lambda rows: rows.scale.map("losses times {:g}".format)
    )
    plotting.mean_curve(right, adaptive, x="memory", y="regret", by="scale")
    right.set(xscale="log", yscale="log", xlabel="memory m", ylabel="policy regret", title="Memory and smoothness")
    right.legend()
    return {"smooth_regret": fig}


@paper.figures(smooth_comparison)
def comparison_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame, timing = tables["comparison"], tables["timing"]
    fig, (left, right) = plotting.subplots(1, 2, figsize=(9.5, 4.0))
    noisy = frame[frame.amplitude > 0]
    for colour, (dim, rows) in zip(plotting.COLOURS, noisy.groupby("dim"), strict=False):
        left.scatter(rows.regret_gradient, rows.regret_lazy, color=colour, s=16, label=f"d = {dim}")
    ends = np.array([noisy.regret_gradient.min(), noisy.regret_lazy.max()])
    left.plot(ends, ends, "k:", label="equal")
    left.set(
        xscale="log",
        yscale="log",
        xlabel="regret of Algorithm 2 (gradient)",
        ylabel="regret of Algorithm 1 (grid)",
        title="Rotated quadratics, L* > 0",
    )
    left.xaxis.set_minor_formatter(NullFormatter())
    left.legend()
    plotting.mean_curve(right, timing, x="points", y="time_ratio")
    right.axhline(1.0, color="k", linestyle=":", linewidth=1)
    right.set(
        xscale="log",
        yscale="log",
        xlabel="grid points N (d = 2)",
        ylabel="time a round, Algorithm 1 / Algorithm 2",
        title="Speed",
    )
    return {"smooth_comparison": fig}
