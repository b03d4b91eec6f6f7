"""Many independent runs of exponential weights on one sequence of losses at once.

The weights do not depend on what was drawn (the adversary is oblivious), so all runs share them. A lazy run is then a
race against an exponential clock on the cumulative loss of its current action: the time of the next redraw is found by
bisection, and a run costs O(redraws * (N + log T)) instead of O(T N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .game import Losses
from .losses import require_memory
from .sampling import draw_index
from .theory import first_guess, tuned_eta_lazy
from .weights import check_eta, check_range, require_range


@dataclass(frozen=True)
class FiniteRuns:
    """Independent runs on N actions.

    Attributes:
        totals: (R,) memory loss of each run.
        unary_totals: (R,) unary loss of each run.
        redraws: (R,) redraws up to the last decision, restarts included.
        indices: (R, T) the actions.
        eta_mean: the rate averaged over counted rounds (it changes with "doubling" only).
        l_star: loss of the best action on the same rounds.
    """

    totals: Float[np.ndarray, " r"]
    unary_totals: Float[np.ndarray, " r"]
    redraws: Int[np.ndarray, " r"]
    indices: Int[np.ndarray, "r t"]
    eta_mean: float
    l_star: float


def unary_table(
    losses: Losses, points: Float[np.ndarray, "n d"], loss_range: float | int = np.inf
) -> Float[np.ndarray, "t n"]:
    """f~_t of every point in every counted round; zero rows elsewhere. ValueError outside [0, loss_range]."""
    memory = next((loss.memory for loss in losses if loss is not None), 1)
    table = np.zeros((len(losses), len(points)))
    for t, loss in enumerate(losses):
        if loss is not None and t >= memory - 1:
            table[t] = loss.unary(points)
            check_range(table[t].min(), table[t].max(), loss_range, t + 1)
    return table


def play_finite(
    losses: Losses,
    points: Float[np.ndarray, "n d"],
    *,
    eta: str | float | int = "doubling",
    l_star: float | int | None = None,
    lazy: bool = True,
    runs: int = 20,
    loss_range: float | int = 1.0,
    random_state: int | np.random.Generator | None = None,
    table: Float[np.ndarray, "t n"] | None = None,
) -> FiniteRuns:
    """`runs` independent runs of `LazyExponentialWeights` (or, not `lazy`, of `RedrawExponentialWeights`) on `points`.

    Run r draws from the r-th child of `random_state`, in the order in which the online learner draws, so it repeats
    that learner's path. `table` may hand in `unary_table(losses, points)`; with eta="known" a missing l_star is taken
    from it.

    Raises:
        ValueError: eta, runs or loss_range not positive, losses below 0 or above loss_range.
    """
    memory = require_memory(next((loss.memory for loss in losses if loss is not None), 1))
    if runs < 1:
        raise ValueError(f"runs must be >= 1, got {runs}")
    loss_range = require_range(loss_range)
    table = unary_table(losses, points, loss_range) if table is None else table
    best = float(table.sum(axis=0).min())
    check_eta(eta, best if l_star is None else l_star)
    cumulative = np.zeros((len(points), len(losses) + 1))  # one contiguous row an action, for the bisection
    np.cumsum(table.T / loss_range, axis=1, out=cumulative[:, 1:])
    target = (best if l_star is None else l_star) / loss_range
    epochs = _epochs(cumulative, eta, target, memory)
    rngs = np.random.default_rng(random_state).spawn(runs)
    if lazy:
        paths = [_lazy_path(cumulative, epochs, rng) for rng in rngs]
    else:
        active = np.array([loss is not None and t >= memory - 1 for t, loss in enumerate(losses)])
        paths = _redraw_paths(cumulative, epochs, active, rngs)
    indices = np.stack([path for path, _ in paths])
    rounds = np.arange(len(losses))
    unary = table[rounds, indices]
    eta_mean = sum(rate * (stop - start) for start, stop, rate in epochs) / max(1, len(losses))
    return FiniteRuns(
        _memory_losses(losses, points, unary, indices, memory).sum(axis=1),
        unary.sum(axis=1),
        np.array([redraws for _, redraws in paths]),
        indices,
        eta_mean,
        best,
    )


def _epochs(cumulative: np.ndarray, eta: str | float | int, target: float, memory: int) -> list[tuple[int, int, float]]:
    """(first round, last round + 1, eta) of each epoch; one epoch unless eta is "doubling"."""
    n, rounds = cumulative.shape[0], cumulative.shape[1] - 1
    complexity = math.log(n)
    if not isinstance(eta, str):
        return [(0, rounds, float(eta))]
    if eta == "known":
        return [(0, rounds, tuned_eta_lazy(target, complexity, memory))]
    epochs, start, guess = [], 0, first_guess(n)
    while start < rounds:
        best = (cumulative[:, start + 1 :] - cumulative[:, start, None]).min(axis=0)
        over = best > guess
        stop = start + 1 + int(over.argmax()) if over.any() else rounds
        epochs.append((start, stop, tuned_eta_lazy(guess, complexity, memory)))
        start, guess = stop, 2 * guess
    return epochs


def _lazy_path(
    cumulative: np.ndarray, epochs: list[tuple[int, int, float]], rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    path = np.empty(cumulative.shape[1] - 1, dtype=np.int64)
    draws = 0
    for start, stop, eta in epochs:
        now = start
        while True:
            index = draw_index(-eta * (cumulative[:, now] - cumulative[:, start]), rng)
            draws += 1
            row = cumulative[index]
            until = int(row.searchsorted(row[now] + rng.exponential() / eta, side="left"))
            path[now : min(until, stop)] = index
            if until >= stop:
                break
            now = until
    return path, draws - 1


def _redraw_paths(
    cumulative: np.ndarray,
    epochs: list[tuple[int, int, float]],
    active: np.ndarray,
    rngs: list[np.random.Generator],
) -> list[tuple[np.ndarray, int]]:
    rounds = cumulative.shape[1] - 1
    indices = np.empty((len(rngs), rounds), dtype=np.int64)
    uniforms = np.stack([rng.random(int(active.sum()) + 1) for rng in rngs])
    drawn = np.concatenate([[0], active.cumsum()[:-1]]) if rounds else np.zeros(0, dtype=int)
    for start, stop, eta in epochs:
        log_weights = -eta * (cumulative[:, start:stop] - cumulative[:, start, None])
        cdf = np.exp(log_weights - log_weights.max(axis=0, initial=-np.inf)).cumsum(axis=0)
        for t in range(start, stop):
            column = cdf[:, t - start]
            indices[:, t] = column.searchsorted(uniforms[:, drawn[t]] * column[-1], side="right")
    indices = indices.clip(max=len(cumulative) - 1)
    return [(row, int(active.sum())) for row in indices]


def _memory_losses(
    losses: Losses, points: np.ndarray, unary: np.ndarray, indices: np.ndarray, memory: int
) -> np.ndarray:
    """(R, T) f_t(z_t): the unary loss where the window is constant, else evaluated."""
    result = unary.copy()
    if memory == 1 or indices.shape[1] < memory:
        return result
    changed = np.zeros(indices.shape, dtype=bool)
    moved = indices[:, 1:] != indices[:, :-1]
    for lag in range(memory - 1):
        changed[:, 1 + lag :] |= moved[:, : moved.shape[1] - lag]
    for t in np.flatnonzero(changed.any(axis=0)).tolist():
        loss = losses[t]
        if loss is not None and t >= memory - 1:
            which = np.nonzero(changed[:, t])[0]
            result[which, t] = loss.value(points[indices[which, t - memory + 1 : t + 1]])
    return result
