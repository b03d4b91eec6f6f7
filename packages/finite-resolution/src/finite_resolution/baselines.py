"""Other ways to choose queries: span everything, most variance, D-optimal, random order, and the unsound pairs-only
certificate.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from finite_resolution.certificate import cover_set
from finite_resolution.covering import CoverResult, Solver, set_cover
from finite_resolution.problem import Problem
from finite_resolution.verify import verify_design


def span_design(problem: Problem) -> tuple[int, ...] | None:
    """Queries whose span contains `L = span(X - X)`: what exact readings need when nothing is known about the cost.

    In the spirit of Bennouna et al. (arXiv 2505.21692). Dropping the dearest dispensable query first gives an
    inclusion-minimal set; it is
    the cheapest one when the directions are linearly independent (the set is then unique) and a heuristic otherwise,
    since finding the
    fewest vectors that span a given one is hard in general. None when even all queries do not span L.
    """
    basis = problem.X.direction_basis()

    def spans(design: Sequence[int]) -> bool:
        if not design or not basis.shape[1]:
            return not basis.shape[1]
        directions = problem.queries.Q[list(design)].T
        fit = directions @ np.linalg.lstsq(directions, basis, rcond=None)[0]
        return bool(np.abs(fit - basis).max() <= 1e-8)

    kept = list(range(len(problem.queries)))
    if not spans(kept):
        return None
    for j in sorted(kept, key=lambda j: -problem.queries.price[j]):
        rest = [i for i in kept if i != j]
        if spans(rest):
            kept = rest
    return tuple(kept)


def variance_order(problem: Problem) -> list[int]:
    """Queries by falling variance of their readings over the library."""
    return np.argsort(-problem.readings.var(axis=0), kind="stable").tolist()


def d_optimal_order(problem: Problem) -> list[int]:
    """Greedy Bayesian D-optimal order: each query adds most to `log det(K_SS + delta^2 I)`, K the covariance of the
    readings.
    """
    m = len(problem.queries)
    readings = problem.readings - problem.readings.mean(axis=0)
    floor = 1e-12 * max(1.0, float((readings**2).mean(axis=0).max(initial=0.0)))
    noisy = readings.T @ readings / len(readings) + np.diag(np.maximum(problem.queries.delta**2, floor))
    order: list[int] = []
    while len(order) < m:
        rest = [j for j in range(m) if j not in order]
        order.append(max(rest, key=lambda j: np.linalg.slogdet(noisy[np.ix_([*order, j], [*order, j])])[1]))
    return order


def smallest_sufficient_prefix(problem: Problem, order: Sequence[int]) -> tuple[int, ...] | None:
    """The shortest sufficient beginning of the order (bisection: more queries never hurt), or None when the whole
    does not suffice.
    """
    low, high = 0, len(order)
    if not verify_design(problem, order).sufficient:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if verify_design(problem, order[:middle]).sufficient else (middle + 1, high)
    return tuple(sorted(order[:high]))


def pairs_only_design(problem: Problem, master: Solver = "highs") -> CoverResult:
    """The cheapest design that tells every hard *pair* apart: an ablation of the tuple size, and unsound.

    Raises:
        UncoverableError: a hard pair that no query tells apart.
    """
    pairs = combinations(range(len(problem.costs)), 2)
    covers = {
        cover_set(problem, pair)
        for pair in pairs
        if problem.program.solve(list(pair)).worst_regret > problem.hard_above
    }
    return set_cover(sorted(covers, key=sorted), problem.queries.price, master)


def price_of(problem: Problem, design: Sequence[int] | None) -> float:
    """Total price of a design; infinite for None."""
    prices: Float[np.ndarray, " m"] = problem.queries.price
    return float("inf") if design is None else float(prices[list(design)].sum())
