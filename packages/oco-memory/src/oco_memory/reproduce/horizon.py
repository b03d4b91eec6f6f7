"""E2: a perfect decision exists (L* = 0). First-order methods stop paying; methods tuned to the horizon do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Count, Counts, Run, plotting
from oco_memory import (
    AbsMemoryLoss,
    Box,
    FirstOrderOGD,
    LazyExponentialWeights,
    Learner,
    QuadraticMemoryLoss,
    memory_ogd_eta,
    play,
    play_finite,
)
from oco_memory.instances import LossList
from oco_memory.losses import ResidualLoss
from oco_memory.sweep import STEP_GRID, step_sweep

from .paper import paper

FIRST_ORDER, TUNED = "first-order", "gradient descent, step tuned to T"
BEST_TUNED, ANYTIME, BEST_ANYTIME = "its best step in hindsight", "step c/sqrt(t), c = 1", "its best c in hindsight"


@dataclass(frozen=True)
class HorizonConfig:
    """Loss against the number of rounds where some decision is perfect."""

    horizons: Counts = (1000, 4000, 16_000, 64_000)  # rounds
    memory: Count = 5
    cells: Count = 201  # grid points of [-1, 1] for Algorithm 1
    runs: Count = 100


@paper.experiment(
    smoke=HorizonConfig(horizons=(250, 1000, 2000), runs=20),
    laptop=HorizonConfig(),
    paper=HorizonConfig(horizons=(1000, 10_000, 100_000, 1_000_000, 10_000_000)),
    seeds={"smoke": 2, "laptop": 3, "paper": 3},
    minutes={"laptop": 1.0, "paper": 300},
)
def horizon(config: HorizonConfig, run: Run) -> None:
    """Loss against T at L* = 0, smooth, late and non-smooth, beside horizon-tuned, anytime and best steps."""
    box = Box(np.array([-1.0]), np.array([1.0]))
    rows = []
    for rounds in run.progress(config.horizons, "horizons"):
        smooth = _constant_game(QuadraticMemoryLoss, 0.5, config.memory, rounds)
        learner = FirstOrderOGD(box, config.memory, x0=np.array([-1.0]))
        rows += _row("smooth", rounds, {FIRST_ORDER: play(learner, smooth).total})
        rows += _row("smooth", rounds, _descents(smooth, box, 1.5))
        late: LossList = [None] * (rounds // 2) + smooth[rounds // 2 :]
        learner = FirstOrderOGD(box, config.memory, x0=np.array([-1.0]))
        rows += _row("smooth, late", rounds, {FIRST_ORDER: play(learner, late).total})
        rows += _row("smooth, late", rounds, _descents(late, box, 1.5))
        absolute = _constant_game(AbsMemoryLoss, 0.35, config.memory, rounds, scale=1 / 1.35)
        lazy = play_finite(absolute, box.grid(config.cells), runs=config.runs, random_state=run.rng)
        rows += _row("non-smooth", rounds, {FIRST_ORDER: float(lazy.totals.mean())})
        rows += _row("non-smooth", rounds, _descents(absolute, box, 1 / 1.35))
    frame = pd.DataFrame(rows)
    run.table("loss", frame)
    loss = frame.set_index(["instance", "method", "horizon"]).loss
    first, last = config.horizons[0], config.horizons[-1]
    for name, method in (("first_order", FIRST_ORDER), ("anytime", ANYTIME)):
        growth = loss["smooth, late", method, last] / loss["smooth, late", method, first]
        run.measure(f"growth_{name}_late", growth)
    for key, instance in (("smooth", "smooth"), ("nonsmooth", "non-smooth")):
        for name, method in (("first_order", FIRST_ORDER), ("tuned", TUNED), ("anytime", ANYTIME)):
            run.measure(f"growth_{name}_{key}", loss[instance, method, last] / loss[instance, method, first])
        for name, method in (("best_step", BEST_TUNED), ("best_anytime", BEST_ANYTIME)):
            run.measure(
                f"{name}_over_first_order_{key}",
                loss[instance, method, last] / loss[instance, FIRST_ORDER, last],
            )
    run.measure(
        "smooth_growth_minus_one", abs(loss["smooth", FIRST_ORDER, last] / loss["smooth", FIRST_ORDER, first] - 1)
    )
    run.measure("padding_invariant", _padding_invariant(box, config.memory, run.rng))


def _constant_game(kind: type[ResidualLoss], target: float, memory: int, rounds: int, scale: float = 1.0) -> LossList:
    """|mean(z) - target| or its square, the same every round; scaled to at most 1 on [-1, 1] where asked."""
    return [kind(np.full((1, memory, 1), 1.0 / memory), np.array([target]), scale)] * rounds


def _descents(losses: LossList, box: Box, lipschitz: float) -> dict[str, float]:
    rounds = len(losses)
    first = next(loss for loss in losses if loss is not None)
    grid = np.array(STEP_GRID)
    tuned = memory_ogd_eta(box.diameter, lipschitz, first.memory, rounds) * grid
    anytime = grid[None] / np.sqrt(np.arange(1, rounds + 1))[:, None]
    steps = np.concatenate([np.broadcast_to(tuned, (rounds, len(grid))), anytime], axis=1)
    totals = step_sweep(losses, box, steps, np.array([-1.0]))
    constant, decreasing = totals[: len(grid)], totals[len(grid) :]
    one = STEP_GRID.index(1.0)
    return {
        TUNED: constant[one],
        BEST_TUNED: constant.min(),
        ANYTIME: decreasing[one],
        BEST_ANYTIME: decreasing.min(),
    }


def _row(instance: str, rounds: int, losses: dict[str, float]) -> list[dict]:
    return [
        {"instance": instance, "horizon": rounds, "method": method, "loss": float(loss)}
        for method, loss in losses.items()
    ]


def _padding_invariant(box: Box, memory: int, rng: np.random.Generator) -> bool:
    """Rounds without a loss, inserted anywhere, leave every other decision of both methods bit for bit as it was."""
    targets = rng.uniform(-0.5, 0.5, size=60)
    first = memory - 1
    for kind in (QuadraticMemoryLoss, AbsMemoryLoss):
        game: LossList = [None] * first
        game += [kind(np.full((1, memory, 1), 1.0 / memory), np.array([target]), 0.4) for target in targets]
        where = first + np.sort(rng.integers(0, len(targets), size=40))
        padded, kept = list(game), np.ones(len(game) + len(where), dtype=bool)
        zero = kind(np.full((1, memory, 1), 1.0 / memory), np.array([0.3]), 0.0)
        for shift, position in enumerate(where):
            padded.insert(position + shift, zero if shift % 2 else None)
            kept[position + shift] = False
        seed = int(rng.integers(2**31))
        makers: list[Callable[[], Learner]] = [lambda seed=seed: LazyExponentialWeights(box, memory, random_state=seed)]
        if kind is QuadraticMemoryLoss:
            makers.append(lambda: FirstOrderOGD(box, memory))
        for make in makers:
            if not np.array_equal(play(make(), game).decisions, play(make(), padded).decisions[kept]):
                return False
    return True


@paper.figures(horizon)
def horizon_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["loss"]
    names = {
        "smooth": "smooth: Algorithm 2",
        "smooth, late": "no loss in the first half",
        "non-smooth": "non-smooth: Algorithm 1",
    }
    fig, axes = plotting.subplots(1, 3, sharey=True, figsize=(12.0, 4.0))
    for ax, (instance, title) in zip(axes, names.items(), strict=True):
        plotting.mean_curve(ax, frame[frame.instance == instance], x="horizon", y="loss", by="method")
        ax.set(xscale="log", yscale="log", xlabel="rounds T", title=title)
    axes[0].set_ylabel("total loss (best decision: 0)")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    return {"loss_vs_horizon": fig}
