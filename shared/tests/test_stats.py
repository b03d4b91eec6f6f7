import numpy as np
import pytest
from scipy import stats as sps
from statsmodels.stats.proportion import proportion_confint

from claimlab import stats


def test_mean_is_scipys_t_interval():
    x = np.random.default_rng(0).normal(3, 2, 12)
    expected = sps.ttest_1samp(x, 0).confidence_interval(0.95)
    assert stats.mean(x) == pytest.approx((x.mean(), expected.low, expected.high))


def test_mean_of_one_value_or_of_infinity_has_no_interval():
    assert np.isnan(stats.mean([2.0]).low)
    assert np.isnan(stats.mean([1.0, np.inf]).high)
    with pytest.raises(ValueError, match="at least one"):
        stats.mean([])


def test_paired_difference_is_scipys_paired_t():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=20), rng.normal(size=20)
    expected = sps.ttest_rel(a, b).confidence_interval(0.95)
    assert stats.paired_difference(a, b)[1:] == pytest.approx((expected.low, expected.high))
    with pytest.raises(ValueError, match="equal shapes"):
        stats.paired_difference(a, b[:3])


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (500, 1000)])
def test_wilson_is_statsmodels(k, n):
    assert stats.wilson(k, n)[1:] == pytest.approx(proportion_confint(k, n, method="wilson"), abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(k, n):
    with pytest.raises(ValueError, match="successes"):
        stats.wilson(k, n)


def test_bootstrap_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    inside = [
        (ci := stats.bootstrap(rng.exponential(size=60), rng=rng, resamples=400)).low <= 1 <= ci.high
        for _ in range(150)
    ]
    assert 0.86 <= np.mean(inside) <= 0.99


def test_bootstrap_of_equal_values_is_a_point():
    assert stats.bootstrap([2.0, 2.0, 2.0]) == (2.0, 2.0, 2.0)


def test_loglog_slope_finds_the_exponent():
    x = np.arange(1, 30)
    fit = stats.loglog_slope(x, 3.0 * x**-1.5)
    assert fit == pytest.approx((-1.5, -1.5, -1.5))
    rng = np.random.default_rng(3)
    assert (noisy := stats.loglog_slope(x, x**2 * rng.lognormal(0, 0.1, x.size))).low < 2 < noisy.high
    with pytest.raises(ValueError, match="positive"):
        stats.loglog_slope([1, 2, 3], [1, 0, 1])


def test_spearman_of_a_monotone_relation_is_one():
    x = np.arange(40.0)
    assert stats.spearman(x, x**3) == pytest.approx((1, 1, 1))
    y = np.round(x + np.random.default_rng(4).normal(0, 10, 40), -1)  # with ties
    noisy = stats.spearman(x, y)
    assert noisy.value == pytest.approx(sps.spearmanr(x, y).statistic)
    assert noisy.low < noisy.value < noisy.high
