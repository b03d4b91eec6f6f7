"""Exponential weights on the unary losses: the lazy sampler (Algorithm 1) and its ablations."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .learner import Learner
from .losses import MemoryLoss, check_loss_value
from .sets import DecisionSet, FiniteSet
from .weights import GridLaw, HitAndRunLaw, check_eta, require_range


class LazyExponentialWeights(Learner):
    """Algorithm 1 (reconstruction): exponential weights that redraw rarely; no convexity or gradient is needed.

    After each loss the decision is kept with probability exp(-eta f~_t(x_t)), else drawn from the new weights. The law
    of x_t is exactly p_t, and the expected number of redraws at most eta times the loss. Policy regret
    O(sqrt(m L* ln N) + m ln N) against an oblivious adversary (losses that react to the decisions drawn are out of
    scope). Rounds with zero loss use no random number.

    Args:
        decision_set: finite, or a set with a grid (d <= 3), or a ball, box or simplex for hit-and-run (d <= 20).
        memory: m.
        eta: "doubling" (guesses of L* from ln N upwards), "known" (tuned to `l_star`) or a number. Hit-and-run takes a
            number, or "known" together with `horizon` (ln N becomes d ln T).
        l_star: loss of the best fixed decision, for "known".
        sampler: "grid" (exact; finite sets too) or "hit_and_run" (approximate; for convex losses).
        cells: grid points an axis.
        loss_range: upper bound of the losses.
        prior: (N,) positive weights over the grid points; None is uniform.
        n_steps: hit-and-run moves a redraw; None is 10 d.
        horizon: T, only for hit-and-run with "known".
        random_state: seed or numpy Generator.

    Attributes:
        n_redraws_: redraws so far, restarts of the doubling scheme included.
        law: the weights (`law.points`, `law.probabilities`, `law.eta`, `law.restarts`).

    Raises:
        ValueError: eta <= 0, "known" without l_star, loss_range <= 0, a grid in more than three dimensions, a bad
            prior; on update: a loss below 0 or above loss_range (the round is named).
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        eta: str | float | int = "doubling",
        l_star: float | int | None = None,
        sampler: str = "grid",
        *,
        cells: int = 65,
        loss_range: float | int = 1.0,
        prior: Float[np.ndarray, " n"] | None = None,
        n_steps: int | None = None,
        horizon: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(decision_set, memory)
        check_eta(eta, l_star)
        span = require_range(loss_range)
        if sampler == "grid":
            self.law = GridLaw(decision_set, memory, eta, l_star, cells=cells, loss_range=span, prior=prior)
        elif sampler == "hit_and_run":
            self.law = HitAndRunLaw(
                decision_set, memory, eta, l_star, horizon=horizon, loss_range=span, n_steps=n_steps
            )
        else:
            raise ValueError(f"sampler must be 'grid' or 'hit_and_run', got {sampler!r}")
        self.rng = np.random.default_rng(random_state)
        self.n_redraws_ = 0
        self._start(self._draw())

    def _draw(self) -> np.ndarray:
        # Keeping with probability exp(-eta f~) every round is an exponential clock that runs at speed eta f~: one
        # random number a redraw instead of one a round.
        x = self.law.draw(self.rng)
        self._clock = self.rng.exponential()
        return x

    def _learn(self, loss: MemoryLoss) -> np.ndarray:
        eta = self.law.eta
        here, restart = self.law.observe(loss, self.round_)
        self.cumulative_unary_ += here
        self._clock -= eta * here / self.law.loss_range
        if not restart and self._clock > 0.0:
            return self._x
        self.n_redraws_ += 1
        return self._draw()


class RedrawExponentialWeights(Learner):
    """Ablation of laziness: the same law of each decision as `LazyExponentialWeights`, drawn afresh after every loss.

    Arguments, attributes and errors as there (grid or finite sets).
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        eta: str | float | int = "doubling",
        l_star: float | int | None = None,
        *,
        cells: int = 65,
        loss_range: float | int = 1.0,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(decision_set, memory)
        check_eta(eta, l_star)
        self.law = GridLaw(decision_set, memory, eta, l_star, cells=cells, loss_range=require_range(loss_range))
        self.rng = np.random.default_rng(random_state)
        self.n_redraws_ = 0
        self._start(self.law.draw(self.rng))

    def _learn(self, loss: MemoryLoss) -> np.ndarray:
        here, _ = self.law.observe(loss, self.round_)
        self.cumulative_unary_ += here
        self.n_redraws_ += 1
        return self.law.draw(self.rng)


class MeanExponentialWeights(Learner):
    """Plays x_t = E_{p_t}[x]: no sampling, for *convex* losses on a gridded convex set (reconstruction).

    ||x_{t+1} - x_t|| <= D * TV(p_t, p_{t+1}), so the decision moves slowly by itself. Arguments as for
    `LazyExponentialWeights`; ValueError on a FiniteSet, whose mean is no action.
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        memory: int,
        eta: str | float | int = "doubling",
        l_star: float | int | None = None,
        *,
        cells: int = 65,
        loss_range: float | int = 1.0,
    ) -> None:
        super().__init__(decision_set, memory)
        check_eta(eta, l_star)
        if isinstance(decision_set, FiniteSet):
            raise ValueError("MeanExponentialWeights needs a convex decision set: the mean of actions is no action")
        self.law = GridLaw(decision_set, memory, eta, l_star, cells=cells, loss_range=require_range(loss_range))
        self._start(self.law.mean())

    def _learn(self, loss: MemoryLoss) -> np.ndarray:
        self.cumulative_unary_ += check_loss_value(float(loss.unary(self._x)), self.round_)
        self.law.observe(loss, self.round_)
        return self.law.mean()
