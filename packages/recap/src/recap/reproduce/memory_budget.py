"""E2: RECAP and the baselines at equal memory, between what no controller can reach and what RECAP guarantees."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting

from ..baselines import STOCHASTIC, baseline
from ..bounds import decision_bound, upper_bound
from ..codebook import RECAP
from ..controller import Controller, constant_controller
from ..converse import converse_bounds
from .problems import NEEDS, Models, Problem, count, paper, problems

_ROUNDS = 20  # limit of the closed loop
_MARGIN = 0.02  # a win is a lead in score by more than this
_JUDGED = ("kmeans", "kl", "grid", "amdp", "window")


@dataclass(frozen=True)
class MemoryBudget(Models):
    """Value and score of every method for every memory size (section 6, E2)."""

    memory: Counts = (2, 3, 4, 6, 8, 12)
    scored: Counts = (2, 3, 4, 6, 8)  # memory sizes that the mean score is taken over
    baselines: tuple[str, ...] = (*_JUDGED, "random", "kmeans+cl")
    draws: Count = 4  # tries of each stochastic baseline, as many as RECAP has restarts; the best one is scored


@paper.experiment(
    smoke=MemoryBudget(models=("tiger", "1d", "parr95"), memory=(2, 4, 6), scored=(2, 4, 6), draws=2),
    laptop=MemoryBudget(),
    paper=MemoryBudget(memory=(2, 4, 8, 16, 32, 64), scored=(2, 4, 8, 16, 32, 64), n_beliefs=5_000),
    seeds={"smoke": 2, "laptop": 5, "paper": 5},
    minutes={"laptop": 2.5},
    needs=NEEDS,
)
def memory_budget(config: MemoryBudget, run: Run) -> None:
    """Exact value of RECAP and seven baselines at equal memory, with certified limits."""
    rows, steps = [], _Steps()
    uncertainty = 0.0
    for problem in run.progress(problems(config, run.seed), "models", count(config)):
        # Everyone may fall back on the best controller of a smaller memory, the constant action being the smallest.
        methods = {name: _baseline_path(name, problem, config) for name in config.baselines}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer vectors than K is no news here
            recap = RECAP(max(config.memory), seed=run.seed).fit(problem.pomdp, problem.vf, problem.sample)
            opened = RECAP(max(config.memory), closed_loop=False, seed=run.seed)
            opened.fit(problem.pomdp, problem.vf, problem.sample)
        steps.watch(recap, problem)
        for name, fitted in (("recap", recap), ("recap-open", opened)):
            methods[name] = {K: (fitted.path_[K], fitted.path_[K].value(problem.pomdp)) for K in config.memory}
        limits = converse_bounds(problem.pomdp, problem.whole, config.memory, max_beliefs=config.upper_beliefs)
        uncertainty = max(uncertainty, problem.uncertainty / (problem.optimum - problem.one_state))
        for K in config.memory:
            controller = recap.path_[K]
            a_priori = upper_bound(problem.pomdp, controller, problem.vf)
            on_the_way = decision_bound(problem.pomdp, controller, problem.vf).regret
            shared = {
                "model": problem.name, "K": K, "optimum": problem.optimum, "one_state": problem.one_state,
                "loss_at_least": limits[K].value, "at_time": limits[K].t, "certified": limits[K].certified,
                "recap_loss_at_most": min(a_priori.value, on_the_way, a_priori.trivial) + problem.uncertainty,
            }  # fmt: skip
            for name, path in methods.items():
                best, mean = path[K][0].value(problem.pomdp), path[K][1]
                rows.append(
                    {**shared, "method": name, "value": best, "score": problem.score(best), "mean_of_draws": mean}
                )
    table = pd.DataFrame(rows)
    run.table("values", table)
    steps.measure(run)
    _compare(table, config, run)
    run.measure("optimum_uncertainty", uncertainty)


def _baseline_path(name: str, problem: Problem, config: MemoryBudget) -> dict[int, tuple[Controller, float]]:
    """Best controller with at most K states for each K, and the mean value of the draws at exactly that K."""
    best = constant_controller(problem.pomdp)
    path = {}
    draws = config.draws if name in STOCHASTIC and name != "window" else 1  # window restarts by itself
    for K in config.memory:
        found = [
            baseline(name, problem.pomdp, K, problem.vf, problem.sample, seed=1_000 * problem.seed + draw)
            for draw in range(draws)
        ]
        values = [controller.value(problem.pomdp) for controller in found]
        best = max([best, *found], key=lambda controller: controller.value(problem.pomdp))
        path[K] = best, float(np.mean(values))
    return path


class _Steps:
    """Counts what C3 says never happens."""

    def __init__(self) -> None:
        self.lloyd = self.objective = self.value = 0
        self.rounds = 0.0

    def watch(self, recap: RECAP, problem: Problem) -> None:
        for entry in recap.history_:
            self.lloyd += sum(after > before + 1e-9 for before, after in entry["lloyd"])
            self.objective += int((np.diff(entry["J"]) > 1e-9).sum())
            self.value += int((np.diff(entry["value"]) < -1e-9).sum())
            self.rounds = max(self.rounds, len(entry["value"]) / (_ROUNDS + 1))
        along = [recap.path_[K].value(problem.pomdp) for K in sorted(recap.path_)]
        self.value += int((np.diff(along) < -1e-9).sum())

    def measure(self, run: Run) -> None:
        run.measure("lloyd_rises", self.lloyd)
        run.measure("objective_rises", self.objective)
        run.measure("value_falls", self.value)
        run.measure("rounds_used", self.rounds)


def _compare(table: pd.DataFrame, config: MemoryBudget, run: Run) -> None:
    scored = table[table.K.isin(config.scored)]
    mean = scored.pivot_table(index="model", columns="method", values="score", aggfunc="mean")
    judged = [name for name in _JUDGED if name in mean]
    margins = mean[judged].rsub(mean["recap"], axis=0)
    run.measure("worst_margin", margins.min().min())
    for name in judged:
        run.measure(f"wins_{name}", int((margins[name] > _MARGIN).sum()))
    run.measure("score_recap", mean["recap"].mean())
    run.measure("score_recap_open", mean["recap-open"].mean())
    run.measure("score_best_baseline", mean[judged].mean().max())
    run.table("scores", mean.reset_index())


@paper.figures(memory_budget)
def memory_budget_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    values = tables["values"]
    shown = [name for name in ("recap", *_JUDGED) if name in set(values.method)]
    overall = values.groupby(["seed", "method", "K"], as_index=False).score.mean()
    fig, ax = plotting.subplots()
    ordered = pd.concat([overall[overall.method == name] for name in shown])
    plotting.mean_curve(ax, ordered, x="K", y="score", by="method")
    ax.set(xlabel="memory states K", ylabel="normalised score, mean over models", ylim=(-0.02, 1.02))
    ax.legend()

    models = list(dict.fromkeys(values.model))
    columns = min(4, len(models))
    height = -(-len(models) // columns)
    grid, axes = plotting.subplots(height, columns, figsize=(3.2 * columns, 2.5 * height), squeeze=False)
    for ax in axes.flat[len(models) :]:
        ax.set_axis_off()
    for ax, model in zip(axes.flat, models, strict=False):
        rows = values[values.model == model]
        for name, colour in zip(shown, plotting.COLOURS, strict=False):
            curve = rows[rows.method == name].groupby("K").score.mean()
            main = name == "recap"
            ax.plot(
                curve.index, curve, marker="o" if main else None, lw=2.2 if main else 1.2, ms=4, label=name,
                color=colour, zorder=3 if main else 2,
            )  # fmt: skip
        one = rows[rows.method == "recap"].groupby("K")[["optimum", "one_state", "loss_at_least"]].mean()
        ceiling = 1 - one.loss_at_least / (one.optimum - one.one_state)
        ax.fill_between(ceiling.index, ceiling, 1.1, color="0.6", alpha=0.5, lw=0, label="no controller (converse)")
        ax.set(title=model, ylim=(-0.08, 1.1))
    for ax in axes[:, 0]:
        ax.set_ylabel("score")
    for ax in axes[-1]:
        ax.set_xlabel("memory states K")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    grid.legend(handles, labels, loc="outside lower center", ncols=4)
    return {"score": fig, "models": grid}
