"""Linear systems x_{t+1} = A x_t + B u_t + w_t and the costs of controlling them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import linalg

from .losses import Values

if TYPE_CHECKING:
    import cvxpy


class LinearSystem:
    """x_{t+1} = A x_t + B u_t + w_t with A (dx, dx), B (dx, du).

    Raises:
        ValueError: shapes that do not fit, values that are not finite.
    """

    def __init__(self, A: ArrayLike, B: ArrayLike) -> None:
        self.A, self.B = np.asarray(A, dtype=float), np.asarray(B, dtype=float)
        if self.A.ndim != 2 or self.A.shape[0] != self.A.shape[1]:
            raise ValueError(f"A must be square, got shape {self.A.shape}")
        if self.B.ndim != 2 or self.B.shape[0] != self.A.shape[0]:
            raise ValueError(f"B must have shape ({len(self.A)}, du), got {self.B.shape}")
        if not (np.isfinite(self.A).all() and np.isfinite(self.B).all()):
            raise ValueError("A and B must be finite")
        self.dx, self.du = self.B.shape

    def closed_loop(self, K: ArrayLike | None) -> Float[np.ndarray, "dx dx"]:
        """A - B K for K (du, dx), None being zero. ValueError for a spectral radius >= 1 or a K of another shape."""
        A_K = self.A - self.B @ self.gain(K)
        radius = float(np.abs(np.linalg.eigvals(A_K)).max())
        if radius >= 1.0:
            raise ValueError(f"A - B K is unstable: spectral radius {radius:.4g} >= 1; pass a stabilising K (see lqr)")
        return A_K

    def gain(self, K: ArrayLike | None) -> Float[np.ndarray, "du dx"]:
        """K, or zeros for None. ValueError for another shape than (du, dx)."""
        K = np.zeros((self.du, self.dx)) if K is None else np.asarray(K, dtype=float)
        if K.shape != (self.du, self.dx) or not np.isfinite(K).all():
            raise ValueError(f"K must be a finite array of shape ({self.du}, {self.dx}), got {K.shape}")
        return K

    def lqr(self, Q: Float[np.ndarray, "dx dx"], R: Float[np.ndarray, "du du"]) -> Float[np.ndarray, "du dx"]:
        """The gain K of u = -K x that is optimal for sum x'Qx + u'Ru without disturbances (Riccati equation)."""
        P = linalg.solve_discrete_are(self.A, self.B, Q, R)
        return np.linalg.solve(R + self.B.T @ P @ self.B, self.B.T @ P @ self.A)


def truncation_length(system: LinearSystem, K: ArrayLike | None, tolerance: float = 1e-6) -> int:
    """The smallest S with ||(A - B K)^S||_2 <= tolerance: how long the surrogate state must remember.

    Raises:
        ValueError: A - B K is unstable, or the tolerance is not positive (it would never be reached).
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance!r}")
    A_K, power, S = system.closed_loop(K), np.eye(system.dx), 0
    while np.linalg.norm(power, 2) > tolerance:
        power, S = A_K @ power, S + 1
    return max(S, 1)


class ControlCost(ABC):
    """A convex cost c(x, u) >= 0 of one round; takes leading batch axes."""

    @abstractmethod
    def value(self, x: Float[np.ndarray, "*batch dx"], u: Float[np.ndarray, "*batch du"]) -> Values:
        """c(x, u)."""

    @abstractmethod
    def grad(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(sub)gradients with respect to x (dx,) and u (du,)."""

    def smoothness(self, phi: Float[np.ndarray, "*batch q p"]) -> Float[np.ndarray, "*batch"] | float | None:
        """Smoothness of M -> c(phi M + b), phi mapping parameters to (x, u) stacked; None where c is not smooth."""
        return None

    def cvxpy_value(self, x: cvxpy.Expression, u: cvxpy.Expression) -> cvxpy.Expression:
        """c summed over rows of x (T, dx) and u (T, du), for the optimum in hindsight."""
        raise TypeError(f"{type(self).__name__} has no cvxpy form; pass method='scipy'")


def _spectral_square(phi: np.ndarray) -> Any:
    return np.linalg.norm(phi, ord=2, axis=(-2, -1)) ** 2


class QuadraticCost(ControlCost):
    """c(x, u) = (x'Qx + u'Ru) / 2 with Q, R symmetric and positive semidefinite.

    Raises:
        ValueError: Q or R not square, symmetric and positive semidefinite.
    """

    def __init__(self, Q: ArrayLike, R: ArrayLike) -> None:
        self.Q, self.R = np.asarray(Q, dtype=float), np.asarray(R, dtype=float)
        for name, matrix in (("Q", self.Q), ("R", self.R)):
            square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and np.isfinite(matrix).all()
            if not square or not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix).min() < -1e-10:
                raise ValueError(f"{name} must be symmetric and positive semidefinite, got\n{matrix}")
        values, vectors = np.linalg.eigh(linalg.block_diag(self.Q, self.R))
        kept = values > 1e-14 * max(1.0, values.max())
        self.root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T  # root'root = diag(Q, R)

    def value(self, x: Float[np.ndarray, "*batch dx"], u: Float[np.ndarray, "*batch du"]) -> Values:
        return 0.5 * (((x @ self.Q) * x).sum(axis=-1) + ((u @ self.R) * u).sum(axis=-1))

    def grad(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.Q @ x, self.R @ u

    def smoothness(self, phi: Float[np.ndarray, "*batch q p"]) -> Float[np.ndarray, "*batch"] | float | None:
        return _spectral_square(self.root @ phi)

    def cvxpy_value(self, x: cvxpy.Expression, u: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        return 0.5 * cvxpy.sum_squares(cvxpy.hstack([x, u]) @ self.root.T)


class L1Cost(ControlCost):
    """c(x, u) = state_weight ||x||_1 + input_weight ||u||_1: convex, not smooth. ValueError for negative weights."""

    def __init__(self, state_weight: float | int = 1.0, input_weight: float | int = 0.0) -> None:
        if not (0 <= state_weight < math.inf and 0 <= input_weight < math.inf):
            raise ValueError(f"weights must be >= 0 and finite, got {state_weight!r}, {input_weight!r}")
        self.state_weight, self.input_weight = float(state_weight), float(input_weight)

    def value(self, x: Float[np.ndarray, "*batch dx"], u: Float[np.ndarray, "*batch du"]) -> Values:
        return self.state_weight * np.abs(x).sum(axis=-1) + self.input_weight * np.abs(u).sum(axis=-1)

    def grad(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.state_weight * np.sign(x), self.input_weight * np.sign(u)

    def cvxpy_value(self, x: cvxpy.Expression, u: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        weighted = [self.state_weight * x, self.input_weight * u]
        return cvxpy.norm1(cvxpy.hstack(weighted))
