"""The law p_t of exponential weights: exact on a grid or finite set, through hit-and-run on a convex body."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from .losses import MemoryLoss, sum_losses
from .sampling import draw_index, gibbs, hit_and_run
from .sets import DecisionSet
from .theory import first_guess, tuned_eta_lazy

RANGE_SLACK = 1e-9
HIT_AND_RUN_MAX_DIM = 20


def check_eta(eta: str | float | int, l_star: float | int | None) -> None:
    """ValueError unless eta is "doubling", "known" with an l_star >= 0, or a positive number."""
    if isinstance(eta, str):
        if eta not in ("doubling", "known"):
            raise ValueError(f"eta must be 'doubling', 'known' or a positive number, got {eta!r}")
        if eta == "known" and (l_star is None or not l_star >= 0):
            raise ValueError(f"eta='known' needs l_star >= 0, got {l_star!r}")
    elif not 0 < eta < math.inf:
        raise ValueError(f"eta must be positive and finite, got {eta!r}")


def require_range(loss_range: float | int) -> float:
    """`loss_range` as a float; ValueError unless it is positive and finite."""
    if not 0 < loss_range < math.inf:
        raise ValueError(f"loss_range must be positive and finite, got {loss_range!r}")
    return float(loss_range)


def check_range(lowest: float, highest: float, loss_range: float, round_index: int) -> None:
    """ValueError that names the round unless 0 <= lowest and highest <= loss_range."""
    if not lowest >= 0.0:
        raise ValueError(f"round {round_index}: a loss is {lowest:g}; losses must be non-negative")
    if not highest <= loss_range * (1 + RANGE_SLACK):
        raise ValueError(
            f"round {round_index}: a loss is {highest:g}, above loss_range = {loss_range:g}; "
            "pass an upper bound of the losses as loss_range"
        )


class GridLaw:
    """p_t ∝ prior * exp(-eta sum_s f~_s / loss_range) on the grid of a set, restarted by doubling where asked.

    Attributes:
        points: (N, d) support.
        eta: the rate of the current epoch.
        restarts: how often the doubling scheme has started afresh.
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        eta: str | float | int,
        l_star: float | int | None,
        *,
        cells: int,
        loss_range: float,
        prior: Float[np.ndarray, " n"] | None = None,
    ) -> None:
        self.points, self.memory, self.loss_range = decision_set.grid(cells), memory, loss_range
        n = len(self.points)
        self._log_prior = _log_prior(prior, n)
        self._guess = first_guess(n) if eta == "doubling" else math.inf
        if isinstance(eta, str):
            target = self._guess if l_star is None or eta == "doubling" else l_star / loss_range
            self.eta = tuned_eta_lazy(target, math.log(n), memory)
        else:
            self.eta = float(eta)
        self._losses = np.zeros(n)  # of this epoch, in units of loss_range
        self.restarts = 0
        self._index = 0

    @property
    def log_weights(self) -> Float[np.ndarray, " n"]:
        return self._log_prior - self.eta * self._losses

    @property
    def probabilities(self) -> Float[np.ndarray, " n"]:
        return gibbs(self.log_weights)

    def mean(self) -> Float[np.ndarray, " d"]:
        return self.probabilities @ self.points

    def draw(self, rng: np.random.Generator) -> Float[np.ndarray, " d"]:
        self._index = draw_index(self.log_weights, rng)
        return self.points[self._index]

    def observe(self, loss: MemoryLoss, round_index: int) -> tuple[float, bool]:
        """Update the weights; returns the loss of the point drawn last, and whether the weights were reset."""
        losses = np.asarray(loss.unary(self.points))
        check_range(losses.min(), losses.max(), self.loss_range, round_index)
        here = float(losses[self._index])
        self._losses += losses / self.loss_range
        if self._losses.min() <= self._guess:
            return here, False
        self._guess *= 2
        self.eta = tuned_eta_lazy(self._guess, math.log(len(self.points)), self.memory)
        self._losses[:] = 0.0
        self.restarts += 1
        return here, True


class HitAndRunLaw:
    """p_t ∝ exp(-eta sum_s f~_s / loss_range) on a convex body: keeps the losses, draws approximately.

    A density evaluation costs O(t), but only redraws evaluate it.
    """

    restarts = 0

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        eta: str | float | int,
        l_star: float | int | None,
        *,
        horizon: int | None,
        loss_range: float,
        n_steps: int | None,
    ) -> None:
        if decision_set.dim > HIT_AND_RUN_MAX_DIM:
            raise ValueError(f"hit_and_run is meant for d <= {HIT_AND_RUN_MAX_DIM}, got d = {decision_set.dim}")
        if isinstance(eta, str):
            if eta == "doubling" or horizon is None or l_star is None:
                raise ValueError("hit_and_run needs a number as eta, or eta='known' with l_star and horizon")
            eta = tuned_eta_lazy(l_star / loss_range + 1, decision_set.dim * math.log(horizon), memory)
        self.decision_set, self.eta, self.loss_range = decision_set, float(eta), loss_range
        self.n_steps = 10 * decision_set.dim if n_steps is None else n_steps
        self._seen: list[MemoryLoss] = []
        self._x = decision_set.center

    def draw(self, rng: np.random.Generator) -> Float[np.ndarray, " d"]:
        total = sum_losses(self._seen) if self._seen else None

        def log_density(x: np.ndarray) -> float:
            return 0.0 if total is None else -self.eta / self.loss_range * float(total.unary(x))

        self._x = hit_and_run(log_density, self.decision_set, self._x, self.n_steps, rng)
        return self._x

    def observe(self, loss: MemoryLoss, round_index: int) -> tuple[float, bool]:
        """Keep the loss; returns its value at the point drawn last, and False (there are no restarts)."""
        here = float(loss.unary(self._x))
        check_range(here, here, self.loss_range, round_index)
        self._seen.append(loss)
        return here, False


def _log_prior(prior: np.ndarray | None, n: int) -> np.ndarray:
    if prior is None:
        return np.zeros(n)
    weights = np.asarray(prior, dtype=float)
    if weights.shape != (n,) or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(f"prior must hold {n} positive weights, got shape {weights.shape}")
    return np.log(weights)
