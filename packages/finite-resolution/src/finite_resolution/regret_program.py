"""The decision that is least bad for a group of costs: `min_x max_i r(x, c_i)`, the linear program behind every
certificate.
"""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import sparse

from finite_resolution.feasible import ConvexSet, FiniteDecisions
from finite_resolution.linear_programs import LinearProgram, LinearSystem


@dataclass(frozen=True)
class CommonDecision:
    """The decision with the smallest worst regret over some costs.

    Attributes:
        x: the decision, shape (d,).
        worst_regret: its largest regret over the costs; the gap of the tuple.
        multipliers: the mixture of the costs (>= 0, sum 1, in the order asked) that proves no decision does better;
            None for indivisible
            decisions, where no single mixture does.
    """

    x: Float[np.ndarray, " d"]
    worst_regret: float
    multipliers: Float[np.ndarray, " k"] | None


class ConvexRegretProgram:
    """`min t` subject to `c_i x - v_i <= t` for the asked members and x in a convex set; one warm HiGHS model for all
    member sets.
    """

    def __init__(self, X: ConvexSet, costs: Float[np.ndarray, "n d"], optimal_values: Float[np.ndarray, " n"]) -> None:
        self._costs, self._values = costs, optimal_values
        self._scale = float(np.abs(costs).max(initial=0.0)) or 1.0
        self._lift, inner = X.lifted()
        n, k = len(costs), inner.columns
        # t stays strictly inside its bounds, so the multipliers of the regret rows always sum to one
        ceiling = max(-X.minimize(-c)[0] - v for c, v in zip(costs, optimal_values, strict=True)) / self._scale + 1.0
        regret_rows = sparse.hstack(
            [sparse.csr_array(costs / self._scale) @ self._lift, sparse.csr_array(-np.ones((n, 1)))]
        )
        other_rows = sparse.hstack([inner.A, sparse.csr_array((inner.A.shape[0], 1))])
        self._other_upper = inner.row_upper
        system = LinearSystem(
            sparse.csr_array(sparse.vstack([regret_rows, other_rows])),
            np.r_[np.full(n, -np.inf), inner.row_lower],
            np.r_[optimal_values / self._scale, inner.row_upper],
            np.r_[inner.lower, -1.0],
            np.r_[inner.upper, ceiling],
        )
        self._program = LinearProgram(system, np.r_[np.zeros(k), 1.0])
        # a gap depends on no query, error or tolerance, and searches ask for the same groups again and again
        self._kept = functools.lru_cache(maxsize=50_000)(self._solve)

    def solve(self, members: list[int]) -> CommonDecision:
        """Raises SolverError when the solver's answer does not survive the check."""
        return self._kept(tuple(members))

    def _solve(self, asked: tuple[int, ...]) -> CommonDecision:
        members = list(asked)
        active = np.full(len(self._costs), np.inf)
        active[members] = self._values[members] / self._scale
        self._program.set_row_upper(np.r_[active, self._other_upper])
        solution = self._program.solve()
        x = self._lift @ solution.z[:-1]
        multipliers = np.maximum(0.0, -solution.multipliers[members])
        worst = float((self._costs[members] @ x - self._values[members]).max())
        return CommonDecision(x, max(0.0, worst), multipliers / multipliers.sum())


class FiniteRegretProgram:
    """The same question for a list of indivisible decisions: a search in the table of regrets."""

    def __init__(
        self, X: FiniteDecisions, costs: Float[np.ndarray, "n d"], optimal_values: Float[np.ndarray, " n"]
    ) -> None:
        self._decisions = X.V
        self.regrets: Float[np.ndarray, "p n"] = X.V @ costs.T - optimal_values

    def solve(self, members: list[int]) -> CommonDecision:
        worst = self.regrets[:, members].max(axis=1)
        best = int(np.argmin(worst))
        return CommonDecision(self._decisions[best], max(0.0, float(worst[best])), None)
