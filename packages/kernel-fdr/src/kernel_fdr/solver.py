"""The penalised likelihood of the null probability, and its solvers.

With likelihood ratios ``R_i = f1_i / f0_i`` the objective of the sibling paper, up to a constant, is::

    - sum_i log(alpha_i + (1 - alpha_i) R_i) + lam ||alpha - alpha_0||_H^2
    + bound sum_i (max(0, alpha_i - 1)^2 + max(0, -alpha_i)^2)

It is convex in ``theta`` (``alpha = alpha_0 + F theta``, norm ``||theta||``) and in ``c`` (``alpha = alpha_0 + K c``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

FLOOR = 1e-6
"""Below this mixture value -log is continued by its quadratic expansion: the objective stays convex and finite."""

Vector = Float[np.ndarray, " n"]


class Pointwise(NamedTuple):
    """Loss of each hypothesis (likelihood and boundary), with first and second derivative in ``alpha_i``."""

    loss: Vector
    slope: Vector
    curvature: Vector


def pointwise(alpha: Vector, ratio: Vector, bound: float) -> Pointwise:
    """Loss, slope and curvature in the null probability, each of shape ``(N,)``."""
    mixture = alpha + (1 - alpha) * ratio
    safe = np.maximum(mixture, FLOOR)
    # Zero except below the floor, where it makes the second-order expansion.
    short = (mixture - safe) / safe
    step = (1 - ratio) / safe
    above, below = np.maximum(alpha - 1, 0), np.maximum(-alpha, 0)
    return Pointwise(
        -np.log(safe) - short + 0.5 * short**2 + bound * (above**2 + below**2),
        step * (short - 1) + 2 * bound * (above - below),
        step**2 + 2 * bound * ((alpha > 1) | (alpha < 0)),
    )


def objective(
    theta: Float[np.ndarray, " r"],
    features: Float[np.ndarray, "n r"],
    ratio: Vector,
    alpha0: float,
    lam: float,
    bound: float,
) -> tuple[float, Float[np.ndarray, " r"]]:
    """Objective and its gradient in feature space. ``O(N r)``."""
    at = pointwise(alpha0 + features @ theta, ratio, bound)
    return float(at.loss.sum() + lam * theta @ theta), features.T @ at.slope + 2 * lam * theta


def hessian(
    theta: Float[np.ndarray, " r"],
    features: Float[np.ndarray, "n r"],
    ratio: Vector,
    alpha0: float,
    lam: float,
    bound: float,
) -> Float[np.ndarray, "r r"]:
    """Second derivative of :func:`objective` in feature space."""
    # A product of a matrix with its own transpose costs BLAS half of a general one.
    scaled = features * np.sqrt(pointwise(alpha0 + features @ theta, ratio, bound).curvature)[:, None]
    return scaled.T @ scaled + 2 * lam * np.eye(len(theta))


def solve_newton(
    features: Float[np.ndarray, "n r"],
    ratio: Vector,
    alpha0: float,
    lam: float,
    bound: float,
    start: Float[np.ndarray, " r"] | None = None,
    tolerance: float = 1e-9,
    steps: int = 100,
) -> Float[np.ndarray, " r"]:
    """Minimise the objective in feature space by damped Newton steps; returns ``theta``. ``O(N r^2)`` a step.

    The boundary penalty has a kink in its slope, where gradient methods crawl and Newton steps (about ten) do not.
    """
    theta = np.zeros(features.shape[1]) if start is None else start
    value, gradient = objective(theta, features, ratio, alpha0, lam, bound)
    for _ in range(steps):
        curvature = hessian(theta, features, ratio, alpha0, lam, bound)
        direction = cho_solve(cho_factor(curvature, check_finite=False), gradient, check_finite=False)
        decrement = float(direction @ gradient)
        if decrement <= tolerance * max(1.0, abs(value)):
            break
        size = 1.0
        while size > 1e-8:
            trial = objective(theta - size * direction, features, ratio, alpha0, lam, bound)
            if trial[0] <= value - 1e-4 * size * decrement:
                break
            size /= 2
        else:
            break
        theta, (value, gradient) = theta - size * direction, trial
    return theta


class Descent(NamedTuple):
    """Coefficients ``c`` (``alpha = alpha_0 + K c``) and the objective before each step and after the last.

    A step size that is too large ends the descent early, with an objective that is not finite.
    """

    coefficients: Vector
    objectives: Float[np.ndarray, " steps"]


def solve_descent(
    gram: Float[np.ndarray, "n n"],
    ratio: Vector,
    alpha0: float,
    lam: float,
    bound: float,
    step_size: float,
    steps: int,
    natural: bool = True,
    clip: float = 5.0,
    start: Vector | None = None,
    target: float | None = None,
) -> Descent:
    """Gradient descent on the representer coefficients (sibling paper).

    The plain gradient is ``K g`` with ``g = slope + 2 lam c``; the natural gradient ``K^-1 K g = g`` needs no product
    with the Gram matrix beyond the one that evaluates ``alpha``. ``O(N^2)`` a step either way.

    Args:
        gram: kernel matrix, shape ``(N, N)``.
        step_size: learning rate (sibling: 5e-4, graphs 0.05).
        steps: most steps taken (sibling: 5,000, graphs 15,000).
        natural: natural gradient, else the plain one.
        clip: largest norm of the direction; longer ones are shortened to it.
        start: first coefficients; zeros (``alpha = alpha_0``) when left out.
        target: stop as soon as the objective is at or below it.
    """
    c = np.zeros(len(ratio)) if start is None else start.copy()
    objectives = []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps + 1):
            smooth = gram @ c
            at = pointwise(alpha0 + smooth, ratio, bound)
            objectives.append(float(at.loss.sum() + lam * c @ smooth))
            reached = target is not None and objectives[-1] <= target
            if len(objectives) > steps or reached or not np.isfinite(objectives[-1]):
                break
            direction = at.slope + 2 * lam * c
            if not natural:
                direction = gram @ direction
            norm = np.linalg.norm(direction)
            c = c - step_size * direction * min(1.0, clip / max(norm, 1e-300))
    return Descent(c, np.array(objectives))
