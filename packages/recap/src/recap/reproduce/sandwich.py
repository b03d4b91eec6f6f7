"""E3: every controller loses at least the converse; every codebook loses at most its upper bounds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.cluster import KMeans

from claimlab import Run, plotting

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

    memory: tuple[int, ...] = (1, 2, 3, 4)
    t_max: int = 6  # latest time of the memory bottleneck
    controllers: int = 200  # random controllers a model, half of them randomized
    codebooks: int = 200  # random codebooks a model
    brute_limit: int = 60_000  # exhaustive search up to this many controllers
    horizon: int = 60  # steps of the exact expansion behind UB1
    max_support: int = 500  # beliefs up to which it goes on
    mixing: float = 0.9  # how much of the contracting model's transitions is uniform


@paper.experiment(
    smoke=Sandwich(models=("tiger", "1d", "parr95"), t_max=3, controllers=50, codebooks=10, horizon=20),
    laptop=Sandwich(),
    paper=Sandwich(controllers=2_000, codebooks=1_000, n_beliefs=2_000),
    minutes={"laptop": 2.0},
    needs=NEEDS,
)
def sandwich(config: Sandwich, run: Run) -> None:
    """Certified lower bounds, exhaustive search, RECAP and upper bounds in one table."""
    rows, tally = [], _Tally()
    for problem in run.progress(problems(config, run.seed), "models", count(config)):
        limits = converse_bounds(
            problem.pomdp, problem.whole, config.memory, config.t_max, max_beliefs=config.upper_beliefs
        )
        recap = {K: _recap(problem, K) for K in config.memory}
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
    share = _contracting(config, run)
    run.measure("stability_bound_share", min(share.values()))
    run.measure("stability_bound_share_recap", share["recap"])


def _recap(problem: Problem, K: int) -> Controller:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return RECAP(K, seed=problem.seed).fit(problem.pomdp, problem.vf, problem.sample).controller_


def _losses(
    problem: Problem, recap: dict[int, Controller], config: Sandwich, rng: np.random.Generator
) -> dict[int, list[tuple[str, float]]]:
    """Exact losses of named and random controllers for each K."""
    pomdp, losses = problem.pomdp, {}
    n_obs = pomdp.n_observations
    for K in config.memory:
        found: list[tuple[str, float]] = []
        if pomdp.n_actions**K * K ** (K * n_obs) <= config.brute_limit:
            found.append(("brute force", problem.optimum - brute_force(pomdp, K, config.brute_limit).value(pomdp)))
        found.append(("recap", problem.optimum - recap[K].value(pomdp)))
        for name in BASELINES:
            controller = baseline(name, pomdp, K, problem.vf, problem.sample, seed=problem.seed)
            found.append((name, problem.optimum - controller.value(pomdp)))
        for i in range(-(-config.controllers // len(config.memory))):
            if i % 2:
                controller = RandomizedController.draw(pomdp, K, rng)
            else:
                controller = Controller(rng.integers(pomdp.n_actions, size=K), rng.integers(K, size=(K, n_obs)))
            found.append((f"random {i}", problem.optimum - value_of(pomdp, controller)))
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
                loss = problem.optimum - controller.value(pomdp)
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


def _contracting(config: Sandwich, run: Run) -> dict[str, float]:
    """UB2 over the trivial bound on a model that forgets fast (kappa < 1), for codes of twelve words.

    UB2 measures how far a filtered representative is from the one it is encoded as. RECAP's cells ignore that
    distance by design, so a code of nearest k-means centres stands beside it.
    """
    base = benchmarks("cheng.D3-5")
    assert isinstance(base.T, np.ndarray)
    T = (1 - config.mixing) * base.T + config.mixing / base.n_states
    pomdp = POMDP(T, base.Z, base.r, base.gamma, base.b0)
    vf = solve(pomdp, config.n_beliefs, seed=run.seed)
    beliefs, weights = belief_sample(pomdp, vf, seed=run.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        recap = RECAP(12, seed=run.seed).fit(pomdp, vf, (beliefs, weights))
    clusters = KMeans(12, n_init=4, random_state=run.seed)  # pyright: ignore[reportArgumentType]
    centres = clusters.fit(beliefs, sample_weight=weights).cluster_centers_
    best = vf.best(centres)
    nearest = Codebook(centres, vf.alphas[best], vf.actions[best], "l2")
    share = {}
    for name, code in (("recap", recap), ("nearest", nearest)):
        bound = upper_bound(pomdp, code, vf)
        share[name] = bound.value / bound.trivial
    return share


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
