"""CVaR against closed values and a linear program; the Fisher-Glass report; certificates."""

import numpy as np
import pytest
from fisher_glass import (
    EnvironmentFisher,
    certificate_from_radii,
    cvar,
    environment_fishers,
    fisher_glass,
    logistic_rows,
    ridge_certificate,
    ridge_sweep,
    softmax_rows,
)
from fisher_glass.certificate import bernstein_radius, bootstrap_radius
from fisher_glass.projection import task_frame
from fisher_glass.risk import environment_glass
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

CORE = np.array([1.0, 0.0])


@pytest.mark.parametrize(("alpha", "value"), [(0.25, 4.0), (0.5, 3.5), (0.3, 3.8333333333333335), (1.0, 2.5)])
def test_cvar_of_four_values(alpha, value):
    assert cvar([1.0, 2.0, 3.0, 4.0], alpha=alpha)[0] == pytest.approx(value, abs=1e-14)


@given(st.integers(0, 10_000), st.floats(0.02, 1.0))
@settings(max_examples=50, deadline=None)
def test_cvar_is_the_optimum_of_its_linear_program(seed, alpha):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    values, weights = rng.standard_normal(n), rng.dirichlet(np.ones(n)) + 1e-6
    weights /= weights.sum()
    value, tail = cvar(values, weights, alpha)
    dual = linprog(-values, A_eq=np.ones((1, n)), b_eq=[1], bounds=list(zip(np.zeros(n), weights / alpha, strict=True)))
    assert value == pytest.approx(-dual.fun, abs=1e-9)
    assert tail.sum() == pytest.approx(1) and (tail <= weights / alpha + 1e-12).all()
    assert value == pytest.approx(tail @ values)
    primal = min(c + np.maximum(values - c, 0) @ weights / alpha for c in values)
    assert value == pytest.approx(primal, abs=1e-9)


def test_infinite_values_only_count_inside_the_tail():
    assert cvar([1.0, np.inf], alpha=0.5)[0] == np.inf
    assert cvar([1.0, -np.inf], alpha=0.5)[0] == 1.0


def two_environments():
    return EnvironmentFisher.from_matrices([np.eye(2), np.diag([0.1, 1.0])], np.array([0.75, 0.25]), ["a", "b"])


def test_report_of_two_diagonal_environments():
    report = fisher_glass(two_environments(), CORE, alpha=0.5, ridge=0.0, losses=np.array([1.0, 2.0]))
    np.testing.assert_allclose(report.per_env, [1, 10])
    assert report.value == pytest.approx(5.5) and report.loss_cvar == pytest.approx(1.5)
    np.testing.assert_allclose(report.tail_weights, [0.5, 0.5])
    ridged = fisher_glass(two_environments(), CORE, alpha=0.5)
    assert ridged.ridge == pytest.approx(1e-3 * (0.75 * 2 + 0.25 * 1.1) / 2)
    np.testing.assert_allclose(ridged.saturation, ridged.per_env * ridged.ridge)


def test_glass_is_bounded_by_one_over_ridge():
    report = fisher_glass(EnvironmentFisher.from_matrices([np.diag([0.0, 1.0])]), CORE, ridge=0.01)
    assert report.value == pytest.approx(100) and report.saturation[0] == pytest.approx(1)


def test_fewer_samples_than_parameters_is_infinite_and_flagged():
    rng = np.random.default_rng(0)
    fisher = environment_fishers(rng.standard_normal((30, 4)), rng.random(30), np.repeat([0, 1], [3, 27]))
    report = fisher_glass(fisher, np.ones(4), ridge=0.0)
    assert np.isinf(report.per_env[0]) and np.isfinite(report.per_env[1])
    assert report.rank_deficient.tolist() == [True, False] and report.saturation.tolist() == [1.0, 0.0]


def test_several_task_directions_take_the_worst():
    fisher = EnvironmentFisher.from_matrices([np.diag([2.0, 0.5, 1.0])])
    assert fisher_glass(fisher, np.eye(3)[:, :2], ridge=0.0).value == pytest.approx(2.0)


def test_sweep_falls_with_the_ridge():
    sweep = ridge_sweep(two_environments(), CORE, alphas=(0.25, 1.0))
    for _, part in sweep.groupby("alpha"):
        assert (np.diff(part.fisher_glass) < 0).all()
    assert set(sweep.worst_environment) == {"b"} and (sweep.largest_saturation <= 1).all()


@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
@settings(max_examples=50, deadline=None)
def test_certificate_inequality_is_certain_when_the_radius_is(seed, alpha):
    rng = np.random.default_rng(seed)
    d, E = 4, 3
    truth, noisy, radii = [], [], []
    for _ in range(E):
        A, B = rng.standard_normal((d, 5)), rng.standard_normal((d, 5))
        F = A @ A.T
        G = F + 0.05 * (B @ B.T - F)
        truth.append(F)
        noisy.append(G)
        radii.append(np.linalg.norm(F - G, 2))
    ridge = float(max(radii) * 10 ** rng.uniform(-1, 1))
    frame = task_frame(rng.standard_normal(d), None, d)
    exact = fisher_glass(EnvironmentFisher.from_matrices(truth), frame, alpha=alpha, ridge=ridge).value
    glass = environment_glass(EnvironmentFisher.from_matrices(noisy), frame, ridge)
    c = certificate_from_radii(glass, np.array(radii), None, alpha, ridge)
    assert c.lower * (1 - 1e-12) <= exact <= c.upper * (1 + 1e-12)
    assert c.lower <= c.estimate <= c.upper <= 1 / ridge * (1 + 1e-12)


@pytest.mark.parametrize("eps", [0.05, 0.7])
def test_both_ends_of_the_certificate_are_attained(eps):
    ridge, task = 0.2, np.array([1.0])
    nothing, something = (EnvironmentFisher.from_matrices([np.array([[f]])]) for f in (0.0, eps))
    low, high = (fisher_glass(fisher, task, ridge=ridge).value for fisher in (something, nothing))
    # The truth knows nothing and the sample says eps, or the other way round: the radius is eps both times.
    upper = certificate_from_radii(np.array([low]), np.array([eps]), None, 1.0, ridge).upper
    lower = certificate_from_radii(np.array([high]), np.array([eps]), None, 1.0, ridge).lower
    assert upper == pytest.approx(high) and lower == pytest.approx(low)


def test_a_radius_beyond_the_ridge_still_says_something():
    c = certificate_from_radii(np.array([1.0, 4.0]), np.array([0.3, 0.3]), None, 1.0, 0.2)
    np.testing.assert_allclose(c.upper_per_env, [2.5, 5.0])
    assert c.informative.tolist() == [True, False]


def test_bootstrap_radius_is_the_same_from_covariance_and_from_multipliers():
    rows = np.random.default_rng(0).standard_normal((150, 4))
    by_covariance = bootstrap_radius(rows, 0.9, 4000, np.random.default_rng(1))
    # 6 draws are too few for the covariance route (D^2 = 100 > draws * n is needed): use a small n instead.
    few = rows[:12]
    quick = np.mean([bootstrap_radius(few, 0.5, 4000, np.random.default_rng(s)) for s in range(3)])
    direct = np.mean([bootstrap_radius(few, 0.5, 8, np.random.default_rng(s)) for s in range(400)])
    assert direct == pytest.approx(quick, rel=0.15)
    assert by_covariance > 0


def test_bootstrap_radius_covers_the_real_deviation():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(100):
        rows = rng.standard_normal((400, 3))
        hits += np.linalg.norm(rows.T @ rows / 400 - np.eye(3), 2) <= bootstrap_radius(rows, 0.9, 200, rng)
    assert hits >= 80


def test_bernstein_radius_of_one_dimension_by_hand():
    rows = np.array([[1.0], [2.0]])
    log_term = np.log(2 / 0.1)
    # A = 1, 4: mean 2.5, variance 2.25, bound 4.
    assert bernstein_radius(rows, 0.9) == pytest.approx(np.sqrt(2 * 2.25 * log_term / 2) + 2 * 4 * log_term / 6)


def test_radii_accept_several_rows_a_sample():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), size=80)
    rows = softmax_rows(rng.standard_normal((80, 2)), P)
    dense = [rows[i].T @ rows[i] for i in range(80)]
    F = np.mean(dense, axis=0)
    variance = np.linalg.eigvalsh(np.mean([A @ A for A in dense], axis=0) - F @ F)[-1]
    bound = max(np.linalg.eigvalsh(A)[-1] for A in dense)
    log_term = np.log(2 * 4 / 0.1)
    expected = np.sqrt(2 * variance * log_term / 80) + 2 * bound * log_term / 240
    assert bernstein_radius(rows, 0.9) == pytest.approx(expected)
    assert bootstrap_radius(rows, 0.9, 200, rng) < expected


@pytest.mark.parametrize("method", ["bootstrap", "bernstein"])
def test_certificate_covers_a_known_population(method):
    rng = np.random.default_rng(4)
    groups = [logistic_rows(rng.standard_normal((2000, 2)), np.full(2000, 0.5)) for _ in range(3)]
    c = ridge_certificate(groups, CORE, ridge=0.5, method=method, rng=rng)
    exact = 1 / (0.25 + 0.5)
    assert c.lower < exact < c.upper and c.informative.all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cvar([1.0], alpha=0.0), r"alpha must lie in \(0, 1\], got 0"),
        (lambda: cvar([1.0], alpha=1.5), "got 1.5"),
        (lambda: cvar([1.0, np.nan]), "NaN at index 1"),
        (lambda: cvar([]), "non-empty"),
        (lambda: cvar([1.0, 2.0], [0.5, -0.5]), "positive"),
        (lambda: fisher_glass(two_environments(), CORE, ridge="big"), "'big'"),
        (lambda: fisher_glass(two_environments(), CORE, ridge=-0.1), "got -0.1"),
        (lambda: certificate_from_radii(np.ones(1), np.ones(1), None, 0.1, 0.0), "positive ridge"),
        (lambda: certificate_from_radii(np.ones(1), -np.ones(1), None, 0.1, 1.0), "non-negative"),
        (lambda: ridge_certificate([np.ones((3, 2)), np.ones((0, 2))], CORE), "environment 1 needs rows"),
        (lambda: ridge_certificate([np.ones((3, 2))], CORE, method="jackknife"), "jackknife"),
        (lambda: ridge_certificate([np.ones((3, 2))], CORE, level=1.0), "level"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
