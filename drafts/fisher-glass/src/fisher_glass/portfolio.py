"""Portfolios: complementary views of the same task, whose information adds up (specification 3.6.2, reconstruction).

``I_e(w) = sum_j w_j I_e^(j)``. A view that is blind on a set of codimension kappa in environment space has
``I ~ distance^2`` there; a portfolio of m independent views is blind only on the intersection, of codimension
``m kappa``. Then ``P(I <= t) ~ t^(m kappa / 2)`` and ``E[1 / I]`` is finite exactly when ``m kappa > 2``.
"""

from math import gamma, pi

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from fisher_glass.fisher import environment_weights, require_finite
from fisher_glass.risk import cvar, require_alpha


def portfolio_weights(
    infos: Float[np.ndarray, "m E"], weights: Float[np.ndarray, " E"] | None = None, alpha: float = 0.1
) -> tuple[Float[np.ndarray, " m"], float]:
    """Weights on the simplex that minimise the CVaR over environments of ``1 / sum_j w_j I_e^(j)`` (convex).

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
    start = np.full(m, 1 / m)
    scale, _ = cvar(1 / (start @ information), p, alpha)

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        total = np.maximum(w @ information, 1e-300)
        value, tail = cvar(1 / total, p, alpha)
        return value / scale, -(information @ (tail / total**2)) / scale

    if m == 1:
        return start, scale
    # The tail changes along the way (kinks), so restarts from the found point continue until nothing is gained.
    best, value = start, 1.0
    for _ in range(20):
        result = minimize(
            objective,
            best,
            jac=True,
            method="SLSQP",
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(m)},
            options={"maxiter": 500, "ftol": 1e-12},
        )
        w = np.clip(result.x, 0, 1)
        w /= w.sum()
        found = objective(w)[0]
        if not np.isfinite(found) or found > value - 1e-10:
            break
        best, value = w, found
    return best, value * scale


def ball_tail(m: int, t: float) -> float:
    """Exact ``P(mean_j delta_j^2 <= t)`` for delta uniform on (-1, 1)^m and ``m t <= 1``: ``V_m (m t)^(m/2) / 2^m``,
    V_m the unit ball."""
    if m < 1 or not 0 <= m * t <= 1:
        raise ValueError(f"the closed form needs m >= 1 and 0 <= m t <= 1, got m={m}, t={t}")
    return pi ** (m / 2) / gamma(m / 2 + 1) * (m * t) ** (m / 2) / 2**m
