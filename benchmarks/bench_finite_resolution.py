"""finite-resolution against its peers: the other verification engine, full enumeration, and general solvers."""

import numpy as np
from finite_resolution import (
    Problem,
    all_minimal_hard_tuples,
    cover_set,
    gap,
    interval_cover,
    optimal_design,
    set_cover,
    verify_design,
)
from finite_resolution.brute_force import BruteForce
from finite_resolution.datasets import flight_problem, random_problem
from finite_resolution.set_systems import random_sets


def test_fiber_engine_against_the_integer_program(compare):
    problem = flight_problem(eps=4.0, delta=2.0)
    design = list(optimal_design(problem).selected)

    def cold():  # the problem without the gaps that it keeps
        return Problem(problem.X, problem.costs, problem.queries, problem.eps)

    def fibers():
        return verify_design(cold(), design)

    def milp():
        return verify_design(cold(), design, "milp")

    assert fibers().sufficient == milp().sufficient
    assert abs(fibers().worst_gap - milp().worst_gap) < 1e-5
    compare(
        "verification, flights (delta 2, eps 4)",
        fibers,
        milp,
        peer_name="integer program (HiGHS)",
        target=0.1,
        repeats=3,
    )


def test_delayed_constraints_against_full_enumeration(compare):
    problem = random_problem(np.random.default_rng(3), d=4, n=14, m=10)

    def fresh():
        return Problem(problem.X, problem.costs, problem.queries, problem.eps)

    def delayed():
        return optimal_design(fresh()).price

    def enumerated():
        cold = fresh()
        covers = [cover_set(cold, t) for t in all_minimal_hard_tuples(cold)]
        return set_cover(covers, cold.queries.price).value if all(covers) else np.inf

    assert delayed() == enumerated()
    compare("optimal design, N = 14, a = 4", delayed, enumerated, peer_name="full enumeration", target=0.2, repeats=3)


def test_warm_gap_against_linprog(compare):
    problem = random_problem(np.random.default_rng(0), d=4, n=20, m=1)
    brute = BruteForce(problem)
    rng = np.random.default_rng(1)
    tuples = [sorted(rng.choice(20, 6, replace=False).tolist()) for _ in range(50)]

    def warm():
        fresh = Problem(problem.X, problem.costs, problem.queries, problem.eps)
        return [gap(fresh, t) for t in tuples]

    def cold():
        brute._gaps.clear()
        return [brute.gap(t) for t in tuples]

    assert np.allclose(warm(), cold(), atol=1e-7)
    compare("50 gaps of 6 costs", warm, cold, peer_name="scipy.optimize.linprog", target=0.5)


def test_highs_master_against_cpsat(compare):
    rng = np.random.default_rng(0)
    sets = random_sets(rng, 60, 40, 0.1)
    covers = [[j for j, s in enumerate(sets) if u in s] for u in range(60)]
    prices = rng.integers(1, 9, 40).astype(float)
    assert set_cover(covers, prices).value == set_cover(covers, prices, "cpsat").value
    compare(
        "master, 60 cover sets of 40 queries",
        lambda: set_cover(covers, prices),
        lambda: set_cover(covers, prices, "cpsat"),
        peer_name="OR-Tools CP-SAT",
        target=1.0,
    )


def test_interval_program_against_the_integer_program(compare):
    rng = np.random.default_rng(0)
    n = 2000
    start = rng.integers(0, n, n)
    spans = np.vstack([np.column_stack([start, np.minimum(start + rng.integers(1, 50, n), n)]), [[0, n]]])
    prices = np.r_[rng.integers(1, 9, n), 10 * n].astype(float)
    covers = [np.flatnonzero((spans[:, 0] <= p) & (p < spans[:, 1])).tolist() for p in range(n)]
    assert interval_cover(spans, prices, n).value == set_cover(covers, prices).value
    compare(
        "interval cover, 2000 points",
        lambda: interval_cover(spans, prices, n),
        lambda: set_cover(covers, prices),
        peer_name="integer program (HiGHS)",
        target=0.1,
        repeats=3,
    )
