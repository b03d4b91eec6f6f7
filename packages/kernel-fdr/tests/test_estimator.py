"""The null prior as an estimator."""

import numpy as np
import pytest
from kernel_fdr import BetaBinomialAlternative, CountData, Eigenfeatures, FixedNullPrior, KernelNullPrior
from kernel_fdr.kernels import FiniteKernel, Matern
from kernel_fdr.simulate import draw_counts, plane
from kernel_fdr.solver import hessian
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

SPACE = plane(14)
DATA, SIGNAL = draw_counts(SPACE, 50, np.random.default_rng(0))


def test_learns_where_signals_are():
    prior = KernelNullPrior(SPACE.kernel).fit(DATA.masked())
    assert np.corrcoef(prior.alpha_, SPACE.alpha)[0, 1] > 0.6
    assert roc_auc_score(SIGNAL, -prior.alpha_) > 0.7
    assert prior.lam_ in (100.0, 10.0, 1.0, 0.1, 1e-2, 1e-3)
    assert (0, prior.lam_) in prior.cv_scores_


def test_cross_validation_prefers_the_right_kernel_to_none():
    kernels = [FiniteKernel(np.eye(len(SPACE))), Matern(0.15, 1.5, relative=False)]
    data = CountData(DATA.k, DATA.n)
    features = [Eigenfeatures.of(kernels[0], None), Eigenfeatures.of(kernels[1], SPACE.locations)]
    assert KernelNullPrior(features).fit(data).kernel_ is kernels[1]
    located = CountData(DATA.k, DATA.n, SPACE.locations)
    chosen = KernelNullPrior([Matern(0.001), Matern(0.3)]).fit(located).kernel_
    assert chosen.length_scale == 0.3


def test_predictions_at_fitted_locations_are_the_fit():
    prior = KernelNullPrior(SPACE.kernel, lam=1.0, rank=len(SPACE)).fit(DATA)
    inside = (prior.alpha_ > 0.011) & (prior.alpha_ < 0.998)
    np.testing.assert_allclose(prior.predict_alpha(SPACE.locations)[inside], prior.alpha_[inside], atol=1e-3)
    far = prior.predict_alpha(np.array([[50.0, 50.0]]))
    assert far[0] == pytest.approx(prior.alpha0_)


def test_logistic_extension_separates_like_the_kernel():
    prior = KernelNullPrior(SPACE.kernel, lam=10.0, extend="logistic").fit(DATA)
    alpha = prior.predict_alpha(SPACE.locations)
    assert ((alpha > 0) & (alpha < 1)).all()
    assert np.corrcoef(alpha, prior.alpha_)[0, 1] > 0.8


def test_posterior_variance_is_the_siblings_formula():
    prior = KernelNullPrior(SPACE.kernel, lam=5.0, rank=len(SPACE)).fit(DATA)
    new = np.array([[0.31, 0.33], [0.9, 0.1]])
    gram = SPACE.kernel.gram(SPACE.locations) + 1e-6 * np.eye(len(SPACE))
    values = prior.features_.values
    curvature = hessian(prior.theta_, values, prior._ratio, prior.alpha0_, 5.0, 500.0) - 10.0 * np.eye(len(SPACE))
    inverse_features = np.linalg.pinv(values)
    h = inverse_features.T @ curvature @ inverse_features
    cross = SPACE.kernel.cross(new, SPACE.locations)
    big = gram @ h @ gram + 10.0 * gram
    expected = np.sqrt(np.einsum("mn,nm->m", cross, np.linalg.solve(big, cross.T)))
    np.testing.assert_allclose(prior.alpha_std(new), expected, rtol=1e-3)
    assert (prior.alpha_std(np.array([[0.3, 0.35]])) < np.sqrt(1 / 10.0)).all()


def test_sibling_configuration_shrinks_to_zero():
    prior = KernelNullPrior.sibling(SPACE.kernel, steps=300).fit(DATA)
    assert (prior.alpha0_, prior.lam_, prior.solver) == (0.0, 10.0, "natural")
    start = 1 / SPACE.kernel.gram(SPACE.locations).sum(axis=1).mean()
    assert start > 0
    assert prior.alpha_.mean() < KernelNullPrior(SPACE.kernel, lam=10.0).fit(DATA).alpha_.mean()
    assert KernelNullPrior.sibling(SPACE.kernel, graph=True).steps == 15_000


def test_clone_and_parameters():
    prior = KernelNullPrior(SPACE.kernel, lam=2.0)
    assert clone(prior).get_params()["lam"] == 2.0
    assert not hasattr(clone(prior.fit(DATA)), "alpha_")


def test_unequal_draws_duplicates_and_constant_counts_work():
    rng = np.random.default_rng(3)
    n = rng.integers(1, 40, 60)
    points = np.repeat(rng.random((20, 2)), 3, axis=0)
    for k in (rng.integers(0, n + 1), n // 2, np.zeros(60, dtype=int)):
        prior = KernelNullPrior(Matern(0.3)).fit(CountData(k, n, points).masked())
        assert np.isfinite(prior.alpha_).all()
    ones = CountData(rng.integers(0, 2, 60), 1, points)
    assert np.isfinite(KernelNullPrior(Matern(0.3)).fit(ones.masked()).alpha_).all()
    same_place = CountData([0, 5, 10], 10, np.zeros((3, 2)))
    assert np.isfinite(KernelNullPrior(Matern(0.3), lam=1.0).fit(same_place).alpha_).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": -1.0}, "lam must be"),
        ({"lam": "best"}, "lam must be"),
        ({"alpha0": 2.0}, "alpha0 must be"),
        ({"alpha0": "mean"}, "alpha0 must be"),
        ({"solver": "sgd"}, "solver must be"),
        ({"extend": "linear"}, "extend must be"),
        ({"folds": 1}, "folds >= 2"),
        ({"alternative": "gamma"}, "alternative must be one of"),
        ({"kernel": []}, "list of kernels is empty"),
        ({"kernel": FiniteKernel(np.eye(3))}, "no item of the kernel|locations"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        KernelNullPrior(**{"kernel": SPACE.kernel, **settings}).fit(DATA)


def test_bad_fixed_priors():
    alternative = BetaBinomialAlternative(0.3, 6.0)
    with pytest.raises(ValueError, match="alpha must be one number"):
        FixedNullPrior([0.5, 0.5], alternative).fit(DATA)
    with pytest.raises(ValueError, match="alpha must be"):
        FixedNullPrior(1.5, alternative).fit(DATA)
    with pytest.raises(ValueError, match=r"locations for .* hypotheses"):
        KernelNullPrior(FiniteKernel(np.eye(3))).fit(CountData([1, 2], 10))
