"""Ridge certificates: an interval for the population Fisher-Glass from samples (specification 3.5, reconstructed
statement).

Let ``||F_hat_e - F_e||_op <= eps_e`` and ``r_e = eps_e / ridge``. Both matrices are positive semidefinite, so in the
Loewner order ``F_e + ridge <= F_hat_e + eps_e + ridge <= (1 + r_e)(F_hat_e + ridge)`` and the same with the two
exchanged. Inverting, ``g_hat_e / (1 + r_e) <= g_e <= (1 + r_e) g_hat_e``, and both ends are attained; the CVaR is
monotone, so it keeps the order. This needs no ``eps_e < ridge`` and is tighter than the bound ``g_hat_e / (1 - r_e)``,
which does not use that F_e is positive semidefinite. Without a ridge no such bound exists. The radius of each
environment is used, not the largest of all: never looser.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from fisher_glass.fisher import EnvironmentFisher, environment_weights, fisher_of_rows, require_finite
from fisher_glass.projection import TaskFrame, task_frame
from fisher_glass.risk import cvar, environment_glass, require_alpha, resolve_ridge


@dataclass(frozen=True)
class Certificate:
    """Interval for the population FG at one ridge, and per environment.

    Attributes:
        lower, estimate, upper: bounds and plug-in value of FG; ``upper`` is at most 1 / ridge.
        eps: largest radius ``max_e eps_e`` of the Fisher matrices in operator norm.
        ridge: the ridge that the interval is for.
        level: simultaneous confidence over environments.
        eps_per_env, lower_per_env, estimate_per_env, upper_per_env: the same by environment (E,).
        informative: (E,) flags: the upper bound is below 1 / ridge, which holds anyway.
    """

    lower: float
    estimate: float
    upper: float
    eps: float
    ridge: float
    level: float
    eps_per_env: np.ndarray
    lower_per_env: np.ndarray
    estimate_per_env: np.ndarray
    upper_per_env: np.ndarray

    @property
    def informative(self) -> np.ndarray:
        """Environments whose upper bound says more than ``g <= 1 / ridge``."""
        return self.upper_per_env < (1 - 1e-9) / self.ridge


def certificate_from_radii(
    glass: Float[np.ndarray, " E"],
    radii: Float[np.ndarray, " E"],
    weights: Float[np.ndarray, " E"] | None,
    alpha: float,
    ridge: float,
    level: float = 1.0,
) -> Certificate:
    """The deterministic inequality: plug-in glass values and Fisher radii to an interval for FG.

    Args:
        glass: plug-in ``g_hat_e`` at ``ridge``.
        radii: ``eps_e >= ||F_hat_e - F_e||_op``.
        weights: pi, or ``None`` for uniform.
        alpha: tail share.
        ridge: positive.
        level: recorded confidence; 1 when the radii are certain.

    Raises:
        ValueError: ridge not positive, a negative or NaN radius, bad alpha.
    """
    require_alpha(alpha)
    if not (np.isfinite(ridge) and ridge > 0):
        raise ValueError(f"a certificate needs a positive ridge, got {ridge}")
    radii = np.asarray(radii, dtype=float)
    if np.isnan(radii).any() or (radii < 0).any():
        raise ValueError(f"radii must be non-negative, got {radii}")
    pi = environment_weights(weights, len(glass))
    ratio = radii / ridge
    lower = glass / (1 + ratio)
    upper = np.minimum(glass * (1 + ratio), 1 / ridge)
    bounds = [cvar(bound, pi, alpha)[0] for bound in (lower, glass, upper)]
    return Certificate(bounds[0], bounds[1], bounds[2], float(radii.max()), ridge, level, radii, lower, glass, upper)


def bootstrap_radius(
    rows: Float[np.ndarray, "n *r d"], confidence: float, draws: int, rng: np.random.Generator
) -> float:
    """Quantile of ``||F_boot - F_hat||_op`` by the Gaussian multiplier bootstrap.

    ``F_boot - F_hat = (1/n) sum_i xi_i (A_i - F_hat)`` with standard normal ``xi`` and ``A_i`` the information of
    sample i is, given the data, a Gaussian matrix whose covariance is the samples' own. With few parameters it is drawn
    from that covariance, O(n D^2 + draws D^2) for D = d (d + 1) / 2, which does not grow with draws * n; with many,
    from the multipliers. The distribution is the same.

    Args:
        rows: a row a sample, or r rows a sample, with ``F_hat = mean_i rows_i^T rows_i``.
        confidence: probability that the radius should hold with.
        draws: bootstrap draws.
        rng: randomness.
    """
    n, d = len(rows), rows.shape[-1]
    triangle = np.triu_indices(d)
    if len(triangle[0]) ** 2 <= draws * n:
        deviations = _covariance_draws(rows, triangle, draws, rng)
    else:
        flat = rows.reshape(-1, d)
        centre, per_sample = flat.T @ flat / n, len(flat) // n
        deviations = np.empty((draws, d, d))
        for b in range(draws):
            xi = rng.standard_normal(n)
            deviations[b] = (flat * np.repeat(xi, per_sample)[:, None]).T @ flat / n - xi.mean() * centre
    norms = np.abs(np.linalg.eigvalsh(deviations)[:, [0, -1]]).max(axis=1)
    return float(np.quantile(norms, confidence, method="higher"))


def _covariance_draws(
    rows: np.ndarray, triangle: tuple[np.ndarray, np.ndarray], draws: int, rng: np.random.Generator
) -> np.ndarray:
    n, d = len(rows), rows.shape[-1]
    columns = np.ascontiguousarray(rows.reshape(-1, d).T)
    products = columns[triangle[0]] * columns[triangle[1]]
    if rows.ndim == 3:
        products = products.reshape(len(products), n, -1).sum(axis=2)
    products -= products.mean(axis=1, keepdims=True)
    variances, axes = np.linalg.eigh(products @ products.T)
    root = axes * (np.sqrt(np.maximum(variances, 0.0)) / n)
    entries = rng.standard_normal((draws, len(root))) @ root.T
    deviations = np.empty((draws, d, d))
    deviations[:, triangle[0], triangle[1]] = entries
    deviations[:, triangle[1], triangle[0]] = entries
    return deviations


def bernstein_radius(rows: Float[np.ndarray, "n *r d"], confidence: float, bound: float | None = None) -> float:
    """Matrix Bernstein radius: ``sqrt(2 v L / n) + 2 R^2 L / (3 n)``, ``L = log(2 d / (1 - confidence))`` (Tropp 2012).

    Args:
        rows: a row a sample, or r rows a sample, with ``F_hat = mean_i A_i``, ``A_i = rows_i^T rows_i``.
        confidence: probability that the radius holds with.
        bound: R with ``||A_i|| <= R^2`` for sure; the largest observed unless given (then the guarantee is only
            heuristic).

    ``v = ||E[(A - F)^2]||`` is estimated by the sample.
    """
    n, d = len(rows), rows.shape[-1]
    stacked = rows.reshape(n, -1, d)
    flat = stacked.reshape(-1, d)
    if stacked.shape[1] == 1:  # then A_i^2 = |s_i|^2 A_i
        norms = np.einsum("nd,nd->n", flat, flat)
        weighted = flat * norms[:, None]
    else:
        gram = stacked @ stacked.transpose(0, 2, 1)
        norms = np.linalg.eigvalsh(gram)[:, -1]
        weighted = (gram @ stacked).reshape(-1, d)
    square = float(norms.max()) if bound is None else bound**2
    F = flat.T @ flat / n
    variance = float(np.linalg.eigvalsh(weighted.T @ flat / n - F @ F)[-1])
    log_term = float(np.log(2 * d / (1 - confidence)))
    return float(np.sqrt(2 * max(variance, 0.0) * log_term / n) + 2 * square * log_term / (3 * n))


def ridge_certificate(
    rows_by_environment: Sequence[Float[np.ndarray, "_ *r d"]],
    task: Float[np.ndarray, "d ..."] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    *,
    alpha: float = 0.1,
    ridge: float | int | Literal["auto"] = "auto",
    weights: Float[np.ndarray, " E"] | None = None,
    level: float = 0.9,
    method: Literal["bootstrap", "bernstein"] = "bootstrap",
    draws: int = 200,
    bound: float | None = None,
    rng: np.random.Generator | None = None,
) -> Certificate:
    """Interval for the population Fisher-Glass at one ridge, simultaneous over environments.

    Args:
        rows_by_environment: for every environment its samples' rows s_i with ``F_hat_e = mean_i s_i s_i^T``
            (``logistic_rows``, or scores of any model), or r rows a sample, (n, r, d) (``softmax_rows``).
        task, nuisance: as :func:`fisher_glass.fisher_glass`.
        alpha: tail share.
        ridge: "auto" or a positive number.
        weights: pi; default the share of samples.
        level: 1 - delta; every environment's radius is taken at 1 - delta / E.
        method: "bootstrap" (default) or "bernstein".
        draws: bootstrap draws.
        bound: for "bernstein": a bound on the norm of a row.
        rng: for "bootstrap"; a fixed seed unless given.

    Raises:
        ValueError: an empty environment, NaN, a bad level, ridge 0, an unknown method.
    """
    if method not in ("bootstrap", "bernstein"):
        raise ValueError(f"method must be 'bootstrap' or 'bernstein', got {method!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    groups = [np.asarray(rows, dtype=float) for rows in rows_by_environment]
    for index, rows in enumerate(groups):
        if rows.ndim not in (2, 3) or not rows.size:
            raise ValueError(f"environment {index} needs rows of shape (n >= 1, d) or (n, r, d), got {rows.shape}")
        require_finite(f"rows of environment {index}", rows)
    counts = np.array([len(rows) for rows in groups])
    pi = counts / counts.sum() if weights is None else environment_weights(weights, len(groups))
    fishers = tuple(fisher_of_rows(rows / np.sqrt(len(rows))) for rows in groups)
    environment_fisher = EnvironmentFisher(fishers, pi, counts, tuple(range(len(groups))))
    frame = task if isinstance(task, TaskFrame) else task_frame(task, nuisance, environment_fisher.dimension)
    lam = resolve_ridge(environment_fisher, ridge)
    rng = np.random.default_rng(0) if rng is None else rng
    confidence = 1 - (1 - level) / len(groups)
    # Only the Fisher inside span[T N] enters g_e, so the radius is taken there.
    local = [frame.coordinates(rows) for rows in groups]
    if method == "bootstrap":
        radii = np.array([bootstrap_radius(rows, confidence, draws, rng) for rows in local])
    else:
        radii = np.array([bernstein_radius(rows, confidence, bound) for rows in local])
    return certificate_from_radii(environment_glass(environment_fisher, frame, lam), radii, pi, alpha, lam, level)
