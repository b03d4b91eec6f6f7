"""The best disturbance-action policy in hindsight, in closed loop and without truncation: J* of the regret."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from .control import policy_ball, rollout
from .game import constrained_least_squares, minimise_smooth
from .sets import Ball
from .surrogate import SurrogateMap, check_disturbances
from .system import ControlCost, L1Cost, QuadraticCost


def exact_features(maps: SurrogateMap, w: ArrayLike) -> tuple[Float[np.ndarray, "t q p"], Float[np.ndarray, "t q"]]:
    """(phi, b) with (x_t, u_t) = phi[t] theta + b[t] for a constant policy in closed loop: no truncation."""
    system, H = maps.system, maps.H
    w = check_disturbances(w, system.dx)
    P = H * system.du * system.dx
    padded = np.concatenate([np.zeros((H, system.dx)), w])
    past = np.stack([padded[H - j : H - j + len(w)] for j in range(1, H + 1)], axis=1)
    direct = np.einsum("ab,tjw->tajbw", np.eye(system.du), past).reshape(len(w), system.du, P)
    phi_x, b_x = np.zeros((len(w), system.dx, P)), np.zeros((len(w), system.dx))
    A_K, push = system.A - system.B @ maps.K, system.B @ direct
    for t in range(len(w) - 1):
        phi_x[t + 1] = A_K @ phi_x[t] + push[t]
        b_x[t + 1] = A_K @ b_x[t] + w[t]
    phi = np.concatenate([phi_x, direct - maps.K @ phi_x], axis=1)
    b = np.concatenate([b_x, -b_x @ maps.K.T], axis=1)
    return (phi if maps.basis is None else phi @ maps.basis.T), b


def best_dac(
    maps: SurrogateMap,
    w: ArrayLike,
    costs: Sequence[ControlCost | None],
    radius: float | int,
    method: str = "auto",
) -> tuple[Float[np.ndarray, "H du dx"], float]:
    """The best fixed policy of the Frobenius ball in hindsight and its closed-loop cost J*.

    Args:
        method: "quadratic" (exact, `QuadraticCost` only), "cvxpy" (any cost with a cvxpy form) or "scipy" (any smooth
            cost); "auto" picks.

    Raises:
        ValueError: radius <= 0, shapes of w, an unknown method.
    """
    w = check_disturbances(w, maps.system.dx)
    if len(costs) != len(w):
        raise ValueError(f"there are {len(w)} disturbances but {len(costs)} costs")
    ball = policy_ball(maps, radius)
    phi, b = exact_features(maps, w)
    kinds = {type(cost) for cost in costs if cost is not None}
    if method == "auto":
        method = "quadratic" if kinds <= {QuadraticCost} else "cvxpy" if kinds <= {QuadraticCost, L1Cost} else "scipy"
    groups = _by_cost(costs)
    if method == "quadratic":
        rows = [np.einsum("rq,tqp->trp", c.root, phi[ts]).reshape(-1, maps.dim) for c, ts in groups]  # type: ignore[attr-defined]
        offsets = [-(b[ts] @ c.root.T).ravel() for c, ts in groups]  # type: ignore[attr-defined]
        A = np.concatenate(rows) if rows else np.zeros((1, maps.dim))
        theta = constrained_least_squares(A, np.concatenate(offsets) if offsets else np.zeros(1), ball)
    elif method == "cvxpy":
        theta = _best_by_cvxpy(maps, groups, phi, b, ball)
    elif method == "scipy":
        theta = _best_by_scipy(maps, groups, phi, b, ball)
    else:
        raise ValueError(f"method must be 'auto', 'quadratic', 'cvxpy' or 'scipy', got {method!r}")
    run = rollout(maps, np.broadcast_to(theta, (len(w), maps.dim)), w, costs)
    return maps.policy(theta), run.total


def _by_cost(costs: Sequence[ControlCost | None]) -> list[tuple[ControlCost, np.ndarray]]:
    rounds: dict[int, list[int]] = {}
    for t, cost in enumerate(costs):
        if cost is not None:
            rounds.setdefault(id(cost), []).append(t)
    return [(costs[ts[0]], np.array(ts)) for ts in rounds.values()]  # type: ignore[misc]


def _best_by_cvxpy(
    maps: SurrogateMap, groups: list[tuple[ControlCost, np.ndarray]], phi: np.ndarray, b: np.ndarray, ball: Ball
) -> np.ndarray:
    import cvxpy

    theta, dx = cvxpy.Variable(maps.dim), maps.system.dx
    total: list[cvxpy.Expression] = []
    for cost, ts in groups:
        flat = phi[ts].reshape(-1, maps.dim) @ theta + b[ts].ravel()
        y = cvxpy.reshape(flat, (len(ts), phi.shape[1]), order="C")
        total.append(cost.cvxpy_value(y[:, :dx], y[:, dx:]))
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.hstack(total))), ball.cvxpy_constraints(theta))
    problem.solve(solver=cvxpy.CLARABEL)
    if theta.value is None:
        raise ValueError(f"cvxpy found no optimum in hindsight: {problem.status}")
    return ball.project(np.asarray(theta.value))


def _best_by_scipy(
    maps: SurrogateMap, groups: list[tuple[ControlCost, np.ndarray]], phi: np.ndarray, b: np.ndarray, ball: Ball
) -> np.ndarray:
    dx = maps.system.dx

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = 0.0, np.zeros(maps.dim)
        for cost, ts in groups:
            y = phi[ts] @ theta + b[ts]
            total += float(np.sum(cost.value(y[:, :dx], y[:, dx:])))
            slopes = np.stack([np.concatenate(cost.grad(row[:dx], row[dx:])) for row in y])
            gradient += np.einsum("tq,tqp->p", slopes, phi[ts])
        return total, gradient

    return minimise_smooth(objective, ball)
