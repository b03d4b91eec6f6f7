"""The definitions, computed the slow way: a second opinion that shares no step with the method.

Fibers come from sweeping readings, not from cliques; gaps from `scipy.optimize.linprog` on the stated set, not from
the warm program;
designs from trying all subsets.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from finite_resolution.feasible import Box, FiniteDecisions, Polytope, VertexHull
from finite_resolution.problem import Problem


class BruteForce:
    """Slow, independent answers about one problem. Gaps are kept, since the same fibers return under many designs."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._gaps: dict[frozenset[int], float] = {}
        self._values = [self._least(np.array([c]), np.zeros(1)) for c in problem.costs]

    def gap(self, members: Sequence[int] | frozenset[int]) -> float:
        """`min_x max_i (c_i x - v(c_i))`."""
        key = frozenset(members)
        if key not in self._gaps:
            rows = sorted(key)
            self._gaps[key] = self._least(self.problem.costs[rows], np.array([self._values[i] for i in rows]))
        return self._gaps[key]

    def fibers(self, design: Sequence[int]) -> set[frozenset[int]]:
        """Maximal sets of costs consistent with one reading, by sliding a window of width `2 delta_j` over each
        query's sorted readings.
        """
        n = len(self.problem.costs)
        cells = {frozenset(range(n))}
        for j in design:
            y, width = self.problem.readings[:, j], self.problem.separated_above[j]
            windows = {frozenset(np.flatnonzero((y >= start) & (y <= start + width)).tolist()) for start in y}
            cells = {cell & window for cell in cells for window in windows} - {frozenset()}
        return {cell for cell in cells if not any(cell < other for other in cells)}

    def worst_gap(self, design: Sequence[int]) -> float:
        """Largest gap over the fibers of a design."""
        return max(self.gap(fiber) for fiber in self.fibers(design))

    def sufficient(self, design: Sequence[int]) -> bool:
        """Whether every fiber has a decision with regret <= eps."""
        return bool(self.worst_gap(design) <= self.problem.hard_above)

    def best_design(self) -> tuple[tuple[int, ...] | None, float]:
        """The cheapest sufficient design among all `2^M`, and its price; (None, inf) when there is none."""
        m, prices = len(self.problem.queries), self.problem.queries.price
        designs = [s for size in range(m + 1) for s in combinations(range(m), size)]
        for design in sorted(designs, key=lambda s: float(prices[list(s)].sum())):
            if self.sufficient(design):
                return design, float(prices[list(design)].sum())
        return None, float("inf")

    def _least(self, costs: np.ndarray, values: np.ndarray) -> float:
        """`min_x max_i (c_i x - values_i)` from the set's own statement."""
        X = self.problem.X
        if isinstance(X, FiniteDecisions):
            return float(min(max(c @ x - v for c, v in zip(costs, values, strict=True)) for x in X.V))
        if isinstance(X, VertexHull):
            A, b, A_eq, b_eq, bounds = costs @ X.V.T, values, np.ones((1, len(X.V))), [1.0], [(0, None)] * len(X.V)
        elif isinstance(X, Polytope):
            A, b = np.vstack([costs, X.A_ub]), np.r_[values, X.b_ub]
            A_eq, b_eq, bounds = X.A_eq, X.b_eq, list(zip(X.lb, X.ub, strict=True))
        elif isinstance(X, Box):
            A, b, A_eq, b_eq, bounds = costs, values, np.zeros((0, X.dim)), [], list(zip(X.lb, X.ub, strict=True))
        else:
            raise TypeError(f"no brute force for {type(X).__name__}")
        t = np.r_[-np.ones(len(costs)), np.zeros(len(A) - len(costs))]
        answer = linprog(
            np.r_[np.zeros(A.shape[1]), 1.0],
            A_ub=np.column_stack([A, t]),
            b_ub=b,
            A_eq=np.column_stack([A_eq, np.zeros(len(A_eq))]) if len(A_eq) else None,
            b_eq=b_eq if len(A_eq) else None,
            bounds=[*bounds, (None, None)],
            method="highs-ds",
        )
        if answer.status != 0 or answer.fun is None:
            raise RuntimeError(f"linprog ended with status {answer.status}: {answer.message}")
        return float(answer.fun)
