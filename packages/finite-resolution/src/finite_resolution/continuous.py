"""From a finite net to a compact cost set: what has to be proved on the net so that it holds between its points."""

from typing import get_args

import numpy as np

from finite_resolution.feasible import Norm
from finite_resolution.problem import Problem, Queries
from finite_resolution.validation import nonnegative

_DUAL: dict[Norm, Norm] = {1: "inf", 2: 2, "inf": 1}


def net_inflation(problem: Problem, rho: float, norm: Norm = 2) -> Problem:
    """The problem on a `rho`-net with its errors inflated to `delta_j + rho ||q_j||_*` (reconstruction).

    `problem` has the net as its cost library. A cost within rho of a net point changes reading j by at most `rho
    ||q_j||_*`, so a design
    that suffices for the returned problem suffices for every cost of the compact set, with the stated errors
    `delta_j` and the tolerance
    `certified_tolerance(problem, rho, norm)`.

    Args:
        rho: covering radius of the net in `norm`, >= 0, in the unit of the costs.
        norm: 1, 2 or "inf".

    Raises:
        ValueError: rho < 0 or an unknown norm.
    """
    dual = _dual(norm)
    q = problem.queries
    lengths = np.linalg.norm(q.Q, np.inf if dual == "inf" else dual, axis=1)
    return problem.replace(queries=Queries(q.Q, q.delta + nonnegative("rho", rho) * lengths, q.price, q.names))


def certified_tolerance(problem: Problem, rho: float, norm: Norm = 2) -> float:
    """`eps + rho D`, D the diameter of X in the dual norm: regret is D-Lipschitz in the cost (reconstruction).

    Raises:
        ValueError: rho < 0 or an unknown norm.
    """
    return problem.eps + nonnegative("rho", rho) * problem.X.diameter(_dual(norm))


def _dual(norm: Norm) -> Norm:
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be 1, 2 or 'inf', got {norm!r}")
    return _DUAL[norm]
