"""Hard tuples: a few costs that share no low-regret decision. The finite certificate that a design does not suffice.

All statements are reconstructions (the paper could be read only in its abstract); the package's page lists them.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import miniball
import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from finite_resolution.errors import SolverError
from finite_resolution.problem import Problem
from finite_resolution.regret_program import CommonDecision, FiniteRegretProgram
from finite_resolution.validation import Numbers, number_array

SUPPORT_TOLERANCE = 1e-9


def common_decision(problem: Problem, members: Sequence[int]) -> CommonDecision:
    """The decision with the smallest worst regret over the costs `members`.

    Raises:
        ValueError: bad indices.
        SolverError: the linear program's answer does not survive its check.
    """
    return problem.program.solve(problem.members(members))


def gap(problem: Problem, members: Sequence[int]) -> float:
    """`min_{x in X} max_i r(x, c_i)` over the tuple; for convex X also the largest `jensen_gap` (reconstruction:
    minimax theorem).
    """
    return common_decision(problem, members).worst_regret


def jensen_gap(problem: Problem, members: Sequence[int], weights: Numbers) -> float:
    """`v(sum_i lam_i c_i) - sum_i lam_i v(c_i)` for a mixture of the tuple: a lower bound on its gap, whatever the
    mixture.

    Args:
        weights: lam, shape (k,), >= 0 with sum 1.

    Raises:
        ValueError: bad indices, or weights that are no mixture.
    """
    members = problem.members(members)
    weights = number_array("weights", weights, (len(members),))
    if weights.min() < 0 or abs(weights.sum() - 1.0) > 1e-9:
        raise ValueError(f"weights must be >= 0 with sum 1, got minimum {weights.min():g} and sum {weights.sum():g}")
    return problem.X.minimize(weights @ problem.costs[members])[0] - float(weights @ problem.optimal_values[members])


def is_hard(problem: Problem, members: Sequence[int]) -> bool:
    """Whether no decision has regret <= eps under every cost of the tuple (equality is not hard)."""
    return gap(problem, members) > problem.hard_above


def minimal_hard_tuple(problem: Problem, members: Sequence[int]) -> tuple[int, ...]:
    """An inclusion-minimal hard tuple within a hard one: its proper sub-tuples are not hard.

    Raises:
        ValueError: bad indices, or the tuple is not hard.
    """
    members = problem.members(members)
    start = common_decision(problem, members)
    if not start.worst_regret > problem.hard_above:
        raise ValueError(
            f"members {members} are not hard: their gap {start.worst_regret:g} is within the tolerance {problem.eps:g}"
        )
    return shrink(problem, members, start)


def shrink(problem: Problem, members: list[int], start: CommonDecision) -> tuple[int, ...]:
    """`minimal_hard_tuple` for indices known to be hard, given their common decision."""
    program = problem.program

    def hard(some: list[int]) -> bool:
        return program.solve(some).worst_regret > problem.hard_above

    if isinstance(program, FiniteRegretProgram):  # one cost against each decision
        support = sorted({members[i] for i in program.regrets[:, members].argmax(axis=1)})
    else:  # the costs that the mixture uses, the least used first to be dropped
        weights = np.zeros(len(members)) if start.multipliers is None else start.multipliers
        support = [members[i] for i in np.argsort(weights, kind="stable") if weights[i] > SUPPORT_TOLERANCE]
    kept = support if hard(support) else list(members)
    for i in list(kept):
        rest = [k for k in kept if k != i]
        if rest and hard(rest):
            kept = rest
    return tuple(sorted(kept))


def indistinguishable(
    problem: Problem, members: Sequence[int], design: Sequence[int], noise: Literal["box", "l2"] = "box"
) -> bool:
    """Whether one reading of the design is consistent with every cost of the tuple.

    Box noise: in every coordinate the readings spread over at most `2 delta_j` (Helly's theorem in one dimension), so
        pairs decide.
    `l2`: errors with Euclidean norm <= delta (one delta for the whole design): the smallest ball around the readings
        has radius <= delta;
    pairs do not decide, and the set-cover form of the design problem does not hold.

    Raises:
        ValueError: bad indices, an unknown noise, or unequal delta with `l2`.
    """
    members, chosen = problem.members(members), problem.design(design)
    readings = problem.readings[np.ix_(members, chosen)]
    if noise == "box":
        return bool(np.all(np.ptp(readings, axis=0) <= problem.separated_above[chosen]))
    if noise != "l2":
        raise ValueError(f"noise must be 'box' or 'l2', got {noise!r}")
    if not chosen:
        return True
    delta = problem.queries.delta[chosen]
    if np.ptp(delta) > 0:
        raise ValueError(f"noise 'l2' needs one delta for the whole design, got {delta.min():g} to {delta.max():g}")
    return bool(enclosing_radius(readings) <= delta[0] + problem.reading_tol / 2)


def enclosing_radius(points: Float[np.ndarray, "n m"]) -> float:
    """Radius of the smallest Euclidean ball around the points.

    Proved by its contact points: a ball is the smallest exactly when its centre is a mixture of the points on its
        boundary.

    Raises:
        SolverError: the ball found has no such mixture.
    """
    scale = float(np.ptp(points, axis=0).max(initial=0.0))
    if scale == 0.0:
        return 0.0
    distinct = np.unique((points - points.mean(axis=0)) / scale, axis=0)
    centre, _ = miniball.get_bounding_ball(distinct, rng=np.random.default_rng(0))  # pyright: ignore[reportGeneralTypeIssues]
    distances = np.linalg.norm(distinct - centre, axis=1)
    contact = distinct[distances >= distances.max() - 1e-7]
    _, residual = nnls(np.vstack([contact.T, np.ones(len(contact))]), np.r_[centre, 1.0])
    if residual > 1e-6:
        raise SolverError(
            f"the enclosing ball of {len(points)} points is not the smallest: its centre is off by {residual:.2g}"
        )
    return scale * float(distances.max())


def cover_set(problem: Problem, members: Sequence[int]) -> frozenset[int]:
    """The queries that tell the tuple apart: `{j : range_j(T) > 2 delta_j}`."""
    spread = np.ptp(problem.readings[problem.members(members)], axis=0)
    return frozenset(int(j) for j in np.flatnonzero(spread > problem.separated_above))


def all_minimal_hard_tuples(problem: Problem, max_size: int | None = None) -> list[tuple[int, ...]]:
    """Every inclusion-minimal hard tuple, by size (full enumeration: `N choose max_size` linear programs at worst).

    Args:
        max_size: largest size looked at; `problem.tuple_size_bound` when left out.

    Raises:
        ValueError: max_size < 1.
    """
    limit = min(problem.tuple_size_bound if max_size is None else max_size, len(problem.costs))
    if max_size is not None and max_size < 1:
        raise ValueError(f"max_size must be >= 1, got {max_size}")
    found: list[tuple[int, ...]] = []
    easy: set[tuple[int, ...]] = {(i,) for i in range(len(problem.costs))}
    for size in range(2, limit + 1):
        grown: set[tuple[int, ...]] = set()
        for head in sorted(easy):
            for last in range(head[-1] + 1, len(problem.costs)):
                members = (*head, last)
                if size > 2 and not all(part in easy for part in combinations(members, size - 1)):
                    continue  # it contains a hard tuple, so it is not minimal
                if problem.program.solve(list(members)).worst_regret > problem.hard_above:
                    found.append(members)
                else:
                    grown.add(members)
        easy = grown
    return found
