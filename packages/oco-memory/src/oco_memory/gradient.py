"""Gradient descent on the unary losses: the first-order method for smooth losses (Algorithm 2) and its baselines."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .learner import Learner
from .losses import MemoryLoss, check_loss_value
from .sets import DecisionSet


class _GradientLearner(Learner):
    """x_{t+1} = Proj_K(x_t - eta_t grad f~_t(x_t)).

    Attributes:
        step_size_: the step of the last round learnt from (NaN before the first).
    """

    def __init__(self, decision_set: DecisionSet, memory: int, x0: ArrayLike | None) -> None:
        super().__init__(decision_set, memory)
        start = decision_set.center if x0 is None else np.atleast_1d(np.asarray(x0, dtype=float))
        if start.shape != (decision_set.dim,) or not decision_set.contains(start):
            raise ValueError(f"x0 must be a point of the decision set (d = {decision_set.dim}), got {x0!r}")
        self.step_size_ = math.nan
        self._start(start)

    def _learn(self, loss: MemoryLoss) -> np.ndarray:
        value, gradient = loss.unary_value_and_grad(self._x)
        self.cumulative_unary_ += check_loss_value(value, self.round_)
        self.step_size_ = self._step(loss, gradient)
        return self.decision_set.project(self._x - self.step_size_ * gradient)

    def _step(self, loss: MemoryLoss, gradient: np.ndarray) -> float:
        raise NotImplementedError


class FirstOrderOGD(_GradientLearner):
    """Algorithm 2 (reconstruction): regret O(m D sqrt(beta L*) + beta m^2 D^2) for smooth convex losses f >= 0 on R^d.

    With b = beta m^2 and S_t the unary loss so far, the steps are
        "self-confident":  min(1/(4 b), c D / sqrt(2 b S_t))                 (default; L* need not be known)
        "adagrad-norm":    min(1/(4 b), c D / sqrt(2 sum_{s<=t} ||g_s||^2))
        a number:          that constant step (Theorem B needs it below 1/(m beta)).
    Neither decisions nor steps depend on the horizon, and a round without a loss changes nothing.

    Args:
        decision_set: K, with its projection.
        memory: m.
        beta: smoothness; None takes the running maximum of what the losses say.
        eta: the step rule.
        x0: (d,) first decision; None is the centre of K.
        memory_cost: "theory" takes beta as joint smoothness, b = beta m^2; "unary" takes it as smoothness of f~ and
            b = beta: right where memory decays fast, as in control, but outside Theorem B.
        step_scale: c above.

    Raises:
        ValueError: eta, beta or step_scale not positive, unknown names, x0 outside K; on update: a loss that does not
            say its smoothness when beta is None.
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        beta: float | int | None = None,
        eta: str | float | int = "self-confident",
        x0: ArrayLike | None = None,
        *,
        memory_cost: str = "theory",
        step_scale: float | int = 1.0,
    ) -> None:
        super().__init__(decision_set, memory, x0)
        if isinstance(eta, str):
            if eta not in ("self-confident", "adagrad-norm"):
                raise ValueError(f"eta must be 'self-confident', 'adagrad-norm' or a positive number, got {eta!r}")
        elif not 0 < eta < math.inf:
            raise ValueError(f"eta must be positive and finite, got {eta!r}")
        if beta is not None and not 0 < beta < math.inf:
            raise ValueError(f"beta must be positive and finite, got {beta!r}")
        if memory_cost not in ("theory", "unary"):
            raise ValueError(f"memory_cost must be 'theory' or 'unary', got {memory_cost!r}")
        if not 0 < step_scale < math.inf:
            raise ValueError(f"step_scale must be positive and finite, got {step_scale!r}")
        self.eta, self.beta, self.memory_cost, self.step_scale = eta, beta, memory_cost, float(step_scale)
        self._squared_gradients = 0.0
        self._running_beta = 0.0 if beta is None else float(beta)

    def _step(self, loss: MemoryLoss, gradient: np.ndarray) -> float:
        if not isinstance(self.eta, str):
            return float(self.eta)
        if self.beta is None:
            beta = loss.beta if self.memory_cost == "theory" else loss.unary_beta
            if beta is None:
                raise ValueError(f"round {self.round_}: {type(loss).__name__} does not say its smoothness; pass beta=")
            self._running_beta = max(self._running_beta, beta)
        b = self._running_beta * (self.memory**2 if self.memory_cost == "theory" else 1)
        self._squared_gradients += float(gradient @ gradient)
        if self._squared_gradients == 0.0 or b == 0.0:
            return 0.0  # no gradient yet: nothing moves, and there is nothing to divide by
        cap, distance = 1 / (4 * b), self.step_scale * self.decision_set.diameter
        seen = b * self.cumulative_unary_ if self.eta == "self-confident" else self._squared_gradients
        return min(cap, distance / math.sqrt(2 * seen)) if seen > 0 else cap


class MemoryOGD(_GradientLearner):
    """Gradient descent with memory at a constant step (Anava, Hazan, Mannor 2015).

    The horizon-tuned step is `theory.memory_ogd_eta`. Raises ValueError for eta <= 0 or x0 outside K.
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        eta: float | int,
        x0: ArrayLike | None = None,
    ) -> None:
        super().__init__(decision_set, memory, x0)
        if not 0 < eta < math.inf:
            raise ValueError(f"eta must be positive and finite, got {eta!r}")
        self.eta = float(eta)

    def _step(self, loss: MemoryLoss, gradient: np.ndarray) -> float:
        return self.eta


class AnytimeOGD(_GradientLearner):
    """Gradient descent with the step c / sqrt(t), t counting all rounds. Raises ValueError for c <= 0, x0 outside K."""

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        c: float | int = 1.0,
        x0: ArrayLike | None = None,
    ) -> None:
        super().__init__(decision_set, memory, x0)
        if not 0 < c < math.inf:
            raise ValueError(f"c must be positive and finite, got {c!r}")
        self.c = float(c)

    def _step(self, loss: MemoryLoss, gradient: np.ndarray) -> float:
        return self.c / math.sqrt(self.round_)
