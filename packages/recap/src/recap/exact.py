"""V* on the whole simplex of small models, to a certified error (Cheng's linear support)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.spatial import HalfspaceIntersection

from .pomdp import POMDP
from .solvers import iterate
from .value import ValueFunction, backup

MAX_STATES = 4


def exact_value_iteration(
    pomdp: POMDP, tol: float = 1e-6, max_rounds: int = 60, max_vectors: int = 2_000
) -> ValueFunction:
    """Solve to ``V <= V* <= V + error`` on the whole simplex, error <= tol where the round limit allows.

    HV is a maximum of vectors, and a vector minus the convex V is concave and linear on V's regions, so the Bellman
    residual HV - V is largest at a vertex of those regions. The vertices (from qhull) therefore tell both where vectors
    are missing and how large the error can be: V* - V <= max residual / (1 - gamma).

    Raises:
        ValueError: more than four states (the number of vertices explodes), or fewer than two.
    """
    if not 2 <= pomdp.n_states <= MAX_STATES:
        raise ValueError(f"exact value iteration needs 2 to {MAX_STATES} states, got {pomdp.n_states}; use solve()")
    beliefs = np.vstack([np.eye(pomdp.n_states), pomdp.b0])
    vf: ValueFunction | None = None
    residual = np.inf
    for _ in range(max_rounds):
        vf = iterate(pomdp, beliefs, tol * 0.05, start=vf)
        vertices = region_vertices(vf.alphas)
        gaps = backup(pomdp, vf.alphas, vertices).values - vf.value(vertices)
        residual = max(float(gaps.max()), 0.0)
        if residual <= tol * (1 - pomdp.gamma) or len(vf.alphas) >= max_vectors:
            break
        missing = vertices[gaps > 0.5 * tol * (1 - pomdp.gamma)]
        beliefs = np.vstack([vf.beliefs, missing])
        beliefs = beliefs[np.sort(np.unique(np.round(beliefs, 12), axis=0, return_index=True)[1])]
    assert vf is not None
    return ValueFunction(vf.alphas, vf.actions, vf.beliefs, error=residual / (1 - pomdp.gamma))


def region_vertices(alphas: Float[np.ndarray, "n S"]) -> Float[np.ndarray, "V S"]:
    """Vertices of the regions of the simplex on which one vector is the best (corners of the simplex included)."""
    n, S = alphas.shape
    # Coordinates (b_1 .. b_{S-1}, v); the last probability is one minus the others. Rows: normal . x + offset <= 0.
    low, scale = alphas.min(), max(float(np.ptp(alphas)), 1e-12)
    scaled = (alphas - low) / scale
    faces = np.zeros((n + S + 1, S + 1))
    faces[:n, : S - 1] = scaled[:, :-1] - scaled[:, -1:]
    faces[:n, S - 1], faces[:n, S] = -1.0, scaled[:, -1]
    faces[n : n + S - 1, : S - 1] = -np.eye(S - 1)
    faces[n + S - 1, : S - 1], faces[n + S - 1, S] = 1.0, -1.0
    ceiling = 2.0
    faces[n + S, S - 1], faces[n + S, S] = 1.0, -ceiling
    inside = np.append(np.full(S - 1, 1 / S), 1.5)
    points = HalfspaceIntersection(faces, inside).intersections
    points = points[np.isfinite(points).all(axis=1)]
    points = points[points[:, -1] < ceiling - 1e-6, : S - 1]
    beliefs = np.column_stack([points, 1 - points.sum(axis=1)]).clip(0.0, 1.0)
    beliefs = np.vstack([np.eye(S), beliefs / beliefs.sum(axis=1, keepdims=True)])
    return np.unique(np.round(beliefs, 13), axis=0)
