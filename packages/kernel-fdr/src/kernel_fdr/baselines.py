"""Rules to compare with. Only SABHA, cross-weighted BH, e-BH and the lfdr threshold use structure.

All control the FDR for independent tests with fixed draws, except SABHA (up to a term that grows with the richness of
the weights) and the lfdr threshold (only if its prior is right).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import false_discovery_control
from sklearn.model_selection import KFold

from kernel_fdr.counts import CountData, MaskedCounts
from kernel_fdr.estimator import KernelNullPrior, NullPrior
from kernel_fdr.kernels import Eigenfeatures
from kernel_fdr.likelihood import ALPHA_RANGE, likelihood_ratio
from kernel_fdr.rules import Decision, Seed, check_level, selective_seqstep

Rejected = Bool[np.ndarray, " hypotheses"]


def _fixed_draws(data: CountData, rule: str) -> None:
    if data.adaptive:
        raise ValueError(f"{rule} needs draws fixed in advance; these were allocated adaptively")


def bh(data: CountData, q: float = 0.1) -> Rejected:
    """Benjamini-Hochberg on Monte-Carlo p-values ``(K + 1) / (n + 1)`` (scipy)."""
    check_level(q)
    _fixed_draws(data, "bh")
    return false_discovery_control(data.mc_pvalues) <= q


def by(data: CountData, q: float = 0.1) -> Rejected:
    """Benjamini-Yekutieli on Monte-Carlo p-values (scipy): any dependence."""
    check_level(q)
    _fixed_draws(data, "by")
    return false_discovery_control(data.mc_pvalues, method="by") <= q


def storey(data: CountData, q: float = 0.1) -> Rejected:
    """BH at ``q / pi0`` with Storey's null share at 1/2, ``pi0 = (1 + #{p > 1/2}) / (N / 2)``."""
    check_level(q)
    _fixed_draws(data, "storey")
    null_share = min(1.0, (1 + int((data.mc_pvalues > 0.5).sum())) / (len(data) / 2))
    return false_discovery_control(data.mc_pvalues) * null_share <= q


def bh_least_rejections(count: int, n: int, q: float) -> int:
    """Fewest hypotheses that BH can reject at all: ``ceil(N / (q (n + 1)))``, as no p-value is below 1 / (n + 1)."""
    check_level(q)
    return int(np.ceil(count / (q * (n + 1)) - 1e-9))


def plain_mirror(data: CountData, q: float = 0.1, random_state: Seed = None) -> Decision:
    """The mirror rule without structure (Barber-Candes): orders by ``m / n`` alone."""
    low, high = data.mirror_signs()
    score = data.masked().m / data.n
    shuffled = np.random.default_rng(random_state).permutation(len(data))
    order = shuffled[np.argsort(score[shuffled], kind="stable")]
    rejected, fdp_hat, length = selective_seqstep(low, high, order, q)
    return Decision(rejected, score, fdp_hat, float(score[order[length - 1]]) if length else np.nan)


def cross_fitted_alpha(
    shown: MaskedCounts, features: Eigenfeatures, lam: float, folds: int = 5, random_state: int = 0
) -> tuple[Float[np.ndarray, " hypotheses"], Float[np.ndarray, " hypotheses"], list[np.ndarray]]:
    """Null probability and likelihood ratio of each hypothesis, learnt from the other folds only.

    Returns:
        ``alpha`` and ``f1 / f0``, both of shape ``(N,)``, and the folds.
    """
    alpha, ratio = np.empty(len(shown)), np.empty(len(shown))
    parts = list(KFold(folds, shuffle=True, random_state=random_state).split(alpha))
    for train, test in parts:
        others = MaskedCounts(shown.cells[train], shown.n[train])
        prior = KernelNullPrior(features.reassigned(train), lam=lam).fit(others)
        alpha[test] = np.clip(prior.alpha0_ + features.values[test] @ prior.theta_, *ALPHA_RANGE)
        mine = MaskedCounts(shown.cells[test], shown.n[test])
        ratio[test] = likelihood_ratio(mine, prior.alternative_)
    return alpha, ratio, [test for _, test in parts]


def cross_weighted_bh(
    data: CountData, features: Eigenfeatures, q: float = 0.1, lam: float = 10.0, random_state: int = 0
) -> Rejected:
    """Weighted BH with censored cross-fitted weights (Ignatiadis and Huber's IHWc, 5 folds).

    Weights ``(1 - alpha) / alpha`` come from the other folds, with p-values up to ``tau = max(0.1, 3 / (n + 1))``
    censored, and average 1 in each fold; only p-values up to ``tau`` can be rejected.
    """
    check_level(q)
    _fixed_draws(data, "cross_weighted_bh")
    cut = np.minimum(np.maximum((0.1 * (data.n + 1)).astype(int), 3) - 1, data.n)
    alpha, _, folds = cross_fitted_alpha(data.censored(cut), features, lam, random_state=random_state)
    weight = (1 - alpha) / alpha
    for fold in folds:
        weight[fold] /= weight[fold].mean()
    adjusted = np.where(data.k <= cut, np.minimum(data.mc_pvalues / weight, 1.0), 1.0)
    return (false_discovery_control(adjusted) <= q) & (data.k <= cut)


def sabha(data: CountData, features: Eigenfeatures, q: float = 0.1, lam: float = 10.0) -> Rejected:
    """Structure-adaptive BH (Li and Barber): BH on ``p_i alpha_i``, at p <= 1/2.

    ``alpha`` is learnt with p-values up to 1/2 censored, kept in [0.1, 1], and raised until
    ``sum 1{p_i > 1/2} / (alpha_i / 2) <= N``. FDR is controlled up to a term that grows with the richness of ``alpha``.
    """
    check_level(q)
    _fixed_draws(data, "sabha")
    cut = np.maximum((0.5 * (data.n + 1)).astype(int) - 1, 0)
    alpha = np.clip(KernelNullPrior(features, lam=lam).fit(data.censored(cut)).alpha_, 0.1, 1.0)
    large = data.mc_pvalues > 0.5

    def excess(factor: float) -> float:
        return float((large / (0.5 * np.minimum(factor * alpha, 1))).sum() - len(data))

    factors = np.linspace(1, 10, 181)
    alpha = np.minimum(next((f for f in factors if excess(f) <= 0), factors[-1]) * alpha, 1)
    adjusted = np.where(large, 1.0, data.mc_pvalues * alpha)
    return (false_discovery_control(adjusted) <= q) & ~large


def ebh(data: CountData, features: Eigenfeatures, q: float = 0.1, lam: float = 10.0, random_state: int = 0) -> Rejected:
    """e-BH (Wang and Ramdas) on likelihood ratios ``f1 / f0`` from the other folds, weighted by ``1 - alpha``.

    Weights average 1 in each fold, so that weighted e-values of nulls have mean at most 1 on average.
    """
    check_level(q)
    _fixed_draws(data, "ebh")
    alpha, e_value, folds = cross_fitted_alpha(data.unmasked(), features, lam, random_state=random_state)
    for fold in folds:
        weight = 1 - alpha[fold]
        e_value[fold] *= weight / weight.mean()
    ordered = np.sort(e_value)[::-1]
    enough = np.flatnonzero(np.arange(1, len(data) + 1) * ordered >= len(data) / q)
    return e_value >= ordered[enough[-1]] if len(enough) else np.zeros(len(data), dtype=bool)


def lfdr_threshold(data: CountData, prior: NullPrior, q: float = 0.1, criterion: str = "mean") -> Rejected:
    """Threshold the local false discovery rate at the actual counts (sibling paper); no guarantee under a wrong prior.

    Args:
        data: the counts.
        prior: a fitted prior (one fitted to unmasked counts is the sibling's way).
        q: level.
        criterion: ``"mean"`` takes the largest set with mean lfdr <= q, ``"each"`` all with lfdr <= q.
    """
    check_level(q)
    if criterion not in ("mean", "each"):
        raise ValueError(f"criterion must be 'mean' or 'each', got {criterion!r}")
    lfdr = prior.lfdr(data.k, data.n)
    return lfdr <= (q if criterion == "each" else mean_cut(lfdr, q))


def mean_cut(lfdr: Float[np.ndarray, " hypotheses"], q: float) -> float:
    """Largest lfdr in the largest set whose mean lfdr is at most ``q``; -1 when there is none."""
    ordered = np.sort(lfdr)
    inside = np.flatnonzero(np.cumsum(ordered) / np.arange(1, len(ordered) + 1) <= q)
    return float(ordered[inside[-1]]) if len(inside) else -1.0
