"""Playing a whole game, and the best fixed decision in hindsight.

Losses are a sequence over rounds; None is a round without a loss. The first m - 1 rounds are never counted: windows
reach back to the first decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize

from .learner import Learner
from .losses import MemoryLoss, QuadraticMemoryLoss, ResidualLoss, SumLoss, check_loss_value, sum_losses
from .sets import Ball, Box, DecisionSet, FiniteSet

Losses = Sequence[MemoryLoss | None]


@dataclass(frozen=True)
class GameResult:
    """What one game cost.

    Attributes:
        total: sum of f_t(z_t) over the counted rounds.
        unary_total: sum of f~_t(x_t) over the same rounds.
        decisions: (T, d).
        losses: (T,) f_t(z_t), zero where nothing was counted.
        step_sizes: (T,) steps of a gradient method, else NaN.
        n_switches: rounds whose decision differs from the one before.
    """

    total: float
    unary_total: float
    decisions: Float[np.ndarray, "t d"]
    losses: Float[np.ndarray, " t"]
    step_sizes: Float[np.ndarray, " t"]
    n_switches: int


def play(learner: Learner, losses: Losses) -> GameResult:
    """Play `learner` against `losses`, one round each.

    Raises:
        ValueError: what `learner.update` raises; a negative or infinite loss of a window (the round is named).
    """
    decisions = np.empty((len(losses), learner.decision_set.dim))
    suffered, steps = np.zeros(len(losses)), np.full(len(losses), np.nan)
    before = learner.cumulative_unary_
    for t, loss in enumerate(losses):
        decisions[t] = learner.play()
        if loss is not None and learner.round_ + 1 >= learner.memory:
            suffered[t] = check_loss_value(float(loss.value(learner.window)), learner.round_ + 1)
        learner.update(loss)
        steps[t] = getattr(learner, "step_size_", np.nan)
    switches = int((decisions[1:] != decisions[:-1]).any(axis=1).sum())
    unary = learner.cumulative_unary_ - before
    return GameResult(float(suffered.sum()), unary, decisions, suffered, steps, switches)


def counted(losses: Losses) -> list[MemoryLoss]:
    """The losses that count: those from round m on that are not None."""
    memory = next((loss.memory for loss in losses if loss is not None), 1)
    return [loss for loss in losses[memory - 1 :] if loss is not None]


def best_fixed(
    losses: Losses, decision_set: DecisionSet, method: str = "auto", *, cells: int = 65
) -> tuple[Float[np.ndarray, " d"], float]:
    """The best fixed decision x* over the counted rounds and its loss L*.

    Args:
        method: "finite" tries every action or grid point (`cells` an axis: exact for finite sets, any loss);
            "quadratic" is exact least squares in a ball or box; "cvxpy" solves residual losses of any kind on a convex
            set; "scipy" takes any smooth convex loss with a gradient on a ball or box. "auto" picks the first that
            applies, and with no loss at all gives (centre, 0).

    Raises:
        ValueError: an unknown method, or one that does not fit the losses and the set.
    """
    kept = counted(losses)
    if not kept:
        return decision_set.center, 0.0
    total = sum_losses(kept)
    chosen = _method_for(total, decision_set) if method == "auto" else method
    if chosen == "finite":
        points = decision_set.grid(cells)
        values = np.asarray(total.unary(points))
        return points[values.argmin()], float(values.min())
    if chosen == "quadratic" and isinstance(total, QuadraticMemoryLoss):
        x = constrained_least_squares(
            np.sqrt(total.scale)[:, None] * total.unary_C, np.sqrt(total.scale) * total.a, decision_set
        )
    elif chosen == "cvxpy":
        x = _solve_cvxpy(total, decision_set)
    elif chosen == "scipy":
        x = minimise_smooth(total.unary_value_and_grad, decision_set)
    else:
        raise ValueError(f"method {method!r} does not fit {type(total).__name__} on {type(decision_set).__name__}")
    return x, float(total.unary(x))


def _method_for(total: MemoryLoss, decision_set: DecisionSet) -> str:
    if isinstance(decision_set, FiniteSet):
        return "finite"
    if isinstance(total, QuadraticMemoryLoss) and isinstance(decision_set, (Ball, Box)):
        return "quadratic"
    parts = total.losses if isinstance(total, SumLoss) else [total]
    return "cvxpy" if all(isinstance(part, ResidualLoss) for part in parts) else "scipy"


def constrained_least_squares(
    A: Float[np.ndarray, "n d"], b: Float[np.ndarray, " n"], decision_set: DecisionSet
) -> Float[np.ndarray, " d"]:
    """argmin ||A x - b|| over a ball (trust region through the singular values) or a box (scipy's bounded solver).

    Raises:
        ValueError: another kind of set.
    """
    if isinstance(decision_set, Box):
        return optimize.lsq_linear(A, b, bounds=(decision_set.lo, decision_set.hi), method="bvls", tol=1e-14).x
    if not isinstance(decision_set, Ball):
        raise ValueError(f"least squares is constrained to a Ball or a Box, got {type(decision_set).__name__}")
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    target = U.T @ (b - A @ decision_set.center)
    kept = s > s.max(initial=0.0) * max(A.shape) * np.finfo(float).eps

    def step(multiplier: float) -> np.ndarray:
        return Vt.T @ np.where(kept, s * target / np.where(kept, s**2 + multiplier, 1.0), 0.0)

    def excess(multiplier: float) -> float:
        return float(np.linalg.norm(step(multiplier))) - decision_set.radius

    if excess(0.0) <= 0:
        return decision_set.center + step(0.0)
    upper = float(np.linalg.norm(s * target)) / decision_set.radius  # ||step(l)|| <= ||s * target|| / l
    return decision_set.center + step(float(optimize.brentq(excess, 0.0, upper, xtol=1e-15, rtol=1e-14)))


def _solve_cvxpy(total: MemoryLoss, decision_set: DecisionSet) -> np.ndarray:
    import cvxpy

    x = cvxpy.Variable(decision_set.dim)
    parts = total.losses if isinstance(total, SumLoss) else [total]
    terms = []
    for part in parts:
        if not isinstance(part, ResidualLoss):
            raise ValueError(f"cvxpy needs residual losses, got {type(part).__name__}")
        weights = np.broadcast_to(part.scale, part.a.shape)
        terms.append(weights @ part.phi_cvxpy(part.unary_C @ x - part.a))
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.hstack(terms))), decision_set.cvxpy_constraints(x))
    problem.solve(solver=cvxpy.CLARABEL)
    if x.value is None:
        raise ValueError(f"cvxpy found no optimum in hindsight: {problem.status}")
    return decision_set.project(np.asarray(x.value))


def minimise_smooth(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], decision_set: DecisionSet
) -> Float[np.ndarray, " d"]:
    """The minimum of a smooth convex function, given as x -> (value, gradient), on a ball (SLSQP) or box (L-BFGS-B).

    Raises:
        ValueError: another kind of set.
    """
    start = decision_set.center
    if isinstance(decision_set, Box):
        bounds = optimize.Bounds(decision_set.lo, decision_set.hi)
        found = optimize.minimize(
            objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
        )
    elif isinstance(decision_set, Ball):
        inside = optimize.NonlinearConstraint(
            lambda x: (x - start) @ (x - start), -np.inf, decision_set.radius**2, jac=lambda x: 2 * (x - start)
        )
        found = optimize.minimize(
            objective, start, jac=True, constraints=inside, method="SLSQP", options={"ftol": 1e-14, "maxiter": 1000}
        )
    else:
        raise ValueError(f"method 'scipy' takes a Ball or a Box, got {type(decision_set).__name__}")
    return decision_set.project(found.x)


def policy_regret(result: GameResult, losses: Losses, decision_set: DecisionSet, method: str = "auto") -> float:
    """`result.total - L*`: regret against the best decision held fixed through all counted rounds."""
    return result.total - best_fixed(losses, decision_set, method)[1]
