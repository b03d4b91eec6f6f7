"""Feasible sets, tables and their error messages."""

import numpy as np
import pandas as pd
import pytest
from finite_resolution import (
    Box,
    FiniteDecisions,
    InfeasibleSetError,
    Polytope,
    Problem,
    Queries,
    UnboundedSetError,
    VertexHull,
    projected_cost_dimension,
)
from finite_resolution.datasets import grid_paths
from scipy.optimize import linprog


def test_sets_agree_on_the_cheapest_decision():
    rng = np.random.default_rng(0)
    square = [[0.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 2.0]]
    sets = [
        VertexHull(square),
        FiniteDecisions(square),
        Box([0.0, 0.0], [1.0, 2.0]),
        Polytope(lb=[0.0, 0.0], ub=[1.0, 2.0]),
    ]
    for c in rng.normal(size=(20, 2)):
        values, points = zip(*(X.minimize(c) for X in sets), strict=True)
        assert np.ptp(values) < 1e-9 and np.ptp(points, axis=0).max() < 1e-9
    for norm, expected in ((1, 3.0), (2, np.sqrt(5.0)), ("inf", 2.0)):
        assert [X.diameter(norm) for X in sets] == pytest.approx([expected] * 4)


def test_polytope_minimum_equals_linprog():
    rng = np.random.default_rng(1)
    A, b = rng.normal(size=(8, 4)), rng.uniform(0.5, 2, 8)
    X = Polytope(A_ub=A, b_ub=b, A_eq=np.ones((1, 4)), b_eq=[0.0], lb=-1.0, ub=2.0)
    for c in rng.normal(size=(20, 4)):
        assert X.minimize(c)[0] == pytest.approx(linprog(c, A, b, np.ones((1, 4)), [0.0], (-1, 2)).fun)


def test_grid_paths_are_shortest_paths():
    X, edges = grid_paths(4)
    assert X.dim == len(edges) == 24
    value, flow = X.minimize(np.ones(24))
    assert value == pytest.approx(6.0) and flow.sum() == pytest.approx(6.0)  # three right, three down
    assert set(np.round(flow, 9)) == {0.0, 1.0}


def test_empty_and_unbounded_sets():
    with pytest.raises(InfeasibleSetError, match="contradict"):
        Polytope(A_ub=[[1.0], [-1.0]], b_ub=[0.0, -1.0])
    with pytest.raises(InfeasibleSetError, match=r"lb\[1\] = 2 exceeds"):
        Box([0.0, 2.0], [1.0, 1.0])
    with pytest.raises(InfeasibleSetError, match="exceeds"):
        Polytope(lb=[1.0], ub=[0.0])
    with pytest.raises(InfeasibleSetError, match="no rows"):
        VertexHull(np.zeros((0, 2)))
    with pytest.raises(UnboundedSetError, match="coordinate 1 has no limit above"):
        Polytope(A_ub=[[1.0, 0.0]], b_ub=[1.0])
    with pytest.raises(UnboundedSetError, match="coordinate 0 has no limit below"):
        Polytope(lb=None, ub=[1.0])


def test_bad_sets():
    for make, words in (
        (lambda: Polytope(), "dimension is unknown"),
        (lambda: Polytope(A_ub=[[1.0, 2.0]]), "given together"),
        (lambda: Polytope(A_ub=[[1.0, 2.0]], b_ub=[1.0, 2.0]), "b_ub must have shape 1"),
        (lambda: Polytope(A_ub=[1.0, 2.0], b_ub=[1.0]), "A_ub must be a matrix"),
        (lambda: Polytope(lb=[0.0, np.nan], ub=1.0), "lb contains NaN"),
        (lambda: Box([0.0], [np.inf]), "ub contains an infinite"),
        (lambda: Box([0.0], [1.0, 2.0]), "ub must have shape 1, got 2"),
        (lambda: VertexHull([1.0]), "V must have shape anyxany"),
        (lambda: VertexHull([["a"]]), "V must be an array of numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_bad_queries_and_problems():
    X = Box(np.zeros(2), np.ones(2))
    good = Queries(np.eye(2))
    for make, words in (
        (lambda: Queries([1.0]), "Q must have shape"),
        (lambda: Queries(np.eye(2), delta=[0.0, -1.0]), "delta must be >= 0, got -1 for query 1"),
        (lambda: Queries(np.eye(2), price=[1.0, 0.0]), "price must be > 0, got 0 for query 1"),
        (lambda: Queries(np.eye(2), price=[1.0]), "price must have shape 2"),
        (lambda: Queries(np.eye(2), names=("a", "a")), "'a' more than once"),
        (lambda: Queries(np.eye(2), names=("a",)), "one entry a query"),
        (lambda: Problem(X, np.zeros((0, 2)), good, 0.0), "costs is empty"),
        (lambda: Problem(X, [[1.0, 2.0, 3.0]], good, 0.0), "costs must have shape anyx2"),
        (lambda: Problem(X, [[1.0, np.nan]], good, 0.0), r"costs contains NaN at index \(0, 1\)"),
        (lambda: Problem(X, [[1.0, np.inf]], good, 0.0), "infinite"),
        (lambda: Problem(X, [[1.0, 2.0]], Queries(np.eye(3)), 0.0), "Q must have 2 columns"),
        (lambda: Problem(X, [[1.0, 2.0]], good, -1.0), "eps must be >= 0, got -1"),
        (lambda: Problem(X, [[1.0, 2.0]], good, float("nan")), "eps contains NaN"),
        (lambda: Problem(X, [[1.0, 2.0]], good, 0.0, scenarios=["a", "b"]), "scenarios must have 1 names, got 2"),
        (lambda: projected_cost_dimension(X, np.zeros((0, 2))), "costs is empty"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    with pytest.raises(ValueError, match="x must have shape 2"):
        Problem(X, [[1.0, 2.0]], good, 0.0).regret([1.0])


def test_frames_are_matched_by_name():
    costs = pd.DataFrame({"road": [1.0, 3.0], "rail": [2.0, 2.0]}, index=["dry", "wet"])
    queries = pd.DataFrame({"rail": [0.0, 1.0], "road": [1.0, 1.0]}, index=["gauge", "both"])
    X = VertexHull(np.eye(2))
    problem = Problem.from_frames(X, costs, queries, pd.Series({"both": 4.0, "gauge": 2.0}), 0.25, eps=0.5)
    assert problem.queries.Q.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert problem.queries.price.tolist() == [2.0, 4.0] and problem.queries.delta.tolist() == [0.25, 0.25]
    assert problem.queries.names == ("gauge", "both") and problem.scenarios == ("dry", "wet")
    assert problem.components == ("road", "rail")
    assert Problem.from_frames(X, costs, queries[["road"]]).queries.Q.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    for change, words in (
        ({"queries": queries.rename(columns={"rail": "sea"})}, "column 'sea'"),
        ({"queries": queries.set_axis(["a", "a"])}, "'a' more than once"),
        ({"prices": pd.Series({"gauge": 1.0})}, "prices has no entry for query 'both'"),
        ({"costs": costs.set_axis(["road", "road"], axis=1)}, "'road' more than once"),
    ):
        with pytest.raises(ValueError, match=words):
            Problem.from_frames(**({"X": X, "costs": costs, "queries": queries} | change))
