"""Decision rules and baselines."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_fdr import (
    BetaBinomialAlternative,
    CountData,
    Eigenfeatures,
    FixedNullPrior,
    KernelFDR,
    KernelNullPrior,
    count_mirror,
    count_seqstep,
    selective_seqstep,
)
from kernel_fdr.baselines import (
    bh,
    bh_least_rejections,
    by,
    cross_weighted_bh,
    ebh,
    lfdr_threshold,
    plain_mirror,
    sabha,
    storey,
)
from kernel_fdr.kernels import Matern
from kernel_fdr.simulate import draw_counts, fdp_and_power, permuted_rows, plane, swapped_rows
from scipy.stats import false_discovery_control
from statsmodels.stats.multitest import multipletests

SPACE = plane(14)
FEATURES = Eigenfeatures.of(SPACE.kernel, SPACE.locations)
DATA, SIGNAL = draw_counts(SPACE, 50, np.random.default_rng(0))


def enumerated_fdr(count: int, n: int, q: float, signals: int, stretch: int = 1) -> float:
    total = 0.0
    for nulls in itertools.product(range(n + 1), repeat=count - signals):
        low, high = CountData([0] * signals + list(nulls), n).mirror_signs(stretch)
        rejected = selective_seqstep(low, high, np.arange(count), q, stretch)[0]
        total += rejected[signals:].sum() / max(1, rejected.sum())
    return total / (n + 1) ** (count - signals)


@pytest.mark.parametrize(
    ("count", "n", "q", "signals", "fdr"),
    [(4, 3, 0.5, 0, 0.25), (6, 1, 0.25, 0, 0.0625), (4, 3, 0.5, 2, 0.2083333), (6, 1, 0.34, 2, 0.225)],
)
def test_exact_fdr_by_enumeration(count, n, q, signals, fdr):
    assert enumerated_fdr(count, n, q, signals) == pytest.approx(fdr, abs=1e-6)


@pytest.mark.parametrize(("stretch", "q"), [(1, 0.5), (2, 0.3), (3, 0.34), (1, 0.34)])
@pytest.mark.parametrize("signals", [0, 1, 2])
def test_exact_fdr_is_at_most_q_for_every_stretch(stretch, q, signals):
    assert enumerated_fdr(4, 5, q, signals, stretch) <= q + 1e-12


def test_exact_fdr_of_the_block_rule():
    total = 0.0
    for counts in itertools.product(range(6), repeat=4):
        low, high = CountData(list(counts), 5).block_signs(1)
        total += selective_seqstep(low, high, np.arange(4), 0.5)[0].any()
    assert total / 6**4 <= 0.5


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_seqstep_takes_the_longest_prefix(draw):
    count = draw.draw(st.integers(1, 12))
    sides = np.array(draw.draw(st.lists(st.integers(-1, 1), min_size=count, max_size=count)))
    order = np.array(draw.draw(st.permutations(range(count))))
    q, stretch = draw.draw(st.floats(0.05, 0.9)), draw.draw(st.integers(1, 3))
    low, high = sides == -1, sides == 1
    best = 0
    for length in range(1, count + 1):
        prefix = order[:length]
        if low[prefix].any() and (1 + high[prefix].sum()) / (stretch * low[prefix].sum()) <= q:
            best = length
    expected = np.zeros(count, dtype=bool)
    expected[order[:best]] = low[order[:best]]
    rejected, fdp_hat, _ = selective_seqstep(low, high, order, q, stretch)
    assert (rejected == expected).all()
    assert np.isnan(fdp_hat) if not rejected.any() else fdp_hat <= q


def fitted_quantities(data: CountData, seed: int = 0):
    model = KernelFDR(SPACE.kernel, q=0.2, random_state=seed).fit(data)
    prior = model.prior_
    return (
        prior.alpha_.tobytes(),
        prior.theta_.tobytes(),
        prior.alternative_,
        prior.alpha0_,
        prior.lam_,
        prior.objective_,
        model.decision_.score.tobytes(),
    )


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_flipping_counts_changes_nothing_that_is_fitted(share):
    """The leakage test: bit for bit."""
    flip = np.random.default_rng(1).random(len(DATA)) < share
    flipped = CountData(np.where(flip, DATA.n - DATA.k, DATA.k), DATA.n, DATA.locations)
    assert (flipped.k != DATA.k).any()
    assert fitted_quantities(flipped) == fitted_quantities(DATA)


def test_block_rule_does_not_see_sides_either():
    low, high = DATA.block_signs(4)
    flipped = CountData(np.where(low | high, DATA.n - DATA.k, DATA.k), DATA.n, DATA.locations)
    one, two = (KernelNullPrior(FEATURES).fit(data.block_masked(4)) for data in (DATA, flipped))
    assert one.alpha_.tobytes() == two.alpha_.tobytes()
    assert one.alternative_ == two.alternative_


@pytest.mark.parametrize("stretch", [2, 3])
def test_stretched_mask_does_not_see_which_member_a_count_is(stretch):
    rng = np.random.default_rng(2)
    cells = DATA.masked(stretch).cells
    k = DATA.k.copy()
    for i, (start, _, high_start, high_end) in enumerate(cells):
        if high_end >= high_start:
            k[i] = rng.choice([start, *range(high_start, high_end + 1)])
    other = CountData(k, DATA.n, DATA.locations)
    one, two = (count_mirror(data, KernelNullPrior(FEATURES), 0.1, stretch, 0) for data in (DATA, other))
    assert one.score.tobytes() == two.score.tobytes()


def test_a_prior_that_saw_the_counts_is_refused():
    leaking = KernelNullPrior(FEATURES, lam=10.0).fit(DATA)
    for rule in (count_mirror, count_seqstep):
        with pytest.raises(ValueError, match="leak"):
            rule(DATA, leaking, 0.1)
    masked = KernelNullPrior(FEATURES, lam=10.0).fit(DATA.masked())
    decision = count_mirror(DATA, masked, 0.1, random_state=0)
    assert (
        decision.rejected == count_mirror(DATA, KernelNullPrior(FEATURES, lam=10.0), 0.1, random_state=0).rejected
    ).all()


def test_permuting_hypotheses_permutes_the_discoveries():
    order = np.random.default_rng(3).permutation(len(DATA))
    moved = CountData(DATA.k[order], DATA.n[order], DATA.locations[order])
    settings = {"lam": 10.0, "alternative": BetaBinomialAlternative(0.3, 6.0), "rank": 60}
    one = count_mirror(DATA, KernelNullPrior(SPACE.kernel, **settings), 0.2, random_state=0)
    two = count_mirror(moved, KernelNullPrior(SPACE.kernel, **settings), 0.2, random_state=5)
    np.testing.assert_allclose(one.score[order], two.score, atol=1e-6)
    assert (one.rejected[order] == two.rejected).all()


@pytest.mark.parametrize("q", [0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("rule", [count_mirror, count_seqstep])
def test_estimated_fdp_is_at_most_q(rule, q):
    decision = rule(DATA, KernelNullPrior(FEATURES, lam=10.0), q, random_state=0)
    if decision.rejected.any():
        assert decision.fdp_hat <= q
        assert decision.score[decision.rejected].max() <= decision.threshold
    assert not (decision.rejected & (2 * DATA.k >= DATA.n)).any()


def mean_fdp(
    rows, alternative, replications: int, q: float, stretch: int = 1, q_rule=count_mirror
) -> tuple[float, float]:
    fdps = []
    for seed in range(replications):
        rng = np.random.default_rng(100 + seed)
        n = rng.integers(5, 60, len(SPACE)) if stretch == 1 else 40
        data, signal = draw_counts(SPACE, n, rng)
        prior = KernelNullPrior(FEATURES.reassigned(rows), lam=1.0, alternative=alternative)
        extra = {"stretch": stretch} if q_rule is count_mirror else {}
        fdps.append(fdp_and_power(q_rule(data, prior, q, random_state=seed, **extra).rejected, signal)[0])
    return float(np.mean(fdps)), float(np.std(fdps, ddof=1) / np.sqrt(replications))


@pytest.mark.parametrize("rule", [count_mirror, count_seqstep])
def test_fdr_holds_under_wrong_kernel_and_wrong_alternative(rule):
    wrong = swapped_rows(SPACE.alpha)
    fdr, error = mean_fdp(wrong, BetaBinomialAlternative(1.5, 1.2), 60, 0.3, q_rule=rule)
    assert fdr <= 0.3 + 3 * error
    fdr, error = mean_fdp(permuted_rows(len(SPACE), np.random.default_rng(0)), "beta", 20, 0.2, stretch=3)
    assert fdr <= 0.2 + 3 * error


def test_structure_finds_more():
    gains = []
    for seed in range(8):
        data, signal = draw_counts(SPACE, 50, np.random.default_rng(seed))
        with_structure = count_mirror(data, KernelNullPrior(FEATURES, lam=10.0), 0.2, random_state=seed).rejected
        without = plain_mirror(data, 0.2, random_state=seed).rejected
        gains.append(fdp_and_power(with_structure, signal)[1] - fdp_and_power(without, signal)[1])
    assert np.mean(gains) > 0.05


def test_global_null_is_hardly_ever_rejected():
    rejections = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        data = CountData(rng.integers(0, 51, len(SPACE)), 50, SPACE.locations)
        rejections += count_mirror(data, KernelNullPrior(FEATURES, lam=10.0), 0.1, random_state=seed).rejected.any()
    assert rejections <= 6


def test_bh_and_by_equal_statsmodels_and_scipy():
    data, _ = draw_counts(plane(12), 500, np.random.default_rng(4))
    for rule, method in ((bh, "fdr_bh"), (by, "fdr_by")):
        assert rule(data, 0.2).any() or method == "fdr_by"
        assert (rule(data, 0.2) == multipletests(data.mc_pvalues, 0.2, method)[0]).all()
    assert (bh(data, 0.1) == (false_discovery_control(data.mc_pvalues) <= 0.1)).all()
    assert bh(data, 0.1).sum() <= storey(data, 0.1).sum()


@pytest.mark.parametrize(("count", "n", "q", "least"), [(400, 50, 0.1, 79), (625, 200, 0.1, 32), (625, 20, 0.1, 298)])
def test_fewest_rejections_of_bh(count, n, q, least):
    assert bh_least_rejections(count, n, q) == least
    for signals, found in ((least, least), (least - 1, 0)):
        k = np.full(count, n)
        k[:signals] = 0
        assert bh(CountData(k, n), q).sum() == found


@pytest.mark.parametrize("rule", [cross_weighted_bh, sabha, ebh])
def test_structured_baselines_reject_signals_when_draws_abound(rule):
    data, signal = draw_counts(SPACE, 2000, np.random.default_rng(5), 0.1, 8.0)
    fdp, power = fdp_and_power(rule(data, FEATURES, 0.2), signal)
    assert power > (0.1 if rule is ebh else 0.5)
    assert fdp < 0.4


def test_cross_weighted_bh_beats_bh_with_structure():
    gains = []
    for seed in range(8):
        data, signal = draw_counts(SPACE, 500, np.random.default_rng(seed))
        weighted = fdp_and_power(cross_weighted_bh(data, FEATURES, 0.1), signal)[1]
        gains.append(weighted - fdp_and_power(bh(data, 0.1), signal)[1])
    assert np.mean(gains) > 0.03


def test_lfdr_threshold():
    prior = FixedNullPrior(SPACE.alpha, BetaBinomialAlternative(0.3, 6.0)).fit(DATA)
    lfdr = prior.lfdr(DATA.k, DATA.n)
    mean_rule = lfdr_threshold(DATA, prior, 0.1)
    assert lfdr[mean_rule].mean() <= 0.1
    assert (lfdr_threshold(DATA, prior, 0.1, "each") <= mean_rule).all()
    with pytest.raises(ValueError, match="criterion"):
        lfdr_threshold(DATA, prior, 0.1, "max")


def test_bad_input_of_rules():
    prior = KernelNullPrior(FEATURES, lam=10.0)
    adaptive = CountData(DATA.k, DATA.n, DATA.locations, adaptive=True)
    for q in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="q must lie strictly between 0 and 1"):
            count_mirror(DATA, prior, q)
    with pytest.raises(ValueError, match="allocated adaptively"):
        count_seqstep(adaptive, prior)
    with pytest.raises(ValueError, match="allocated adaptively"):
        count_mirror(adaptive, prior, stretch=2)
    with pytest.raises(ValueError, match="allocated adaptively"):
        bh(adaptive)
    with pytest.raises(ValueError, match="blocks do not meet"):
        count_seqstep(DATA, prior, k0=25)
    with pytest.raises(ValueError, match="rule must be"):
        KernelFDR(SPACE.kernel, rule="bh").fit(DATA)
    with pytest.raises(ValueError, match="permutation"):
        selective_seqstep(np.array([True, False]), np.array([False, True]), np.array([0, 0]), 0.1)
    for stretch in (0, -1):
        with pytest.raises(ValueError, match=f"stretch must be a whole number of at least 1, got {stretch}"):
            selective_seqstep(np.array([True, False]), np.array([False, True]), np.arange(2), 0.1, stretch)


@pytest.mark.parametrize(("q", "stretch", "least"), [(0.1, 1, 10), (0.1, 3, 4), (0.05, 1, 20)])
def test_too_few_hypotheses_warn_and_reject_nothing(q, stretch, least):
    data = CountData(np.zeros(least - 1, dtype=int), 30, np.arange(least - 1.0)[:, None])
    with pytest.warns(UserWarning, match=f"at least {least} hypotheses"):
        assert not count_mirror(data, KernelNullPrior(Matern()), q, stretch).rejected.any()
    enough = CountData(np.zeros(least, dtype=int), 30, np.arange(float(least))[:, None])
    assert count_mirror(enough, KernelNullPrior(Matern(), lam=10.0), q, stretch).rejected.all()


def test_seqstep_estimator_uses_the_block_mask():
    model = KernelFDR(SPACE.kernel, q=0.2, rule="seqstep").fit(DATA)
    assert model.prior_.fitted_to.same_as(DATA.block_masked(4))
    assert model.predict_alpha(SPACE.locations[:3]).shape == (3,)
