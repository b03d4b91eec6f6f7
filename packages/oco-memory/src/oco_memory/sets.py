"""Decision sets: Euclidean projection, diameter, grids, and the chord that hit-and-run needs."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import cvxpy

GRID_MAX_DIM = 3


class DecisionSet(ABC):
    """A compact set K in R^d.

    Attributes:
        dim: d.
        diameter: Euclidean diameter D.
        center: (d,) a point of K, the default first decision of the gradient methods.
    """

    dim: int
    diameter: float
    center: Float[np.ndarray, " d"]

    @abstractmethod
    def project(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """The point of K nearest to x."""

    def project_all(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Every row projected."""
        return np.stack([self.project(x) for x in points])

    def contains(self, x: Float[np.ndarray, " d"], tolerance: float = 1e-9) -> bool:
        """Whether x lies in K up to `tolerance` (Euclidean distance)."""
        return bool(np.linalg.norm(self.project(x) - x) <= tolerance)

    def grid(self, cells: int) -> Float[np.ndarray, "n d"]:
        """Points of K on a regular grid with `cells` points an axis.

        Raises:
            ValueError: cells < 2; more than three dimensions (the grid would explode: use the hit_and_run sampler).
        """
        if cells < 2:
            raise ValueError(f"a grid needs at least 2 cells an axis, got {cells}")
        if self.dim > GRID_MAX_DIM:
            raise ValueError(
                f"a grid in {self.dim} dimensions would have {cells}^{self.dim} points; "
                f"grids stop at d = {GRID_MAX_DIM}: use sampler='hit_and_run'"
            )
        return self._grid(cells)

    def _grid(self, cells: int) -> np.ndarray:
        raise TypeError(f"{type(self).__name__} has no grid")

    def chord(self, x: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
        """The interval of step lengths s for which x + s * direction stays in K (x in K)."""
        raise TypeError(f"{type(self).__name__} has no chords; use sampler='grid'")

    def random_direction(self, rng: np.random.Generator) -> np.ndarray:
        """A uniform unit vector in the affine hull of K."""
        v = rng.standard_normal(self.dim)
        return v / np.linalg.norm(v)

    def cvxpy_constraints(self, x: cvxpy.Variable) -> list[Any]:
        """Membership of x in K, for the optimum in hindsight."""
        raise TypeError(f"{type(self).__name__} is not convex")


class Ball(DecisionSet):
    """The Euclidean ball {||x - center|| <= radius}. Raises ValueError for a radius that is not positive."""

    def __init__(self, center: ArrayLike, radius: float | int) -> None:
        self.center = np.atleast_1d(np.asarray(center, dtype=float))
        if self.center.ndim != 1 or not np.isfinite(self.center).all():
            raise ValueError(f"center must be a finite vector, got shape {np.shape(center)}")
        if not 0 < radius < math.inf:
            raise ValueError(f"radius must be positive and finite, got {radius!r}")
        self.radius, self.dim, self.diameter = float(radius), len(self.center), 2.0 * float(radius)

    def project(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        offset = x - self.center
        norm = math.sqrt(offset @ offset)
        return x if norm <= self.radius else self.center + (self.radius / norm) * offset

    def _grid(self, cells: int) -> np.ndarray:
        box = Box(self.center - self.radius, self.center + self.radius).grid(cells)
        return box[((box - self.center) ** 2).sum(axis=1) <= self.radius**2 * (1 + 1e-12)]

    def chord(self, x: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
        offset = x - self.center
        along = float(offset @ direction)
        half = math.sqrt(max(0.0, along**2 + self.radius**2 - float(offset @ offset)))
        return min(0.0, -along - half), max(0.0, -along + half)

    def cvxpy_constraints(self, x: cvxpy.Variable) -> list[Any]:
        import cvxpy

        return [cvxpy.norm(x - self.center) <= self.radius]


class Box(DecisionSet):
    """The box {lo <= x <= hi}. Raises ValueError unless lo < hi in every coordinate."""

    def __init__(self, lo: ArrayLike, hi: ArrayLike) -> None:
        self.lo, self.hi = np.atleast_1d(np.asarray(lo, dtype=float)), np.atleast_1d(np.asarray(hi, dtype=float))
        if self.lo.shape != self.hi.shape or self.lo.ndim != 1:
            raise ValueError(f"lo and hi must be vectors of one length, got shapes {np.shape(lo)} and {np.shape(hi)}")
        if not (np.isfinite(self.lo).all() and np.isfinite(self.hi).all() and (self.lo < self.hi).all()):
            raise ValueError(f"lo < hi must hold in every coordinate and be finite, got lo={lo!r}, hi={hi!r}")
        self.dim, self.center = len(self.lo), (self.lo + self.hi) / 2
        self.diameter = float(np.linalg.norm(self.hi - self.lo))

    def project(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return np.minimum(np.maximum(x, self.lo), self.hi)

    def project_all(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        return np.clip(points, self.lo, self.hi)

    def _grid(self, cells: int) -> np.ndarray:
        axes = [np.linspace(lo, hi, cells) for lo, hi in zip(self.lo, self.hi, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dim)

    def chord(self, x: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
        moving = direction != 0
        ends = np.stack([(self.lo - x)[moving], (self.hi - x)[moving]]) / direction[moving]
        return min(0.0, float(ends.min(axis=0).max())), max(0.0, float(ends.max(axis=0).min()))

    def cvxpy_constraints(self, x: cvxpy.Variable) -> list[Any]:
        return [x >= self.lo, x <= self.hi]


class Simplex(DecisionSet):
    """The probability simplex in R^d. Raises ValueError for d < 2."""

    def __init__(self, dim: int) -> None:
        if dim < 2:
            raise ValueError(f"a simplex needs d >= 2, got {dim}")
        self.dim, self.center, self.diameter = dim, np.full(dim, 1.0 / dim), math.sqrt(2.0)

    def project(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        # Sort, then find the shift that makes the positive part sum to one (Held, Wolfe, Crowder 1974).
        top = np.sort(x)[::-1]
        shifts = (np.cumsum(top) - 1.0) / np.arange(1, self.dim + 1)
        shift = shifts[np.nonzero(top > shifts)[0][-1]]
        return np.maximum(x - shift, 0.0)

    def _grid(self, cells: int) -> np.ndarray:
        steps = cells - 1
        heads = itertools.product(range(cells), repeat=self.dim - 1)
        return np.array([(*head, steps - sum(head)) for head in heads if sum(head) <= steps]) / steps

    def chord(self, x: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
        moving = direction != 0
        ends = -x[moving] / direction[moving]
        falling = direction[moving] < 0
        return min(0.0, float(ends[~falling].max())), max(0.0, float(ends[falling].min()))

    def random_direction(self, rng: np.random.Generator) -> np.ndarray:
        v = rng.standard_normal(self.dim)
        v -= v.mean()
        return v / np.linalg.norm(v)

    def cvxpy_constraints(self, x: cvxpy.Variable) -> list[Any]:
        import cvxpy

        return [x >= 0, cvxpy.sum(x) == 1]


class FiniteSet(DecisionSet):
    """N actions, given as points (N, d). Raises ValueError for an empty or non-finite array."""

    def __init__(self, points: ArrayLike) -> None:
        from scipy.spatial.distance import pdist

        self.points = np.asarray(points, dtype=float)
        if self.points.ndim != 2 or len(self.points) == 0 or not np.isfinite(self.points).all():
            raise ValueError(f"points must be a finite array of shape (N, d) with N >= 1, got shape {np.shape(points)}")
        self.dim, self.center = self.points.shape[1], self.points[0]
        self.diameter = float(pdist(self.points).max()) if len(self.points) > 1 else 0.0

    @classmethod
    def actions(cls, n: int) -> FiniteSet:
        """The actions 0, 1, ..., n - 1 as points on a line (for losses that only look at the index)."""
        return cls(np.arange(n, dtype=float)[:, None])

    def project(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return self.points[((self.points - x) ** 2).sum(axis=1).argmin()]

    def grid(self, cells: int) -> Float[np.ndarray, "n d"]:
        """The actions themselves, whatever `cells` says."""
        return self.points
