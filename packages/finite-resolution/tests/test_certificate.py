"""Gaps and hard tuples against closed forms."""

from itertools import combinations

import numpy as np
import pytest
from finite_resolution import (
    Box,
    FiniteDecisions,
    Polytope,
    Problem,
    Queries,
    VertexHull,
    all_minimal_hard_tuples,
    common_decision,
    cover_set,
    gap,
    indistinguishable,
    is_hard,
    jensen_gap,
    minimal_hard_tuple,
    projected_cost_dimension,
)
from finite_resolution.certificate import enclosing_radius
from finite_resolution.datasets import add_invisible, grid_paths, random_problem, sheared_simplex, simplex_problem
from hypothesis import given, settings
from hypothesis import strategies as st


def line(a: float, b: float, X, eps: float = 0.0) -> Problem:
    return Problem(X, [[a], [-b]], Queries(np.eye(1)), eps)


@pytest.mark.parametrize(
    ("a", "b", "expected"), [(2.0, 2.0, 1.0), (1.0, 3.0, 0.75), (1e-3, 1e3, 1e-3 * 1e3 / 1000.001)]
)
def test_two_opposite_costs_on_a_segment(a, b, expected):
    for X in (VertexHull([[0.0], [1.0]]), Box([0.0], [1.0]), Polytope(lb=[0.0], ub=[1.0])):
        assert gap(line(a, b, X), [0, 1]) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("eps", "hard"), [(0.5, True), (0.99, True), (1.0, False), (1.5, False)])
def test_indivisible_decisions_are_hard_iff_the_smaller_cost_exceeds_the_tolerance(eps, hard):
    problem = line(1.0, 3.0, FiniteDecisions([[0.0], [1.0]]), eps)
    assert gap(problem, [0, 1]) == pytest.approx(1.0)
    assert is_hard(problem, [0, 1]) is hard
    # mixing decisions is worth something: the hull's gap is 0.75
    assert is_hard(line(1.0, 3.0, VertexHull([[0.0], [1.0]]), 0.8), [0, 1]) is False


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_simplex_has_one_hard_tuple_with_gap_one_over_n(n):
    problem = simplex_problem(n, eps=0.5 / n)
    assert gap(problem, range(n)) == pytest.approx(1 / n, abs=1e-9)
    assert all(gap(problem, part) == pytest.approx(0.0, abs=1e-9) for part in combinations(range(n), n - 1))
    assert all_minimal_hard_tuples(problem) == [tuple(range(n))]
    assert minimal_hard_tuple(problem, range(n)) == tuple(range(n))
    assert projected_cost_dimension(problem.X, problem.costs) == n - 1
    assert problem.tuple_size_bound == n


def test_affine_and_linear_dimension_differ():
    X = Box([-1.0, -1.0], [1.0, 1.0])
    assert projected_cost_dimension(X, [[1.0, 0.0], [1.0, 1.0]]) == 1
    assert projected_cost_dimension(X, [[1.0, 0.0], [1.0, 1.0]], linear=True) == 2


def test_cube_values_and_opposite_pair():
    problem = Problem(
        Box(-np.ones(3), np.ones(3)), np.vstack([np.eye(3), -np.eye(3), [[1.0, -2.0, 3.0]]]), Queries(np.eye(3)), 0.5
    )
    assert problem.optimal_values[-1] == pytest.approx(-6.0)  # v(c) = -|c|_1
    assert [gap(problem, (u, 3 + u)) for u in range(3)] == pytest.approx([1.0, 1.0, 1.0])
    assert gap(problem, (0, 1, 2)) == pytest.approx(0.0, abs=1e-9)


def test_equality_is_neither_hard_nor_separated():
    problem = Problem(VertexHull([[0.0], [1.0]]), [[2.0], [-2.0]], Queries([[1.0]], delta=[2.0]), eps=1.0)
    assert not is_hard(problem, [0, 1])  # gap exactly 1
    assert cover_set(problem, [0, 1]) == frozenset()  # range exactly 4 = 2 delta
    assert indistinguishable(problem, [0, 1], [0])
    tighter = problem.replace(queries=Queries([[1.0]], delta=[1.999]))
    assert cover_set(tighter, [0, 1]) == {0}


def test_euclidean_noise_is_not_decided_by_pairs():
    side = 1.8
    corners = side * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    problem = Problem(Box(-np.ones(2), np.ones(2)), corners, Queries(np.eye(2), delta=[1.0, 1.0]), 0.0)
    assert all(indistinguishable(problem, pair, [0, 1], "l2") for pair in combinations(range(3), 2))
    assert not indistinguishable(problem, [0, 1, 2], [0, 1], "l2")
    assert indistinguishable(problem, [0, 1, 2], [0, 1], "box")
    assert indistinguishable(problem, [0, 1, 2], [], "l2")
    assert enclosing_radius(corners) == pytest.approx(1.8 / np.sqrt(3), rel=1e-9)  # 1.0392


def test_enclosing_radius_of_repeated_and_collinear_points():
    assert enclosing_radius(np.ones((4, 3))) == 0.0
    assert enclosing_radius(np.array([[0.0, 0.0], [1.0, 1.0], [4.0, 4.0], [4.0, 4.0]])) == pytest.approx(2 * np.sqrt(2))


def test_direction_basis_of_every_kind():
    assert grid_paths(3)[0].direction_basis().shape == (12, 4)  # 12 edges, (side - 1)^2 independent cycles
    segment = Polytope(A_eq=[[1.0, 1.0, 0.0]], b_eq=[1.0], A_ub=[[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], b_ub=[2.0, -2.0])
    basis = segment.direction_basis()  # the third coordinate is fixed by two inequalities
    assert np.abs(basis[:, 0]) == pytest.approx([np.sqrt(0.5), np.sqrt(0.5), 0.0], abs=1e-9)
    assert basis.shape == (3, 1)
    assert VertexHull([[1.0, 2.0]]).direction_basis().shape == (2, 0)
    assert Box([0.0, 1.0], [0.0, 3.0]).direction_basis().tolist() == [[0.0], [1.0]]


seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.booleans())
@settings(max_examples=20, deadline=None)
def test_gap_properties(seed, sheared):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 5))
    problem = sheared_simplex(rng, d, 7, 2) if sheared else random_problem(rng, d, 7, 2)
    members = sorted(rng.choice(7, size=int(rng.integers(2, 7)), replace=False).tolist())
    answer = common_decision(problem, members)
    # the decision has the regret that is certified, and the two forms of the gap meet
    assert problem.regret(answer.x)[members].max() == pytest.approx(answer.worst_regret, abs=1e-9)
    assert jensen_gap(problem, members, answer.multipliers) == pytest.approx(answer.worst_regret, abs=1e-7)
    weights = rng.dirichlet(np.ones(len(members)))
    assert jensen_gap(problem, members, weights) <= answer.worst_regret + 1e-9  # weak duality
    assert gap(problem, members[:-1]) <= answer.worst_regret + 1e-9  # monotone
    lifted = add_invisible(rng, problem)
    assert gap(lifted, members) == pytest.approx(answer.worst_regret, abs=1e-7)
    assert projected_cost_dimension(lifted.X, lifted.costs) == projected_cost_dimension(problem.X, problem.costs)


@given(seeds, st.sampled_from(["hull", "list", "polytope"]))
@settings(max_examples=15, deadline=None)
def test_minimal_tuples_are_minimal_and_small(seed, kind):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 3, 7, 2, kind)
    everyone = range(7)
    found = minimal_hard_tuple(problem, everyone)
    assert is_hard(problem, found) and len(found) <= problem.tuple_size_bound
    assert not any(is_hard(problem, part) for part in combinations(found, len(found) - 1))
    assert found in all_minimal_hard_tuples(problem)


def test_bad_members():
    problem = simplex_problem(3, 0.1)
    for members, words in (([], "empty"), ([3], "unknown index 3"), ([0, 0], "more than once")):
        with pytest.raises(ValueError, match=words):
            gap(problem, members)
    with pytest.raises(ValueError, match="not hard"):
        minimal_hard_tuple(problem, [0, 1])
    with pytest.raises(ValueError, match="sum 1"):
        jensen_gap(problem, [0, 1], [0.5, 0.6])
    with pytest.raises(ValueError, match="max_size"):
        all_minimal_hard_tuples(problem, max_size=0)
    with pytest.raises(ValueError, match="one delta"):
        uneven = problem.replace(queries=Queries(np.eye(3), delta=[0.0, 1.0, 2.0]))
        indistinguishable(uneven, [0, 1], [0, 1], "l2")
