"""Projected information: closed form, block inverse, variational form, invariances."""

from inspect import unwrap

import numpy as np
import pytest
from fisher_glass import (
    Fisher,
    efficient_direction,
    inverse_projected_information,
    logistic_fisher,
    projected_information,
    softmax_task,
    task_direction,
    task_frame,
)
from fisher_glass.projection import glass_value
from fisher_glass.synthetic import (
    core_nuisance_fisher,
    core_nuisance_information,
    core_nuisance_quadrature,
    gaussian_logistic_fisher,
    sigmoid_moments,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

CORE = np.array([1.0, 0.0])


def spd(seed: int, d: int, rank: int | None = None) -> np.ndarray:
    A = np.random.default_rng(seed).standard_normal((d, rank or d + 2))
    return A @ A.T


seeds = st.integers(0, 10_000)
sizes = st.integers(2, 6)


def test_published_moments():
    lp, ll = sigmoid_moments(2.0)
    assert ll == pytest.approx(0.06052753333, abs=1e-11)
    assert lp == pytest.approx(0.1514263774, abs=1e-10)


@pytest.mark.parametrize(
    ("rho", "inverse"), [(0.0, 16.52140679), (0.5, 18.72269654), (0.8, 28.26161882), (0.99, 341.7702645)]
)
def test_closed_form_of_the_separation_family(rho, inverse):
    assert core_nuisance_information(2.0, rho) == pytest.approx(inverse, rel=1e-9)
    assert 1 / projected_information(core_nuisance_fisher(2.0, rho), CORE)[0, 0] == pytest.approx(inverse, rel=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.99, 0.999])
def test_population_fisher_by_two_dimensional_quadrature(rho):
    points, weights = core_nuisance_quadrature(rho)
    F = logistic_fisher(points, expit(2 * points[:, 0]), weights)
    np.testing.assert_allclose(F, core_nuisance_fisher(2.0, rho), atol=1e-12)
    assert inverse_projected_information(F, CORE)[0, 0] == pytest.approx(core_nuisance_information(2.0, rho), rel=1e-8)


def test_gaussian_features_agree_with_the_two_dimensional_family_and_with_sampling():
    S = np.array([[1.0, 0.8], [0.8, 1.0]])
    np.testing.assert_allclose(gaussian_logistic_fisher(S, 2 * CORE), core_nuisance_fisher(2.0, 0.8), atol=1e-12)
    theta, S = np.array([0.5, -1.0, 0.3]), spd(0, 3) / 3
    z = np.random.default_rng(0).multivariate_normal(np.zeros(3), S, size=400_000)
    np.testing.assert_allclose(gaussian_logistic_fisher(S, theta), logistic_fisher(z, expit(z @ theta)), atol=5e-3)


@given(seeds, sizes, st.sampled_from([0.0, 1e-3, 1.0]))
@settings(max_examples=50, deadline=None)
def test_schur_complement_is_the_inverse_of_the_inverse_block(seed, d, ridge):
    F, k = spd(seed, d), 1 + seed % (d - 1)
    T = np.eye(d)[:, :k]
    block = np.linalg.inv(F + ridge * np.eye(d))[:k, :k]
    np.testing.assert_allclose(inverse_projected_information(F, T, ridge=ridge), block, rtol=1e-6)
    np.testing.assert_allclose(projected_information(F, T, ridge=ridge), np.linalg.inv(block), rtol=1e-6)


@given(seeds, sizes)
@settings(max_examples=25, deadline=None)
def test_variational_form(seed, d):
    F = spd(seed, d)
    rng = np.random.default_rng(seed)
    t, N = rng.standard_normal(d), rng.standard_normal((d, d // 2))
    frame = task_frame(t, N, d)
    best = minimize(lambda u: float((v := frame.task[:, 0] + frame.nuisance @ u) @ F @ v), np.zeros(d // 2), tol=1e-12)
    assert projected_information(F, t, N)[0, 0] == pytest.approx(best.fun, rel=1e-5)


@given(seeds, sizes)
@settings(max_examples=50, deadline=None)
def test_information_is_superadditive_and_below_the_raw_one(seed, d):
    A, B, t = spd(seed, d), spd(seed + 1, d), np.random.default_rng(seed).standard_normal(d)
    a, b, both = (projected_information(F, t)[0, 0] for F in (A, B, A + B))
    assert both >= a + b - 1e-9 * both
    unit = t / np.linalg.norm(t)
    assert a <= unit @ A @ unit * (1 + 1e-12)
    fewer = projected_information(A, t, np.random.default_rng(seed + 1).standard_normal((d, 1)))[0, 0]
    assert fewer >= a * (1 - 1e-9)


def test_uncorrelated_nuisance_costs_nothing():
    assert projected_information(np.diag([2.0, 5.0]), CORE)[0, 0] == pytest.approx(2.0)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_only_the_span_of_the_nuisance_and_the_line_of_the_task_matter(seed):
    rng = np.random.default_rng(seed)
    F, t, N = spd(seed, 6), rng.standard_normal(6), rng.standard_normal((6, 2))
    reference = inverse_projected_information(F, t, N, 1e-2)
    mixed = N @ (rng.standard_normal((2, 2)) + 3 * np.eye(2))
    np.testing.assert_allclose(
        inverse_projected_information(F, -7.0 * t, np.hstack([mixed, N]), 1e-2), reference, rtol=1e-8
    )


def test_given_nuisance_equal_to_the_complement_is_the_default():
    F, t = spd(3, 5), np.random.default_rng(3).standard_normal(5)
    complement = task_frame(t, None, 5).nuisance
    for ridge in (0.0, 0.1):
        np.testing.assert_allclose(
            inverse_projected_information(F, t, complement, ridge), inverse_projected_information(F, t, None, ridge)
        )


@given(seeds, st.booleans())
@settings(max_examples=25, deadline=None)
def test_efficient_direction_is_transverse_to_the_nuisance(seed, given_nuisance):
    rng = np.random.default_rng(seed)
    F, t = spd(seed, 6), rng.standard_normal(6)
    N = rng.standard_normal((6, 3)) if given_nuisance else None
    a = efficient_direction(F, t, N, 0.05)
    frame = task_frame(t, N, 6)
    assert np.abs(frame.nuisance.T @ (F + 0.05 * np.eye(6)) @ a).max() < 1e-10
    assert (frame.task.T @ a).item() == pytest.approx(inverse_projected_information(F, t, N, 0.05)[0, 0])


def test_woodbury_equals_dense_with_and_without_nuisance():
    rng = np.random.default_rng(5)
    rows, t, N = rng.standard_normal((7, 30)), rng.standard_normal(30), rng.standard_normal((30, 12))
    for nuisance in (None, N):
        np.testing.assert_allclose(
            inverse_projected_information(Fisher(rows, factored=True), t, nuisance, 0.2),
            inverse_projected_information(rows.T @ rows, t, nuisance, 0.2),
            rtol=1e-10,
        )


def test_unidentified_direction_is_infinite_without_ridge_and_grows_with_it():
    null = np.array([[1.0, 1.0], [1.0, 1.0]])
    assert glass_value(inverse_projected_information(null, CORE)) == np.inf
    assert projected_information(null, CORE)[0, 0] == pytest.approx(0, abs=1e-12)
    # Half of the task lies in the null space, so the ridge value is close to half of 1 / ridge, not 1 / ridge.
    assert inverse_projected_information(null, CORE, ridge=1e-6)[0, 0] == pytest.approx(0.5e6, rel=1e-5)


def test_a_singular_nuisance_does_not_make_the_task_unidentified():
    assert inverse_projected_information(np.diag([2.0, 0.0]), CORE)[0, 0] == pytest.approx(0.5)


def test_task_direction_averages_within_attributes():
    # Class moves feature 0, attribute moves feature 1; the attribute is confounded with the class.
    z = np.array([[0.0, 0], [1, 0], [0, 5], [1, 5], [1, 5]])
    y, a = np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    np.testing.assert_allclose(task_direction(z, y, a), [1, 0], atol=1e-15)
    assert task_direction(z, y)[1] > 0.1
    basis = softmax_task(z, y, 2, a)
    np.testing.assert_allclose(basis[:, 0], [-1, 0], atol=1e-15)  # class 0 against the last class


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: projected_information(np.eye(2), CORE, ridge=-1.0), "ridge must be a finite number >= 0, got -1"),
        (lambda: projected_information(np.eye(2), np.ones((2, 2))), "linearly independent"),
        (lambda: projected_information(np.eye(2), np.zeros(2)), "non-zero"),
        (lambda: unwrap(projected_information)(np.eye(2), np.ones(3)), "2 rows"),
        (lambda: projected_information(np.eye(3), np.array([1.0, 1, 0]), np.eye(3)[:, :2]), "span of the nuisance"),
        (lambda: projected_information(np.eye(2), np.array([np.nan, 1.0])), "task must be finite"),
        (lambda: projected_information(np.array([[1.0, 2.0], [0.0, 1.0]]), CORE), "symmetric"),
        (lambda: efficient_direction(np.eye(2), CORE, None, 0.0), "positive ridge"),
        (lambda: task_direction(np.ones((2, 1)), np.array([0, 2])), "0 or 1"),
        (lambda: task_direction(np.eye(2), np.array([0, 1]), np.array([0, 1])), "both classes"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_nearly_parallel_nuisance_warns():
    with pytest.warns(UserWarning, match="nearly parallel"):
        task_frame(CORE, np.array([1.0, 0.05]), 2)
