"""How solver iterations are spread over refinement steps, and how a budget of block passes is spent (section 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

ScheduleKind = Literal["fixed", "decreasing", "increasing", "cosine", "front_loaded"]

# Weight of the step at relative time x in [0, 1]. The paper names the schedules; the shapes are reconstructions.
_WEIGHTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "fixed": np.ones_like,
    "decreasing": lambda x: 1.5 - x,
    "increasing": lambda x: 0.5 + x,
    "cosine": lambda x: 1.0 - 0.5 * np.cos(np.pi * x),  # rises smoothly from 0.5 to 1.5
    "front_loaded": lambda x: np.where(x < 1 / 3, 2.0, 0.5),
}
_RISING = ("increasing", "cosine")


def iteration_schedule(kind: ScheduleKind, steps: int, total: int) -> list[int]:
    """Iterations of each refinement step, in the order of the steps.

    Proportional to the schedule's weights, rounded down, at least 1; what is left goes to the steps with the largest
    weights, one each from the outermost inwards, so that the list is as monotone as its name says.

    Args:
        kind: "fixed", "decreasing" (1.5 to 0.5 of the mean), "increasing", "cosine" (a rising half cosine) or
            "front_loaded" (the first third four times as much as the rest).
        steps: number of refinement steps.
        total: iterations in all.

    Raises:
        ValueError: for an unknown kind, no step, or fewer iterations than steps.
    """
    if kind not in get_args(ScheduleKind):
        raise ValueError(f"schedule must be one of {', '.join(get_args(ScheduleKind))}, got {kind!r}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if total < steps:
        raise ValueError(f"{steps} steps need at least {steps} iterations, got {total}")
    weights = _WEIGHTS[kind](np.linspace(0, 1, steps) if steps > 1 else np.full(1, 0.5))
    counts = np.maximum(1, np.floor(total * weights / weights.sum() + 1e-9).astype(int))
    first = steps - 1 if kind in _RISING else 0  # where the largest weights are
    inwards = -1 if first else 1
    left = total - int(counts.sum())
    for index in range(max(left, 0)):
        counts[(first + inwards * index) % steps] += 1
    for _ in range(max(-left, 0)):  # the minimum of 1 took too many: take back from the largest, innermost first
        largest = np.flatnonzero(counts == counts.max())
        counts[largest[-1] if inwards == 1 else largest[0]] -= 1
    return counts.tolist()


def allocate(
    budget: int, steps: int, pre: int = 1, fp: int = 1, post: int = 1, kind: ScheduleKind = "decreasing"
) -> list[int]:
    """Iterations of each step such that all steps together cost at most `budget` block passes.

    A step of `n` iterations costs `pre + n * fp + post` passes; what is less than one iteration stays unused.

    Raises:
        ValueError: if the budget is smaller than `steps` steps of one iteration.
    """
    if min(pre, post) < 0 or fp < 1 or steps < 1:
        raise ValueError(f"expected steps, fp >= 1 and pre, post >= 0, got {steps}, {fp}, {pre}, {post}")
    smallest = steps * (pre + fp + post)
    if budget < smallest:
        raise ValueError(f"{steps} steps cost at least {smallest} block passes, got a budget of {budget}")
    return iteration_schedule(kind, steps, (budget - steps * (pre + post)) // fp)
