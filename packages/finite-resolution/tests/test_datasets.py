"""The real data, the baselines on it, and the paper-scale loaders."""

import numpy as np
import pytest
from finite_resolution import (
    Box,
    Problem,
    Queries,
    UncoverableError,
    VertexHull,
    greedy_design,
    optimal_design,
    projected_cost_dimension,
    verify_design,
)
from finite_resolution.baselines import (
    d_optimal_order,
    pairs_only_design,
    price_of,
    smallest_sufficient_prefix,
    span_design,
    variance_order,
)
from finite_resolution.datasets import flight_delays, flight_problem, simplex_problem, traffic_problem


def test_weekly_and_daily_delays():
    weeks = flight_delays()
    assert weeks.shape == (52, 15) and not weeks.isna().any().any()
    assert list(weeks.columns[:2]) == ["EWR 0-9h", "EWR 9-12h"] and weeks.index[0] == "week 0"
    # evening departures are the late ones at every airport
    assert all(weeks[f"{o} 18-24h"].mean() > weeks[f"{o} 0-9h"].mean() for o in ("EWR", "JFK", "LGA"))
    days = flight_delays("day")
    assert days.shape == (363, 15) and not days.isna().any().any()
    assert days.to_numpy().min() < weeks.to_numpy().min()  # means over a week are tamer


@pytest.mark.parametrize(
    ("delta", "eps", "price", "largest"), [(2.0, 2.0, 2.0, 5), (2.0, 4.0, 1.0, 5), (0.5, 8.0, 0.0, 0)]
)
def test_flight_optima(delta, eps, price, largest):
    """Computed before this package by a separate prototype."""
    problem = flight_problem(eps, delta)
    found = optimal_design(problem)
    assert (found.status, found.price) == ("optimal", price)
    assert max((len(t) for t in found.tuples), default=0) <= largest
    assert projected_cost_dimension(problem.X, problem.costs) == 14


def test_flights_with_errors_of_four_minutes():
    assert optimal_design(flight_problem(1.0, 4.0)).status == "infeasible"
    problem = flight_problem(2.0, 4.0)
    assert optimal_design(problem).price == 5
    pairs = pairs_only_design(problem)  # unsound: four queries that tell all hard pairs apart, yet not all hard tuples
    assert pairs.value == 4 and verify_design(problem, pairs.selected).worst_gap > 2.1
    assert price_of(problem, smallest_sufficient_prefix(problem, variance_order(problem))) == 11


def test_span_design_needs_every_coordinate_of_the_shares():
    # the differences of shares span {sum x = 0}, which 14 unit vectors do not contain
    assert span_design(flight_problem(0.0, 0.0)) == tuple(range(15))
    assert span_design(Problem(Box(np.zeros(3), [1.0, 1.0, 0.0]), np.eye(3), Queries(np.eye(3)), 0.0)) == (0, 1)
    contrasts = Queries([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 0.0, -1.0]], price=[1.0, 5.0, 2.0])
    # any two span, the dearest goes
    assert span_design(Problem(VertexHull(np.eye(3)), np.eye(3), contrasts, 0.0)) == (0, 2)
    assert span_design(Problem(VertexHull(np.eye(3)), np.eye(3), Queries([[1.0, 0.0, 0.0]]), 0.0)) is None


def test_orders_and_prefixes():
    problem = Problem(
        VertexHull(np.eye(3)),
        [[0.0, 5.0, 1.0], [1.0, 0.0, 1.0], [0.0, 5.0, 0.0]],
        Queries(np.eye(3), delta=[0.1] * 3),
        0.0,
    )
    assert variance_order(problem)[0] == 1 and sorted(d_optimal_order(problem)) == [0, 1, 2]
    assert d_optimal_order(problem)[0] == 1
    prefix = smallest_sufficient_prefix(problem, [1, 2, 0])
    assert prefix is not None and verify_design(problem, prefix).sufficient
    assert prefix == () or not verify_design(problem, [1, 2, 0][: len(prefix) - 1]).sufficient
    hopeless = problem.replace(queries=Queries(np.eye(3), delta=[9.0] * 3))
    assert smallest_sufficient_prefix(hopeless, [0, 1, 2]) is None and price_of(hopeless, None) == np.inf
    with pytest.raises(UncoverableError):
        pairs_only_design(hopeless)


def test_pairs_only_buys_nothing_where_only_the_triple_is_hard():
    problem = simplex_problem(3, 0.2)
    assert pairs_only_design(problem).selected == ()
    assert not verify_design(problem, ()).sufficient
    assert greedy_design(problem).price == 1.0


def test_traffic_moves_in_three_factors():
    problem = traffic_problem(np.random.default_rng(0), side=4, days=30, eps=1.0, delta=0.3)
    assert problem.X.dim == 24 and problem.tuple_size_bound == 4
    assert set(problem.queries.price) <= {1.0, 2.0, 3.0}
