"""Losses with memory: f(z) for a window z of the last m decisions, and its unary form f~(x) = f(x, ..., x).

A window has shape (m, d), oldest decision first. Every loss takes leading batch axes, so many windows or many
candidate points are evaluated in one call.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import cvxpy

Values = Float[np.ndarray, "*batch"] | float


def require_memory(memory: int) -> int:
    """Return `memory` as an int; ValueError unless it is an integer of at least 1."""
    if int(memory) != memory or memory < 1:
        raise ValueError(f"memory must be an integer >= 1, got {memory!r}")
    return int(memory)


class MemoryLoss(ABC):
    """A loss f: K^m -> [0, inf) of the last `memory` decisions, revealed after a round (specification of the game)."""

    memory: int

    @property
    def beta(self) -> float | None:
        """Smoothness of f in the joint argument z; None where f is not smooth (or not non-negative everywhere)."""
        return None

    @property
    def unary_beta(self) -> float | None:
        """Smoothness of f~; at most `memory * beta`."""
        return None if self.beta is None else self.memory * self.beta

    @abstractmethod
    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        """f at windows z, oldest decision first."""

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        """f~ at decisions x."""
        return self.value(np.repeat(x[..., None, :], self.memory, axis=-2))

    def unary_grad(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """A (sub)gradient of f~ at one decision."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient; use LazyExponentialWeights")

    def unary_value_and_grad(self, x: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        """f~ and a (sub)gradient at one decision; losses override it where the two share work."""
        return float(self.unary(x)), self.unary_grad(x)


class ResidualLoss(MemoryLoss):
    """f(z) = sum_q scale_q * phi(<C_q, z> - a_q) for a convex scalar phi >= 0 that the subclass gives.

    Args:
        C: (q, m, d) coefficients, oldest decision first.
        a: (q,) offsets.
        scale: one non-negative weight, or (q,) of them.

    Raises:
        ValueError: shapes that do not fit, values that are not finite, a negative scale.
    """

    curvature: float | None = None  # the largest second derivative of phi; None: phi is not smooth

    def __init__(
        self,
        C: ArrayLike,
        a: ArrayLike,
        scale: float | int | ArrayLike = 1.0,
    ) -> None:
        C, a = np.asarray(C, dtype=float), np.asarray(a, dtype=float)
        if C.ndim != 3 or C.shape[1] < 1:
            raise ValueError(f"C must have shape (q, m, d) with m >= 1, got {C.shape}")
        if a.shape != C.shape[:1]:
            raise ValueError(f"a must have shape {C.shape[:1]} to fit C {C.shape}, got {a.shape}")
        weights = np.asarray(scale, dtype=float)
        if weights.shape not in ((), a.shape) or (weights < 0).any():
            raise ValueError(f"scale must be a non-negative number or {a.shape} of them, got {scale!r}")
        if not (np.isfinite(C).all() and np.isfinite(a).all() and np.isfinite(weights).all()):
            raise ValueError("C, a and scale must be finite")
        self.C, self.a, self.scale = C, a, weights
        self.memory = C.shape[1]
        self.unary_C = C.sum(axis=1)

    @staticmethod
    @abstractmethod
    def phi(r: np.ndarray) -> np.ndarray:
        """phi, elementwise."""

    @staticmethod
    @abstractmethod
    def phi_grad(r: np.ndarray) -> np.ndarray:
        """A subgradient of phi, elementwise."""

    @staticmethod
    @abstractmethod
    def phi_cvxpy(r: cvxpy.Expression) -> cvxpy.Expression:
        """phi as a cvxpy atom, elementwise (for the optimum in hindsight)."""

    def _smoothness(self, rows: np.ndarray) -> float | None:
        if self.curvature is None:
            return None
        rows = np.sqrt(self.scale)[..., None] * rows
        norm = rows[0] @ rows[0] if len(rows) == 1 else np.linalg.norm(rows, 2) ** 2
        return float(self.curvature * norm)

    @cached_property
    def beta(self) -> float | None:  # type: ignore[override]
        """curvature * ||diag(sqrt(scale)) C||_2^2 with C as a (q, m d) matrix."""
        return self._smoothness(self.C.reshape(len(self.a), -1))

    @cached_property
    def unary_beta(self) -> float | None:  # type: ignore[override]
        """curvature * ||diag(sqrt(scale)) sum_i C_i||_2^2."""
        return self._smoothness(self.unary_C)

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        flat = z.reshape(*z.shape[:-2], -1)
        return (self.scale * self.phi(flat @ self.C.reshape(len(self.a), -1).T - self.a)).sum(axis=-1)

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        return (self.scale * self.phi(x @ self.unary_C.T - self.a)).sum(axis=-1)

    def unary_grad(self, x: Float[np.ndarray, "*batch d"]) -> Float[np.ndarray, "*batch d"]:
        return (self.scale * self.phi_grad(x @ self.unary_C.T - self.a)) @ self.unary_C

    def unary_value_and_grad(self, x: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        r = self.unary_C @ x - self.a
        return float((self.scale * self.phi(r)).sum()), (self.scale * self.phi_grad(r)) @ self.unary_C


class QuadraticMemoryLoss(ResidualLoss):
    """f(z) = scale/2 * sum_q (<C_q, z> - a_q)^2."""

    curvature = 1.0

    @staticmethod
    def phi(r: np.ndarray) -> np.ndarray:
        return 0.5 * r * r

    @staticmethod
    def phi_grad(r: np.ndarray) -> np.ndarray:
        return r

    @staticmethod
    def phi_cvxpy(r: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        return 0.5 * cvxpy.square(r)


class AbsMemoryLoss(ResidualLoss):
    """f(z) = scale * sum_q |<C_q, z> - a_q|: convex, not smooth."""

    @staticmethod
    def phi(r: np.ndarray) -> np.ndarray:
        return np.abs(r)

    @staticmethod
    def phi_grad(r: np.ndarray) -> np.ndarray:
        return np.sign(r)

    @staticmethod
    def phi_cvxpy(r: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        return cvxpy.abs(r)


class HuberMemoryLoss(ResidualLoss):
    """f(z) = scale * sum_q h(<C_q, z> - a_q), h(r) = r^2/2 for |r| <= 1 and |r| - 1/2 beyond (units of the knee)."""

    curvature = 1.0

    @staticmethod
    def phi(r: np.ndarray) -> np.ndarray:
        size = np.abs(r)
        return np.where(size <= 1.0, 0.5 * r * r, size - 0.5)

    @staticmethod
    def phi_grad(r: np.ndarray) -> np.ndarray:
        return np.clip(r, -1.0, 1.0)

    @staticmethod
    def phi_cvxpy(r: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        return 0.5 * cvxpy.huber(r, 1)


class SoftplusMemoryLoss(ResidualLoss):
    """f(z) = scale * sum_q log(1 + exp(<C_q, z> - a_q)): positive everywhere, 1/4-smooth in the residual."""

    curvature = 0.25

    @staticmethod
    def phi(r: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, r)

    @staticmethod
    def phi_grad(r: np.ndarray) -> np.ndarray:
        from scipy.special import expit

        return expit(r)

    @staticmethod
    def phi_cvxpy(r: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        return cvxpy.logistic(r)


class LinearSignLoss(MemoryLoss):
    """f(z) = mean_i (1 - s * x_i)/2 for decisions in [-1, 1]: the two-sided guessing game.

    Linear, so it is non-negative on [-1, 1] only and smooth losses' self-bounding does not apply (`beta` is None).

    Raises:
        ValueError: |sign| > 1, memory < 1.
    """

    def __init__(self, sign: float | int, memory: int) -> None:
        if not abs(sign) <= 1:
            raise ValueError(f"sign must lie in [-1, 1], got {sign!r}")
        self.sign, self.memory = float(sign), require_memory(memory)

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        return 0.5 * (1.0 - self.sign * z[..., 0].mean(axis=-1))

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        return 0.5 * (1.0 - self.sign * x[..., 0])

    def unary_grad(self, x: Float[np.ndarray, "*batch d"]) -> Float[np.ndarray, "*batch d"]:
        return np.full_like(x, -0.5 * self.sign)


class CallableLoss(MemoryLoss):
    """A user's own function of one window (m, d).

    Args:
        fn: maps a window (m, d) to a non-negative number; with `backend="torch"` it gets and returns tensors.
        memory: m.
        unary_grad: gradient of f~ at x (d,), where it is known.
        backend: how the gradient is found when `unary_grad` is None: "numpy" takes central differences,
            "torch" differentiates `fn` automatically.
        beta: joint smoothness, where it is known.

    Raises:
        ValueError: memory < 1, an unknown backend, a negative beta.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any],
        memory: int,
        *,
        unary_grad: Callable[[np.ndarray], np.ndarray] | None = None,
        backend: str = "numpy",
        beta: float | int | None = None,
    ) -> None:
        if backend not in ("numpy", "torch"):
            raise ValueError(f"backend must be 'numpy' or 'torch', got {backend!r}")
        if beta is not None and not beta >= 0:
            raise ValueError(f"beta must be >= 0, got {beta!r}")
        self.fn, self.memory = fn, require_memory(memory)
        self._unary_grad, self.backend, self._beta = unary_grad, backend, beta

    @property
    def beta(self) -> float | None:
        return None if self._beta is None else float(self._beta)

    def _one(self, z: np.ndarray) -> float:
        if self.backend == "torch":
            import torch  # pyright: ignore[reportMissingImports]

            return float(self.fn(torch.as_tensor(z)))
        return float(self.fn(z))

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        windows = z.reshape(-1, *z.shape[-2:])
        return np.array([self._one(window) for window in windows]).reshape(z.shape[:-2])[()]

    def unary_grad(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        if self._unary_grad is not None:
            return np.asarray(self._unary_grad(x), dtype=float)
        if self.backend == "torch":
            import torch  # pyright: ignore[reportMissingImports]

            point = torch.tensor(x, requires_grad=True)
            self.fn(point.expand(self.memory, -1)).backward()
            assert point.grad is not None
            return point.grad.numpy()
        step = np.cbrt(np.finfo(float).eps) * max(1.0, float(np.abs(x).max()))
        shifts = step * np.eye(len(x))
        return (np.asarray(self.unary(x + shifts)) - np.asarray(self.unary(x - shifts))) / (2 * step)


class SumLoss(MemoryLoss):
    """The sum of losses of one memory, any kinds."""

    def __init__(self, losses: Sequence[MemoryLoss]) -> None:
        memories = {loss.memory for loss in losses}
        if len(memories) != 1:
            raise ValueError(f"a sum needs losses of one memory, got memories {sorted(memories)}")
        self.losses, self.memory = list(losses), memories.pop()

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        return np.stack([np.asarray(loss.value(z)) for loss in self.losses]).sum(axis=0)

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        return np.stack([np.asarray(loss.unary(x)) for loss in self.losses]).sum(axis=0)

    def unary_grad(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return np.sum([loss.unary_grad(x) for loss in self.losses], axis=0)


def sum_losses(losses: Sequence[MemoryLoss]) -> MemoryLoss:
    """The sum of losses as one loss: residual losses of one kind are stacked, so the sum stays vectorised.

    Raises:
        ValueError: an empty sequence, or memories that differ.
    """
    if not losses:
        raise ValueError("a sum needs at least one loss")
    kind, memory = type(losses[0]), losses[0].memory
    stacked = [loss for loss in losses if isinstance(loss, ResidualLoss) and type(loss) is kind]
    if len(stacked) < len(losses) or any(loss.memory != memory for loss in stacked):
        return SumLoss(losses)
    return type(stacked[0])(
        np.concatenate([loss.C for loss in stacked]),
        np.concatenate([loss.a for loss in stacked]),
        np.concatenate([np.broadcast_to(loss.scale, loss.a.shape) for loss in stacked]),
    )


def check_loss_value(value: float, round_index: int) -> float:
    """Return `value`; ValueError that names the round unless it is a number >= 0."""
    if not value >= 0.0 or math.isinf(value):
        raise ValueError(f"round {round_index}: the loss is {value}; losses must be finite and non-negative")
    return value
