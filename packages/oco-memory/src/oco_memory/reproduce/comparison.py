"""E5, second part: the first-order controller beside gradient perturbation controllers with one tuned constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Counts, Run, plotting
from oco_memory import GPC, AnytimeGPC
from oco_memory.learner import Learner

from .control import RADIUS, Game, first_order_learner, rotation_game
from .paper import paper

CONSTANTS = (0.1, 0.3, 1.0, 3.0, 10.0)  # c of the baselines' steps
FIRST_ORDER, CONSTANT, ANYTIME = "FirstOrderGPC", "GPC, step c/sqrt(T)", "GPC, step c/sqrt(t)"


@dataclass(frozen=True)
class ComparisonConfig:
    """The suite {plain, late} x {J* = 0, 10 % shocks} x horizons."""

    horizons: Counts = (1000, 16_000)  # rounds; the first and the last are compared
    amplitude: float = 1.0  # length of the shocks where there are any


@paper.experiment(
    smoke=ComparisonConfig(horizons=(100, 400)),
    laptop=ComparisonConfig(),
    paper=ComparisonConfig(horizons=(1000, 10_000, 100_000, 1_000_000)),
    seeds={"smoke": 2, "laptop": 3, "paper": 20},
    minutes={"laptop": 2.5, "paper": 600},
)
def control_comparison(config: ComparisonConfig, run: Run) -> None:
    """Regret of FirstOrderGPC and of GPC with the constant that is best for the whole suite, or for each run."""
    rows = []
    cases = [(h, late, amp) for h in config.horizons for late in (False, True) for amp in (0.0, config.amplitude)]
    for horizon, late, amplitude in run.progress(cases, "games"):
        game = rotation_game(horizon, amplitude, run.rng, late=late)
        where = {"horizon": horizon, "instance": "late" if late else "plain", "shocks": amplitude > 0}
        for method, c, learner in _learners(game, horizon):
            rows.append({**where, "method": method, "c": c, "regret": game.regret(learner), "j_star": game.j_star})
    frame = pd.DataFrame(rows)
    run.table("suite", frame)
    first, last = config.horizons[0], config.horizons[-1]
    ours = _regrets(frame, FIRST_ORDER, 0.0)
    for instance in ("plain", "late"):
        run.measure(f"growth_first_order_{instance}", abs(ours[instance, last] / ours[instance, first] - 1))
    totals = frame.groupby(["method", "c"]).regret.sum()
    run.measure("suite_total_first_order", totals[FIRST_ORDER, 0.0])
    for key, method in (("gpc", CONSTANT), ("anytime", ANYTIME)):
        best = float(totals[method].idxmin())
        run.measure(f"{key}_suite_constant", best)
        run.measure(f"{key}_suite_total", totals[method, best])
        theirs = _regrets(frame, method, best)
        for instance in ("plain", "late"):
            run.measure(f"{key}_over_first_order_{instance}", theirs[instance, last] / ours[instance, last])
            run.measure(f"{key}_growth_{instance}", theirs[instance, last] / theirs[instance, first])
            rivals = frame[(frame.method == method) & ~frame.shocks & (frame.instance == instance)]
            oracle = rivals[rivals.horizon == last].regret.min()
            run.measure(f"{key}_oracle_over_first_order_{instance}", oracle / ours[instance, last])


def _learners(game: Game, horizon: int) -> list[tuple[str, float, Learner]]:
    maps = game.maps
    shape = (maps.system, maps.K, maps.H, maps.S, RADIUS)
    learners: list[tuple[str, float, Learner]] = [(FIRST_ORDER, 0.0, first_order_learner(game))]
    for c in CONSTANTS:
        learners.append((CONSTANT, c, GPC(*shape, eta=c / np.sqrt(horizon)).learner))
        learners.append((ANYTIME, c, AnytimeGPC(*shape, c=c).learner))
    return learners


def _regrets(frame: pd.DataFrame, method: str, c: float) -> dict:
    """Regret at J* = 0 by (instance, horizon)."""
    rows = frame[(frame.method == method) & (frame.c == c) & ~frame.shocks]
    return rows.set_index(["instance", "horizon"]).regret.to_dict()


@paper.figures(control_comparison)
def comparison_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["suite"]
    totals = frame.groupby(["method", "c"]).regret.sum()
    chosen = [(FIRST_ORDER, 0.0), *[(method, float(totals[method].idxmin())) for method in (CONSTANT, ANYTIME)]]
    fig, axes = plotting.subplots(1, 2, sharey=True, figsize=(9.5, 4.0))
    for ax, instance in zip(axes, ("plain", "late"), strict=True):
        rows = frame[(frame.instance == instance) & ~frame.shocks]
        parts = [
            rows[(rows.method == m) & (rows.c == c)].assign(name=m if c == 0 else f"{m}, c = {c:g}") for m, c in chosen
        ]
        for method in (CONSTANT, ANYTIME):
            oracle = rows[rows.method == method].groupby(["seed", "horizon"], as_index=False).regret.min()
            parts.append(oracle.assign(name=f"{method}, best c a run"))
        plotting.mean_curve(ax, pd.concat(parts), x="horizon", y="regret", by="name")
        ax.set(xscale="log", yscale="log", xlabel="rounds T", title=f"J* = 0, {instance}")
    axes[0].set_ylabel("regret")
    axes[0].legend(fontsize="small")
    return {"control_comparison": fig}
