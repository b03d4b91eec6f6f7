"""Where to spend further null draws (reconstruction).

Draws come in rounds. Before each round a policy scores the hypotheses from masked counts only. For a null hypothesis
every path of exceedances is as likely as its mirror image, and both look the same to the policy: the side of the final
count stays a fair coin, and the mirror rule stays valid however cleverly the draws were placed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logit

from kernel_fdr.baselines import mean_cut
from kernel_fdr.counts import CountData, MaskedCounts, Values
from kernel_fdr.estimator import KernelNullPrior
from kernel_fdr.likelihood import Alternative, log_binomial
from kernel_fdr.rules import check_level

Sampler = Callable[[Int[np.ndarray, " chosen"], int], Values]
"""``sampler(hypotheses, draws)`` makes ``draws`` null draws for each listed hypothesis and returns the exceedances."""

Policy = Callable[[MaskedCounts, KernelNullPrior, int, float], np.ndarray]
"""``policy(masked, prior, step, q)`` returns the gain of ``step`` draws for each hypothesis; -inf never draws."""


def predictive_log_pmf(alternative: Alternative | None, m: np.ndarray, n: np.ndarray, step: int) -> np.ndarray:
    """Log-probability of 0..step exceedances in ``step`` further draws after ``m`` of ``n``, shape ``(N, step + 1)``.

    ``alternative=None`` is the null. Follows from the count distribution alone: binomial coefficients turn
    ``P(m + j | n + step)`` into the probability of a path.
    """
    j = np.arange(step + 1)
    m, n = m[:, None], n[:, None]

    def path(k: np.ndarray, total: np.ndarray) -> np.ndarray:
        marginal = -np.log1p(total) if alternative is None else alternative.logpmf(k, total)
        return marginal - log_binomial(total, k)

    return log_binomial(np.asarray(step), j) + path(m + j, n + step) - path(m, n)


LOOK_AHEAD = (1, 2, 4, 8)
"""Batches that :func:`knowledge_gradient` imagines. One batch often cannot move a hypothesis over the cut, and its
value is then nearly 0 however promising it is (the known weakness of one-step knowledge gradients)."""


def knowledge_gradient(
    masked: MaskedCounts, prior: KernelNullPrior, step: int, q: float
) -> Float[np.ndarray, " hypotheses"]:
    """Largest expected gain per batch over a look-ahead of 1, 2, 4 or 8 batches (Frazier and Powell's KG(*))."""
    gains = [one_step_gradient(masked, prior, batches * step, q) / batches for batches in LOOK_AHEAD]
    return np.max(gains, axis=0)


def one_step_gradient(
    masked: MaskedCounts, prior: KernelNullPrior, step: int, q: float
) -> Float[np.ndarray, " hypotheses"]:
    """Expected gain of ``step`` draws: how far lfdr moves below the cut, ``E (tau - lfdr')+ - (tau - lfdr)+``.

    ``tau`` is the largest lfdr of the largest set with mean lfdr <= q, and at least 2 q.
    """
    now = prior.lfdr(masked.m, masked.n)
    tau = max(mean_cut(now, q), 2 * q)
    # Everything but alpha depends on (m, n) alone, and few of these are different.
    distinct, place = np.unique(np.column_stack([masked.m, masked.n]), axis=0, return_inverse=True)
    place = place.ravel()
    m, n = distinct.T
    null = np.exp(predictive_log_pmf(None, m, n, step))[place]
    signal = np.exp(predictive_log_pmf(prior.alternative_, m, n, step))[place]
    total = (n + step)[:, None]
    log_ratio = prior.alternative_.logpmf(m[:, None] + np.arange(step + 1), total) + np.log1p(total)
    after = expit(logit(prior.alpha_)[:, None] - log_ratio[place])
    chance = now[:, None] * null + (1 - now)[:, None] * signal
    return (chance * np.maximum(tau - after, 0)).sum(axis=1) - np.maximum(tau - now, 0)


def variance(masked: MaskedCounts, prior: KernelNullPrior, step: int, q: float) -> Float[np.ndarray, " hypotheses"]:
    """Masked posterior variance of the null indicator, per draw so far."""
    lfdr = prior.lfdr(masked.m, masked.n)
    return lfdr * (1 - lfdr) / masked.n


def low_lfdr(masked: MaskedCounts, prior: KernelNullPrior, step: int, q: float) -> Float[np.ndarray, " hypotheses"]:
    """The lowest masked lfdr first, up to 8 times the fewest draws of any hypothesis (the pilot)."""
    return np.where(masked.n <= 8 * masked.n.min(), -prior.lfdr(masked.m, masked.n), -np.inf)


def a_optimal(masked: MaskedCounts, prior: KernelNullPrior, step: int, q: float) -> Float[np.ndarray, " hypotheses"]:
    """Sibling paper's design: the draw that most lowers the mean of ``K_xx - k_S^T (K_S + lam I)^-1 k_S``.

    A batch of ``step`` draws is one noisy look at a location. A quarter of the hypotheses is picked greedily, one after
    the other; the others follow by what a look at them would add to these. Reads no count beyond ``n``.
    """
    features, looks = prior.features_.values, masked.n / step
    precision = np.eye(features.shape[1]) + (features.T * (looks / prior.lam_)) @ features
    covariance = features @ np.linalg.solve(precision, features.T)
    squares = (covariance**2).sum(axis=0)
    gain = np.full(len(masked), -np.inf)
    picks = max(1, len(masked) // 4)
    for place in range(picks):
        fall = np.where(gain > -np.inf, -np.inf, squares / (np.diag(covariance) + prior.lam_))
        best = int(np.argmax(fall))
        gain[best] = 1.0 + picks - place
        column, noise = covariance[:, best].copy(), covariance[best, best] + prior.lam_
        squares += column * (column @ column * column / noise - 2 * covariance @ column) / noise
        covariance -= np.outer(column, column / noise)
    rest = squares / (np.diag(covariance) + prior.lam_)
    return np.where(gain > -np.inf, gain, rest / (1 + rest))


POLICIES: dict[str, Policy] = {
    "knowledge_gradient": knowledge_gradient,
    "one_step_gradient": one_step_gradient,
    "variance": variance,
    "low_lfdr": low_lfdr,
    "a_optimal": a_optimal,
}
"""Adaptive policies by name; ``"uniform"`` spreads draws evenly and needs no score."""


def allocate(
    sampler: Sampler,
    n_hypotheses: int,
    budget: int,
    prior: KernelNullPrior,
    pilot: int = 10,
    step: int = 10,
    rounds: int = 8,
    policy: str | Policy = "knowledge_gradient",
    q: float = 0.1,
    max_n: int | None = None,
    locations: Values | None = None,
    random_state: int | np.random.Generator | None = None,
) -> CountData:
    """Spend a budget of null draws on hypotheses.

    Args:
        sampler: makes null draws; see :data:`Sampler`.
        n_hypotheses: ``N``.
        budget: null draws in all, pilot included.
        prior: unfitted prior, fitted to masked counts before each round.
        pilot: draws of every hypothesis before the first round.
        step: draws of each chosen hypothesis in a round.
        rounds: number of rounds after the pilot.
        policy: a name of :data:`POLICIES`, ``"uniform"``, or a function like them. It is shown masked counts only.
        q: FDR level that the draws are meant for.
        max_n: most draws of one hypothesis.
        locations: handed to the counts.
        random_state: seed or generator for ties.

    Returns:
        Counts for :func:`kernel_fdr.rules.count_mirror`; ``adaptive`` unless the policy is uniform.

    Raises:
        ValueError: for a budget smaller than the pilot, an unknown policy, numbers below 1, or exceedances outside
            ``0..draws`` from the sampler.
    """
    check_level(q)
    if min(n_hypotheses, pilot, step, rounds) < 1:
        raise ValueError(
            f"n_hypotheses, pilot, step and rounds must be at least 1, got {n_hypotheses}, {pilot}, {step}, {rounds}"
        )
    if budget < pilot * n_hypotheses:
        raise ValueError(f"the budget {budget} is smaller than the pilot: {pilot} draws x {n_hypotheses} hypotheses")
    if isinstance(policy, str) and policy != "uniform" and policy not in POLICIES:
        raise ValueError(f"policy must be one of {['uniform', *POLICIES]} or a function, got {policy!r}")
    rng = np.random.default_rng(random_state)
    k = np.zeros(n_hypotheses, dtype=np.int64)
    n = np.zeros(n_hypotheses, dtype=np.int64)

    def draw(chosen: Int[np.ndarray, " chosen"], draws: int) -> None:
        exceedances = np.asarray(sampler(chosen, draws))
        if exceedances.shape != chosen.shape or (exceedances < 0).any() or (exceedances > draws).any():
            raise ValueError(f"the sampler must return {len(chosen)} numbers in 0..{draws}, got {exceedances!r}")
        k[chosen] += exceedances.astype(np.int64)
        n[chosen] += draws

    everyone = np.arange(n_hypotheses)
    if policy == "uniform":
        share, rest = divmod(budget, n_hypotheses)
        draw(everyone, share if max_n is None else min(share, max_n))
        if rest and (max_n is None or share < max_n):
            draw(rng.permutation(n_hypotheses)[:rest], 1)
        return CountData(k, n, locations)

    score = POLICIES[policy] if isinstance(policy, str) else policy
    draw(everyone, pilot)
    remaining, kernel = budget - pilot * n_hypotheses, prior.kernel
    for left in range(rounds, 0, -1):
        batches = min(int(np.ceil(remaining / (step * left))), remaining // step)
        if not batches:
            break
        masked = CountData(k.copy(), n.copy(), locations).masked()
        fitted = KernelNullPrior(**{**prior.get_params(deep=False), "kernel": kernel}).fit(masked)
        if not isinstance(kernel, Sequence):
            kernel = fitted.features_  # the same in every round: decomposed once
        gain = np.asarray(score(masked, fitted, step, q), dtype=float)
        if max_n is not None:
            gain = np.where(n + step > max_n, -np.inf, gain)
        shuffled = rng.permutation(n_hypotheses)
        chosen = shuffled[np.argsort(-gain[shuffled], kind="stable")][:batches]
        chosen = chosen[gain[chosen] > -np.inf]
        if not len(chosen):
            break
        draw(np.sort(chosen), step)
        remaining -= step * len(chosen)
    return CountData(k, n, locations, adaptive=True)
