"""Adaptive allocation of null draws."""

import numpy as np
import pytest
from kernel_fdr import BetaBinomialAlternative, CountData, Eigenfeatures, KernelNullPrior, ProbitAlternative, allocate
from kernel_fdr.allocation import POLICIES, a_optimal, knowledge_gradient, one_step_gradient, predictive_log_pmf
from kernel_fdr.kernels import FiniteKernel, Matern
from kernel_fdr.likelihood import local_fdr
from kernel_fdr.simulate import draw_truth, plane
from scipy.stats import betabinom

SPACE = plane(10)
FEATURES = Eigenfeatures.of(SPACE.kernel, SPACE.locations)
PRIOR = KernelNullPrior(FEATURES, lam=10.0)


def sampler(p: np.ndarray, seed: int = 0):
    rng = np.random.default_rng(seed)
    return lambda chosen, draws: rng.binomial(draws, p[chosen])


def test_predictive_is_beta_binomial():
    m, n, j = np.array([0, 3, 7]), np.array([10, 12, 20]), np.arange(6)
    for alternative, a, b in ((None, 1.0, 1.0), (BetaBinomialAlternative(0.3, 6.0), 0.3, 6.0)):
        expected = [betabinom.pmf(j, 5, m_i + a, n_i - m_i + b) for m_i, n_i in zip(m, n, strict=True)]
        np.testing.assert_allclose(np.exp(predictive_log_pmf(alternative, m, n, 5)), expected, rtol=1e-9)
    probit = np.exp(predictive_log_pmf(ProbitAlternative(1.5, 0.8), m, n, 5))
    np.testing.assert_allclose(probit.sum(axis=1), 1, rtol=1e-9)


def test_gain_by_hand():
    data = CountData([1, 4, 0, 9], 10)
    prior = KernelNullPrior(FiniteKernel(np.eye(4)), lam=1.0, alternative=BetaBinomialAlternative(0.3, 6.0), rank=4)
    prior.fit(data.masked())
    gain = one_step_gradient(data.masked(), prior, 5, 0.1)
    masked = data.masked().m
    now = prior.lfdr(masked, data.n)
    ordered = np.sort(now)
    inside = ordered[np.cumsum(ordered) / np.arange(1, 5) <= 0.1]
    tau = max(inside[-1] if len(inside) else -1, 0.2)
    for i, m in enumerate(masked):
        value = 0.0
        for j in range(6):
            chance = now[i] * betabinom.pmf(j, 5, m + 1, 10 - m + 1) + (1 - now[i]) * betabinom.pmf(
                j, 5, m + 0.3, 10 - m + 6.0
            )
            after = local_fdr(np.array([m + j]), np.array([15]), prior.alpha_[[i]], BetaBinomialAlternative(0.3, 6.0))[
                0
            ]
            value += chance * max(tau - after, 0)
        assert gain[i] == pytest.approx(value - max(tau - now[i], 0), abs=1e-10)
    assert (gain > -1e-12).all(), "information is never expected to hurt"
    assert (knowledge_gradient(data.masked(), prior, 5, 0.1) >= gain - 1e-15).all()


@pytest.mark.parametrize("policy", ["uniform", *POLICIES])
def test_policies_spend_the_budget_and_no_more(policy):
    _, p = draw_truth(SPACE.alpha, np.random.default_rng(1))
    data = allocate(sampler(p), 100, 2050, PRIOR, pilot=10, step=10, rounds=4, policy=policy, max_n=60, random_state=0)
    assert 2050 - 10 < data.n.sum() <= 2050
    assert data.n.max() <= 60
    assert data.n.min() >= 10
    assert data.adaptive == (policy != "uniform")


def test_draws_go_where_a_decision_is_near():
    _, p = draw_truth(SPACE.alpha, np.random.default_rng(2))
    data = allocate(sampler(p), 100, 3000, PRIOR, policy="knowledge_gradient", random_state=0)
    assert data.n[SPACE.alpha < 0.4].mean() > 1.5 * data.n[SPACE.alpha > 0.95].mean()


def test_a_optimal_matches_brute_force():
    rng = np.random.default_rng(3)
    points = rng.random((12, 2))
    features = Eigenfeatures.of(Matern(0.5), points, rank=12)
    data = CountData(rng.integers(0, 11, 12), 10, points)
    prior = KernelNullPrior(features, lam=2.0).fit(data.masked())
    gain = a_optimal(data.masked(), prior, 10, 0.1)
    gram = features.values @ features.values.T

    def mean_variance(looks: np.ndarray) -> float:
        noise = np.diag(2.0 / looks)
        return float(np.trace(gram - gram @ np.linalg.solve(gram + noise, gram)) / 12)

    looks, picked = np.ones(12), []
    for _ in range(3):
        values = [np.inf if i in picked else mean_variance(looks + np.eye(12)[i]) for i in range(12)]
        picked.append(int(np.argmin(values)))
        looks[picked[-1]] += 1
    assert np.argsort(-gain)[:3].tolist() == picked


def low_share(policy, simulations: int, seed: int) -> tuple[float, int]:
    """Share of low sides among all null hypotheses that an adaptive policy drew for."""
    rng = np.random.default_rng(seed)
    prior = KernelNullPrior(
        FiniteKernel(np.eye(20)), lam=1.0, alpha0=0.8, alternative=BetaBinomialAlternative(0.3, 6.0), rank=20
    )
    low = total = 0
    for _ in range(simulations):
        p = rng.random(20)
        data = allocate(
            lambda chosen, draws, p=p: rng.binomial(draws, p[chosen]),
            20,
            20 * 9,
            prior,
            pilot=5,
            step=4,
            rounds=3,
            policy=policy,
            random_state=rng,
        )
        candidate = (data.n > 5) & (2 * data.k != data.n)
        low += int((2 * data.k < data.n)[candidate].sum())
        total += int(candidate.sum())
    return low / total, total


def test_masked_policies_keep_the_side_a_fair_coin():
    share, total = low_share("knowledge_gradient", 40, 0)
    assert abs(share - 0.5) < 3 * 0.5 / np.sqrt(total)


def test_a_policy_that_reads_the_counts_breaks_the_coin():
    """What the mask protects from: stop drawing while the count looks significant."""
    rng = np.random.default_rng(1)
    low = total = 0
    for _ in range(400):
        p = rng.random(20)
        k, n = rng.binomial(5, p), np.full(20, 5)
        for _ in range(5):
            high = 2 * k >= n
            k = k + np.where(high, rng.binomial(4, p), 0)
            n = n + np.where(high, 4, 0)
        candidate = 2 * k != n
        low += int((2 * k < n)[candidate].sum())
        total += int(candidate.sum())
    assert abs(low / total - 0.5) > 5 * 0.5 / np.sqrt(total)


def test_a_policy_is_shown_masked_counts_only():
    seen = []

    def policy(masked, prior, step, q):
        seen.append(masked)
        return np.zeros(len(masked))

    _, p = draw_truth(SPACE.alpha, np.random.default_rng(4))
    allocate(sampler(p), 100, 1500, PRIOR, policy=policy, rounds=2, random_state=0)
    assert len(seen) == 2
    for masked in seen:
        assert (2 * masked.m <= masked.n).all()
        assert not hasattr(masked, "k")


def test_bad_allocations():
    p = np.full(100, 0.5)
    with pytest.raises(ValueError, match="smaller than the pilot"):
        allocate(sampler(p), 100, 900, PRIOR)
    with pytest.raises(ValueError, match="policy must be one of"):
        allocate(sampler(p), 100, 2000, PRIOR, policy="greedy")
    with pytest.raises(ValueError, match="must be at least 1"):
        allocate(sampler(p), 100, 2000, PRIOR, step=0)
    with pytest.raises(ValueError, match=r"in 0\.\.10"):
        allocate(lambda chosen, draws: np.full(len(chosen), draws + 1), 100, 2000, PRIOR)
