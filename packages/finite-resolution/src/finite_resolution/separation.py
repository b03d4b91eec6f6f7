"""Separation by one mixed-integer program: the worst mixture of costs that a design cannot tell apart.

Convex X: binaries z pick a clique, weights lam mix its costs, and the concave `v(sum lam c)` is written through
    linear-programming duality,
so that nature's maximum is `max_lam v(sum lam c) - sum lam v`. A finite list lets nature name a different cost
against each decision, where
a convex set makes her commit to one mixture; that is the only difference between the two programs.
"""

import numpy as np
from jaxtyping import Bool
from scipy import sparse

from finite_resolution.errors import SolverError
from finite_resolution.feasible import ConvexSet, FiniteDecisions
from finite_resolution.linear_programs import LinearSystem, solve_integer_program
from finite_resolution.problem import Problem

AGREEMENT_TOLERANCE = 1e-6


def most_violated_tuple(
    problem: Problem, joined: Bool[np.ndarray, "n n"], time_limit: float | None = None
) -> tuple[float, list[int]]:
    """The largest gap of a tuple that lies in a clique of the graph `joined`, and such a tuple.

    Raises:
        SolverError: the program's tuple is no clique, or its own gap is not the program's value.
        TimeLimitError: the time ran out.
    """
    scale = float(np.abs(problem.costs).max()) or 1.0
    build = _finite_program if isinstance(problem.X, FiniteDecisions) else _convex_program
    system, cost, integer, read = build(problem, joined, scale)
    solution = solve_integer_program(system, cost, integer, time_limit)
    members = [int(i) for i in read(solution.z)]
    if not joined[np.ix_(members, members)].all():
        raise SolverError(f"the separation program returned costs {members}, which the design tells apart")
    worst = problem.program.solve(members).worst_regret
    if not abs(worst + scale * solution.value) <= AGREEMENT_TOLERANCE * scale:
        raise SolverError(
            f"the separation program claims a gap of {-scale * solution.value:.9g}, but its tuple has {worst:.9g}"
        )
    return worst, members


def _conflict_rows(joined: np.ndarray) -> sparse.csr_array:
    first, second = np.nonzero(np.triu(~joined))
    rows = np.arange(len(first))
    return sparse.csr_array(
        (np.ones(2 * len(first)), (np.r_[rows, rows], np.r_[first, second])), shape=(len(first), len(joined))
    )


def _convex_program(problem: Problem, joined: np.ndarray, scale: float):
    """Columns: z (n), lam (n), multipliers y of the rows of X (r), of the lower (k) and upper (k) bounds of its
    lifted variable.
    """
    X: ConvexSet = problem.X  # type: ignore[assignment]
    lift, inner = X.lifted()
    n, k = len(problem.costs), inner.columns
    costs, values = problem.costs / scale, problem.optimal_values / scale
    conflicts = _conflict_rows(joined)
    m, eye, inf = conflicts.shape[0], sparse.eye_array, np.inf
    A = sparse.block_array(
        [
            [conflicts, None, None, None, None],
            [-eye(n), eye(n), None, None, None],
            [None, sparse.csr_array(np.ones((1, n))), None, None, None],
            [None, -(lift.T @ sparse.csr_array(costs.T)), inner.A.T, eye(k), -eye(k)],
        ],
        format="csr",
    )
    y_lower = np.where(np.isinf(inner.row_upper), 0.0, -inf)
    y_upper = np.where(np.isinf(inner.row_lower), 0.0, inf)
    side = np.where(np.isinf(inner.row_lower), inner.row_upper, inner.row_lower)
    system = LinearSystem(
        sparse.csr_array(A),
        np.r_[np.full(m + n, -inf), 1.0, np.zeros(k)],
        np.r_[np.ones(m), np.zeros(n), 1.0, np.zeros(k)],
        np.r_[np.zeros(2 * n), y_lower, np.zeros(2 * k)],
        np.r_[np.ones(2 * n), y_upper, np.full(2 * k, inf)],
    )
    cost = -np.r_[np.zeros(n), -values, side, inner.lower, -inner.upper]
    integer = np.zeros(len(cost), dtype=bool)
    integer[:n] = True
    return system, cost, integer, lambda z: np.flatnonzero(z[n : 2 * n] > 1e-8)


def _finite_program(problem: Problem, joined: np.ndarray, scale: float):
    """Columns: z (n), w (p x n: which cost answers which decision), t (the worst regret of the best decision)."""
    regrets = problem.program.regrets / scale  # type: ignore[union-attr]
    p, n = regrets.shape
    conflicts = _conflict_rows(joined)
    m, inf = conflicts.shape[0], np.inf
    each = sparse.kron(sparse.eye_array(p), np.ones((1, n)))
    A = sparse.block_array(
        [
            [conflicts, None, None],
            [-sparse.kron(np.ones((p, 1)), sparse.eye_array(n)), sparse.eye_array(p * n), None],
            [None, each, None],
            [None, -each @ sparse.diags_array(regrets.ravel()), sparse.csr_array(np.ones((p, 1)))],
        ],
        format="csr",
    )
    system = LinearSystem(
        sparse.csr_array(A),
        np.r_[np.full(m + p * n, -inf), np.ones(p), np.full(p, -inf)],
        np.r_[np.ones(m), np.zeros(p * n), np.ones(p), np.zeros(p)],
        np.zeros(n + p * n + 1),
        np.r_[np.ones(n + p * n), regrets.max() + 1.0],
    )
    cost = np.zeros(n + p * n + 1)
    cost[-1] = -1.0
    integer = np.zeros(len(cost), dtype=bool)
    integer[:n] = True
    return system, cost, integer, lambda z: np.flatnonzero(z[:n] > 0.5)
