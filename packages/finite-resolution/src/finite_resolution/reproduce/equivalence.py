"""Design as set cover, in both directions, and the error level beyond which nothing suffices."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from claimlab import Count, Run
from finite_resolution.brute_force import BruteForce
from finite_resolution.certificate import all_minimal_hard_tuples, cover_set
from finite_resolution.covering import set_cover
from finite_resolution.datasets import random_problem, sheared_simplex
from finite_resolution.design import optimal_design
from finite_resolution.problem import Problem, Queries
from finite_resolution.reproduce.declaration import paper
from finite_resolution.set_systems import affine_plane, problem_from_set_cover, random_sets
from finite_resolution.verify import verify_design


@dataclass(frozen=True)
class EquivalenceConfig:
    """Design optimum against set-cover optimum."""

    problems: Count = 8
    """Random design problems a seed, each with all 2^M designs judged by brute force."""
    queries: Count = 8
    costs: Count = 8
    systems: Count = 10
    """Random set systems a seed, each turned into a design problem."""
    elements: Count = 12
    sets: Count = 10
    enumerated_elements: Count = 5
    """Elements of the reduction whose minimal hard tuples are all listed."""


@paper.experiment(
    smoke=EquivalenceConfig(problems=2, queries=4, costs=6, systems=1, elements=8, sets=6, enumerated_elements=3),
    laptop=EquivalenceConfig(),
    paper=EquivalenceConfig(problems=50, queries=10, systems=30),
    minutes={"laptop": 1.0, "paper": 30},
)
def equivalence(config: EquivalenceConfig, run: Run) -> None:
    """All 2^M designs by brute force against the hard tuples' cover sets; set systems against the problems made from
    them.
    """
    wrong_designs = designs = wrong_optima = 0
    for i in run.progress(range(config.problems), "design problems"):
        d = int(run.rng.integers(2, 5))
        make = (random_problem, sheared_simplex)[i % 2]
        problem = make(run.rng, d, config.costs, config.queries)
        covers = [cover_set(problem, t) for t in all_minimal_hard_tuples(problem)]
        brute = BruteForce(problem)
        for size in range(config.queries + 1):
            for design in combinations(range(config.queries), size):
                wrong_designs += brute.sufficient(design) != all(set(design) & cover for cover in covers)
                designs += 1
        best, price = brute.best_design()
        found = optimal_design(problem)
        covered = np.inf if any(not c for c in covers) else set_cover(covers, problem.queries.price).value
        wrong_optima += not (found.price == price == covered and (found.status == "infeasible") == (best is None))

    wrong_reductions = wrong_solvers = 0
    for _ in run.progress(range(config.systems), "set systems"):
        sets = random_sets(run.rng, config.elements, config.sets, 0.3)
        truth = _smallest_cover(sets, config.elements)
        problem = problem_from_set_cover(sets, config.elements)
        wrong_reductions += optimal_design(problem).price != truth
        members = [[j for j, s in enumerate(sets) if u in s] for u in range(config.elements)]
        wrong_solvers += any(
            set_cover(members, np.ones(config.sets), s).value != truth for s in ("highs", "cpsat", "pysat")
        )
    plane = problem_from_set_cover(*affine_plane())

    run.measure("designs_disagreeing", wrong_designs)
    run.measure("designs_compared", designs)
    run.measure("optima_disagreeing", wrong_optima)
    run.measure("reductions_disagreeing", wrong_reductions)
    run.measure("master_solvers_disagreeing", wrong_solvers)
    run.measure("affine_plane_optimum", optimal_design(plane).price)
    run.measure("reduction_extra_hard_tuples", _extra_hard_tuples(config.enumerated_elements, run))


def _smallest_cover(sets: list[set[int]], n: int) -> int:
    return next(
        size for size in range(len(sets) + 1) for some in combinations(sets, size) if len(set().union(*some)) == n
    )


def _extra_hard_tuples(n: int, run: Run) -> int:
    """Minimal hard tuples of a reduction beyond one pair an element, by full enumeration."""
    problem = problem_from_set_cover(random_sets(run.rng, n, n, 0.5), n)
    return len(set(all_minimal_hard_tuples(problem)) ^ {(u, n + u) for u in range(n)})


@dataclass(frozen=True)
class NoiseThresholdConfig:
    """The common error at which even the full library stops sufficing."""

    problems: Count = 8
    costs: Count = 8
    queries: Count = 5
    precision: float = 1e-7
    """Width at which the bisection stops, in the unit of the readings."""


@paper.experiment(
    smoke=NoiseThresholdConfig(problems=2, costs=6),
    laptop=NoiseThresholdConfig(),
    paper=NoiseThresholdConfig(problems=40),
    minutes={"laptop": 0.3, "paper": 2},
)
def noise_threshold(config: NoiseThresholdConfig, run: Run) -> None:
    """Bisection on the error against half the smallest largest range of a hard tuple."""
    rows = []
    for i in run.progress(range(config.problems), "problems"):
        d = int(run.rng.integers(2, 5))
        problem = (random_problem, sheared_simplex)[i % 2](run.rng, d, config.costs, config.queries)
        tuples = all_minimal_hard_tuples(problem)
        predicted = min(np.ptp(problem.readings[list(t)], axis=0).max() for t in tuples) / 2
        low, high = 0.0, float(np.ptp(problem.readings, axis=0).max())
        while high - low > config.precision:
            delta = (low + high) / 2
            low, high = (delta, high) if _full_library_suffices(problem, delta) else (low, delta)
        rows.append({"predicted": predicted, "bisection": low, "difference": abs(low - predicted)})
    table = pd.DataFrame(rows)
    run.measure("largest_threshold_difference", table["difference"].max())
    run.table("thresholds", table)


def _full_library_suffices(problem: Problem, delta: float) -> bool:
    q = problem.queries
    noisier = problem.replace(queries=Queries(q.Q, np.full(len(q), delta), q.price))
    return verify_design(noisier, range(len(q))).sufficient
