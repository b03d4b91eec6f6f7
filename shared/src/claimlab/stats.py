"""Intervals that judging needs. Everything here is a few lines on scipy; nothing scipy gives is written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats as sps

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A point estimate with a two-sided confidence interval (95 % unless asked otherwise)."""

    value: float
    low: float
    high: float


def mean(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Mean with Student's t interval.

    One value, or a value that is not finite, has no interval: `low` and `high` are then NaN.
    """
    x = np.asarray(values, dtype=float).ravel()
    if x.size == 0:
        raise ValueError("mean needs at least one value, got none")
    centre = float(x.mean())
    if x.size == 1 or not np.isfinite(x).all():
        return Interval(centre, np.nan, np.nan)
    half = float(sps.t.ppf(0.5 + confidence / 2, x.size - 1) * x.std(ddof=1) / np.sqrt(x.size))
    return Interval(centre, centre - half, centre + half)


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Mean of `a - b` over pairs, with the t interval of the differences."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if x.shape != y.shape:
        raise ValueError(f"pairs need equal shapes, got {x.shape} and {y.shape}")
    return mean(x - y, confidence)


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Share of successes with Wilson's score interval."""
    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"expected 0 <= successes <= trials and trials > 0, got {successes} of {trials}")
    ci = sps.binomtest(int(successes), int(trials)).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(ci.low), float(ci.high))


def bootstrap(
    data: ArrayLike | tuple[ArrayLike, ...],
    statistic: Callable[..., Any] = np.mean,
    *,
    rng: np.random.Generator | int = 0,
    resamples: int = 2000,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Percentile bootstrap over problems; a tuple of arrays is resampled together (paired)."""
    samples = tuple(np.asarray(x) for x in (data if isinstance(data, tuple) else (data,)))
    value = float(statistic(*samples))
    if all((x == x[0]).all() for x in samples):
        return Interval(value, value, value)  # scipy refuses a degenerate sample
    result = sps.bootstrap(
        samples,
        statistic,
        paired=len(samples) > 1,
        vectorized=None,  # a statistic that takes `axis` is called once for all resamples
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(rng),
    )
    return Interval(value, float(result.confidence_interval.low), float(result.confidence_interval.high))


def ratio_of_means(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
    """Mean of one sample over that of another; a statistic for `bootstrap`."""
    return a.mean(axis) / b.mean(axis)


def loglog_slope(x: ArrayLike, y: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Exponent `p` of `y ~ x^p`: least squares on logarithms, with the slope's t interval."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.size < 3 or (x <= 0).any() or (y <= 0).any():
        raise ValueError(f"a log-log slope needs at least three positive points, got x={x}, y={y}")
    fit = sps.linregress(np.log(x), np.log(y))
    half = float(sps.t.ppf(0.5 + confidence / 2, x.size - 2) * fit.stderr)
    return Interval(float(fit.slope), float(fit.slope) - half, float(fit.slope) + half)


def spearman(x: ArrayLike, y: ArrayLike, *, rng: np.random.Generator | int = 0, resamples: int = 2000) -> Interval:
    """Spearman's rank correlation with a paired bootstrap interval."""
    return bootstrap((x, y), _rank_correlation, rng=rng, resamples=resamples)


def _rank_correlation(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    ranks = [sps.rankdata(a, axis=axis) for a in (x, y)]
    a, b = (r - r.mean(axis=axis, keepdims=True) for r in ranks)
    return (a * b).sum(axis=axis) / np.sqrt((a**2).sum(axis=axis) * (b**2).sum(axis=axis))
