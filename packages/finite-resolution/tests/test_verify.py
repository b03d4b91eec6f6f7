"""Both verification engines against brute force, and what must not change the verdict."""

import numpy as np
import pytest
from finite_resolution import Box, FiniteDecisions, Problem, Queries, TimeLimitError, VertexHull, verify_design
from finite_resolution.brute_force import BruteForce
from finite_resolution.datasets import random_problem, sheared_simplex, simplex_problem
from hypothesis import given, settings
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(["hull", "polytope", "list", "sheared"])


def draw(seed: int, kind: str, n: int = 7, m: int = 5) -> tuple[Problem, list[int]]:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 5))
    problem = sheared_simplex(rng, d, n, m) if kind == "sheared" else random_problem(rng, d, n, m, kind)
    return problem, np.flatnonzero(rng.random(m) < 0.5).tolist()


@given(seeds, kinds)
@settings(max_examples=25, deadline=None)
def test_engines_agree_with_brute_force(seed, kind):
    problem, design = draw(seed, kind)
    brute = BruteForce(problem)
    fibers, milp = verify_design(problem, design), verify_design(problem, design, "milp")
    assert {frozenset(f.members) for f in fibers.fibers} == brute.fibers(design)
    assert fibers.worst_gap == pytest.approx(brute.worst_gap(design), abs=1e-7)
    assert milp.worst_gap == pytest.approx(brute.worst_gap(design), abs=1e-6)
    assert fibers.sufficient == milp.sufficient == brute.sufficient(design)
    for members in (*fibers.hard_tuples, *milp.hard_tuples):
        assert any(set(members) <= fiber for fiber in brute.fibers(design))
        assert brute.gap(members) > problem.eps


@given(seeds, kinds)
@settings(max_examples=15, deadline=None)
def test_more_queries_tolerance_or_precision_never_hurt(seed, kind):
    problem, design = draw(seed, kind)
    worst = verify_design(problem, design).worst_gap
    others = [j for j in range(5) if j not in design]
    if others:
        assert verify_design(problem, [*design, others[0]]).worst_gap <= worst + 1e-9
    q = problem.queries
    sharper = problem.replace(queries=Queries(q.Q, q.delta / 2, q.price))
    assert verify_design(sharper, design).worst_gap <= worst + 1e-9
    if verify_design(problem, design).sufficient:
        assert verify_design(problem.replace(eps=problem.eps + 0.1), design).sufficient


def test_a_fiber_may_lie_between_the_noiseless_readings():
    # readings 0, 1.5 and 3 with error 1: {0, 1.5} and {1.5, 3} are fibers, {0, 1.5, 3} is not
    problem = Problem(Box([-1.0], [1.0]), [[0.0], [1.5], [3.0]], Queries([[1.0]], delta=[1.0]), 0.0)
    assert {f.members for f in verify_design(problem, [0]).fibers} == {(0, 1), (1, 2)}
    # with error 1.5 one reading (1.5) is consistent with all three, the outer two with each other
    wider = problem.replace(queries=Queries([[1.0]], delta=[1.5]))
    assert {f.members for f in verify_design(wider, [0]).fibers} == {(0, 1, 2)}


def test_pairs_do_not_suffice():
    problem = simplex_problem(3, eps=0.2)  # every pair shares a decision, the triple does not (gap 1/3)
    answer = verify_design(problem, [])
    assert not answer.sufficient and answer.hard_tuples == ((0, 1, 2),)
    assert answer.worst_gap == pytest.approx(1 / 3)


@pytest.mark.parametrize("engine", ["fibers", "milp"])
def test_degenerate_problems(engine):
    rng = np.random.default_rng(0)
    one_cost = Problem(VertexHull(rng.normal(size=(4, 2))), rng.normal(size=(1, 2)), Queries(np.zeros((0, 2))), 0.0)
    same_costs = Problem(VertexHull(rng.normal(size=(4, 2))), np.ones((3, 2)), Queries(np.eye(2)), 0.0)
    one_point = Problem(VertexHull([[1.0, 2.0]]), rng.normal(size=(5, 2)), Queries(np.eye(2)), 0.0)
    one_decision = Problem(FiniteDecisions([[1.0, 2.0]]), rng.normal(size=(5, 2)), Queries(np.eye(2)), 0.0)
    for problem in (one_cost, same_costs, one_point, one_decision):
        answer = verify_design(problem, [], engine)
        assert answer.sufficient and answer.worst_gap == pytest.approx(0.0, abs=1e-7)


def test_too_many_fibers_change_the_engine():
    problem, _ = draw(3, "hull")
    with pytest.warns(UserWarning, match="milp engine"):
        answer = verify_design(problem, range(5), max_fibers=1)
    assert answer.engine == "milp"
    assert answer.sufficient == verify_design(problem, range(5)).sufficient


def test_time_limit_raises():
    problem, design = draw(1, "hull")
    with pytest.raises(TimeLimitError):
        verify_design(problem, design, time_limit=-1.0)


def test_bad_arguments():
    problem, _ = draw(1, "hull")
    with pytest.raises(ValueError, match="unknown index 5"):
        verify_design(problem, [5])
    with pytest.raises(ValueError, match="max_tuples"):
        verify_design(problem, [0], max_tuples=0)
