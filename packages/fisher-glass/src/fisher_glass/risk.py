"""CVaR over environments of the inverse projected information: the Fisher-Glass value (specification 3.2,
reconstruction)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from fisher_glass.fisher import EnvironmentFisher, environment_weights
from fisher_glass.projection import TaskFrame, glass_value, inverse_projected_information, task_frame

SATURATED = 0.5
SWEEP = np.logspace(-6, 0, 13)


def cvar(
    values: Float[np.ndarray, " E"] | Sequence[float],
    weights: Float[np.ndarray, " E"] | Sequence[float] | None = None,
    alpha: float = 0.1,
) -> tuple[float, Float[np.ndarray, " E"]]:
    """Mean of the worst ``alpha`` share of weighted values, with the atom at the quantile split (Rockafellar and
    Uryasev 2000).

    Args:
        values: one number an environment; larger is worse; ``inf`` is allowed.
        weights: pi; uniform unless given.
        alpha: tail share in (0, 1]; 1 is the mean.

    Returns:
        The CVaR and its tail weights ``q``, the maximiser of ``sum q v`` with ``0 <= q <= pi / alpha`` and
        ``sum q = 1``.

    Raises:
        ValueError: alpha outside (0, 1], NaN values, no value, bad weights.
    """
    v = np.asarray(values, dtype=float)
    require_alpha(alpha)
    if v.ndim != 1 or not len(v):
        raise ValueError(f"values must be a non-empty vector, got shape {v.shape}")
    if np.isnan(v).any():
        raise ValueError(f"values must not be NaN, got NaN at index {int(np.argmax(np.isnan(v)))}")
    caps = environment_weights(None if weights is None else np.asarray(weights), len(v)) / alpha
    order = np.argsort(-v, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(caps[order])[:-1]])
    q = np.zeros(len(v))
    q[order] = np.clip(1 - before, 0, caps[order])
    used = q > 0
    return float(q[used] @ v[used]), q


def require_alpha(alpha: float) -> None:
    """Raise ``ValueError`` unless alpha lies in (0, 1]."""
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must lie in (0, 1], got {alpha}")


@dataclass(frozen=True)
class FisherGlassReport:
    """The Fisher-Glass value and what it is made of.

    Attributes:
        value: FG, the CVaR of ``per_env``.
        per_env: glass value g_e of each environment (E,), in 1 / information; at most 1 / ridge.
        tail_weights: q_e (E,), which environments the tail consists of.
        ridge: the ridge used.
        saturation: ``g_e * ridge`` in (0, 1]; above 0.5 the direction is as good as non-identified at this ridge.
        loss_cvar: CVaR of the environments' losses at the same alpha, when losses were given.
        labels: names of the environments.
        alpha: tail share.
        rank_deficient: environments with fewer samples than parameters, by (E,) flags; at ridge 0 their glass value is
            infinite unless the task happens to lie in the span of their samples.
    """

    value: float
    per_env: np.ndarray
    tail_weights: np.ndarray
    ridge: float
    saturation: np.ndarray
    loss_cvar: float | None
    labels: tuple[object, ...]
    alpha: float
    rank_deficient: np.ndarray


def resolve_ridge(environment_fisher: EnvironmentFisher, ridge: float | int | Literal["auto"]) -> float:
    """The number behind ``ridge``: "auto" is :meth:`EnvironmentFisher.default_ridge`.

    Raises:
        ValueError: negative, not finite, or another word.
    """
    if isinstance(ridge, str):
        if ridge != "auto":
            raise ValueError(f"ridge must be a number >= 0 or 'auto', got {ridge!r}")
        return environment_fisher.default_ridge()
    if not (np.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"ridge must be a finite number >= 0 or 'auto', got {ridge}")
    return float(ridge)


def environment_glass(environment_fisher: EnvironmentFisher, frame: TaskFrame, ridge: float) -> Float[np.ndarray, " E"]:
    """Glass value of every environment: the largest eigenvalue of its inverse projected information."""
    return np.array(
        [
            glass_value(inverse_projected_information(fisher, frame, ridge=ridge))
            for fisher in environment_fisher.fishers
        ]
    )


def fisher_glass(
    environment_fisher: EnvironmentFisher,
    task: Float[np.ndarray, "d ..."] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    alpha: float = 0.1,
    ridge: float | int | Literal["auto"] = "auto",
    losses: Float[np.ndarray, " E"] | None = None,
) -> FisherGlassReport:
    """Fisher-Glass: CVaR over environments of the inverse nuisance-projected task information.

    Args:
        environment_fisher: E matrices and their weights.
        task: direction (d,) or basis (d, k) of the task.
        nuisance: directions (d, m) to project out; ``None``: everything orthogonal to the task.
        alpha: tail share.
        ridge: "auto" (1e-3 of the mean eigenvalue), or a number; 0 asks for the unridged value, which may be infinite.
        losses: mean loss of every environment, to report its CVaR beside FG.

    Raises:
        ValueError: bad alpha, ridge, task, nuisance or losses.
    """
    require_alpha(alpha)
    lam = resolve_ridge(environment_fisher, ridge)
    frame = task if isinstance(task, TaskFrame) else task_frame(task, nuisance, environment_fisher.dimension)
    glass = environment_glass(environment_fisher, frame, lam)
    value, tail = cvar(glass, environment_fisher.weights, alpha)
    loss_tail = None if losses is None else cvar(losses, environment_fisher.weights, alpha)[0]
    saturation = glass * lam if lam > 0 else np.where(np.isinf(glass), 1.0, 0.0)
    return FisherGlassReport(
        value,
        glass,
        tail,
        lam,
        saturation,
        loss_tail,
        environment_fisher.labels,
        alpha,
        np.array([fisher.factored for fisher in environment_fisher.fishers]),
    )


def ridge_sweep(
    environment_fisher: EnvironmentFisher,
    task: Float[np.ndarray, "d ..."] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    alphas: Sequence[float] = (0.1, 0.25, 0.5, 1.0),
    factors: Float[np.ndarray, " r"] = SWEEP,
) -> pd.DataFrame:
    """FG over ridges and tail shares: is an ordering of environments an artefact of the ridge?

    Returns:
        Columns ``factor`` (ridge over mean eigenvalue), ``ridge``, ``alpha``, ``fisher_glass``, ``worst_environment``,
        ``largest_saturation``; one row a ridge and alpha.
    """
    frame = task if isinstance(task, TaskFrame) else task_frame(task, nuisance, environment_fisher.dimension)
    rows = []
    for factor in factors:
        lam = environment_fisher.default_ridge(float(factor))
        glass = environment_glass(environment_fisher, frame, lam)
        worst = environment_fisher.labels[int(np.argmax(glass))]
        for alpha in alphas:
            value, _ = cvar(glass, environment_fisher.weights, alpha)
            rows.append((float(factor), lam, alpha, value, str(worst), float(glass.max() * lam)))
    columns = ["factor", "ridge", "alpha", "fisher_glass", "worst_environment", "largest_saturation"]
    return pd.DataFrame(rows, columns=columns)
