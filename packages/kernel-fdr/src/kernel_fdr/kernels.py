"""Kernels over hypothesis spaces: the only place where structure enters.

A kernel has ``gram(locations)`` and ``cross(new, locations)``. Coordinates use scikit-learn's Matern and RBF; graphs,
trees and precomputed similarities are kernels over a finite, labelled set.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import networkx as nx
import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import pdist
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from kernel_fdr.counts import Values, check_locations

JITTER = 1e-6
_DENSE_LIMIT = 2000


@runtime_checkable
class Kernel(Protocol):
    """A positive semi-definite function of two locations."""

    def gram(self, locations: np.ndarray | None) -> Float[np.ndarray, "n n"]:
        """Kernel matrix of the locations."""
        ...

    def cross(self, new: np.ndarray, locations: np.ndarray | None) -> Float[np.ndarray, "m n"]:
        """Kernel between new locations and the fitted ones."""
        ...


@dataclass(frozen=True)
class Matern:
    """Matern kernel on coordinates; ``nu = inf`` is the RBF (squared exponential) kernel.

    Attributes:
        length_scale: in units of the coordinates, or in multiples of the median pairwise distance if ``relative``.
        nu: smoothness; 0.5, 1.5, 2.5 and infinity are closed forms, others use the Bessel function.
        relative: whether ``length_scale`` is relative to the median distance of the fitted locations.

    Raises:
        ValueError: unless ``length_scale > 0`` and ``nu > 0``; in use, when there are no coordinates.
    """

    length_scale: float = 0.5
    nu: float = 1.5
    relative: bool = True

    def __post_init__(self):
        if not (self.length_scale > 0 and self.nu > 0):
            raise ValueError(f"length_scale and nu must be positive, got {self.length_scale} and {self.nu}")

    def gram(self, locations: np.ndarray | None) -> Float[np.ndarray, "n n"]:
        """Kernel matrix of the coordinates ``(N, d)``."""
        points = _coordinates(locations)
        return np.asarray(self._on(points)(points))

    def cross(self, new: np.ndarray, locations: np.ndarray | None) -> Float[np.ndarray, "m n"]:
        """Kernel between new coordinates ``(M, d)`` and the fitted ones."""
        points = _coordinates(locations)
        return np.asarray(self._on(points)(_coordinates(new), points))

    def _on(self, points: np.ndarray) -> SklearnMatern:
        unit = float(np.median(pdist(points))) if self.relative and len(points) > 1 else 1.0
        # Half or more of all pairs at one place: the median says nothing about scale.
        return SklearnMatern(length_scale=self.length_scale * (unit or 1.0), nu=self.nu)


def rbf(length_scale: float = 0.5, relative: bool = True) -> Matern:
    """RBF kernel: the Matern kernel of infinite smoothness."""
    return Matern(length_scale, np.inf, relative)


def matern_grid(
    length_scales: Sequence[float] = (0.1, 0.5, 1.0, 2.0, 5.0), nus: Sequence[float] = (1.5, 2.5, 3.5)
) -> list[Matern]:
    """Candidates for cross-validation; the defaults are the sibling paper's grid (times the median distance)."""
    return [Matern(length, nu) for nu in nus for length in length_scales]


def _coordinates(locations: np.ndarray | None) -> Float[np.ndarray, "n d"]:
    if locations is None or np.asarray(locations).dtype.kind not in "fiu":
        raise ValueError("a Matern or RBF kernel needs coordinates (N, d) as locations")
    points = check_locations(locations).astype(float)
    return points[:, None] if points.ndim == 1 else points


class FiniteKernel:
    """A kernel over a finite set of labelled items, given by its matrix. Locations are labels.

    Args:
        matrix: symmetric positive semi-definite, shape ``(L, L)``.
        labels: one hashable label per row; ``0..L-1`` when left out.

    Raises:
        ValueError: when the matrix is not square, finite and symmetric, labels repeat or do not fit, or a location is
            no label. Positive semi-definiteness is checked when the kernel is decomposed.
    """

    def __init__(self, matrix: Values, labels: Sequence[Hashable] | None = None):
        self.matrix = np.asarray(matrix, dtype=float)
        if self.matrix.ndim != 2 or self.matrix.shape[0] != self.matrix.shape[1] or not self.matrix.size:
            raise ValueError(f"a kernel matrix must be square, got shape {self.matrix.shape}")
        if not np.isfinite(self.matrix).all():
            raise ValueError("a kernel matrix must be finite, got NaN or infinity")
        asymmetry = np.abs(self.matrix - self.matrix.T).max()
        if asymmetry > 1e-8 * np.abs(self.matrix).max():
            raise ValueError(f"a kernel matrix must be symmetric, entries differ from the transpose by {asymmetry:.3g}")
        self.labels = list(range(len(self.matrix))) if labels is None else list(labels)
        self._row = {label: row for row, label in enumerate(self.labels)}
        if len(self.labels) != len(self.matrix) or len(self._row) != len(self.labels):
            raise ValueError(f"need {len(self.matrix)} different labels, got {len(self._row)} different ones")

    def gram(self, locations: np.ndarray | None) -> Float[np.ndarray, "n n"]:
        """Kernel matrix of the labelled locations (all items, in order, when ``None``)."""
        rows = self._rows(locations)
        return self.matrix[np.ix_(rows, rows)]

    def cross(self, new: np.ndarray, locations: np.ndarray | None) -> Float[np.ndarray, "m n"]:
        """Kernel between new labels and the fitted ones."""
        return self.matrix[np.ix_(self._rows(new), self._rows(locations))]

    def _rows(self, locations: np.ndarray | None) -> np.ndarray:
        if locations is None:
            return np.arange(len(self.labels))
        items = np.asarray(locations).tolist()
        items = [tuple(item) if isinstance(item, list) else item for item in items]
        unknown = [item for item in items if item not in self._row]
        if unknown:
            raise ValueError(f"location {unknown[0]!r} is no item of the kernel ({len(unknown)} unknown in all)")
        return np.array([self._row[item] for item in items])


Precomputed = FiniteKernel


def diffusion(graph: nx.Graph, beta: float = 2.0) -> FiniteKernel:
    """Graph diffusion kernel ``exp(-beta L)``, ``L`` the normalised Laplacian; edge attribute ``weight`` is used.

    Scaled to a mean diagonal of 1, so that the penalty means the same for every kernel. ``beta = 2`` is the sibling
    paper's value.
    """
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
    return _spectral_graph_kernel(graph, lambda eigenvalues: np.exp(-beta * eigenvalues))


def regularised_laplacian(graph: nx.Graph, gamma: float = 10.0) -> FiniteKernel:
    """Regularised Laplacian kernel ``(I + gamma L)^-1``, ``L`` the normalised Laplacian; mean diagonal 1."""
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, got {gamma}")
    return _spectral_graph_kernel(graph, lambda eigenvalues: 1 / (1 + gamma * eigenvalues))


def _spectral_graph_kernel(graph: nx.Graph, transfer) -> FiniteKernel:
    if graph.is_directed() or graph.number_of_nodes() == 0:
        raise ValueError("need an undirected graph with at least one node")
    if any(weight < 0 for _, _, weight in graph.edges(data="weight", default=1.0)):
        raise ValueError("edge weights must not be negative")
    eigenvalues, vectors = scipy.linalg.eigh(nx.normalized_laplacian_matrix(graph).toarray())
    matrix = (vectors * transfer(np.maximum(eigenvalues, 0))) @ vectors.T
    return FiniteKernel((matrix + matrix.T) / (2 * np.mean(np.diag(matrix))), list(graph.nodes))


def tree(graph: nx.Graph, scale: float = 3.0) -> FiniteKernel:
    """Tree kernel ``exp(-d / scale)``, ``d`` the path length (edge attribute ``weight``, 1 where missing).

    Path lengths of a tree embed in L1, hence the kernel is positive definite for every scale.

    Raises:
        ValueError: when the graph is no tree, a branch length is negative or ``scale`` is not positive.
    """
    undirected = nx.Graph(graph)
    if not nx.is_tree(undirected):
        raise ValueError("need a tree: connected and without cycles")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    lengths = nx.to_scipy_sparse_array(undirected, dtype=float, weight="weight", format="csr")
    if lengths.data.size and lengths.data.min() < 0:
        raise ValueError("branch lengths must not be negative")
    # csgraph reads a stored zero as "no edge": a zero-length branch becomes a very short one.
    lengths.data = np.maximum(lengths.data, 1e-12)
    return FiniteKernel(np.exp(-shortest_path(lengths, directed=False) / scale), list(undirected.nodes))


@dataclass(frozen=True, eq=False)
class Eigenfeatures:
    """Rank-r features ``F`` with ``K + 1e-6 I ~ F F^T``, so that a function of the RKHS is ``F theta``.

    Attributes:
        values: features of the fitted locations, shape ``(N, r)``.
        projection: ``U S^-1/2``; features of new locations are ``k(x, X) @ projection``. Shape ``(N, r)``.
    """

    values: Float[np.ndarray, "n r"]
    projection: Float[np.ndarray, "fitted r"]
    kernel: Kernel
    locations: np.ndarray | None

    @classmethod
    def of(cls, kernel: Kernel, locations: np.ndarray | None, rank: int | None = None) -> Eigenfeatures:
        """Decompose a kernel at locations.

        Args:
            kernel: any kernel of this module, or an object with ``gram`` and ``cross``.
            locations: shape ``(N, d)`` or labels ``(N,)``.
            rank: number of features; ``None`` keeps 95 % of the trace, at most 150 (structure is smooth: more
                features cost time and seldom change a decision).

        Raises:
            ValueError: when the kernel is not positive semi-definite (smallest eigenvalue below -1e-8 of the largest)
                or ``rank`` is outside ``1..N``.
        """
        gram = np.array(kernel.gram(locations))
        size = len(gram)
        if rank is not None and not 1 <= rank <= size:
            raise ValueError(f"rank must lie in 1..{size}, got {rank}")
        gram[np.diag_indices(size)] += JITTER
        if size <= _DENSE_LIMIT:
            eigenvalues, vectors = scipy.linalg.eigh(gram)
            if eigenvalues[0] - JITTER < -1e-8 * eigenvalues[-1] - 1e-12:
                raise ValueError(f"the kernel is not positive semi-definite: smallest eigenvalue {eigenvalues[0]:.3g}")
            eigenvalues, vectors = np.maximum(eigenvalues[::-1], JITTER / 2), vectors[:, ::-1]
            if rank is None:
                rank = min(1 + int(np.searchsorted(np.cumsum(eigenvalues), 0.95 * eigenvalues.sum())), 150)
            eigenvalues, vectors = eigenvalues[:rank], vectors[:, :rank]
        else:
            try:
                scipy.linalg.cholesky(gram, check_finite=False)
            except scipy.linalg.LinAlgError:
                raise ValueError("the kernel is not positive semi-definite (Cholesky fails)") from None
            # A fixed start vector: the same features in every run.
            eigenvalues, vectors = eigsh(gram, k=min(rank or 150, size - 1), v0=np.ones(size))
            eigenvalues, vectors = np.maximum(eigenvalues[::-1], JITTER / 2), vectors[:, ::-1]
        root = np.sqrt(eigenvalues)
        return cls(vectors * root, vectors / root, kernel, locations)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, new: Values) -> Float[np.ndarray, "m r"]:
        """Features of new locations."""
        return self.kernel.cross(check_locations(new), self.locations) @ self.projection

    def reassigned(self, rows: np.ndarray) -> Eigenfeatures:
        """Give hypothesis ``i`` the features of hypothesis ``rows[i]``: a deliberately wrong structure."""
        return Eigenfeatures(self.values[rows], self.projection, self.kernel, self.locations)
