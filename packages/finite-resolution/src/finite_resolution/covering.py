"""Weighted set cover (hitting set): the master problem. Exact by HiGHS, CP-SAT or a MaxSAT hitting-set solver, or
greedy.

Element k is covered when some selected query lies in `covers[k]`. Every solver's answer is put back into the elements
before it is returned.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from finite_resolution.errors import SolverError, TimeLimitError, UncoverableError
from finite_resolution.linear_programs import LinearSystem, solve_integer_program
from finite_resolution.validation import Numbers, number_array

Solver = Literal["highs", "cpsat", "pysat", "greedy"]


@dataclass(frozen=True)
class CoverResult:
    """A checked cover.

    Attributes:
        selected: sorted indices of queries.
        value: their total price.
        lower_bound: no cover costs less; equals value when `optimal`, `value / H(g)` for greedy (Chvatal 1979), g
            being the largest number
            of elements that one query covers.
        optimal: the solver proved the value to be the smallest.
    """

    selected: tuple[int, ...]
    value: float
    lower_bound: float
    optimal: bool


def set_cover(
    covers: Sequence[Collection[int]], prices: Numbers, solver: Solver = "highs", time_limit: float | None = None
) -> CoverResult:
    """The cheapest queries that meet every cover set.

    Args:
        covers: for each element the queries that cover it.
        prices: price of each query, shape (M,), > 0.
        solver: `highs` (any prices), `cpsat` (prices that are multiples of one unit), `pysat` (equal prices),
            `greedy` (approximate).
        time_limit: seconds (`highs` and `cpsat`).

    Raises:
        ValueError: unknown query or solver, a price <= 0, or prices that the solver cannot treat exactly.
        UncoverableError: an element has an empty cover set.
        TimeLimitError: the time ran out before the optimum was proved.
        SolverError: the solver failed, or its answer is no cover or not of the value it reports.
    """
    prices = number_array("prices", prices, (None,))
    if prices.size and prices.min() <= 0:
        raise ValueError(f"price must be > 0, got {prices.min():g} for query {int(prices.argmin())}")
    if solver not in _SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(_SOLVERS)}, got {solver!r}")
    matrix = _incidence(covers, len(prices))
    if not len(matrix):
        return CoverResult((), 0.0, 0.0, True)
    if solver == "greedy":
        return _greedy(matrix, prices)
    selected, reported = _SOLVERS[solver](matrix, prices, time_limit)
    return check_cover(matrix, prices, selected, reported)


def check_cover(
    matrix: Bool[np.ndarray, "elements m"], prices: Float[np.ndarray, " m"], selected: Sequence[int], reported: float
) -> CoverResult:
    """Accept a solver's optimum only if it is a cover and costs what the solver says.

    Raises:
        SolverError: it is not, or does not.
    """
    chosen = sorted(int(j) for j in selected)
    missed = np.flatnonzero(~matrix[:, chosen].any(axis=1))
    if len(missed):
        raise SolverError(
            f"the solver reports an optimal cover, but element {missed[0]} is not covered by queries {chosen}"
        )
    value = float(prices[chosen].sum())
    if not abs(value - reported) <= 1e-6 * max(1.0, value):
        raise SolverError(f"the solver reports an optimum of {reported:.9g}, but its cover costs {value:.9g}")
    return CoverResult(tuple(chosen), value, value, True)


def minimal_covers(covers: Sequence[Collection[int]]) -> list[frozenset[int]]:
    """The distinct cover sets without those that contain another one (they are met whenever it is)."""
    kept: list[frozenset[int]] = []
    for cover in sorted({frozenset(c) for c in covers}, key=lambda c: (len(c), sorted(c))):
        if not any(smaller <= cover for smaller in kept):
            kept.append(cover)
    return kept


def harmonic(g: int) -> float:
    """`H(g) = 1 + 1/2 + ... + 1/g`, greedy's guarantee; at most `1 + ln g`."""
    return sum(1.0 / i for i in range(1, g + 1))


def _incidence(covers: Sequence[Collection[int]], m: int) -> np.ndarray:
    matrix = np.zeros((len(covers), m), dtype=bool)
    for k, cover in enumerate(covers):
        if not cover:
            raise UncoverableError(f"element {k} has an empty cover set: no selection covers it")
        wrong = [j for j in cover if not 0 <= j < m]
        if wrong:
            raise ValueError(f"covers[{k}] has the unknown query {wrong[0]}: there are {m}, numbered from 0")
        matrix[k, list(cover)] = True
    return matrix


def _greedy(matrix: np.ndarray, prices: np.ndarray) -> CoverResult:
    guarantee = harmonic(int(matrix.sum(axis=0).max()))
    open_elements = np.ones(len(matrix), dtype=bool)
    selected: list[int] = []
    while open_elements.any():
        best = int(np.argmax(matrix[open_elements].sum(axis=0) / prices))
        selected.append(best)
        open_elements &= ~matrix[:, best]
    value = float(prices[selected].sum())
    return CoverResult(tuple(sorted(selected)), value, value / guarantee, guarantee == 1.0)


def _highs(matrix: np.ndarray, prices: np.ndarray, time_limit: float | None) -> tuple[Sequence[int], float]:
    k, m = matrix.shape
    system = LinearSystem(
        sparse.csr_array(matrix.astype(float)), np.ones(k), np.full(k, np.inf), np.zeros(m), np.ones(m)
    )
    solution = solve_integer_program(system, prices, np.ones(m, dtype=bool), time_limit)
    return np.flatnonzero(solution.z > 0.5).tolist(), solution.bound


def _cpsat(matrix: np.ndarray, prices: np.ndarray, time_limit: float | None) -> tuple[Sequence[int], float]:
    from ortools.sat.python import cp_model  # a second to import: only for those who ask for it

    fractions = [Fraction(float(p)).limit_denominator(10**4) for p in prices]
    unit = Fraction(1, math.lcm(*(f.denominator for f in fractions)))
    integers = [int(f / unit) for f in fractions]
    if any(float(f) != p for f, p in zip(fractions, prices, strict=True)) or sum(integers) > 2**52:
        raise ValueError("solver 'cpsat' needs prices that are multiples of one unit, such as cents; use 'highs'")
    model = cp_model.CpModel()
    bought = [model.new_bool_var(f"q{j}") for j in range(len(prices))]
    for row in matrix:
        model.add_bool_or([bought[j] for j in np.flatnonzero(row)])
    model.minimize(sum(w * s for w, s in zip(integers, bought, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if time_limit is not None:
        solver.parameters.max_time_in_seconds = max(0.0, time_limit)
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        if time_limit is not None and status in (cp_model.FEASIBLE, cp_model.UNKNOWN):
            raise TimeLimitError(f"no proved optimum within {time_limit:.3g} s")
        raise SolverError(f"CP-SAT ended with status {solver.status_name(status)!r}, expected 'OPTIMAL'")
    return [j for j, s in enumerate(bought) if solver.boolean_value(s)], solver.best_objective_bound * float(unit)


def _pysat(matrix: np.ndarray, prices: np.ndarray, time_limit: float | None) -> tuple[Sequence[int], float]:
    from pysat.examples.hitman import Hitman

    if np.ptp(prices) > 0:
        raise ValueError(
            f"solver 'pysat' counts queries, so all prices must be equal, got {prices.min():g} to {prices.max():g}"
        )
    with Hitman(bootstrap_with=[np.flatnonzero(row).tolist() for row in matrix], htype="sorted") as hitman:
        selected = hitman.get()
    if selected is None:
        raise SolverError("the hitting-set solver found no cover, though every element can be covered")
    return selected, len(selected) * float(prices[0])


_SOLVERS: dict[str, Callable[[np.ndarray, np.ndarray, float | None], tuple[Sequence[int], float]]] = {
    "highs": _highs,
    "cpsat": _cpsat,
    "pysat": _pysat,
    "greedy": lambda matrix, prices, time_limit: (_greedy(matrix, prices).selected, math.nan),
}
