"""Controllers for x_{t+1} = A x_t + B u_t + w_t with costs revealed round by round (online nonstochastic control).

Every controller has two calls a round: `u = controller.play(x)` with the state, then `controller.update(cost)`.
Disturbances are recovered from the states, w_t = x_{t+1} - A x_t - B u_t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from .exponential import LazyExponentialWeights
from .gradient import AnytimeOGD, FirstOrderOGD, MemoryOGD
from .learner import Learner
from .sets import Ball, Box
from .surrogate import SurrogateLoss, SurrogateMap, check_disturbances
from .system import ControlCost, LinearSystem


@runtime_checkable
class Controller(Protocol):
    """What `simulate` drives."""

    def play(self, state: ArrayLike) -> Float[np.ndarray, " du"]: ...

    def update(self, cost: ControlCost | None) -> None: ...


class LinearFeedback:
    """u = -K x, never learning: LQR with `system.lqr(Q, R)`, the zero controller with K = None."""

    def __init__(self, system: LinearSystem, K: ArrayLike | None = None) -> None:
        self.K = system.gain(K)

    def play(self, state: ArrayLike) -> Float[np.ndarray, " du"]:
        """The input for the observed state."""
        return -self.K @ state

    def update(self, cost: ControlCost | None) -> None:
        """Nothing is learnt."""


class DisturbanceActionPolicy:
    """u_t = -K x_t + sum_{j=1..H} M^[j] w_{t-j} with a fixed M (H, du, dx). ValueError for other shapes of M or K."""

    def __init__(self, system: LinearSystem, M: ArrayLike, K: ArrayLike | None = None) -> None:
        self.M = np.asarray(M, dtype=float)
        if self.M.ndim != 3 or self.M.shape[1:] != (system.du, system.dx):
            raise ValueError(f"M must have shape (H, {system.du}, {system.dx}), got {self.M.shape}")
        self.K = system.gain(K)
        self._disturbances = _Disturbances(system, len(self.M))

    def play(self, state: ArrayLike) -> Float[np.ndarray, " du"]:
        """The input for the observed state."""
        past = self._disturbances.observe(state)
        return self._disturbances.apply(-self.K @ state + np.einsum("jaw,jw->a", self.M, past))

    def update(self, cost: ControlCost | None) -> None:
        """Nothing is learnt."""


class _Disturbances:
    """The last disturbances, newest first, recovered from states and inputs."""

    def __init__(self, system: LinearSystem, length: int) -> None:
        self.system, self.past = system, np.zeros((length, system.dx))
        self._state: np.ndarray | None = None
        self._input = np.zeros(system.du)

    def observe(self, state: ArrayLike) -> np.ndarray:
        state = np.array(state, dtype=float)
        if state.shape != (self.system.dx,) or not np.isfinite(state).all():
            raise ValueError(f"state must be a finite vector of length {self.system.dx}, got {state!r}")
        if self._state is not None:
            self.past = np.roll(self.past, 1, axis=0)  # a new array: losses keep the old one
            drift, push = self.system.A @ self._state, self.system.B @ self._input
            found = state - drift - push
            # Rounding is no disturbance: adaptive steps are scale-free and would learn from 1e-17 as from 1.
            rounding = 16 * np.finfo(float).eps * (np.abs(state).max() + np.abs(drift).max() + np.abs(push).max())
            self.past[0] = np.where(np.abs(found) > rounding, found, 0.0)
        self._state = state
        return self.past

    def apply(self, u: np.ndarray) -> np.ndarray:
        self._input = u
        return u


class OnlineController:
    """A disturbance-action controller that moves its policy by any learner for losses with memory S + 1.

    Args:
        maps: the reduction (system, K, H, S and perhaps a basis of policies).
        learner: learns the policy's vector theta; its memory must be S + 1 and its dimension that of the policies.

    Raises:
        ValueError: a learner that does not fit; on play: a state of another shape, NaN.
    """

    def __init__(self, maps: SurrogateMap, learner: Learner) -> None:
        if learner.memory != maps.memory or learner.decision_set.dim != maps.dim:
            raise ValueError(
                f"the learner must have memory {maps.memory} and dimension {maps.dim}, "
                f"got {learner.memory} and {learner.decision_set.dim}"
            )
        self.maps, self.learner = maps, learner
        self._disturbances = _Disturbances(maps.system, maps.reach)

    @property
    def policy(self) -> Float[np.ndarray, "H du dx"]:
        """The current M."""
        return self.maps.policy(self.learner.play())

    def play(self, state: ArrayLike) -> Float[np.ndarray, " du"]:
        """The input u_t for the observed state x_t."""
        past = self._disturbances.observe(state)
        M = self.policy
        u = -self.maps.K @ state + np.einsum("jaw,jw->a", M, past[: self.maps.H])
        return self._disturbances.apply(u)

    def update(self, cost: ControlCost | None) -> None:
        """Learn from the cost function of this round (None: nothing is charged)."""
        loss = None if cost is None else SurrogateLoss(self.maps, cost, self._disturbances.past)
        self.learner.update(loss)


def policy_ball(maps: SurrogateMap, radius: float | int) -> Ball:
    """Policies with Frobenius norm at most `radius`."""
    return Ball(np.zeros(maps.dim), radius)


class FirstOrderGPC(OnlineController):
    """Algorithm 2 on disturbance-action policies in a Frobenius ball (reconstruction): regret O~(sqrt(J*) + 1).

    Args:
        system, K, H, S: the plant, a stabilising gain (None is zero), policy length, surrogate length.
        radius: Frobenius radius of the set of policies.
        beta: smoothness; None takes it from the costs as they come.
        memory_cost: "unary" (default) takes the smoothness of the unary loss, since memory decays geometrically in
            control; "theory" uses the factor m^2 of Theorem B.
        step_scale: factor of D in the self-confident step; 1/2 since learning starts at the centre of the ball.
    """

    def __init__(
        self,
        system: LinearSystem,
        K: ArrayLike | None = None,
        H: int = 3,
        S: int = 6,
        radius: float | int = 2.0,
        beta: float | int | None = None,
        *,
        memory_cost: str = "unary",
        step_scale: float | int = 0.5,
    ) -> None:
        maps = SurrogateMap(system, K, H, S)
        learner = FirstOrderOGD(
            policy_ball(maps, radius), maps.memory, beta, memory_cost=memory_cost, step_scale=step_scale
        )
        super().__init__(maps, learner)


class GPC(OnlineController):
    """The gradient perturbation controller (Agarwal et al. 2019): constant step eta, usually c / sqrt(T)."""

    def __init__(
        self,
        system: LinearSystem,
        K: ArrayLike | None = None,
        H: int = 3,
        S: int = 6,
        radius: float | int = 2.0,
        *,
        eta: float | int,
    ) -> None:
        maps = SurrogateMap(system, K, H, S)
        super().__init__(maps, MemoryOGD(policy_ball(maps, radius), maps.memory, eta))


class AnytimeGPC(OnlineController):
    """The gradient perturbation controller with the step c / sqrt(t)."""

    def __init__(
        self,
        system: LinearSystem,
        K: ArrayLike | None = None,
        H: int = 3,
        S: int = 6,
        radius: float | int = 2.0,
        *,
        c: float | int = 1.0,
    ) -> None:
        maps = SurrogateMap(system, K, H, S)
        super().__init__(maps, AnytimeOGD(policy_ball(maps, radius), maps.memory, c))


class LazyEWController(OnlineController):
    """Algorithm 1 on a family M = sum_k theta_k basis_k of at most three gains, theta in a box (reconstruction).

    Takes any cost, smooth or not; `loss_range` bounds the surrogate cost of a round.
    """

    def __init__(
        self,
        system: LinearSystem,
        basis: ArrayLike,
        limits: tuple[ArrayLike, ArrayLike],
        loss_range: float | int,
        K: ArrayLike | None = None,
        S: int = 6,
        *,
        eta: str | float | int = "doubling",
        cells: int = 65,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        maps = SurrogateMap(system, K, np.shape(basis)[1], S, basis)
        learner = LazyExponentialWeights(
            Box(*limits), maps.memory, eta, cells=cells, loss_range=loss_range, random_state=random_state
        )
        super().__init__(maps, learner)


@dataclass(frozen=True)
class ControlResult:
    """A closed-loop run: states (T, dx), inputs (T, du), costs (T,) with zero where nothing was charged, their sum."""

    states: Float[np.ndarray, "t dx"]
    inputs: Float[np.ndarray, "t du"]
    costs: Float[np.ndarray, " t"]
    total: float


def _charge(states: np.ndarray, inputs: np.ndarray, costs: Sequence[ControlCost | None]) -> ControlResult:
    charged = np.array(
        [0.0 if c is None else float(c.value(x, u)) for c, x, u in zip(costs, states, inputs, strict=True)]
    )
    return ControlResult(states, inputs, charged, float(charged.sum()))


def simulate(
    system: LinearSystem,
    controller: Controller,
    w: ArrayLike,
    costs: Sequence[ControlCost | None],
    x0: ArrayLike | None = None,
) -> ControlResult:
    """Run a controller in closed loop from x0 (zero by default).

    Raises:
        ValueError: shapes of w, NaN, another number of costs than rounds.
    """
    w = check_disturbances(w, system.dx)
    if len(costs) != len(w):
        raise ValueError(f"there are {len(w)} disturbances but {len(costs)} costs")
    states, inputs = np.empty((len(w), system.dx)), np.empty((len(w), system.du))
    x = np.zeros(system.dx) if x0 is None else np.asarray(x0, dtype=float)
    for t, cost in enumerate(costs):
        states[t] = x
        inputs[t] = controller.play(x)
        controller.update(cost)
        x = system.A @ x + system.B @ inputs[t] + w[t]
    return _charge(states, inputs, costs)


def rollout(
    maps: SurrogateMap,
    thetas: Float[np.ndarray, "t p"],
    w: ArrayLike,
    costs: Sequence[ControlCost | None],
) -> ControlResult:
    """The closed-loop run of a known sequence of policies theta_t from x_0 = 0 (what `simulate` gives a learner)."""
    system, H = maps.system, maps.H
    w = check_disturbances(w, system.dx)
    full = thetas if maps.basis is None else thetas @ maps.basis
    padded = np.concatenate([np.zeros((H, system.dx)), w])
    past = np.stack([padded[H - j : H - j + len(w)] for j in range(1, H + 1)], axis=1)
    actions = np.einsum("tjaw,tjw->ta", full.reshape(len(w), H, system.du, system.dx), past)
    states = np.zeros((len(w), system.dx))
    A_K, push = system.A - system.B @ maps.K, actions @ system.B.T + w
    for t in range(len(w) - 1):
        states[t + 1] = A_K @ states[t] + push[t]
    return _charge(states, actions - states @ maps.K.T, costs)
