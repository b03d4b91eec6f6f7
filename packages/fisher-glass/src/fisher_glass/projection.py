"""Task information after nuisance projection: the efficient information of semiparametric statistics.

With orthonormal task basis T and nuisance basis N the projected information is the Schur complement
``I = F_TT - F_TN F_NN^+ F_NT``, for one task direction ``I = min_u (t + N u)^T F (t + N u)`` (specification 3.2,
reconstruction). With a ridge, ``I_ridge^{-1}`` is the task block of ``(B^T F B + ridge Id)^{-1}``, ``B = [T N]``: one
Cholesky solve, no pseudo-inverse.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from fisher_glass.fisher import Fisher, as_fisher, require_finite

RANK_TOLERANCE = 1e-10
# A task vector counts as outside the range of F when more than this share of it lies in the null space.
NULL_SHARE = 1e-6


@dataclass(frozen=True)
class TaskFrame:
    """The task and nuisance directions, orthonormalised.

    Attributes:
        task: (d, k) orthonormal task basis T.
        basis: (d, k + m) ``[T N]`` orthonormal, or ``None`` when the nuisance is the whole complement of T (then no
            basis change
            is needed: ``T^T (F + ridge)^{-1} T`` is the same in any orthonormal basis).
    """

    task: np.ndarray
    basis: np.ndarray | None = None

    @property
    def local_task(self) -> Float[np.ndarray, "q k"]:
        """T in the coordinates of ``basis`` (its first k coordinates), or T itself."""
        return self.task if self.basis is None else np.eye(self.basis.shape[1], self.task.shape[1])

    def coordinates(self, rows: Float[np.ndarray, "n *r d"]) -> Float[np.ndarray, "n *r q"]:
        """Rows in the coordinates of ``basis``."""
        return rows if self.basis is None else rows @ self.basis

    @property
    def nuisance(self) -> Float[np.ndarray, "d m"]:
        """Orthonormal nuisance basis, orthogonal to T."""
        d, k = self.task.shape
        if self.basis is not None:
            return self.basis[:, k:]
        return np.linalg.qr(self.task, mode="complete")[0][:, k:] if d > k else np.zeros((d, 0))


def task_frame(
    task: Float[np.ndarray, "d ..."], nuisance: Float[np.ndarray, "d ..."] | None, dimension: int
) -> TaskFrame:
    """Check and orthonormalise task and nuisance; the nuisance is made orthogonal to the task.

    Args:
        task: one direction (d,) or a basis (d, k). Its length does not matter.
        nuisance: (d,) or (d, m), or ``None`` for the whole orthogonal complement of the task.
        dimension: d, the size of the Fisher matrices.

    Raises:
        ValueError: wrong size, NaN, task not of full rank, or the task inside the span of the nuisance.

    Warns:
        UserWarning: a nuisance direction is nearly a task direction (cosine > 0.99).
    """
    T = _columns("task", task, dimension)
    left, singular, right = np.linalg.svd(T, full_matrices=False)
    if singular[-1] <= RANK_TOLERANCE * singular[0] or singular[0] == 0:
        raise ValueError(f"task directions must be linearly independent and non-zero, got singular values {singular}")
    # One direction keeps its sign, so that a user recognises it; a basis only its span.
    T = T / singular[0] if T.shape[1] == 1 else left @ right
    if nuisance is None:
        return TaskFrame(T)
    N = _span(_columns("nuisance", nuisance, dimension))
    cosine = float(np.linalg.norm(T.T @ N, 2)) if N.shape[1] else 0.0
    outside = T - N @ (N.T @ T)
    if N.shape[1] and np.linalg.svd(outside, compute_uv=False)[-1] < 1e-8:
        raise ValueError("a task direction lies in the span of the nuisance directions: nothing is left to identify")
    if cosine > 0.99:
        warnings.warn(f"task and nuisance are nearly parallel (cosine {cosine:.4f})", UserWarning, stacklevel=3)
    N = _span(N - T @ (T.T @ N))
    return TaskFrame(T, np.hstack([T, N]))


def projected_information(
    F: Fisher | Float[np.ndarray, "d d"],
    task: Float[np.ndarray, "d ..."] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    ridge: float = 0.0,
) -> Float[np.ndarray, "k k"]:
    """Nuisance-projected task information, the Schur complement of ``F + ridge Id`` onto the task.

    With ridge 0 the nuisance block is pseudo-inverted, as the definition asks; with ridge > 0 it never is.

    Raises:
        ValueError: bad F, task, nuisance (see :func:`task_frame`) or a negative ridge.
    """
    fisher, frame = _inputs(F, task, nuisance, ridge)
    if ridge > 0:
        return np.linalg.inv(_ridge_inverse(fisher, frame, ridge))
    T, N = frame.task, frame.nuisance
    matrix = fisher.dense()
    cross = N.T @ matrix @ T
    cutoff = max(N.shape[1], 1) * np.finfo(float).eps
    return _symmetric(
        T.T @ matrix @ T - cross.T @ np.linalg.pinv(N.T @ matrix @ N, rcond=cutoff, hermitian=True) @ cross
    )


def inverse_projected_information(
    F: Fisher | Float[np.ndarray, "d d"],
    task: Float[np.ndarray, "d ..."] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    ridge: float = 0.0,
) -> Float[np.ndarray, "k k"]:
    """Inverse of :func:`projected_information`; all ``inf`` when ridge is 0 and some task direction is not identified.

    Raises:
        ValueError: bad F, task, nuisance (see :func:`task_frame`) or a negative ridge.
    """
    fisher, frame = _inputs(F, task, nuisance, ridge)
    if ridge > 0:
        return _ridge_inverse(fisher, frame, ridge)
    restricted, local = fisher.restrict(frame.basis), frame.local_task
    eigenvalues, vectors = np.linalg.eigh(restricted.dense())
    identified = eigenvalues > len(eigenvalues) * np.finfo(float).eps * max(float(eigenvalues[-1]), 0.0)
    coefficients = vectors.T @ local
    if np.linalg.norm(coefficients[~identified]) > NULL_SHARE:
        return np.full((local.shape[1], local.shape[1]), np.inf)
    kept = coefficients[identified]
    return _symmetric(kept.T @ (kept / eigenvalues[identified, None]))


def efficient_direction(
    F: Fisher | Float[np.ndarray, "d d"],
    task: Float[np.ndarray, "d ..."] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None,
    ridge: float,
) -> Float[np.ndarray, "d k"]:
    """``a = (F + ridge)^{-1} T`` inside ``span[T N]``: transverse to the nuisance in the Fisher metric,
    ``N^T (F + ridge) a = 0``.

    Raises:
        ValueError: as :func:`projected_information`; the ridge must be positive.
    """
    fisher, frame = _inputs(F, task, nuisance, ridge)
    if ridge == 0:
        raise ValueError("efficient_direction needs a positive ridge, got 0")
    local = fisher.restrict(frame.basis).ridge_solve(frame.local_task, ridge)
    return local if frame.basis is None else frame.basis @ local


def glass_value(inverse_information: Float[np.ndarray, "k k"]) -> float:
    """Largest eigenvalue of an inverse projected information: the worst task direction (infinite when not
    identified)."""
    if not np.isfinite(inverse_information).all():
        return float("inf")
    return float(np.linalg.eigvalsh(inverse_information)[-1])


def task_direction(
    features: Float[np.ndarray, "n d"], labels: np.ndarray, attributes: np.ndarray | None = None
) -> Float[np.ndarray, " d"]:
    """Default task direction of a two-class head: class-mean difference within each attribute value, summed,
    normalised.

    ``t ~ sum_a (mean[z | y = 1, a] - mean[z | y = 0, a])`` on standardised features (specification 3.1,
    reconstruction). Values of the attribute that lack one of the classes say nothing about the class and are skipped.

    Raises:
        ValueError: labels other than 0 and 1, NaN, or no attribute value that holds both classes.
    """
    z, y = np.asarray(features, dtype=float), np.asarray(labels)
    a = np.zeros(len(y), dtype=int) if attributes is None else np.asarray(attributes)
    require_finite("features", z)
    if z.ndim != 2 or y.shape != (len(z),) or a.shape != (len(z),):
        raise ValueError(f"expected features (n, d), labels (n,), attributes (n,), got {z.shape}, {y.shape}, {a.shape}")
    if not np.isin(y, (0, 1)).all():
        raise ValueError(f"labels must be 0 or 1, got {np.unique(y)[:5]}")
    total, used = np.zeros(z.shape[1]), 0
    for value in np.unique(a):
        ones, zeros = z[(a == value) & (y == 1)], z[(a == value) & (y == 0)]
        if len(ones) and len(zeros):
            total += ones.mean(axis=0) - zeros.mean(axis=0)
            used += 1
    norm = float(np.linalg.norm(total))
    if not used or norm == 0:
        raise ValueError(
            "no attribute value holds both classes with different means: give attributes that mix the classes"
        )
    return total / norm


def softmax_task(
    features: Float[np.ndarray, "n q"], labels: np.ndarray, classes: int, attributes: np.ndarray | None = None
) -> Float[np.ndarray, "d k"]:
    """Task basis of a softmax head (last class as reference): one class-against-reference direction for each free
    class.

    Column c is ``e_c kron t_c`` with ``t_c`` the :func:`task_direction` of class c against the last class
    (reconstruction).
    """
    y = np.asarray(labels)
    q = features.shape[1]
    basis = np.zeros(((classes - 1) * q, classes - 1))
    for c in range(classes - 1):
        pair = (y == c) | (y == classes - 1)
        a = None if attributes is None else np.asarray(attributes)[pair]
        basis[c * q : (c + 1) * q, c] = task_direction(features[pair], (y[pair] == c).astype(int), a)
    return basis


def _inputs(
    F: Fisher | np.ndarray, task: np.ndarray | TaskFrame, nuisance: np.ndarray | None, ridge: float
) -> tuple[Fisher, TaskFrame]:
    if not (np.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"ridge must be a finite number >= 0, got {ridge}")
    fisher = as_fisher(F)
    return fisher, task if isinstance(task, TaskFrame) else task_frame(task, nuisance, fisher.dimension)


def _ridge_inverse(fisher: Fisher, frame: TaskFrame, ridge: float) -> np.ndarray:
    local = frame.local_task
    return _symmetric(local.T @ fisher.restrict(frame.basis).ridge_solve(local, ridge))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _columns(name: str, directions: np.ndarray, dimension: int) -> np.ndarray:
    columns = np.asarray(directions, dtype=float)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or columns.shape[0] != dimension:
        raise ValueError(f"{name} must have {dimension} rows (one a parameter), got shape {np.shape(directions)}")
    require_finite(name, columns)
    return columns


def _span(columns: np.ndarray) -> np.ndarray:
    """Orthonormal basis of the column span (possibly of no column)."""
    if not columns.shape[1]:
        return columns
    left, singular, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, singular > RANK_TOLERANCE * singular[0]]
