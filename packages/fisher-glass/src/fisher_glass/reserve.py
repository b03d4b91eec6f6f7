"""Reserves: mix a share of randomised or balanced data into every environment (specification 3.6.1, reconstruction).

``F_e(r_e) = (1 - r_e) F_e + r_e R``. Schur complements are superadditive, so ``g_e <= 1 / (r_e I_R)`` even where the
environment
itself tells nothing about the task: a reserve lifts a Fisher-null tail.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from fisher_glass.fisher import EnvironmentFisher, Fisher, as_fisher
from fisher_glass.projection import TaskFrame, task_frame
from fisher_glass.risk import cvar, fisher_glass, require_alpha, resolve_ridge


@dataclass(frozen=True)
class ReserveAllocation:
    """Result of :func:`allocate_reserve`.

    Attributes:
        shares: r_e (E,), the share of environment e's data that comes from the reserve; ``sum pi_e r_e`` is the budget.
        value: FG with these shares.
        uniform_value: FG when every environment gets the same share.
        before: FG without a reserve.
    """

    shares: np.ndarray
    value: float
    uniform_value: float
    before: float


def with_reserve(
    environment_fisher: EnvironmentFisher,
    reserve: Fisher | Float[np.ndarray, "d d"],
    shares: Float[np.ndarray, " E"] | float,
) -> EnvironmentFisher:
    """Every environment with a share of its data replaced by the reserve: ``(1 - r_e) F_e + r_e R``.

    Raises:
        ValueError: a share outside [0, 1], or a reserve of another size.
    """
    R = as_fisher(reserve).dense()
    r = np.broadcast_to(np.asarray(shares, dtype=float), (len(environment_fisher.fishers),))
    if not ((r >= 0) & (r <= 1)).all():
        raise ValueError(f"reserve shares must lie in [0, 1], got {r}")
    if len(R) != environment_fisher.dimension:
        raise ValueError(f"the reserve must be of size {environment_fisher.dimension}, got {len(R)}")
    mixed = tuple(
        Fisher((1 - share) * fisher.dense() + share * R)
        for share, fisher in zip(r, environment_fisher.fishers, strict=True)
    )
    counts = np.zeros_like(environment_fisher.counts)
    return EnvironmentFisher(
        mixed, environment_fisher.weights, counts, environment_fisher.labels, environment_fisher.normalise
    )


def allocate_reserve(
    environment_fisher: EnvironmentFisher,
    reserve: Fisher | Float[np.ndarray, "d d"],
    budget: float,
    task: Float[np.ndarray, " d"] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    alpha: float = 0.1,
    ridge: float | int | Literal["auto"] = "auto",
) -> ReserveAllocation:
    """Shares that minimise FG at a given budget, for one task direction.

    Minimises ``c + (1/alpha) sum pi_e (g_e(r_e) - c)_+`` over ``0 <= r_e <= 1``, ``sum pi_e r_e = budget``: convex, as
    g_e is a convex function of r_e. Solved in epigraph form by sequential quadratic programming (scipy); each g_e is a
    sum of d simple fractions in r_e after one generalised eigendecomposition, so a step costs O(E d).

    Raises:
        ValueError: budget outside (0, 1), more than one task direction, ridge 0, bad alpha.
        RuntimeError: the solver did not converge.
    """
    require_alpha(alpha)
    if not 0 < budget < 1:
        raise ValueError(f"budget must lie in (0, 1), got {budget}")
    lam = resolve_ridge(environment_fisher, ridge)
    if lam == 0:
        raise ValueError("allocate_reserve needs a positive ridge, got 0")
    frame = task if isinstance(task, TaskFrame) else task_frame(task, nuisance, environment_fisher.dimension)
    if frame.task.shape[1] != 1:
        raise ValueError(f"allocate_reserve takes one task direction, got {frame.task.shape[1]}")
    before = fisher_glass(environment_fisher, frame, alpha=alpha, ridge=lam).value
    pi = environment_fisher.weights
    glass = _GlassOfShare(environment_fisher, as_fisher(reserve), frame, lam)
    uniform = np.full(len(pi), budget)
    uniform_value, _ = cvar(glass(uniform)[0], pi, alpha)
    shares = _minimise(glass, pi, alpha, budget, uniform, uniform_value)
    value = cvar(glass(shares)[0], pi, alpha)[0]
    return ReserveAllocation(shares, value, uniform_value, before)


class _GlassOfShare:
    """g_e as a function of its share, with derivative: ``sum_i w_ei^2 / ((1 - r) kappa_ei + r)`` in the basis that
    diagonalises F_e and R together; R plus the ridge is the same for all, so one Cholesky root whitens every
    environment."""

    def __init__(self, environment_fisher: EnvironmentFisher, reserve: Fisher, frame: TaskFrame, ridge: float) -> None:
        R = reserve.restrict(frame.basis).dense()
        root = np.linalg.cholesky(R + ridge * np.eye(len(R)))
        local = np.linalg.solve(root, frame.local_task[:, 0])
        kappa, squares = [], []
        for fisher in environment_fisher.fishers:
            F = fisher.restrict(frame.basis).dense() + ridge * np.eye(len(R))
            eigenvalues, vectors = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, F).T))
            kappa.append(np.maximum(eigenvalues, 0.0))
            squares.append((vectors.T @ local) ** 2)
        self.kappa, self.squares = np.array(kappa), np.array(squares)

    def __call__(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mix = (1 - shares[:, None]) * self.kappa + shares[:, None]
        return (self.squares / mix).sum(axis=1), -(self.squares * (1 - self.kappa) / mix**2).sum(axis=1)


def _minimise(
    glass: _GlassOfShare, pi: np.ndarray, alpha: float, budget: float, start: np.ndarray, scale: float
) -> np.ndarray:
    E = len(pi)
    # Variables (r, u, c) with u_e >= g_e(r_e)/scale - c, u >= 0; minimise c + sum pi u / alpha.
    objective = np.concatenate([np.zeros(E), pi / alpha, [1.0]])
    first = glass(start)[0] / scale
    c = float(np.quantile(first, 1 - alpha))
    x = np.concatenate([start, np.maximum(first - c, 0), [c]])

    def slack(x: np.ndarray) -> np.ndarray:
        return x[E : 2 * E] + x[-1] - glass(x[:E])[0] / scale

    def slack_jacobian(x: np.ndarray) -> np.ndarray:
        return np.hstack([np.diag(-glass(x[:E])[1] / scale), np.eye(E), np.ones((E, 1))])

    spent = np.concatenate([pi, np.zeros(E + 1)])
    result = minimize(  # pyright: ignore[reportCallIssue]
        lambda x: float(objective @ x),
        x,
        jac=lambda _: objective,
        method="SLSQP",
        bounds=[(0, 1)] * E + [(0, None)] * E + [(None, None)],
        constraints=[  # pyright: ignore[reportArgumentType]
            {"type": "ineq", "fun": slack, "jac": slack_jacobian},
            {"type": "eq", "fun": lambda x: spent @ x - budget, "jac": lambda _: spent},
        ],
        options={"maxiter": 500, "ftol": 1e-10},
    )
    # Status 8: no descent left at machine precision, the usual end at a kink of the CVaR.
    if not result.success and result.status != 8:
        raise RuntimeError(f"the reserve could not be allocated: {result.message}")
    return np.clip(result.x[:E], 0, 1)
