"""E5, first part: regret of the first-order controller against the cost J* of the best policy in hindsight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Counts, Run, plotting
from oco_memory import ControlCost, FirstOrderGPC, QuadraticCost, SurrogateMap, best_dac, rollout, surrogate_losses
from oco_memory.learner import Learner
from oco_memory.losses import MemoryLoss
from oco_memory.plants import rotating_disturbance, rotation_plant, shocks

from .paper import paper

POLICY_LENGTH, SURROGATE_LENGTH, RADIUS = 3, 6, 2.0  # H, S, Frobenius radius
SHOCK_SHARE = 0.1  # of the rounds
FREQUENCY = 1.0  # of the rotating disturbance, radians a round


@dataclass(frozen=True)
class Game:
    """A control problem made ready: the learner's losses and the optimum in hindsight."""

    maps: SurrogateMap
    w: np.ndarray
    costs: list[ControlCost | None]
    losses: list[MemoryLoss | None]
    j_star: float

    def regret(self, learner: Learner) -> float:
        """Closed-loop cost of the controller that moves its policy by `learner`, minus J*."""
        thetas = np.empty((len(self.w), self.maps.dim))
        for t, loss in enumerate(self.losses):
            thetas[t] = learner.play()
            learner.update(loss)
        return rollout(self.maps, thetas, self.w, self.costs).total - self.j_star


def make_game(maps: SurrogateMap, w: np.ndarray, cost: ControlCost, *, late: bool = False) -> Game:
    """`cost` in every round whose features reach back into the game; `late`: only in the second half."""
    free = len(w) // 2 if late else maps.reach
    charged: list[ControlCost | None] = [None] * free
    charged += [cost] * (len(w) - free)
    return Game(maps, w, charged, surrogate_losses(maps, w, charged), best_dac(maps, w, charged, RADIUS)[1])


def rotation_game(horizon: int, amplitude: float, rng: np.random.Generator, *, late: bool = False) -> Game:
    """The plane system under a rotating disturbance, which a policy cancels, and shocks, which none foresees."""
    maps = SurrogateMap(rotation_plant(), None, POLICY_LENGTH, SURROGATE_LENGTH)
    w = rotating_disturbance(horizon, 2, FREQUENCY, rng) + shocks(horizon, 2, SHOCK_SHARE, amplitude, rng)
    return make_game(maps, w, QuadraticCost(np.eye(2), np.zeros((2, 2))), late=late)


def first_order_learner(game: Game) -> Learner:
    """What moves the policy in `FirstOrderGPC`."""
    maps = game.maps
    return FirstOrderGPC(maps.system, maps.K, maps.H, maps.S, RADIUS).learner


@dataclass(frozen=True)
class ControlConfig:
    """Regret against J* and T."""

    horizons: Counts = (1000, 4000, 16_000)  # rounds
    amplitudes: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)  # length of the shocks


@paper.experiment(
    smoke=ControlConfig(horizons=(500, 1000), amplitudes=(0.03, 0.3)),
    laptop=ControlConfig(),
    paper=ControlConfig(horizons=(1000, 10_000, 100_000, 1_000_000)),
    seeds={"smoke": 2, "laptop": 5, "paper": 20},
    minutes={"laptop": 1.0, "paper": 120},
)
def control_regret(config: ControlConfig, run: Run) -> None:
    """Regret / (sqrt(J*) + 1) of FirstOrderGPC over shock sizes and horizons, and its regret where J* = 0."""
    rows = []
    for horizon in run.progress(config.horizons, "horizons"):
        for amplitude in (0.0, *config.amplitudes):
            game = rotation_game(horizon, amplitude, run.rng)
            rows.append(
                {
                    "horizon": horizon,
                    "amplitude": amplitude,
                    "j_star": game.j_star,
                    "regret": game.regret(first_order_learner(game)),
                }
            )
    frame = pd.DataFrame(rows)
    frame["normalised"] = frame.regret / (np.sqrt(frame.j_star) + 1)
    run.table("regret", frame)
    shocked, perfect = frame[frame.amplitude > 0], frame[frame.amplitude == 0]
    run.measure("max_over_median", shocked.normalised.max() / shocked.normalised.median())
    run.measure("median_normalised_regret", shocked.normalised.median())
    run.measure("regret_perfect", perfect.regret.iloc[-1])
    run.measure("largest_j_star_perfect", perfect.j_star.max())
    run.measure("smallest_j_star", shocked.j_star.min())
    run.measure("largest_j_star", shocked.j_star.max())
    run.measure("change_with_horizon_perfect", abs(perfect.regret.iloc[-1] / perfect.regret.iloc[0] - 1))


@paper.figures(control_regret)
def control_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["regret"]
    shocked = frame[frame.amplitude > 0]
    fig, ax = plotting.subplots()
    for index, (horizon, rows) in enumerate(shocked.groupby("horizon")):
        ax.scatter(
            rows.j_star,
            rows.regret,
            s=16,
            color=plotting.COLOURS[index],
            marker=plotting.MARKERS[index],
            label=f"T = {horizon:,}",
        )
    x = np.geomspace(shocked.j_star.min(), shocked.j_star.max(), 100)
    ax.plot(x, shocked.normalised.median() * (np.sqrt(x) + 1), "k:", label="proportional to sqrt(J*) + 1")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="cost J* of the best policy in hindsight",
        ylabel="regret",
        title="FirstOrderGPC, rotating disturbance and shocks",
    )
    ax.legend()
    return {"control_regret": fig}
