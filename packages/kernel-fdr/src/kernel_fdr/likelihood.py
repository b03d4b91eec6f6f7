"""Distribution of a count under the alternative, and its fit to pooled masked counts (reconstruction).

Under the alternative the p-value of a hypothesis is drawn from a density ``f1`` that is skewed to 0, and the count is
binomial given the p-value. Under the null the count is uniform: ``f0(k | n) = 1 / (n + 1)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import betaln, digamma, expit, log_ndtr, logit, logsumexp

from kernel_fdr.counts import MaskedCounts

ALPHA_RANGE = (0.01, 0.999)
"""A null probability of exactly 0 or 1 would make every count there a certain discovery or a certain null."""


def log_binomial(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Logarithm of the binomial coefficient."""
    return -np.log1p(n) - betaln(n - k + 1, k + 1)


@runtime_checkable
class Alternative(Protocol):
    """A distribution of counts under the alternative. ``logpmf(k, n)`` broadcasts over ``k`` and ``n``."""

    def logpmf(self, k: np.ndarray, n: np.ndarray) -> np.ndarray:
        """Log-probability of ``k`` exceedances in ``n`` draws."""
        ...


@dataclass(frozen=True)
class BetaBinomialAlternative:
    """p-values ``Beta(a, b)``, so counts are beta-binomial. The fit keeps ``a <= 1 <= b``: a density that decreases.

    Raises:
        ValueError: unless ``a > 0`` and ``b > 0``.
    """

    a: float
    b: float

    starts: ClassVar = ((np.log(0.3), np.log(6.0)), (np.log(0.7), np.log(20.0)), (np.log(0.1), np.log(3.0)))
    bounds: ClassVar = ((np.log(0.02), 0.0), (0.0, np.log(1000.0)))

    def __post_init__(self):
        if not (self.a > 0 and self.b > 0):
            raise ValueError(f"a and b must be positive, got a = {self.a}, b = {self.b}")

    def logpmf(self, k: np.ndarray, n: np.ndarray) -> np.ndarray:
        """Log-probability of ``k`` exceedances in ``n`` draws."""
        return log_binomial(n, k) + betaln(k + self.a, n - k + self.b) - betaln(self.a, self.b)

    def logpmf_and_slope(self, k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probability and its derivative in ``(log a, log b)``, first axis."""
        total = digamma(self.a + self.b) - digamma(n + self.a + self.b)
        slope = np.stack(
            [
                self.a * (digamma(k + self.a) - digamma(self.a) + total),
                self.b * (digamma(n - k + self.b) - digamma(self.b) + total),
            ]
        )
        return self.logpmf(k, n), slope

    @classmethod
    def from_search(cls, point: np.ndarray) -> BetaBinomialAlternative:
        """The member with ``(log a, log b)``."""
        return cls(float(np.exp(point[0])), float(np.exp(point[1])))


@dataclass(frozen=True)
class ProbitAlternative:
    """z-values ``Phi^-1(1 - p) ~ N(mu, sigma^2)``, the sibling paper's form.

    The integral over z uses panels of 64 Gauss-Legendre points; the number of panels grows with ``sqrt(n)``, as the
    binomial likelihood narrows.

    Raises:
        ValueError: unless ``sigma > 0``.
    """

    mu: float
    sigma: float

    starts: ClassVar = ((1.5, 0.0), (2.5, 0.0), (1.0, -0.7))
    bounds: ClassVar = ((0.0, 8.0), (np.log(0.1), np.log(4.0)))

    def __post_init__(self):
        if not self.sigma > 0:
            raise ValueError(f"sigma must be positive, got {self.sigma}")

    def logpmf(self, k: np.ndarray, n: np.ndarray) -> np.ndarray:
        """Log-probability of ``k`` exceedances in ``n`` draws."""
        k, n = np.broadcast_arrays(np.asarray(k), np.asarray(n))
        _, exponent = self._quadrature(k, n)
        return log_binomial(n, k) + logsumexp(exponent, axis=-1)

    def logpmf_and_slope(self, k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probability and its derivative in ``(mu, log sigma)``, first axis."""
        k, n = np.broadcast_arrays(np.asarray(k), np.asarray(n))
        standard, exponent = self._quadrature(k, n)
        total = logsumexp(exponent, axis=-1)
        posterior = np.exp(exponent - total[..., None])
        slope = np.stack([posterior @ standard / self.sigma, posterior @ (standard**2 - 1)])
        return log_binomial(n, k) + total, slope

    def _quadrature(self, k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standardised nodes, and the log of each node's share of the integral, nodes along the last axis."""
        half_width = 8.0 * self.sigma
        # The likelihood of z is narrowest at p = 1/2: sd 0.5 / (phi(0) sqrt(n)). A panel spans 12 of them.
        panels = int(np.ceil(2 * half_width / (12 * 1.25 / np.sqrt(n.max(initial=1)))))
        nodes, weights = np.polynomial.legendre.leggauss(64)
        edges = np.linspace(-8.0, 8.0, panels + 1)
        width = edges[1] - edges[0]
        standard = (edges[:-1, None] + width * (nodes + 1) / 2).ravel()
        z = self.mu + self.sigma * standard
        log_weight = np.log(np.tile(weights * width / 2, panels)) - 0.5 * standard**2 - 0.5 * np.log(2 * np.pi)
        return standard, k[..., None] * log_ndtr(-z) + (n - k)[..., None] * log_ndtr(z) + log_weight

    @classmethod
    def from_search(cls, point: np.ndarray) -> ProbitAlternative:
        """The member with ``(mu, log sigma)``."""
        return cls(float(point[0]), float(np.exp(point[1])))


FAMILIES: dict[str, type[BetaBinomialAlternative] | type[ProbitAlternative]] = {
    "beta": BetaBinomialAlternative,
    "probit": ProbitAlternative,
}


def likelihood_ratio(masked: MaskedCounts, alternative: Alternative) -> Float[np.ndarray, " hypotheses"]:
    """``f1 / f0`` of the cell that each hypothesis shows. All that inference needs: binomial coefficients cancel."""
    cells = masked.distinct
    log_f1 = np.logaddexp.reduceat(alternative.logpmf(cells.member_k, cells.member_n), cells.starts)
    return np.exp(log_f1 - np.log(cells.size) + np.log1p(cells.n))[cells.inverse]


def local_fdr(
    k: Int[np.ndarray, ...], n: Int[np.ndarray, ...], alpha: Float[np.ndarray, ...], alternative: Alternative
) -> Float[np.ndarray, ...]:
    """``alpha f0 / (alpha f0 + (1 - alpha) f1)`` at the count ``k`` of ``n``."""
    log_ratio = alternative.logpmf(k, n) + np.log1p(n)
    with np.errstate(divide="ignore"):
        return expit(np.log(alpha) - np.log1p(-alpha) - log_ratio)


class PooledFit(NamedTuple):
    """Null share ``alpha_bar``, alternative, and mean log-likelihood ratio against "all null", of pooled counts."""

    alpha_bar: float
    alternative: BetaBinomialAlternative | ProbitAlternative
    mean_log_ratio: float


def fit_pooled(masked: MaskedCounts, family: str = "beta") -> PooledFit:
    """Maximum likelihood of ``alpha_bar f0 + (1 - alpha_bar) f1`` on pooled masked counts.

    The null probability only changes the mixing share, hence pooled counts follow this two-component mixture
    (sibling paper); three starts of L-BFGS-B.

    Raises:
        ValueError: for an unknown ``family`` (known: ``"beta"``, ``"probit"``).
    """
    if family not in FAMILIES:
        raise ValueError(f"alternative must be one of {sorted(FAMILIES)} or an alternative object, got {family!r}")
    members = FAMILIES[family]
    cells = masked.distinct
    share, log_f0 = cells.repeats / len(masked), np.log(cells.size) - np.log1p(cells.n)

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        alpha, alternative = expit(point[0]), members.from_search(point[1:])
        log_pmf, slope = alternative.logpmf_and_slope(cells.member_k, cells.member_n)
        log_f1 = np.logaddexp.reduceat(log_pmf, cells.starts)
        ratio = np.exp(log_f1 - log_f0)
        mixture = alpha + (1 - alpha) * ratio
        within = np.exp(log_pmf - np.repeat(log_f1, cells.size)) * slope
        cell_slope = np.add.reduceat(within, cells.starts, axis=1)
        gradient = np.concatenate(
            [
                [alpha * (1 - alpha) * (share @ ((1 - ratio) / mixture))],
                cell_slope @ (share * (1 - alpha) * ratio / mixture),
            ]
        )
        return -float(share @ np.log(mixture)), -gradient

    box = (tuple(logit(ALPHA_RANGE)), *members.bounds)
    fits = [minimize(loss, (logit(0.8), *start), jac=True, method="L-BFGS-B", bounds=box) for start in members.starts]
    best = min(fits, key=lambda fit: fit.fun)
    return PooledFit(float(expit(best.x[0])), members.from_search(best.x[1:]), -float(best.fun))
