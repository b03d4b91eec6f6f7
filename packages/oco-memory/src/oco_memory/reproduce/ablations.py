"""E6: what each part of Algorithm 1 is worth: laziness, doubling, sampling instead of the mean, memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Count, Counts, Run, plotting
from oco_memory import Box, MeanExponentialWeights, play, play_finite
from oco_memory.instances import LossList, absolute_losses, sign_losses
from oco_memory.problems import experts_losses
from oco_memory.sets import FiniteSet

from .paper import paper


@dataclass(frozen=True)
class AblationConfig:
    """Variants of exponential weights on three games."""

    rounds: Count = 2000
    memories: Counts = (1, 2, 5, 10, 20)
    cells: Count = 65
    runs: Count = 20


@paper.experiment(
    smoke=AblationConfig(rounds=300, memories=(1, 5), runs=10),
    laptop=AblationConfig(),
    paper=AblationConfig(rounds=100_000, memories=(1, 2, 5, 10, 20, 50, 100), runs=100),
    seeds={"smoke": 2, "laptop": 5, "paper": 20},
    minutes={"laptop": 0.5, "paper": 60},
)
def ablations(config: AblationConfig, run: Run) -> None:
    """Lazy against redrawing every round, doubling against known L*, the mean against a sample, over memories."""
    rows = []
    for memory in run.progress(config.memories, "memories"):
        for game, points, losses in _games(config, memory, run.rng):
            l_star = None
            for method, eta, lazy in (
                ("lazy, L* known", "known", True),
                ("lazy, doubling", "doubling", True),
                ("redrawn every round", "known", False),
            ):
                result = play_finite(losses, points, eta=eta, lazy=lazy, runs=config.runs, random_state=run.rng)
                l_star = result.l_star
                rows.append(
                    {
                        "game": game,
                        "memory": memory,
                        "method": method,
                        "regret": result.totals.mean() - result.l_star,
                        "memory_cost": (result.totals - result.unary_totals).mean(),
                    }
                )
            if game == "absolute":
                mean = play(MeanExponentialWeights(_interval(), memory, "known", l_star, cells=config.cells), losses)
                rows.append(
                    {
                        "game": game,
                        "memory": memory,
                        "method": "mean",
                        "regret": mean.total - l_star,
                        "memory_cost": mean.total - mean.unary_total,
                    }
                )
    frame = pd.DataFrame(rows)
    run.table("variants", frame)
    table = frame.set_index(["game", "memory", "method"])
    experts = table.loc["experts"]
    run.measure(
        "redraw_over_lazy_switching",
        experts.memory_cost[:, "redrawn every round"].mean() / experts.memory_cost[:, "lazy, L* known"].mean(),
    )
    longest = config.memories[-1]
    for key, game in (("signs", "signs"), ("absolute", "absolute")):
        regret = table.loc[game].regret
        run.measure(
            f"redraw_over_lazy_regret_{key}",
            regret[longest, "redrawn every round"] / regret[longest, "lazy, L* known"],
        )
        run.measure(
            f"doubling_over_known_regret_{key}", regret[:, "lazy, doubling"].mean() / regret[:, "lazy, L* known"].mean()
        )
    absolute = table.loc["absolute"].regret
    run.measure("mean_over_lazy_regret", absolute[:, "mean"].mean() / absolute[:, "lazy, L* known"].mean())


def _interval() -> Box:
    return Box(np.array([-1.0]), np.array([1.0]))


def _games(config: AblationConfig, memory: int, rng: np.random.Generator) -> list[tuple[str, np.ndarray, LossList]]:
    points = _interval().grid(config.cells)
    return [
        ("signs", points, sign_losses(config.rounds, config.rounds // 2, 0.1, memory, rng)),
        ("absolute", points, absolute_losses(config.rounds, 0.35, 0.3, memory, rng)),
        (
            "experts",
            FiniteSet.actions(config.cells).points,
            experts_losses(config.rounds, config.cells, 1.0, rng, best_loss=0.1),
        ),
    ]


@paper.figures(ablations)
def ablation_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["variants"]
    fig, axes = plotting.subplots(1, 2, figsize=(9.5, 4.0))
    for ax, (game, title) in zip(axes, {"signs": "Biased signs", "absolute": "Absolute losses"}.items(), strict=True):
        plotting.mean_curve(ax, frame[frame.game == game], x="memory", y="regret", by="method")
        ax.set(xscale="log", yscale="log", xlabel="memory m", ylabel="policy regret", title=title)
        ax.legend(fontsize="small")
    return {"ablations": fig}
