"""Control as online optimisation with memory: state and input are linear in a disturbance-action policy.

With A_K = A - B K and u_t = -K x_t + sum_{j=1..H} M^[j] w_{t-j}, the surrogate state forgets what is older than S:
y_t = sum_{i<S} A_K^i (w_{t-1-i} + B sum_j M_{t-1-i}^[j] w_{t-1-i-j}), v_t = -K y_t + sum_j M_t^[j] w_{t-j}
(Agarwal, Bullins, Hazan, Kakade, Singh 2019). A policy is the vector vec(M) of P = H du dx numbers in the order
(j, input, disturbance). Disturbances before the first round are zero; arrays of disturbances have rows w_0, w_1, ...
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from .losses import MemoryLoss, Values
from .system import ControlCost, LinearSystem


class SurrogateMap:
    """The linear maps of one (system, K, H, S), ready for every round.

    Args:
        system, K: the plant and a stabilising gain (None is zero).
        H: disturbances a policy looks back at.
        S: rounds the surrogate state remembers; the memory of the losses is S + 1.
        basis: (p, H, du, dx) restricts policies to M = sum_k theta_k basis_k; None is all of them (p = P).

    Raises:
        ValueError: H or S below 1, a basis of another shape, an unstable A - B K.
    """

    def __init__(
        self,
        system: LinearSystem,
        K: ArrayLike | None,
        H: int,
        S: int,
        basis: ArrayLike | None = None,
    ) -> None:
        if H < 1 or S < 1:
            raise ValueError(f"H and S must be >= 1, got H = {H}, S = {S}")
        A_K = system.closed_loop(K)
        self.system, self.K, self.H, self.S = system, system.gain(K), H, S
        full = (H, system.du, system.dx)
        family = None if basis is None else np.asarray(basis, dtype=float)
        if family is not None and family.shape[1:] != full:
            raise ValueError(f"basis must have shape (p, {H}, {system.du}, {system.dx}), got {family.shape}")
        self.basis = None if family is None else family.reshape(len(family), -1)
        self.dim = int(np.prod(full)) if self.basis is None else len(self.basis)
        self.powers = np.stack([np.linalg.matrix_power(A_K, i) for i in range(S)])
        self.responses = self.powers @ system.B  # (S, dx, du): response of the state to an input i + 1 rounds ago

    @property
    def memory(self) -> int:
        """m = S + 1: the decisions M_{t-S}, .., M_t enter the loss of round t."""
        return self.S + 1

    @property
    def reach(self) -> int:
        """Disturbances that the surrogate of a round looks back at: S + H."""
        return self.S + self.H

    def policy(self, theta: Float[np.ndarray, " p"]) -> Float[np.ndarray, "H du dx"]:
        """The policy M of a decision vector."""
        full = theta if self.basis is None else theta @ self.basis
        return full.reshape(self.H, self.system.du, self.system.dx)

    def features(
        self, past: Float[np.ndarray, "*batch reach dx"]
    ) -> tuple[Float[np.ndarray, "*batch q p"], Float[np.ndarray, "*batch q"]]:
        """(phi, b) with (y_t, v_t) = phi theta + b for a constant policy; `past` holds w_{t-1}, .. w_{t-S-H}."""
        lead, (H, du, dx) = past.shape[:-2], (self.H, self.system.du, self.system.dx)
        recent = past[..., : self.S, :]
        b_x = recent.reshape(*lead, -1) @ self.powers.transpose(0, 2, 1).reshape(-1, dx)
        # shifted[..., i, j, :] = w_{t-1-i-j}, j = 1..H; matrix products over i, since einsum is slow here
        shifted = np.stack([past[..., 1 + j : 1 + j + self.S, :] for j in range(H)], axis=-2)
        joined = self.responses.reshape(self.S, -1).T @ shifted.reshape(*lead, self.S, H * dx)
        phi_x = joined.reshape(*lead, dx, du, H, dx).swapaxes(-3, -2).reshape(*lead, dx, H * du * dx)
        now = past[..., : self.H, :]
        direct = np.zeros((*lead, du, H, du, dx))
        for a in range(du):
            direct[..., a, :, a, :] = now
        direct = direct.reshape(*lead, du, H * du * dx)
        phi_u = direct - self.K @ phi_x
        b_u = -b_x @ self.K.T
        phi, b = np.concatenate([phi_x, phi_u], axis=-2), np.concatenate([b_x, b_u], axis=-1)
        return (phi if self.basis is None else phi @ self.basis.T), b

    def lagged(self, past: Float[np.ndarray, "reach dx"]) -> Float[np.ndarray, "q m p"]:
        """How each of the last m policies moves (y_t, v_t), oldest first; sums over m to `features`."""
        du, dx = self.system.du, self.system.dx
        C_x = np.zeros((dx, self.memory, self.H, du, dx))
        for i in range(self.S):
            C_x[:, self.S - 1 - i] = np.einsum("xa,jw->xjaw", self.responses[i], past[1 + i : 1 + i + self.H])
        C_u = -np.einsum("ux,xmjaw->umjaw", self.K, C_x)
        C_u[:, self.S] += np.einsum("ab,jw->ajbw", np.eye(du), past[: self.H])
        C = np.concatenate([C_x, C_u]).reshape(dx + du, self.memory, -1)
        return C if self.basis is None else C @ self.basis.T


class SurrogateLoss(MemoryLoss):
    """f_t(theta_{t-S}, .., theta_t) = c_t(y_t, v_t): convex, with memory S + 1.

    Args:
        maps, cost: the reduction and the cost of this round.
        past: (S + H, dx) disturbances w_{t-1}, w_{t-2}, ...
        phi, b: `maps.features(past)`, where it is known already.
    """

    def __init__(
        self,
        maps: SurrogateMap,
        cost: ControlCost,
        past: Float[np.ndarray, "reach dx"],
        phi: Float[np.ndarray, "q p"] | None = None,
        b: Float[np.ndarray, " q"] | None = None,
        unary_beta: float | None = None,
    ) -> None:
        self.maps, self.cost, self.past, self.memory, self._dx = maps, cost, past, maps.memory, maps.system.dx
        self.phi, self.b = maps.features(past) if phi is None or b is None else (phi, b)
        self._unary_beta = unary_beta

    @property
    def beta(self) -> float | None:
        C = self.maps.lagged(self.past)
        smoothness = self.cost.smoothness(C.reshape(len(C), -1))
        return None if smoothness is None else float(smoothness)

    @property
    def unary_beta(self) -> float | None:
        if self._unary_beta is None:
            smoothness = self.cost.smoothness(self.phi)
            self._unary_beta = None if smoothness is None else float(smoothness)
        return self._unary_beta

    def _cost(self, y: np.ndarray) -> Values:
        return self.cost.value(y[..., : self._dx], y[..., self._dx :])

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        return self._cost(np.einsum("qmp,...mp->...q", self.maps.lagged(self.past), z) + self.b)

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        return self._cost(x @ self.phi.T + self.b)

    def unary_grad(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return self.unary_value_and_grad(x)[1]

    def unary_value_and_grad(self, x: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        y = self.phi @ x + self.b
        state, inputs = y[: self._dx], y[self._dx :]
        return float(self.cost.value(state, inputs)), np.concatenate(self.cost.grad(state, inputs)) @ self.phi


def check_disturbances(w: ArrayLike, dx: int) -> np.ndarray:
    """`w` as floats; ValueError unless it is a finite (T, dx) array."""
    w = np.asarray(w, dtype=float)
    if w.ndim != 2 or w.shape[1] != dx:
        raise ValueError(f"w must have shape (T, {dx}), got {w.shape}")
    if not np.isfinite(w).all():
        raise ValueError(f"w must be finite; row {int(np.argmin(np.isfinite(w).all(axis=1)))} is not")
    return w


def _pasts(w: np.ndarray, reach: int) -> np.ndarray:
    """(T, reach, dx): row t holds w_{t-1}, w_{t-2}, ..; zero before the start."""
    padded = np.concatenate([np.zeros((reach, w.shape[1])), w])
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=0)[: len(w)]
    return np.ascontiguousarray(np.moveaxis(windows, -1, 1)[:, ::-1])


def surrogate_features(
    system: LinearSystem, K: ArrayLike | None, w: ArrayLike, H: int, S: int
) -> tuple[
    Float[np.ndarray, "t dx p"], Float[np.ndarray, "t dx"], Float[np.ndarray, "t du p"], Float[np.ndarray, "t du"]
]:
    """(phi_x, b_x, phi_u, b_u) of all rounds in one pass: y_t = phi_x[t] vec(M) + b_x[t], and v_t alike.

    Raises:
        ValueError: shapes of w, NaN, H or S below 1, an unstable A - B K.
    """
    w = check_disturbances(w, system.dx)
    maps = SurrogateMap(system, K, H, S)
    phi, b = maps.features(_pasts(w, maps.reach))
    return phi[:, : system.dx], b[:, : system.dx], phi[:, system.dx :], b[:, system.dx :]


def surrogate_losses(maps: SurrogateMap, w: ArrayLike, costs: Sequence[ControlCost | None]) -> list[MemoryLoss | None]:
    """The losses of all rounds, made in one pass: what a controller's learner sees, since w does not react to it.

    Raises:
        ValueError: shapes of w, NaN, another number of costs than rounds.
    """
    w = check_disturbances(w, maps.system.dx)
    if len(costs) != len(w):
        raise ValueError(f"there are {len(w)} disturbances but {len(costs)} costs")
    pasts = _pasts(w, maps.reach)
    phi, b = maps.features(pasts)
    kinds = {id(cost): cost for cost in costs if cost is not None}
    betas = {key: cost.smoothness(phi) for key, cost in kinds.items()}  # one pass a cost function, not one a round
    losses: list[MemoryLoss | None] = []
    for t, cost in enumerate(costs):
        if cost is None:
            losses.append(None)
            continue
        beta = betas[id(cost)]
        known = None if beta is None else float(np.asarray(beta)[t])
        losses.append(SurrogateLoss(maps, cost, pasts[t], phi[t], b[t], known))
    return losses
