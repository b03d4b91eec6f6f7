"""The separation family: a core feature and a nuisance that copies it (specification 3.3 and 3.4, reconstructed
statements).

Core ``c ~ N(0, 1)``, nuisance ``a = rho c + sqrt(1 - rho^2) z``, ``P(y = 1) = sigmoid(b c)``, true parameter
``(b, 0)``. Loss, accuracy and raw core information do not depend on rho; the projected information does:
``1 / I = 1 / ll + rho^2 / ((1 - rho^2) lp)`` with ``lp = E[s'(b Z)]``, ``ll = E[s'(b Z) Z^2]``.
"""

import numpy as np
from jaxtyping import Float
from scipy.integrate import quad
from scipy.special import expit, ndtr, ndtri

# Rows of one chunk of batched fits; keeps the working set in the cache.
CHUNK_ROWS = 65_536


def sigmoid_moments(scale: float) -> tuple[float, float]:
    """``lp = E[s'(scale Z)]`` and ``ll = E[s'(scale Z) Z^2]`` for standard normal Z, by adaptive quadrature (absolute
    1e-13)."""
    if not np.isfinite(scale):
        raise ValueError(f"scale must be finite, got {scale}")

    def moment(power: int) -> float:
        def integrand(x: float) -> float:
            slope = float(expit(scale * x) * expit(-scale * x))
            return slope * x**power * float(np.exp(-x * x / 2)) / float(np.sqrt(2 * np.pi))

        return 2 * float(quad(integrand, 0, 40, epsabs=1e-14, epsrel=1e-12, limit=200)[0])

    return moment(0), moment(2)


def core_nuisance_fisher(b: float, rho: float) -> Float[np.ndarray, "2 2"]:
    """Population Fisher of (core, nuisance) at the true parameter (b, 0), closed form."""
    _require_rho(rho)
    lp, ll = sigmoid_moments(b)
    return np.array([[ll, rho * ll], [rho * ll, rho**2 * ll + (1 - rho**2) * lp]])


def core_nuisance_information(b: float, rho: float) -> float:
    """``1 / I``, the inverse projected information of the core: ``1 / ll + rho^2 / ((1 - rho^2) lp)``; infinite at
    |rho| = 1."""
    _require_rho(rho)
    lp, ll = sigmoid_moments(b)
    return float("inf") if abs(rho) == 1 else 1 / ll + rho**2 / ((1 - rho**2) * lp)


def core_nuisance_quadrature(rho: float, nodes: int = 160) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Tensor Gauss-Hermite nodes of (core, nuisance) and their probability weights: population averages as finite
    sums."""
    _require_rho(rho)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    core, own = np.meshgrid(x, x, indexing="ij")
    points = np.stack([core.ravel(), (rho * core + np.sqrt(1 - rho**2) * own).ravel()], axis=1)
    return points, np.outer(w, w).ravel()


def gaussian_logistic_fisher(
    covariance: Float[np.ndarray, "d d"], theta: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "d d"]:
    """Exact Fisher of a logistic head on features ``z ~ N(0, covariance)``.

    With ``u = theta^T z ~ N(0, sigma^2)``:
    ``E[s'(u) z z^T] = lp (S - S theta theta^T S / sigma^2) + ll S theta theta^T S / sigma^2`` with the moments of
    ``sigmoid_moments(sigma)``.
    """
    along = covariance @ theta
    variance = float(theta @ along)
    lp, ll = sigmoid_moments(float(np.sqrt(variance)))
    spike = np.outer(along, along) / variance
    return lp * (covariance - spike) + ll * spike


def sample_core_nuisance(
    rng: np.random.Generator, shape: tuple[int, ...], b: float, rho: float, flip: float = 0.0, gap: float = 0.0
) -> tuple[Float[np.ndarray, "*shape 2"], Float[np.ndarray, "*shape"]]:
    """Draw features ``(c, a)`` and labels (0.0 or 1.0).

    Args:
        rng: randomness.
        shape: of the labels; features get a last axis of 2.
        b: signal strength.
        rho: correlation of nuisance and core.
        flip: probability that a label is flipped.
        gap: no core value with ``|c| < gap``: the truncated normal beyond it (no boundary mass).
    """
    _require_rho(rho)
    if not 0 <= flip <= 0.5:
        raise ValueError(f"flip must lie in [0, 0.5], got {flip}")
    core = rng.standard_normal(shape)
    if gap > 0:
        core = np.where(core < 0, -1.0, 1.0) * truncated_normal(rng.random(shape), gap)
    nuisance = rho * core + np.sqrt(1 - rho**2) * rng.standard_normal(shape)
    probability = (1 - 2 * flip) * expit(b * core) + flip
    labels = (rng.random(shape) < probability).astype(float)
    return np.stack([core, nuisance], axis=-1), labels


def truncated_normal(uniforms: Float[np.ndarray, "*shape"], gap: float) -> Float[np.ndarray, "*shape"]:
    """Standard normal conditioned on being above ``gap``, from uniforms in [0, 1)."""
    return -ndtri(ndtr(-gap) * (1 - uniforms))


def fit_logistic(
    features: Float[np.ndarray, "fits n d"],
    labels: Float[np.ndarray, "fits n"],
    start: Float[np.ndarray, " d"] | None = None,
    tolerance: float = 1e-6,
    iterations: int = 50,
) -> Float[np.ndarray, "fits d"]:
    """Maximum-likelihood logistic regression without intercept, many fits at once, by damped Newton steps.

    Args:
        features: a batch of data sets of one size.
        labels: 0.0 or 1.0.
        start: first guess for every fit; zero unless given.
        tolerance: largest Newton step to stop at; steps shrink quadratically, so the error left is about its square.
        iterations: most Newton steps; a separable data set has no maximum and ends there, far out along its direction.
    """
    fits, n, d = features.shape
    theta = np.tile(np.zeros(d) if start is None else start, (fits, 1)).astype(float)
    size = max(1, CHUNK_ROWS // n)
    for first in range(0, fits, size):
        part = slice(first, first + size)
        theta[part] = _newton(features[part], labels[part], theta[part], tolerance, iterations)
    return theta


def direction_error(theta: Float[np.ndarray, "fits 2"]) -> Float[np.ndarray, " fits"]:
    """Excess disagreement with the Bayes rule on decorrelated data: the angle of (c, a) to the core axis over pi,
    exact."""
    return np.arctan2(np.abs(theta[:, 1]), theta[:, 0]) / np.pi


def gap_error(theta: Float[np.ndarray, "fits 2"], gap: float, nodes: int = 64) -> Float[np.ndarray, " fits"]:
    """As :func:`direction_error` when no core value lies within ``gap`` of the boundary:
    ``E[Phi(-c_hat |c| / |a_hat|)]``."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    core = truncated_normal((x + 1) / 2, gap)
    ratio = theta[:, 0] / np.maximum(np.abs(theta[:, 1]), 1e-300)
    return ndtr(-ratio[:, None] * core) @ (w / 2)


def first_order_sample_size(eps: float, b: float, rho: float) -> float:
    """Samples to reach mean disagreement ``eps`` to first order: ``(2 / pi) / ((pi b eps)^2 (1 - rho^2) lp)``
    (specification 3.4)."""
    lp, _ = sigmoid_moments(b)
    return 2 / np.pi / ((np.pi * b * eps) ** 2 * (1 - rho**2) * lp)


def logistic_loss(
    margin: Float[np.ndarray, "*shape"], labels: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Negative log-likelihood of labels 0.0 or 1.0 at the given logits."""
    return np.logaddexp(0.0, margin) - labels * margin


def _newton(X: np.ndarray, y: np.ndarray, theta: np.ndarray, tolerance: float, iterations: int) -> np.ndarray:
    columns = np.ascontiguousarray(X.transpose(0, 2, 1))
    rows = columns.transpose(0, 2, 1)
    for _ in range(iterations):
        p = expit((theta[:, None, :] @ columns)[:, 0])
        gradient = columns @ (y - p)[:, :, None]
        hessian = (columns * (p * (1 - p))[:, None, :]) @ rows
        # Only a separable sample drives the Hessian to zero; the floor keeps its step finite.
        hessian += (1e-12 * np.trace(hessian, axis1=1, axis2=2) + 1e-300)[:, None, None] * np.eye(X.shape[2])
        step = np.linalg.solve(hessian, gradient)[:, :, 0]
        # A long step only happens near separation, where the quadratic model is no guide.
        length = np.linalg.norm(step, axis=1, keepdims=True)
        theta = theta + step * np.minimum(1.0, 5.0 / np.maximum(length, 1e-300))
        if length.max() <= tolerance:
            break
    return theta


def _require_rho(rho: float) -> None:
    if not -1 <= rho <= 1:
        raise ValueError(f"rho must lie in [-1, 1], got {rho}")
