"""Rate and distortion of a finite source: Blahut-Arimoto, its Lagrange dual, and the best code of K words."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp, minimize_scalar

from .controller import check_memory

_ENUMERATE = 20_000  # codes up to this number are simply tried


def blahut_arimoto(
    p: Float[np.ndarray, " N"],
    d: Float[np.ndarray, "N n"],
    slope: float,
    tol: float = 1e-9,
    max_iterations: int = 5_000,
) -> tuple[float, float, float]:
    """min over channels q(j|i) of I(X; Y) + slope * E[d] (Blahut, 1972; Arimoto, 1972).

    Returns:
        rate (nats) and distortion of the channel found, and a certified lower bound of the minimum (it holds whenever
        the iteration stops; the stop is at ``tol`` between it and the channel's own value).

    Raises:
        ValueError: p is no distribution, d is not finite, shapes do not fit, or the slope is negative.
    """
    p, d = _check_source(p, d)
    if not 0 <= slope < np.inf:
        raise ValueError(f"slope must be at least 0 and finite, got {slope}")
    d = d[p > 0]
    p = p[p > 0]
    floor = d.min(axis=1, keepdims=True)  # keeps the exponentials from vanishing
    weight = np.exp(-slope * (d - floor))
    q = np.full(d.shape[1], 1 / d.shape[1])
    lower = -np.inf
    for _ in range(max_iterations):
        total = weight @ q
        c = (p / total) @ weight
        shift = slope * float(p @ floor[:, 0])
        free = -float(p @ np.log(total)) + shift
        lower = free - float(np.log(c.max()))
        if np.log(c.max()) - float(q @ (c * np.log(np.maximum(c, 1e-300)))) < tol:
            break
        q = q * c
        q /= q.sum()
    channel = weight * q
    channel /= channel.sum(axis=1, keepdims=True)
    marginal = p @ channel
    ratio = np.divide(channel, marginal, out=np.ones_like(channel), where=(channel > 0) & (marginal > 0))
    rate = float(p @ (channel * np.log(ratio)).sum(axis=1))
    return rate, float(p @ (channel * d).sum(axis=1)), lower


def rate_distortion(p: Float[np.ndarray, " N"], d: Float[np.ndarray, "N n"], rate: float) -> float:
    """D(R): least mean distortion at ``rate`` nats, from below.

    D(R) = max over slopes s of (min_q [I + s E d] - R) / s, concave in 1/s. Each slope's certified bound is a lower
    bound of D(R), so the value returned is one too; at linear pieces of D(R), where sweeping the slope skips points,
    the dual is still exact.

    Raises:
        ValueError: p is no distribution, shapes do not fit, or the rate is negative.
    """
    p, d = _check_source(p, d)
    if not rate >= 0:
        raise ValueError(f"rate must be at least 0 nats, got {rate}")
    zero_rate = float((p @ d).min())
    least = float(p @ d.min(axis=1))
    if rate == 0 or zero_rate - least < 1e-15:
        return zero_rate
    if rate >= _lossless_rate(p, d):
        return least
    scale = zero_rate - least
    d = _undominated(d)

    def negative_dual(log_slope: float, tol: float, max_iterations: int) -> float:
        slope = np.exp(log_slope) / scale
        return -(blahut_arimoto(p, d, slope, tol, max_iterations)[2] - rate) / slope

    # The slope is searched with coarse runs; any slope gives a valid bound, and the best one gets a long run.
    found = minimize_scalar(
        negative_dual, bounds=(-4.0, 14.0), method="bounded", args=(1e-7, 500), options={"xatol": 1e-3}
    )
    best = min(float(found.fun), negative_dual(float(found.x), 1e-10, 3_000))
    return max(least, min(zero_rate, -best))


def _undominated(d: np.ndarray) -> np.ndarray:
    """Without reproductions that another serves every symbol at least as well as."""
    d = np.unique(d, axis=1)
    kept: list[int] = []
    for j in np.argsort(d.sum(axis=0), kind="stable"):  # whoever dominates j comes before it
        if not kept or not (d[:, kept] <= d[:, [j]]).all(axis=0).any():
            kept.append(int(j))
    return d[:, kept]


def _lossless_rate(p: np.ndarray, d: np.ndarray) -> float:
    """A rate that is enough for the least distortion: entropy of the first best reproduction."""
    mass = np.bincount(d.argmin(axis=1), weights=p)
    mass = mass[mass > 0]
    return float(-(mass * np.log(mass)).sum())


def fano_bound(mass: float, margin: float, n: int, information: float) -> float:
    """Distortion forced on n equally likely symbols, any two of which no reproduction serves within ``margin``.

    Args:
        mass: total probability of the n symbols (each has mass / n).
        information: I(source; reproduction) in nats. Given that one of the n occurs it is at most information / mass.
    """
    if n < 2 or mass <= 0:
        return 0.0
    return max(0.0, mass * margin * (1 - (information / mass + np.log(2)) / np.log(n)))


def k_median(
    p: Float[np.ndarray, " N"], d: Float[np.ndarray, "N n"], K: int, time_limit: float = 60.0
) -> tuple[float, Int[np.ndarray, " k"]]:
    """The K reproductions with the least mean distortion, by enumeration or as a mixed-integer program (HiGHS).

    Returns:
        the least mean distortion and the columns that reach it.
    """
    p, d = _check_source(p, d)
    check_memory(K)
    N, n = d.shape
    K = min(K, n)
    if comb(n, K) <= _ENUMERATE:
        codes = np.array(list(combinations(range(n), K)))
        cost = np.concatenate([p @ d[:, part].min(axis=2) for part in np.array_split(codes, max(1, len(codes) // 500))])
        return float(cost.min()), codes[cost.argmin()]
    # Columns: open[j], then serve[i, j]; every i is served once, by an open j.
    cost = np.concatenate([np.zeros(n), (p[:, None] * d).ravel()])
    once = sparse.hstack([sparse.csr_array((N, n)), sparse.kron(sparse.eye_array(N), np.ones((1, n)))])
    opened = sparse.hstack([-sparse.kron(np.ones((N, 1)), sparse.eye_array(n)), sparse.eye_array(N * n)])
    count = sparse.csr_array(np.concatenate([np.ones(n), np.zeros(N * n)])[None])
    solution = milp(
        cost,
        constraints=[LinearConstraint(once, 1, 1), LinearConstraint(opened, -np.inf, 0), LinearConstraint(count, 0, K)],
        integrality=np.concatenate([np.ones(n), np.zeros(N * n)]),
        bounds=Bounds(0, 1),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        raise RuntimeError(f"no code of {K} words was found within {time_limit:g} s: {solution.message}")
    chosen = np.flatnonzero(solution.x[:n] > 0.5)
    return float(p @ d[:, chosen].min(axis=1)), chosen


def _check_source(p: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p, d = np.asarray(p, dtype=float), np.asarray(d, dtype=float)
    if p.ndim != 1 or d.ndim != 2 or len(d) != len(p):
        raise ValueError(f"p must be (N,) and d (N, n), got {p.shape} and {d.shape}")
    if d.size == 0 or not np.isfinite(d).all():
        raise ValueError(f"d must hold finite numbers, got shape {d.shape} and {(~np.isfinite(d)).sum()} that are not")
    if not ((p >= 0).all() and abs(p.sum() - 1) <= 1e-6):
        raise ValueError(f"p must be a distribution, got a sum of {p.sum():.9g} and a least entry of {p.min():.3g}")
    return p, d
