"""Gradient descent with many step schedules at once: the best step in hindsight, which no online method knows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .game import Losses
from .losses import LinearSignLoss, ResidualLoss
from .sets import DecisionSet

STEP_GRID = tuple(2.0**k for k in range(-3, 4))  # 1/8 .. 8


def step_sweep(
    losses: Losses, decision_set: DecisionSet, steps: Float[np.ndarray, "t k"], x0: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " k"]:
    """Memory loss of x_{t+1} = Proj(x_t - steps[t, k] grad f~_t(x_t)) for each of k schedules, from x0.

    `losses` are residual or sign losses (their gradients take batches), or None.

    Raises:
        ValueError: steps of another length than the losses, steps that are not positive.
        TypeError: losses of another kind.
    """
    if len(steps) != len(losses) or not (steps > 0).all():
        raise ValueError(f"steps must be positive with shape ({len(losses)}, k), got shape {steps.shape}")
    memory = next((loss.memory for loss in losses if loss is not None), 1)
    k, start = steps.shape[1], np.asarray(x0, dtype=float)
    windows = np.broadcast_to(start, (k, memory, len(start))).copy()
    totals = np.zeros(k)
    for t, loss in enumerate(losses):
        x = windows[:, -1].copy()
        if loss is not None and t >= memory - 1:
            if not isinstance(loss, (ResidualLoss, LinearSignLoss)):
                raise TypeError(f"step_sweep takes residual or sign losses, got {type(loss).__name__}")
            totals += loss.value(windows)
            x = decision_set.project_all(x - steps[t, :, None] * loss.unary_grad(x))
        windows[:, :-1] = windows[:, 1:]
        windows[:, -1] = x
    return totals
