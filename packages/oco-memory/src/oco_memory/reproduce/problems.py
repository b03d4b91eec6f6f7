"""E3: Algorithm 1 on decision problems without gradients: switching costs, inventory, threshold caching."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Count, Counts, Run, plotting
from oco_memory import Box, FiniteSet, lazy_ew_bound, play_finite
from oco_memory.instances import LossList
from oco_memory.problems import caching_losses, experts_losses, inventory_losses
from oco_memory.series import load_series

from .paper import paper


@dataclass(frozen=True)
class ProblemsConfig:
    """Three problems, noisy (L* > 0) and with a perfect decision (L* = 0)."""

    horizon: Count = 2000  # rounds
    actions: Counts = (51, 101, 201)  # N; odd, so that the perfect stock level is on the grid
    lead_times: tuple[int, ...] = (2,)  # inventory, rounds; memory 2 L + 1
    cache_memories: Counts = (12,)  # caching, rounds
    runs: Count = 20


@paper.experiment(
    smoke=ProblemsConfig(horizon=400, actions=(51,), runs=10),
    laptop=ProblemsConfig(),
    paper=ProblemsConfig(
        horizon=50_000, actions=(51, 101, 201), lead_times=(1, 2, 5, 10), cache_memories=(6, 12, 24, 48), runs=100
    ),
    seeds={"smoke": 1, "laptop": 10, "paper": 20},
    minutes={"laptop": 1.5, "paper": 120},
)
def decision_problems(config: ProblemsConfig, run: Run) -> None:
    """Theorem A on experts with switching cost, order-up-to inventory and threshold caching."""
    rows = []
    for n in run.progress(config.actions, "sizes"):
        for problem, perfect, points, losses, loss_range in _problems(config, n, run.rng):
            memory = next(loss.memory for loss in losses if loss is not None)
            result = play_finite(
                losses,
                points,
                eta=1.0 if perfect else "known",
                runs=config.runs,
                loss_range=loss_range,
                random_state=run.rng,
            )
            bound = loss_range * lazy_ew_bound(result.eta_mean, result.l_star / loss_range, n, memory)
            error = result.totals.std(ddof=1) / np.sqrt(config.runs)
            rows.append(
                {
                    "problem": problem,
                    "perfect": perfect,
                    "actions": n,
                    "memory": memory,
                    "l_star": result.l_star / loss_range,
                    "loss": result.totals.mean() / loss_range,
                    "bound": bound / loss_range,
                    "holds": bool(result.totals.mean() <= bound + 3 * error),
                    "loss_over_m_log_n": result.totals.mean() / loss_range / (memory * np.log(n)),
                }
            )
    frame = pd.DataFrame(rows)
    run.table("problems", frame)
    run.measure("bound_holds", bool(frame.holds.all()))
    run.measure("largest_loss_over_bound", (frame.loss / frame.bound).max())
    exact = frame[frame.perfect]
    run.measure("largest_l_star_of_perfect", exact.l_star.max())
    for key, problem in (("experts", "experts"), ("inventory", "inventory"), ("caching", "caching")):
        run.measure(f"loss_over_m_log_n_{key}", exact[exact.problem == problem].loss_over_m_log_n.max())


def _problems(
    config: ProblemsConfig, n: int, rng: np.random.Generator
) -> list[tuple[str, bool, np.ndarray, LossList, float]]:
    """(problem, perfect decision exists, points, losses, loss_range)."""
    actions, unit = FiniteSet.actions(n).points, Box(np.array([0.0]), np.array([1.0])).grid(n)
    games = [
        ("experts", perfect, actions, experts_losses(config.horizon, n, 1.0, rng, best_loss=best), 1.0)
        for perfect, best in ((True, 0.0), (False, 0.1))
    ]
    temperature = np.resize((load_series("elnino") + 1) / 2, config.horizon)  # real seasonal demand in [0, 1]
    for lead in config.lead_times:
        levels = unit * (lead + 1)  # from nothing to the largest demand over the lead time
        for perfect, demand in ((True, np.full(config.horizon, 0.5)), (False, temperature)):
            losses, span = inventory_losses(demand, lead, 1.0, 3.0, float(lead + 1))
            games.append(("inventory", perfect, levels, losses, span))
    for memory in config.cache_memories:
        for perfect, confusion in ((True, 0.0), (False, 0.2)):
            losses = caching_losses(config.horizon, memory, 3, rng, confusion=confusion)
            games.append(("caching", perfect, unit, losses, 1.0))
    return games


@paper.figures(decision_problems)
def problem_figures(tables: dict[str, pd.DataFrame]) -> dict:
    frame = tables["problems"]
    fig, ax = plotting.subplots()
    for colour, (problem, rows) in zip(plotting.COLOURS, frame.groupby("problem", sort=False), strict=False):
        for perfect, marker in ((True, "o"), (False, "^")):
            some = rows[rows.perfect == perfect]
            label = f"{problem}, {'L* = 0' if perfect else 'noisy'}"
            ax.scatter(some.bound, some.loss, color=colour, marker=marker, s=14, label=label)
    ends = np.array([frame.loss.min(), frame.bound.max()])
    ax.plot(ends, ends, "k:", label="loss = bound")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="Theorem A's bound",
        ylabel="mean loss of Algorithm 1",
        title="Decision problems without gradients",
    )
    ax.legend(fontsize="small")
    return {"decision_problems": fig}
