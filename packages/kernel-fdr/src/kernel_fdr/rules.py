"""Decision rules that control the FDR whatever the kernel, the alternative and the hyper-parameters (reconstructions).

Both hide, for each count, which side of the null distribution it fell on; order the hypotheses by what is left; and let
the high side, which nulls reach at least as often as the low side, estimate the false discoveries among the low side.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernel_fdr.counts import CountData, MaskedCounts, Values, check_stretch
from kernel_fdr.estimator import KernelNullPrior, NullPrior
from kernel_fdr.kernels import Eigenfeatures, Kernel
from kernel_fdr.likelihood import Alternative

Seed = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class Decision:
    """Outcome of a rule.

    Attributes:
        rejected: discoveries, shape ``(N,)``.
        score: what the hypotheses were ordered by, shape ``(N,)``; small comes first. Free of the hidden sides.
        fdp_hat: estimated false discovery proportion at the stop; at most ``q``, NaN without discoveries.
        threshold: score of the last hypothesis in the accepted prefix; NaN without discoveries.
    """

    rejected: Bool[np.ndarray, " hypotheses"]
    score: Float[np.ndarray, " hypotheses"]
    fdp_hat: float
    threshold: float


def check_level(q: float) -> None:
    """Raise ``ValueError`` unless the FDR level lies strictly between 0 and 1."""
    if not 0 < q < 1:
        raise ValueError(f"q must lie strictly between 0 and 1, got {q}")


def selective_seqstep(
    low: Bool[np.ndarray, " hypotheses"],
    high: Bool[np.ndarray, " hypotheses"],
    order: Int[np.ndarray, " hypotheses"],
    q: float,
    stretch: int = 1,
) -> tuple[Bool[np.ndarray, " hypotheses"], float, int]:
    """Selective SeqStep+ (Barber and Candes 2015) with ``c = 1 / (1 + stretch)``.

    Takes the longest prefix of the order with ``(1 + #high) / (stretch max(1, #low)) <= q`` and rejects its low ones.
    Hypotheses that are neither low nor high are skipped.

    Returns:
        The rejected hypotheses, the estimated FDP of the prefix (NaN if nothing is rejected), and the prefix's length.

    Raises:
        ValueError: for ``q`` outside (0, 1), ``stretch < 1``, or an order that is no permutation.
    """
    check_level(q)
    check_stretch(stretch)
    if not np.array_equal(np.sort(order), np.arange(len(low))) or len(high) != len(low):
        raise ValueError("order must be a permutation of the hypotheses")
    highs, lows = np.cumsum(high[order]), np.cumsum(low[order])
    fdp_hat = (1 + highs) / (stretch * np.maximum(lows, 1))
    accepted = np.flatnonzero((fdp_hat <= q) & (lows > 0))
    rejected = np.zeros(len(low), dtype=bool)
    if not len(accepted):
        return rejected, math.nan, 0
    last = int(accepted[-1])
    prefix = order[: last + 1]
    rejected[prefix] = low[prefix]
    return rejected, float(fdp_hat[last]), last + 1


def count_mirror(
    data: CountData, prior: NullPrior, q: float = 0.1, stretch: int = 1, random_state: Seed = None
) -> Decision:
    """Rule B: mirror statistics in count space.

    Hides ``K`` behind ``{K, n - K}``, fits the prior to what is left, orders by the local false discovery rate of the
    smaller count, and counts low against high sides. FDR <= q if null counts are independent given the non-nulls and
    uniform, for any prior, right or wrong, also after :func:`kernel_fdr.allocation.allocate`.

    Args:
        data: the counts.
        prior: an unfitted prior, which is fitted here to the masked counts; one fitted to the same masked counts before
            is used as it is.
        q: FDR level.
        stretch: ``z >= 1``; pairs each small count with ``z`` large ones, so that ``ceil(1 / (z q))`` discoveries are
            possible instead of ``ceil(1 / q)`` (relaxed mirror; choose it before looking at data).
        random_state: seed or generator for ties in the score.

    Raises:
        ValueError: for ``q`` outside (0, 1), ``stretch < 1`` or with adaptively chosen ``n``, or a prior that was
            fitted to anything but these masked counts (its order could leak the hidden sides).
    """
    check_level(q)
    low, high = data.mirror_signs(stretch)
    if stretch > 1 and data.adaptive:
        raise ValueError(f"stretch = {stretch} needs draws fixed in advance; these were allocated adaptively")
    if _too_few(len(data), q, stretch):
        return _nothing(len(data))
    masked = data.masked(stretch)
    fitted = _fitted_on(prior, masked)
    score = fitted.lfdr(masked.m, data.n)
    return _decide(score, low, high, q, stretch, random_state)


def default_block(n: Values) -> Int[np.ndarray, ...]:
    """Default cut of rule A: ``k0 = floor(0.1 (n + 1)) - 1``, at least 0."""
    return np.maximum((np.asarray(n) + 1) // 10 - 1, 0)


def count_seqstep(
    data: CountData, prior: NullPrior, q: float = 0.1, k0: Values | None = None, random_state: Seed = None
) -> Decision:
    """Rule A: the structure orders, one cut of the counts decides.

    Hides whether a count in either block is in ``{0..k0}`` or ``{n-k0..n}``, fits the prior to what is left, orders by
    ``alpha(x)`` and counts low against high block. FDR <= q under the same conditions as :func:`count_mirror`, for
    draws fixed in advance.

    Args:
        data, prior, q, random_state: as in :func:`count_mirror`.
        k0: cut, one number or one per hypothesis, chosen before looking at data; ``floor(0.1 (n + 1)) - 1`` by default.

    Raises:
        ValueError: as :func:`count_mirror`; also unless ``0 <= k0`` and ``2 (k0 + 1) <= n + 1``, and for adaptive data.
    """
    check_level(q)
    if data.adaptive:
        raise ValueError("count_seqstep needs draws fixed in advance; these were allocated adaptively")
    cut = default_block(data.n) if k0 is None else np.asarray(k0)
    low, high = data.block_signs(cut)
    if _too_few(len(data), q, 1):
        return _nothing(len(data))
    fitted = _fitted_on(prior, data.block_masked(cut))
    return _decide(fitted.alpha_, low, high, q, 1, random_state)


def _decide(score, low, high, q: float, stretch: int, random_state: Seed) -> Decision:
    shuffled = np.random.default_rng(random_state).permutation(len(score))
    order = shuffled[np.argsort(score[shuffled], kind="stable")]
    rejected, fdp_hat, length = selective_seqstep(low, high, order, q, stretch)
    return Decision(rejected, score, fdp_hat, float(score[order[length - 1]]) if length else math.nan)


def _too_few(count: int, q: float, stretch: int) -> bool:
    least = math.ceil(1 / (stretch * q) - 1e-9)
    if count >= least:
        return False
    warnings.warn(
        f"no discovery is possible: at q = {q} (stretch {stretch}) the rule rejects at least {least} hypotheses "
        f"or none, and there are {count}",
        stacklevel=3,
    )
    return True


def _nothing(count: int) -> Decision:
    return Decision(np.zeros(count, dtype=bool), np.full(count, math.nan), math.nan, math.nan)


def _fitted_on(prior: NullPrior, masked: MaskedCounts) -> NullPrior:
    if not hasattr(prior, "alpha_"):
        return type(prior)(**prior.get_params(deep=False)).fit(masked)
    if prior.fitted_to is None:
        if len(prior.alpha_) != len(masked):
            raise ValueError(f"the prior has {len(prior.alpha_)} hypotheses, the data {len(masked)}")
        return prior
    if not prior.fitted_to.same_as(masked):
        raise ValueError(
            "the prior was fitted to other counts than the masked ones of this rule, which could leak what the rule "
            "must not see; pass an unfitted prior"
        )
    return prior


class KernelFDR(BaseEstimator):
    """Discoveries among structured hypotheses in one call.

    Args:
        kernel: structure of the hypothesis space, as in :class:`kernel_fdr.KernelNullPrior`; a list is chosen from by
            cross-validation on masked counts.
        q: FDR level.
        rule: ``"mirror"`` (rule B) or ``"seqstep"`` (rule A).
        stretch: of the mirror rule.
        k0: of the seqstep rule.
        lam, alternative: of the prior.
        random_state: seed for folds and ties.

    Attributes:
        rejected_: discoveries, shape ``(N,)``.
        decision_: the :class:`Decision`.
        prior_: the prior fitted to masked counts (``alpha_``, ``alternative_``, ``alpha_std``…).
        lfdr_: local false discovery rate at the actual counts, for reading beside the discoveries; shape ``(N,)``.
    """

    def __init__(
        self,
        kernel: Kernel | Eigenfeatures | Sequence[Kernel | Eigenfeatures],
        q: float = 0.1,
        rule: str = "mirror",
        stretch: int = 1,
        k0: int | None = None,
        lam: float | str = "cv",
        alternative: Alternative | str = "beta",
        random_state: int = 0,
    ):
        self.kernel = kernel
        self.q = q
        self.rule = rule
        self.stretch = stretch
        self.k0 = k0
        self.lam = lam
        self.alternative = alternative
        self.random_state = random_state

    def fit(self, data: CountData, y: None = None) -> KernelFDR:
        """Learn the prior from masked counts and decide.

        Raises:
            TypeError: when ``data`` is not :class:`CountData`.
            ValueError: for an unknown rule and as the rules do.
        """
        if not isinstance(data, CountData):
            raise TypeError(f"data must be CountData(k, n, locations), got {type(data).__name__}")
        check_level(self.q)
        if self.rule not in ("mirror", "seqstep"):
            raise ValueError(f"rule must be 'mirror' or 'seqstep', got {self.rule!r}")
        prior = KernelNullPrior(self.kernel, lam=self.lam, alternative=self.alternative, random_state=self.random_state)
        if self.rule == "mirror":
            prior.fit(data.masked(self.stretch))
            self.decision_ = count_mirror(data, prior, self.q, self.stretch, self.random_state)
        else:
            cut = default_block(data.n) if self.k0 is None else np.asarray(self.k0)
            prior.fit(data.block_masked(cut))
            self.decision_ = count_seqstep(data, prior, self.q, cut, self.random_state)
        self.prior_ = prior
        self.rejected_ = self.decision_.rejected
        self.lfdr_ = prior.lfdr(data.k, data.n)
        return self

    def predict_alpha(self, locations: Values) -> Float[np.ndarray, " new"]:
        """Null probability at locations that carry no test, shape ``(M,)``."""
        check_is_fitted(self)
        return self.prior_.predict_alpha(locations)
