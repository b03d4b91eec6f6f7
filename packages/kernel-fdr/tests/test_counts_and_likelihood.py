"""Counts, masks and the count likelihood."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_fdr import BetaBinomialAlternative, CountData, MaskedCounts, ProbitAlternative, fit_pooled
from kernel_fdr.likelihood import likelihood_ratio, local_fdr
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.stats import betabinom, binom, chisquare, norm


def test_beta_binomial_published_values():
    k = np.array([0, 1, 5, 10])
    pmf = np.exp(BetaBinomialAlternative(0.3, 6.0).logpmf(k, np.full(4, 10)))
    np.testing.assert_allclose(pmf, [0.736875345, 0.147375069, 0.00655892744, 1.61938764e-05], rtol=1e-8)


@pytest.mark.parametrize("n", [1, 7, 200, 10_000])
def test_beta_binomial_agrees_with_scipy_and_sums_to_one(n):
    k = np.arange(n + 1)
    log_pmf = BetaBinomialAlternative(0.5, 4.0).logpmf(k, np.full(n + 1, n))
    np.testing.assert_allclose(log_pmf, betabinom.logpmf(k, n, 0.5, 4.0), rtol=1e-8, atol=1e-8)
    assert np.exp(log_pmf).sum() == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("n", [1, 20, 200, 5000])
def test_probit_agrees_with_adaptive_quadrature(n):
    alternative, k = ProbitAlternative(1.5, 0.7), np.unique(np.array([0, n // 50, n // 2, n]))
    expected = [
        quad(
            lambda z, count=count: binom.pmf(count, n, norm.sf(z)) * norm.pdf(z, 1.5, 0.7),
            -6,
            9,
            points=[norm.isf(np.clip(count / n, 1e-6, 1 - 1e-6))],
            limit=500,
        )[0]
        for count in k
    ]
    np.testing.assert_allclose(np.exp(alternative.logpmf(k, np.full(len(k), n))), expected, rtol=1e-6, atol=1e-9)


def test_probit_sums_to_one():
    k = np.arange(1001)
    assert np.exp(ProbitAlternative(2.0, 1.0).logpmf(k, np.full(1001, 1000))).sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("family", [BetaBinomialAlternative, ProbitAlternative])
def test_slope_is_the_derivative_of_the_log_pmf(family):
    k, n, point = np.array([0, 3, 20, 50]), np.full(4, 50), np.array([-0.4, 0.9])
    if family is ProbitAlternative:
        point = np.array([1.2, -0.2])
    _, slope = family.from_search(point).logpmf_and_slope(k, n)
    for place in range(len(k)):
        numeric = approx_fprime(
            point, lambda at, p=place: family.from_search(at).logpmf(k[p : p + 1], n[p : p + 1])[0], 1e-6
        )
        np.testing.assert_allclose(slope[:, place], numeric, rtol=1e-4, atol=1e-5)


def test_local_fdr_published_values():
    lfdr = local_fdr(np.array([0, 1, 5]), np.full(3, 20), np.full(3, 0.6), BetaBinomialAlternative(0.5, 4.0))
    np.testing.assert_allclose(lfdr, [0.152230176, 0.292286193, 0.612945978], rtol=1e-8)


counts = st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(st.lists(counts, min_size=1, max_size=20), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_mirror_mask_hides_the_side_and_nothing_else(pairs, stretch):
    n, k = (np.array(column) for column in zip(*pairs, strict=True))
    data = CountData(k, n)
    masked, (low, high) = data.masked(stretch), data.mirror_signs(stretch)
    assert not (low & high).any()
    for i in range(len(k)):
        start, end, high_start, high_end = masked.cells[i]
        members = [*range(start, end + 1), *range(high_start, high_end + 1)]
        assert k[i] in members
        if low[i]:
            assert len(members) == 1 + stretch
        # Every count of the cell shows the same cell; exactly one of a pair is low.
        others = CountData(np.array(members), np.full(len(members), n[i]))
        assert (others.masked(stretch).cells == masked.cells[i]).all()
        if len(members) == 1 + stretch:
            assert others.mirror_signs(stretch)[0].sum() == 1
            assert others.mirror_signs(stretch)[1].sum() == stretch


@given(st.lists(counts, min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_flipping_counts_leaves_the_mirror_mask(pairs):
    n, k = (np.array(column) for column in zip(*pairs, strict=True))
    assert CountData(k, n).masked().same_as(CountData(n - k, n).masked())


def test_middle_count_is_high():
    low, high = CountData([5, 4, 6], 10).mirror_signs()
    assert low.tolist() == [False, True, False]
    assert high.tolist() == [True, False, True]


def test_block_mask_reveals_only_counts_between_the_blocks():
    data = CountData([0, 1, 2, 5, 8, 9, 10], 10)
    low, high = data.block_signs(1)
    assert low.tolist() == [True, True, False, False, False, False, False]
    assert high.tolist() == [False, False, False, False, False, True, True]
    cells = data.block_masked(1).cells
    inside = low | high
    assert (cells[inside] == [0, 1, 9, 10]).all()
    assert cells[~inside, 0].tolist() == cells[~inside, 1].tolist() == [2, 5, 8]


def test_likelihood_ratio_of_cells_by_hand():
    data, alternative = CountData([3, 10, 4, 0], [10, 10, 8, 8]), BetaBinomialAlternative(0.3, 6.0)

    def f1(count, n):
        return betabinom.pmf(count, n, 0.3, 6.0)

    expected = [
        (f1(3, 10) + f1(7, 10)) / (2 / 11),
        (f1(0, 10) + f1(10, 10)) / (2 / 11),
        f1(4, 8) / (1 / 9),
        (f1(0, 8) + f1(8, 8)) / (2 / 9),
    ]
    np.testing.assert_allclose(likelihood_ratio(data.masked(), alternative), expected, rtol=1e-9)
    blocks = [sum(f1(k, 10) for k in (0, 1, 9, 10)) / (4 / 11)]
    np.testing.assert_allclose(likelihood_ratio(CountData([9], 10).block_masked(1), alternative), blocks, rtol=1e-9)


@pytest.mark.parametrize("stretch", [1, 3])
def test_masked_likelihood_ratio_has_mean_one_under_the_null(stretch):
    n = 11
    everything = CountData(np.arange(n + 1), n)
    ratio = likelihood_ratio(everything.masked(stretch), BetaBinomialAlternative(0.5, 4.0))
    assert ratio.mean() == pytest.approx(1)


def test_pooled_fit_recovers_the_mixture():
    rng = np.random.default_rng(3)
    signal = rng.random(40_000) < 0.3
    p = np.where(signal, rng.beta(0.3, 6.0, signal.size), rng.random(signal.size))
    data = CountData(rng.binomial(100, p), 100)
    for shown in (data.unmasked(), data.masked()):
        fit = fit_pooled(shown)
        assert fit.alpha_bar == pytest.approx(0.7, abs=0.03)
        assert fit.alternative.a == pytest.approx(0.3, abs=0.05)
        assert fit.alternative.b == pytest.approx(6.0, rel=0.25)


def test_pooled_fit_recovers_probit_parameters():
    rng = np.random.default_rng(4)
    signal = rng.random(8000) < 0.5
    p = np.where(signal, norm.sf(rng.normal(2.0, 0.8, signal.size)), rng.random(signal.size))
    fit = fit_pooled(CountData(rng.binomial(60, p), 60).unmasked(), "probit")
    assert fit.alternative.mu == pytest.approx(2.0, abs=0.15)
    assert fit.alternative.sigma == pytest.approx(0.8, abs=0.15)
    assert fit.alpha_bar == pytest.approx(0.5, abs=0.05)


def test_exchangeable_draws_give_uniform_counts_also_with_ties():
    rng = np.random.default_rng(5)
    values = rng.integers(0, 3, size=(20_000, 8)).astype(float)
    data = CountData.from_statistics(values[:, 0], values[:, 1:], random_state=6)
    assert chisquare(np.bincount(data.k, minlength=8)).pvalue > 1e-3
    skewed = CountData.from_statistics(values[:, 0], values[:, 1:], tie="conservative")
    assert chisquare(np.bincount(skewed.k, minlength=8)).pvalue < 1e-10
    assert skewed.mc_pvalues.mean() > data.mc_pvalues.mean()


def test_null_draws_of_unequal_length():
    data = CountData.from_statistics([1.0, 2.0], [[0.0, 3.0, 5.0], [1.0]])
    assert data.k.tolist() == [2, 0]
    assert data.n.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("k", "n", "message"),
    [
        ([-1, 2], 10, "k must lie in 0..n, got k = -1"),
        ([1, 11], 10, "k must lie in 0..n, got k = 11 with n = 10"),
        ([1, 0], [5, 0], "n must be at least 1, got 0"),
        ([0.5, 1.0], 10, "k must hold whole numbers, got 0.5"),
        ([1.0, np.nan], 10, "k must hold whole numbers, got nan"),
        (["a"], 10, "k must hold whole numbers"),
        ([1, 2], [10, 10, 10], "one entry per hypothesis"),
        ([[1, 2]], 10, "one-dimensional"),
        ([], 10, "non-empty"),
    ],
)
def test_bad_counts(k, n, message):
    with pytest.raises(ValueError, match=message):
        CountData(k, n)


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        (np.array([[0.0], [np.nan]]), "finite"),
        (np.zeros((3, 2)), "one location per hypothesis"),
        (np.zeros((2, 1, 1)), "shape"),
    ],
)
def test_bad_locations(locations, message):
    with pytest.raises(ValueError, match=message):
        CountData([1, 2], 10, locations)


def test_bad_settings():
    data = CountData([1, 2], 10)
    with pytest.raises(ValueError, match="blocks do not meet"):
        data.block_masked(5)
    with pytest.raises(ValueError, match="stretch"):
        data.masked(0)
    with pytest.raises(ValueError, match="tie must be"):
        CountData.from_statistics([1.0], [[2.0]], tie="up")
    with pytest.raises(ValueError, match="one row of null draws"):
        CountData.from_statistics([1.0, 2.0], [[2.0]])
    with pytest.raises(ValueError, match="alternative must be one of"):
        fit_pooled(data.masked(), "gamma")
    with pytest.raises(ValueError, match="positive"):
        BetaBinomialAlternative(0.0, 1.0)
    with pytest.raises(ValueError, match="sigma"):
        ProbitAlternative(1.0, -1.0)


def test_masked_counts_compare_by_what_they_show():
    data = CountData([1, 9], 10)
    assert data.masked().same_as(CountData([9, 1], 10).masked())
    assert not data.masked().same_as(data.unmasked())
    assert isinstance(data.masked(), MaskedCounts)
