"""Portfolios: complementary views of the same task, whose information adds up (specification 3.6.2, reconstruction).

``I_e(w) = sum_j w_j I_e^(j)``. A view that is blind on a set of codimension kappa in environment space has
``I ~ distance^2`` there; a portfolio of m independent views is blind only on the intersection, of codimension
``m kappa``. Then ``P(I <= t) ~ t^(m kappa / 2)`` and ``E[1 / I]`` is finite exactly when ``m kappa > 2``.
"""

from math import gamma, pi

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import linprog

from fisher_glass.fisher import environment_weights, require_finite
from fisher_glass.risk import cvar, require_alpha


def portfolio_weights(
    infos: Float[np.ndarray, "m E"], weights: Float[np.ndarray, " E"] | None = None, alpha: float = 0.1
) -> tuple[Float[np.ndarray, " m"], float]:
    """Weights on the simplex that minimise the CVaR over environments of ``1 / sum_j w_j I_e^(j)`` (convex).

    Outer approximation: ``1 / x`` is replaced by tangents, a linear program (HiGHS) whose value is a lower bound, and
    tangents at its solution are added until the bound is met.

    Args:
        infos: projected information of every view (row) in every environment (column), >= 0.
        weights: pi of the environments; uniform unless given.
        alpha: tail share.

    Returns:
        Weights (m,) and the CVaR that they reach.

    Raises:
        ValueError: negative or NaN information, or an environment in which every view is blind (the CVaR is infinite).
        RuntimeError: the solver did not converge.
    """
    require_alpha(alpha)
    information = np.asarray(infos, dtype=float)
    if information.ndim != 2 or not information.size:
        raise ValueError(f"infos must be (views, environments), got shape {information.shape}")
    require_finite("infos", information)
    if (information < 0).any():
        raise ValueError(f"projected information cannot be negative, got {information.min():.6g}")
    blind = ~(information > 0).any(axis=0)
    if blind.any():
        raise ValueError(f"every view is blind in environment {int(np.argmax(blind))}: no weights make the CVaR finite")
    m, E = information.shape
    p = environment_weights(weights, E)
    w = np.full(m, 1 / m)
    scale, _ = cvar(1 / (w @ information), p, alpha)
    if m == 1:
        return w, scale
    # In units of the CVaR of equal weights. What is no worse than these keeps every environment's information above
    # its share of the tail, so no tangent is taken at zero.
    counted = p > 0
    info, p = information[:, counted].T * scale, p[counted]
    E = len(p)
    floor = np.minimum(p / alpha, 1.0)
    # Variables (w, c, u): minimise c + p u / alpha, u_e >= (tangent of 1 / x at I_e w) - c.
    objective = np.concatenate([np.zeros(m), [1.0], p / alpha])
    simplex = np.concatenate([np.ones(m), np.zeros(E + 1)])[None]
    bounds = [(0, 1)] * m + [(None, None)] + [(0, None)] * E
    tangents, short = [], np.arange(E)
    best, value = w, 1.0
    for _ in range(100):
        x = np.maximum(info @ w, floor)[short]
        u = sparse.csr_array((x, (np.arange(len(x)), short)), shape=(len(x), E))
        tangents.append(sparse.hstack([-info[short] / x[:, None], -x[:, None], -u], format="csr"))
        A = sparse.vstack(tangents, format="csr")
        result = linprog(objective, A, np.full(A.shape[0], -2.0), simplex, [1.0], bounds)
        if not result.success:
            raise RuntimeError(f"the weights could not be found: {result.message}")
        w = np.clip(result.x[:m], 0, 1)
        w /= w.sum()
        found, _ = cvar(1 / np.maximum(info @ w, 1e-300), p, alpha)
        if found < value:
            best, value = w, found
        if value - result.fun <= 1e-6 * value:  # what the linear program's own tolerance of 1e-7 allows
            return best, value * scale
        short = np.flatnonzero(1 / np.maximum(info @ w, floor) > result.x[m] + result.x[m + 1 :])
    raise RuntimeError(f"the weights could not be found: between {result.fun * scale:.8g} and {value * scale:.8g}")


def ball_tail(m: int, t: float) -> float:
    """Exact ``P(mean_j delta_j^2 <= t)`` for delta uniform on (-1, 1)^m and ``m t <= 1``: ``V_m (m t)^(m/2) / 2^m``,
    V_m the unit ball."""
    if m < 1 or not 0 <= m * t <= 1:
        raise ValueError(f"the closed form needs m >= 1 and 0 <= m t <= 1, got m={m}, t={t}")
    return pi ** (m / 2) / gamma(m / 2 + 1) * (m * t) ** (m / 2) / 2**m
