"""Fisher information of classifier heads, one matrix an environment.

The model is ``p(y | z)`` with parameter ``theta`` in R^d and score ``s = grad_theta log p(y | z)``; the Fisher
information of environment e is ``F_e = E_e[s s^T]`` with ``y`` drawn from the model (specification 3.1,
reconstruction).

An environment's matrix is kept in the cheaper of two exact forms: dense (d, d), or, when samples are fewer than
parameters, a square-root factor ``S`` of n rows with ``F = S^T S``. Both answer the same question,
``(F + ridge Id)^{-1} rhs``, with one
Cholesky factorisation: of a (d, d) matrix, or (Woodbury) of an (n, n) one.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky

SYMMETRY_TOLERANCE = 1e-8
NEGATIVE_TOLERANCE = 1e-8

Normalise = Literal["per_env", "pooled"]


def require_finite(name: str, array: np.ndarray) -> None:
    """Raise ``ValueError`` naming the first NaN or infinity of ``array``."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")


@dataclass(frozen=True)
class Fisher:
    """Fisher information of one environment.

    Attributes:
        array: F itself (d, d), or, when ``factored``, rows S (n, d) with ``F = S^T S``.
        factored: which of the two ``array`` is.
    """

    array: np.ndarray
    factored: bool = False

    @property
    def dimension(self) -> int:
        """Number of parameters d."""
        return self.array.shape[1]

    @property
    def trace(self) -> float:
        """Trace of F."""
        return float(np.sum(self.array**2)) if self.factored else float(np.trace(self.array))

    def dense(self) -> Float[np.ndarray, "d d"]:
        """F as a (d, d) array."""
        return self.array.T @ self.array if self.factored else self.array

    def restrict(self, basis: Float[np.ndarray, "d q"] | None) -> "Fisher":
        """``basis^T F basis`` in the cheaper of the two forms; ``None`` stands for the identity."""
        if basis is None:
            return self
        if self.factored:
            return fisher_of_rows(self.array @ basis)
        return Fisher(basis.T @ self.array @ basis)

    def scaled(self, factor: float) -> "Fisher":
        """``factor * F``."""
        return Fisher(self.array * (np.sqrt(factor) if self.factored else factor), self.factored)

    def quadratic(self, directions: Float[np.ndarray, "d k"]) -> Float[np.ndarray, "k k"]:
        """``directions^T F directions``: the raw information on them, nothing projected out."""
        product = self.array @ directions
        return product.T @ product if self.factored else directions.T @ product

    def ridge_solve(self, rhs: Float[np.ndarray, "d k"], ridge: float) -> Float[np.ndarray, "d k"]:
        """``(F + ridge Id)^{-1} rhs`` for ridge > 0 with one Cholesky factorisation.

        Of a (d, d) matrix, or, when factored, of the (n, n) matrix ``S S^T + ridge Id`` (Woodbury).
        """
        S = self.array
        core = (S @ S.T if self.factored else S) + ridge * np.eye(len(S))
        root = cho_factor(core, lower=True, overwrite_a=True, check_finite=False)
        if not self.factored:
            return cho_solve(root, rhs, check_finite=False)
        return (rhs - S.T @ cho_solve(root, S @ rhs, check_finite=False)) / ridge


def fisher_of_rows(rows: Float[np.ndarray, "n *r d"]) -> Fisher:
    """``sum_i rows_i^T rows_i``: dense when there are at least as many rows as parameters, else kept as the factor."""
    flat = rows.reshape(-1, rows.shape[-1])
    return Fisher(flat.T @ flat) if len(flat) >= flat.shape[1] else Fisher(flat, factored=True)


def as_fisher(fisher: "Fisher | np.ndarray") -> Fisher:
    """Accept a checked :class:`Fisher` or check a user's matrix.

    Raises:
        ValueError: not square, NaN, asymmetric (relative 1e-8), or an eigenvalue below ``-1e-8 * trace``.
    """
    if isinstance(fisher, Fisher):
        return fisher
    matrix = np.asarray(fisher, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a Fisher matrix must be square, got shape {matrix.shape}")
    require_finite("Fisher matrix", matrix)
    asymmetry, scale = np.abs(matrix - matrix.T).max(), np.abs(matrix).max()
    if asymmetry > SYMMETRY_TOLERANCE * scale:
        raise ValueError(f"a Fisher matrix must be symmetric, got asymmetry {asymmetry:.3g} at scale {scale:.3g}")
    matrix = (matrix + matrix.T) / 2
    allowed = NEGATIVE_TOLERANCE * max(float(np.trace(matrix)), np.finfo(float).tiny)
    try:
        # The factorisation exists exactly when no eigenvalue is below -allowed: a third of the price of eigenvalues.
        cholesky(matrix + 2 * allowed * np.eye(len(matrix)), lower=True, check_finite=False)
    except LinAlgError:
        lowest = float(np.linalg.eigvalsh(matrix)[0])
        if lowest < -allowed:
            raise ValueError(
                f"a Fisher matrix must be positive semidefinite, got eigenvalue {lowest:.3g}, scale {scale:.3g}"
            ) from None
    return Fisher(matrix)


def logistic_rows(
    features: Float[np.ndarray, "n d"], probabilities: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "n d"]:
    """Rows ``sqrt(p (1 - p)) z``: their outer products average to the true Fisher of a logistic head.

    Args:
        features: n feature vectors (append the constant yourself).
        probabilities: p(y = 1 | z) of the model.

    Raises:
        ValueError: shapes differ, a value is not finite, or a probability lies outside [0, 1].
    """
    z, p = np.asarray(features, dtype=float), np.asarray(probabilities, dtype=float)
    if z.ndim != 2 or p.shape != z.shape[:1]:
        raise ValueError(f"expected features (n, d) and probabilities (n,), got {z.shape} and {p.shape}")
    require_finite("features", z)
    _require_probabilities(p)
    return z * np.sqrt(p * (1 - p))[:, None]


def logistic_fisher(
    features: Float[np.ndarray, "n d"],
    probabilities: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, "d d"]:
    """True Fisher of a logistic head, ``sum_i w_i p_i (1 - p_i) z_i z_i^T`` (weights 1/n unless given; quadrature
    weights work too).

    Raises:
        ValueError: as :func:`logistic_rows`; or weights of another length or negative.
    """
    rows = logistic_rows(features, probabilities)
    if weights is None:
        return rows.T @ rows / len(rows)
    w = np.asarray(weights, dtype=float)
    if w.shape != (len(rows),) or not (w >= 0).all():
        raise ValueError(
            f"weights must be {len(rows)} non-negative numbers, got shape {w.shape}, minimum {w.min(initial=0.0)}"
        )
    rows = rows * np.sqrt(w)[:, None]
    return rows.T @ rows


def softmax_rows(
    features: Float[np.ndarray, "n q"], probabilities: Float[np.ndarray, "n c"]
) -> Float[np.ndarray, "n r d"]:
    """Rows of the true Fisher of a softmax head with the last class as reference (logit 0): r = c - 1 rows a sample, d
    = r q.

    ``diag(p) - p p^T`` over the first c - 1 classes has the exact root
    ``diag(sqrt p) - p sqrt(p)^T / (1 + sqrt(p_last))``, so sample i gives the rows ``root_j kron z_i``, whose outer
    products sum to its information.

    Raises:
        ValueError: shapes differ, values are not finite, or the rows of ``probabilities`` do not sum to 1.
    """
    z, p = np.asarray(features, dtype=float), np.asarray(probabilities, dtype=float)
    if z.ndim != 2 or p.ndim != 2 or len(p) != len(z) or p.shape[1] < 2:
        raise ValueError(f"expected features (n, q) and probabilities (n, c >= 2), got {z.shape} and {p.shape}")
    require_finite("features", z)
    _require_probabilities(p)
    if np.abs(p.sum(axis=1) - 1).max() > 1e-6:
        raise ValueError(f"class probabilities must sum to 1 in every row, got sums up to {p.sum(axis=1).max():.6g}")
    free, last = p[:, :-1], p[:, -1]
    root_free = np.sqrt(free)
    # columns j of root: root root^T = diag(free) - free free^T, because |sqrt(free)|^2 = 1 - last.
    root = (
        root_free[:, :, None] * np.eye(free.shape[1])
        - free[:, :, None] * (root_free / (1 + np.sqrt(last))[:, None])[:, None, :]
    )
    return np.einsum("ncj,nq->njcq", root, z).reshape(len(z), free.shape[1], -1)


def softmax_fisher(
    features: Float[np.ndarray, "n q"], probabilities: Float[np.ndarray, "n c"]
) -> Float[np.ndarray, "d d"]:
    """True Fisher of a softmax head, gauge fixed by dropping the last class: ``mean_i (diag(p) - p p^T) kron z z^T``, d
    = (c - 1) q."""
    rows = softmax_rows(features, probabilities)
    return fisher_of_rows(rows / np.sqrt(len(rows))).dense()


def score_fisher(scores: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """Mean outer product of given scores: true Fisher when labels were drawn from the model, empirical Fisher when
    observed."""
    s = np.asarray(scores, dtype=float)
    if s.ndim != 2 or not len(s):
        raise ValueError(f"expected scores of shape (n >= 1, d), got {s.shape}")
    require_finite("scores", s)
    return s.T @ s / len(s)


@dataclass(frozen=True)
class EnvironmentFisher:
    """Fisher information by environment.

    Attributes:
        fishers: one :class:`Fisher` an environment (E of them).
        weights: pi (E,), positive, sums to 1.
        counts: samples an environment has (E,).
        labels: names of the environments, in the order of ``fishers``.
        normalise: "per_env" (each divided by its own sample count) or "pooled" (divided by the total count).
    """

    fishers: tuple[Fisher, ...]
    weights: np.ndarray
    counts: np.ndarray
    labels: tuple[object, ...]
    normalise: Normalise = "per_env"

    @property
    def dimension(self) -> int:
        """Number of parameters d."""
        return self.fishers[0].dimension

    @property
    def F(self) -> Float[np.ndarray, "E d d"]:
        """All matrices, dense and stacked."""
        return np.stack([fisher.dense() for fisher in self.fishers])

    def default_ridge(self, factor: float = 1e-3) -> float:
        """``factor * trace(sum_e pi_e F_e) / d``, the rule of the specification (3.2, reconstruction)."""
        trace = sum(float(w) * fisher.trace for w, fisher in zip(self.weights, self.fishers, strict=True))
        if trace <= 0:
            raise ValueError(
                "every environment has zero Fisher information (all probabilities 0 or 1?): give a positive ridge"
            )
        return factor * trace / self.dimension

    def pooled(self) -> "EnvironmentFisher":
        """Per-environment averages as totals: each matrix times its environment's share of all samples."""
        if self.normalise == "pooled":
            return self
        share = self.counts / self.counts.sum()
        scaled = tuple(fisher.scaled(float(s)) for fisher, s in zip(self.fishers, share, strict=True))
        return EnvironmentFisher(scaled, self.weights, self.counts, self.labels, "pooled")

    @classmethod
    def from_matrices(
        cls,
        matrices: Float[np.ndarray, "E d d"] | Sequence[np.ndarray],
        weights: Float[np.ndarray, " E"] | None = None,
        labels: Sequence[object] | None = None,
    ) -> "EnvironmentFisher":
        """Wrap matrices that were computed elsewhere, checked; uniform weights unless given."""
        fishers = tuple(as_fisher(matrix) for matrix in matrices)
        if not fishers:
            raise ValueError("at least one environment is needed, got none")
        if len({fisher.dimension for fisher in fishers}) > 1:
            raise ValueError(
                f"Fisher matrices must have one size, got {sorted({fisher.dimension for fisher in fishers})}"
            )
        names = tuple(range(len(fishers))) if labels is None else tuple(labels)
        if len(names) != len(fishers):
            raise ValueError(f"expected {len(fishers)} labels, got {len(names)}")
        pi = environment_weights(weights, len(fishers))
        return cls(fishers, pi, np.zeros(len(fishers), dtype=int), names)


def environment_weights(weights: np.ndarray | Sequence[float] | None, environments: int) -> np.ndarray:
    """Weights pi that sum to 1: uniform for ``None``; others are checked, and rescaled with a warning when they do not
    sum to 1."""
    if weights is None:
        return np.full(environments, 1 / environments)
    pi = np.asarray(weights, dtype=float)
    if pi.shape != (environments,):
        raise ValueError(f"expected {environments} environment weights, got shape {pi.shape}")
    require_finite("environment weights", pi)
    if not (pi > 0).all():
        raise ValueError(f"environment weights must be positive, got {pi.min():.6g}")
    total = pi.sum()
    if abs(total - 1) > 1e-9:
        warnings.warn(f"environment weights sum to {total:.6g}, not 1: rescaled", UserWarning, stacklevel=3)
    return pi / total


def group_rows(
    rows: Float[np.ndarray, "n *r d"], environments: np.ndarray, labels: Sequence[object] | None = None
) -> dict[object, Float[np.ndarray, "_ *r d"]]:
    """Split the samples' rows by environment.

    Raises:
        ValueError: a wanted environment has no sample (named), or the lengths differ.
    """
    env = np.asarray(environments)
    if env.shape != (len(rows),) or not len(env):
        raise ValueError(f"expected one environment a sample: {len(rows)} samples, environments of shape {env.shape}")
    names = np.unique(env).tolist() if labels is None else list(labels)
    groups = {name: rows[env == name] for name in names}
    for name, group in groups.items():
        if not len(group):
            raise ValueError(f"environment {name!r} has no sample")
    return groups


def environment_fishers(
    features: Float[np.ndarray, "n q"],
    probabilities: Float[np.ndarray, "n ..."],
    environments: np.ndarray,
    normalise: Normalise = "per_env",
    labels: Sequence[object] | None = None,
    weights: Float[np.ndarray, " E"] | None = None,
    observed: np.ndarray | None = None,
) -> EnvironmentFisher:
    """Fisher of a logistic head (probabilities (n,)) or softmax head (probabilities (n, c)) in every environment.

    Args:
        features: feature vectors with the constant appended.
        probabilities: p(y = 1 | z), or all class probabilities.
        environments: environment of each sample.
        normalise: "per_env" divides by the environment's own count, "pooled" by the total count (how much information
            the data set holds on the environment).
        labels: environments wanted and their order; default: sorted unique values. One without a sample is an error.
        weights: pi; default the share of samples.
        observed: observed classes (0..c-1): gives the *empirical* Fisher of observed scores instead of the true one.

    Raises:
        ValueError: bad shapes, NaN, probabilities outside [0, 1], an empty environment, an unknown ``normalise``.
    """
    if normalise not in ("per_env", "pooled"):
        raise ValueError(f"normalise must be 'per_env' or 'pooled', got {normalise!r}")
    p = np.asarray(probabilities, dtype=float)
    rows = head_rows(features, p) if observed is None else observed_scores(features, p, observed)
    groups = group_rows(rows, environments, labels)
    counts = np.array([len(group) for group in groups.values()])
    divisors = counts if normalise == "per_env" else np.full(len(counts), counts.sum())
    fishers = tuple(
        fisher_of_rows(group / np.sqrt(divisor)) for group, divisor in zip(groups.values(), divisors, strict=True)
    )
    pi = counts / counts.sum() if weights is None else environment_weights(weights, len(counts))
    return EnvironmentFisher(fishers, pi, counts, tuple(groups), normalise)


def head_rows(
    features: Float[np.ndarray, "n q"], probabilities: Float[np.ndarray, "n ..."]
) -> Float[np.ndarray, "n *r d"]:
    """:func:`logistic_rows` or :func:`softmax_rows`, by the shape of ``probabilities``."""
    return logistic_rows(features, probabilities) if probabilities.ndim == 1 else softmax_rows(features, probabilities)


def observed_scores(
    features: Float[np.ndarray, "n q"], probabilities: Float[np.ndarray, "n ..."], observed: np.ndarray
) -> Float[np.ndarray, "n d"]:
    """Scores at the observed labels, ``(1[y] - p) kron z`` over the free classes: rows of the empirical Fisher.

    Raises:
        ValueError: labels that are not class indices 0..c-1 (0 and 1 for a logistic head).
    """
    z, p, y = np.asarray(features, dtype=float), np.asarray(probabilities, dtype=float), np.asarray(observed)
    require_finite("features", z)
    _require_probabilities(p)
    classes = 2 if p.ndim == 1 else p.shape[1]
    if y.shape != (len(z),) or not np.isin(y, np.arange(classes)).all():
        raise ValueError(f"observed labels must be {len(z)} class indices in 0..{classes - 1}, got shape {y.shape}")
    if p.ndim == 1:
        return (y - p)[:, None] * z
    residual = (np.eye(classes)[y.astype(int)] - p)[:, :-1]
    return np.einsum("nc,nq->ncq", residual, z).reshape(len(z), -1)


def _require_probabilities(p: np.ndarray) -> None:
    if not ((p >= 0) & (p <= 1)).all():
        outside = p[~((p >= 0) & (p <= 1))][0]
        raise ValueError(f"probabilities must lie in [0, 1], got {outside}")
