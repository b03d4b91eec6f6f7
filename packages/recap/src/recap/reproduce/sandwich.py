"""E3: every controller loses at least the converse; every codebook loses at most its upper bounds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting

from ..baselines import BASELINES, baseline
from ..bounds import decision_bound, upper_bound
from ..codebook import RECAP, Codebook, code_of_vectors
from ..controller import Controller, RandomizedController, brute_force
from ..converse import LowerBound, converse_bounds, information_bound, loss_at, value_of
from ..models import benchmarks
from ..pomdp import POMDP
from ..solvers import belief_sample, solve
from .problems import NEEDS, Models, Problem, count, paper, problems

_SLACK = 1e-6  # numerical slack of a comparison, in units of value


@dataclass(frozen=True)
class Sandwich(Models):
    """Bounds against exact losses (section 6, E3)."""

    memory: Counts = (1, 2, 3, 4)
    t_max: Count = 6  # latest time of the memory bottleneck
    controllers: Count = 200  # random controllers a model, half of them randomized
    codebooks: Count = 200  # random codebooks a model
    brute_limit: Count = 60_000  # exhaustive search up to this many controllers
    horizon: Count = 60  # steps of the exact expansion behind UB1
    max_support: Count = 500  # beliefs up to which it goes on
    memory_kept: float = 0.1  # share of cheng.D3-5's dynamics left beside uniform jumps, where UB2 is judged
    more_memory_kept: tuple[float, ...] = (0.5, 0.01)  # and where it is shown


@paper.experiment(
    smoke=Sandwich(models=("tiger", "1d", "parr95"), t_max=3, controllers=50, codebooks=10, horizon=20),
    laptop=Sandwich(),
    paper=Sandwich(controllers=2_000, codebooks=1_000, n_beliefs=2_000),
    minutes={"laptop": 2.5},
    needs=NEEDS,
)
def sandwich(config: Sandwich, run: Run) -> None:
    """Certified lower bounds, exhaustive search, RECAP and upper bounds in one table."""
    rows, tally = [], _Tally()
    for problem in run.progress(problems(config, run.seed), "models", count(config)):
        limits = converse_bounds(
            problem.pomdp, problem.whole, config.memory, config.t_max, max_beliefs=config.upper_beliefs
        )
        recap = _recap(problem, max(config.memory))
        losses = _losses(problem, recap, config, run.rng)
        for K in config.memory:
            tally.converse(limits[K], losses[K])
            named = {name: loss for name, loss in losses[K] if not name.startswith("random ")}
            guarantee = decision_bound(problem.pomdp, recap[K], problem.vf, config.horizon).regret
            rows.append(
                {
                    "model": problem.name, "K": K, "optimum": problem.optimum, "uncertainty": problem.uncertainty,
                    "loss_at_least": limits[K].value, "at_time": limits[K].t, "certified": limits[K].certified,
                    "recap_at_most": guarantee, **named,
                }
            )  # fmt: skip
        tally.share(problem, limits)
        if np.isfinite(problem.whole.error):
            tally.information(problem, run.rng)
        tally.upper(problem, config, run.rng)
    run.table("bounds", pd.DataFrame(rows))
    tally.measure(run)
    levels = (config.memory_kept, *config.more_memory_kept)
    contracting = pd.DataFrame([_contracting(kept, config, run.seed) for kept in levels])
    run.table("contracting", contracting)
    shares = contracting[["recap", "nearest"]].min(axis=1)
    run.measure("stability_bound_share", shares[0])
    run.measure("stability_bound_share_any_level", shares.min())
    run.measure("stability_bound_share_recap", contracting.recap.min())


def _recap(problem: Problem, largest: int) -> dict[int, Controller]:
    """RECAP's controller for each memory size up to the largest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return RECAP(largest, seed=problem.seed).fit(problem.pomdp, problem.vf, problem.sample).path_


def _losses(
    problem: Problem, recap: dict[int, Controller], config: Sandwich, rng: np.random.Generator
) -> dict[int, list[tuple[str, float]]]:
    """Exact losses of named and random controllers for each K."""
    pomdp, losses = problem.pomdp, {}
    n_obs = pomdp.n_observations
    for K in config.memory:
        found: list[tuple[str, float]] = []
        if pomdp.n_actions**K * K ** (K * n_obs) <= config.brute_limit:
            found.append(("brute force", problem.loss(brute_force(pomdp, K, config.brute_limit).value(pomdp))))
        found.append(("recap", problem.loss(recap[K].value(pomdp))))
        for name in BASELINES:
            controller = baseline(name, pomdp, K, problem.vf, problem.sample, seed=problem.seed)
            found.append((name, problem.loss(controller.value(pomdp))))
        for i in range(-(-config.controllers // len(config.memory))):
            if i % 2:
                controller = RandomizedController.draw(pomdp, K, rng)
            else:
                controller = Controller(rng.integers(pomdp.n_actions, size=K), rng.integers(K, size=(K, n_obs)))
            found.append((f"random {i}", problem.loss(value_of(pomdp, controller))))
        losses[K] = found
    return losses


class _Tally:
    """Counts of violations and of bounds that say something."""

    def __init__(self) -> None:
        self.pairs = self.below = self.information_below = self.decision = self.stability = 0
        self.one = self.two = 0
        self.certified: list[bool] = []
        self.vacuous: list[bool] = []

    def converse(self, bound: LowerBound, losses: list[tuple[str, float]]) -> None:
        self.pairs += len(losses)
        self.below += sum(loss < bound.value - _SLACK for _, loss in losses)
        self.certified.append(bound.certified)

    def share(self, problem: Problem, limits: dict[int, LowerBound]) -> None:
        size = abs(problem.optimum)
        self.one += 1 in limits and limits[1].value > 0.01 * size
        self.two += 2 in limits and limits[2].value > 0.005 * size

    def information(self, problem: Problem, rng: np.random.Generator) -> None:
        """gamma^t D_t(log K) <= gamma^t E d <= loss, for the law of B_t under random controllers."""
        pomdp = problem.pomdp
        for K in (2, 3):
            for t in (1, 2, 3):
                controller = Controller(
                    rng.integers(pomdp.n_actions, size=K), rng.integers(K, size=(K, pomdp.n_observations))
                ).best_start(pomdp)
                own = loss_at(pomdp, problem.whole, controller, t)
                bound = information_bound(pomdp, problem.whole, controller, t)
                loss = problem.loss(controller.value(pomdp))
                self.information_below += not bound - _SLACK <= own <= loss + _SLACK

    def upper(self, problem: Problem, config: Sandwich, rng: np.random.Generator) -> None:
        pomdp, vf = problem.pomdp, problem.vf
        recap = RECAP(min(4, len(vf.alphas)), seed=problem.seed).fit(pomdp, vf, problem.sample)
        codes: list[RECAP | Codebook] = [recap, recap.codebook_]
        for _ in range(config.codebooks):
            K = int(rng.integers(1, min(6, len(vf.alphas)) + 1))
            codes.append(code_of_vectors(vf, rng.choice(len(vf.alphas), K, replace=False), problem.sample))
        for code in codes:
            controller = code.controller_ if isinstance(code, RECAP) else code.controller(pomdp)
            gap = problem.optimum - controller.value(pomdp)
            on_the_way = decision_bound(pomdp, code, vf, config.horizon, config.max_support)
            a_priori = upper_bound(pomdp, code, vf)
            self.decision += gap > on_the_way.regret + _SLACK or gap > on_the_way.distortion + _SLACK
            self.stability += gap > a_priori.value + _SLACK
            self.vacuous.append(a_priori.vacuous)

    def measure(self, run: Run) -> None:
        run.measure("converse_pairs", self.pairs)
        run.measure("converse_violations", self.below)
        run.measure("information_violations", self.information_below)
        run.measure("benchmarks_bound_one_state", self.one)
        run.measure("benchmarks_bound_two_states", self.two)
        run.measure("certified_share", float(np.mean(self.certified)))
        run.measure("decision_bound_violations", self.decision)
        run.measure("stability_bound_violations", self.stability)
        run.measure("vacuous_share", float(np.mean(self.vacuous)))


def _contracting(kept: float, config: Sandwich, seed: int) -> dict[str, float]:
    """UB2 over the trivial bound on cheng.D3-5 with most transitions replaced by uniform jumps (kappa < 1).

    UB2 measures how far a filtered representative is from the one it is encoded as. RECAP's cells ignore that
    distance by design, so the code that filter stability speaks of stands beside it: one representative for the start
    and one for each (action, observation) from there, and the nearest representative.
    """
    base = benchmarks("cheng.D3-5")
    T = kept * base.dense_transitions() + (1 - kept) / base.n_states
    pomdp = POMDP(T, base.Z, base.r, base.gamma, base.b0)
    vf = solve(pomdp, config.n_beliefs, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        recap = RECAP(12, seed=seed).fit(pomdp, vf, belief_sample(pomdp, vf, seed=seed))
    centres = np.vstack([pomdp.b0, *(pomdp.filter(pomdp.b0, a)[1] for a in range(pomdp.n_actions))])
    best = vf.best(centres)
    nearest = Codebook(centres, vf.alphas[best], vf.actions[best], "l2")
    bounds = {"recap": upper_bound(pomdp, recap, vf), "nearest": upper_bound(pomdp, nearest, vf)}
    share = {name: bound.value / bound.trivial for name, bound in bounds.items()}
    return {"memory_kept": kept, "kappa": bounds["recap"].kappa, **share}


@paper.figures(sandwich)
def sandwich_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    bounds = tables["bounds"].groupby(["model", "K"], sort=False).mean(numeric_only=True).reset_index()
    models = list(dict.fromkeys(bounds.model))
    columns = min(4, len(models))
    height = -(-len(models) // columns)
    fig, axes = plotting.subplots(height, columns, figsize=(3.2 * columns, 2.5 * height), squeeze=False)
    for ax in axes.flat[len(models) :]:
        ax.set_axis_off()
    kinds = [("loss_at_least", "certified lower bound"), ("brute force", "exhaustive search"), ("recap", "RECAP"),
             ("recap_at_most", "upper bound UB1")]  # fmt: skip
    for ax, model in zip(axes.flat, models, strict=False):
        rows = bounds[bounds.model == model]
        for k, (column, label) in enumerate(kinds):
            height = rows[column].clip(lower=1e-4) if column in rows else np.full(len(rows), np.nan)
            ax.bar(rows.K + 0.2 * (k - 1.5), height, width=0.19, color=plotting.COLOURS[k], label=label)
        ax.set(title=model, yscale="log", xticks=rows.K)
        ax.set_ylim(bottom=1e-4)
    for ax in axes[:, 0]:
        ax.set_ylabel("loss V* - V")
    for ax in axes[-1]:
        ax.set_xlabel("memory states K")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4)
    return {"sandwich": fig}
