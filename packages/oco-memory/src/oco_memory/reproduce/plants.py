"""E5, third part: other plants, real and synthetic disturbances, a cost that is not smooth, and fixed controllers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from claimlab import Count, Run, plotting
from oco_memory import (
    Box,
    FirstOrderGPC,
    L1Cost,
    LinearFeedback,
    LinearSystem,
    QuadraticCost,
    SurrogateMap,
    play_finite,
    rollout,
    simulate,
    truncation_length,
)
from oco_memory.plants import double_integrator, pitch_plant, rotating_disturbance, rotation, rotation_plant, shocks
from oco_memory.plants import sinusoids as sum_of_sinusoids
from oco_memory.series import load_series, read_disturbances

from .control import FREQUENCY, POLICY_LENGTH, RADIUS, SHOCK_SHARE, make_game
from .paper import paper

TRUNCATION = 1e-2  # ||(A - B K)^S||
GAIN_RUNS = 200  # runs of the sampled controller


@dataclass(frozen=True)
class PlantsConfig:
    """Three plants under five disturbances; the scalar-gain controller on the l1 norm."""

    horizons: tuple[Count, Count] = (1000, 4000)  # rounds: regret / (sqrt(J*) + 1) should not grow between them
    disturbance_file: Path | None = None  # a user's own disturbances: rows of numbers (text or .npy), two columns


@paper.experiment(
    smoke=PlantsConfig(horizons=(150, 450)),
    laptop=PlantsConfig(),
    paper=PlantsConfig(horizons=(10_000, 1_000_000)),
    seeds={"smoke": 1, "laptop": 3, "paper": 10},
    minutes={"laptop": 1.0, "paper": 200},
)
def control_plants(config: PlantsConfig, run: Run) -> None:
    """FirstOrderGPC, and Algorithm 1 on one gain, beside a fixed gain and LQR on other plants and disturbances."""
    rows = []
    for plant, system, K in run.progress(_plants(), "plants"):
        for disturbance, make in _disturbances(config).items():
            w = make(config.horizons[1], system.dx, run.rng)
            if w is None:
                continue
            for horizon in config.horizons:
                row = _quadratic_row(system, K, w[:horizon])
                rows.append({"horizon": horizon, "plant": plant, "disturbance": disturbance, **row})
    for horizon in config.horizons:
        row = _l1_row(horizon, run.rng)
        rows.append({"horizon": horizon, "plant": "rotation, l1 cost", "disturbance": "rotating", **row})
    frame = pd.DataFrame(rows)
    frame["normalised"] = frame.regret.clip(lower=0) / (np.sqrt(frame.j_star) + 1)
    run.table("plants", frame)
    sampled = frame.plant == "rotation, l1 cost"
    early, late = (frame.horizon == horizon for horizon in config.horizons)
    run.measure("growth_of_largest", frame[late & ~sampled].normalised.max() / frame[early & ~sampled].normalised.max())
    run.measure("growth_l1", frame[late & sampled].normalised.iloc[0] / frame[early & sampled].normalised.iloc[0])
    longest = frame[late & ~sampled]
    run.measure("largest_normalised_regret", longest.normalised.max())
    run.measure("share_below_lqr", float((longest.j_star + longest.regret < longest.lqr).mean()))
    run.measure("mean_cost_over_lqr", float(((longest.j_star + longest.regret) / longest.lqr).mean()))


def _plants() -> list[tuple[str, LinearSystem, np.ndarray | None]]:
    integrator, pitch = double_integrator(), pitch_plant()
    return [
        ("rotation", rotation_plant(), None),
        ("double integrator", integrator, integrator.lqr(np.eye(2), np.eye(1))),
        ("pitch", pitch, pitch.lqr(np.eye(4), np.eye(2))),
    ]


def _disturbances(config: PlantsConfig) -> dict[str, Callable[[int, int, np.random.Generator], np.ndarray | None]]:
    """Each maps (rounds, dx, generator) to w; None where it does not fit the plant."""

    def shocked(horizon: int, dx: int, rng: np.random.Generator) -> np.ndarray:
        return rotating_disturbance(horizon, dx, FREQUENCY, rng) + shocks(horizon, dx, SHOCK_SHARE, 1.0, rng)

    def real(horizon: int, dx: int, rng: np.random.Generator) -> np.ndarray:
        series = load_series("sunspots")
        return np.stack([np.resize(np.roll(series, 11 * i), horizon) for i in range(dx)], axis=1)

    def given(horizon: int, dx: int, rng: np.random.Generator) -> np.ndarray | None:
        assert config.disturbance_file is not None
        return np.resize(read_disturbances(config.disturbance_file, 2), (horizon, 2)) if dx == 2 else None

    makers: dict[str, Callable[[int, int, np.random.Generator], np.ndarray | None]] = {
        "rotating": lambda horizon, dx, rng: rotating_disturbance(horizon, dx, FREQUENCY, rng),
        "sinusoids": sum_of_sinusoids,
        "sunspots": real,
        "rotating and shocks": shocked,
    }
    return makers if config.disturbance_file is None else {**makers, "own file": given}


def _quadratic_row(system: LinearSystem, K: np.ndarray | None, w: np.ndarray) -> dict:
    cost = QuadraticCost(np.eye(system.dx), 0.1 * np.eye(system.du))
    S = truncation_length(system, K, TRUNCATION)
    maps = SurrogateMap(system, K, POLICY_LENGTH, S)
    game = make_game(maps, w, cost)
    learner = FirstOrderGPC(system, K, POLICY_LENGTH, S, RADIUS).learner
    regret = game.regret(learner)
    zero = simulate(system, LinearFeedback(system, K), w, game.costs).total
    lqr = simulate(system, LinearFeedback(system, system.lqr(cost.Q, cost.R)), w, game.costs).total
    return {"j_star": game.j_star, "regret": regret, "no_action": zero, "lqr": lqr}


def _l1_row(horizon: int, rng: np.random.Generator) -> dict:
    """Algorithm 1 on one gain: M^[1] = -theta R(frequency) cancels the disturbance at theta = 1; cost ||x||_1."""
    system = rotation_plant()
    basis = -rotation(FREQUENCY)[None, None]
    w = rotating_disturbance(horizon, 2, FREQUENCY, rng)
    maps = SurrogateMap(system, None, 1, 6, basis)
    game = make_game(maps, w, L1Cost())
    largest = np.sqrt(2) / (1 - 0.6)  # a surrogate state is a sum of 0.6^i times vectors of norm |1 - theta| <= 1
    points = Box([0.0], [2.0]).grid(65)
    runs = play_finite(game.losses, points, runs=GAIN_RUNS, loss_range=largest, random_state=rng)
    totals = [rollout(maps, points[path], w, game.costs).total for path in runs.indices]
    zero = simulate(system, LinearFeedback(system), w, game.costs).total
    return {"j_star": game.j_star, "regret": float(np.mean(totals)) - game.j_star, "no_action": zero, "lqr": np.nan}


@paper.figures(control_plants)
def plant_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["plants"]
    longest = frame[frame.horizon == frame.horizon.max()]
    means = longest.groupby(["plant", "disturbance"], sort=False).mean(numeric_only=True)
    fig, ax = plotting.subplots(figsize=(7.6, 5.0))
    at = np.arange(len(means))
    bars = {
        "stabilising gain only": means.no_action,
        "LQR": means.lqr,
        "first-order controller": means.j_star + means.regret,
        "best policy in hindsight, J*": means.j_star,
    }
    for index, (name, values) in enumerate(bars.items()):
        ax.plot(
            values.to_numpy().clip(min=1e-2), at, plotting.MARKERS[index], color=plotting.COLOURS[index], label=name
        )
    ax.set_yticks(at, [f"{plant}: {disturbance}" for plant, disturbance in means.index])
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel=f"cost over {int(frame.horizon.max()):,} rounds (at least 0.01 shown)")
    ax.legend(loc="upper center", bbox_to_anchor=(0.35, -0.12), ncols=2, fontsize="small")
    return {"control_plants": fig}
