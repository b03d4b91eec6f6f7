"""Losses, sets and hindsight optima against finite differences, brute force and cvxpy."""

import itertools
import math

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oco_memory import (
    AbsMemoryLoss,
    Ball,
    Box,
    CachingLoss,
    CallableLoss,
    FiniteSet,
    HuberMemoryLoss,
    InventoryLoss,
    LinearSignLoss,
    QuadraticMemoryLoss,
    Simplex,
    SoftplusMemoryLoss,
    SwitchingExpertLoss,
    best_fixed,
    sum_losses,
)
from oco_memory.game import constrained_least_squares
from oco_memory.instances import random_smooth_losses, sign_losses
from oco_memory.losses import SumLoss
from oco_memory.problems import caching_losses, inventory_losses
from oco_memory.series import load_series, read_disturbances, standardise

KINDS = (QuadraticMemoryLoss, AbsMemoryLoss, HuberMemoryLoss, SoftplusMemoryLoss)


@pytest.mark.parametrize("kind", KINDS)
def test_unary_and_gradient_follow_the_value(kind):
    rng = np.random.default_rng(0)
    loss = kind(rng.standard_normal((2, 3, 4)), rng.standard_normal(2), np.array([0.7, 2.0]))
    x = rng.standard_normal((5, 4))
    assert loss.unary(x) == pytest.approx(loss.value(np.repeat(x[:, None], 3, axis=1)))
    h = 1e-6
    for point in x:
        numeric = [(loss.unary(point + h * e) - loss.unary(point - h * e)) / (2 * h) for e in np.eye(4)]
        assert loss.unary_grad(point) == pytest.approx(numeric, rel=1e-6, abs=1e-7)
        value, gradient = loss.unary_value_and_grad(point)
        assert value == loss.unary(point) and np.array_equal(gradient, loss.unary_grad(point))


@pytest.mark.parametrize("kind", [QuadraticMemoryLoss, HuberMemoryLoss, SoftplusMemoryLoss])
def test_beta_bounds_the_joint_gradient(kind):
    """||grad f(z) - grad f(z')|| <= beta ||z - z'||, nearly attained by the quadratic; unary_beta <= m beta."""
    rng = np.random.default_rng(1)
    loss = kind(rng.standard_normal((2, 3, 2)), np.zeros(2), 1.7)
    rows = loss.C.reshape(2, 6)

    def gradient(z):
        return (1.7 * loss.phi_grad(rows @ z)) @ rows

    direction = np.linalg.svd(rows)[2][0]
    pairs = [(rng.normal(0, 0.1, 6), rng.normal(0, 0.1, 6)) for _ in range(200)] + [(1e-3 * direction, np.zeros(6))]
    ratios = [np.linalg.norm(gradient(a) - gradient(b)) / np.linalg.norm(a - b) for a, b in pairs]
    assert 0.99 * loss.beta < max(ratios) <= loss.beta * (1 + 1e-9)
    assert loss.unary_beta <= 3 * loss.beta * (1 + 1e-12)


def test_memory_window_is_oldest_first():
    loss = QuadraticMemoryLoss(np.array([[[0.2], [0.3], [0.5]]]), np.array([0.5]))
    assert loss.value(np.array([[1.0], [0.0], [-1.0]])) == pytest.approx((0.2 - 0.5 - 0.5) ** 2 / 2)
    assert LinearSignLoss(1, 2).value(np.array([[1.0], [0.0]])) == pytest.approx(0.25)


def test_callable_loss_differences():
    loss = CallableLoss(lambda z: float((z[-1] @ z[-1] - z[0].sum()) ** 2), 2)
    x = np.array([0.3, -0.4])
    s = 0.25 - x.sum()
    # d/dx of (|x|^2 - sum x + sum of the difference)^2 at a constant window, both arguments moving
    inner = x @ x - x.sum()
    assert loss.unary_grad(x) == pytest.approx(2 * inner * (2 * x - 1), rel=1e-6)
    assert loss.unary(x) == pytest.approx(inner**2)
    assert s == pytest.approx(inner + 0.0)


def test_callable_loss_through_torch():
    torch = pytest.importorskip("torch")
    loss = CallableLoss(lambda z: torch.log1p((z[0] * z[1]).sum() ** 2), 2, backend="torch")
    numeric = CallableLoss(lambda z: math.log1p(float((z[0] * z[1]).sum()) ** 2), 2)
    x = np.array([0.3, -0.7, 0.1])
    assert loss.unary_grad(x) == pytest.approx(numeric.unary_grad(x), rel=1e-6)
    assert loss.unary(x) == pytest.approx(numeric.unary(x))


def test_sums_are_sums():
    rng = np.random.default_rng(2)
    losses = [QuadraticMemoryLoss(rng.standard_normal((2, 2, 3)), rng.standard_normal(2), s) for s in (0.5, 2.0, 1.0)]
    mixed = [*losses, AbsMemoryLoss(rng.standard_normal((1, 2, 3)), np.zeros(1))]
    x = rng.standard_normal((4, 3))
    for some, kind in ((losses, QuadraticMemoryLoss), (mixed, SumLoss)):
        total = sum_losses(some)
        assert isinstance(total, kind)
        assert total.unary(x) == pytest.approx(sum(loss.unary(x) for loss in some))
        assert total.unary_grad(x[0]) == pytest.approx(sum(loss.unary_grad(x[0]) for loss in some))


SETS = (
    Ball(np.array([0.5, -0.5, 0.0]), 0.8),
    Box(np.array([-1.0, 0.0, -2.0]), np.array([0.5, 2.0, 0.0])),
    Simplex(3),
)


@pytest.mark.parametrize("decision_set", SETS, ids=lambda s: type(s).__name__)
def test_projection_is_the_nearest_point(decision_set):
    rng = np.random.default_rng(3)
    points = rng.normal(0, 2, (5, 3))
    for point in points:
        x = cvxpy.Variable(3)
        cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(x - point)), decision_set.cvxpy_constraints(x)).solve()
        assert decision_set.project(point) == pytest.approx(x.value, abs=1e-4)
        assert decision_set.contains(decision_set.project(point))
    assert np.array_equal(decision_set.project_all(points)[-1], decision_set.project(points[-1]))
    corners = decision_set.grid(9)
    assert all(decision_set.contains(corner) for corner in corners)
    longest = max(np.linalg.norm(a - b) for a, b in itertools.combinations(corners, 2))
    assert longest <= decision_set.diameter + 1e-9
    assert longest >= 0.95 * decision_set.diameter


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2), st.integers(0, 2**31))
def test_chord_ends_on_the_boundary(which, seed):
    decision_set, rng = SETS[which], np.random.default_rng(seed)
    x = decision_set.project(decision_set.center + rng.normal(0, 0.3, 3))
    direction = decision_set.random_direction(rng)
    lo, hi = decision_set.chord(x, direction)
    assert lo <= 0 <= hi
    for end, further in ((lo, lo - 1e-3), (hi, hi + 1e-3)):
        assert decision_set.contains(x + end * direction, 1e-8)
        assert not decision_set.contains(x + further * direction, 1e-9)


def test_finite_set():
    points = FiniteSet(np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 4.0]]))
    assert points.diameter == 5.0
    assert points.project(np.array([0.9, 0.2])).tolist() == [1.0, 1.0]
    assert len(points.grid(2)) == 3


@pytest.mark.parametrize("seed", range(9))
def test_best_fixed_equals_cvxpy_and_beats_the_grid(seed):
    rng = np.random.default_rng(seed)
    losses = [None, *random_smooth_losses(30, 2, 2, rng)]
    for decision_set in (Ball(np.zeros(2), 0.3), Box(-0.3 * np.ones(2), 0.4 * np.ones(2))):
        x, l_star = best_fixed(losses, decision_set)
        reference = best_fixed(losses, decision_set, "cvxpy")[1]
        smooth = best_fixed(losses, decision_set, "scipy")[1]
        assert decision_set.contains(x)
        assert l_star == pytest.approx(reference, rel=1e-6) == pytest.approx(smooth, rel=1e-6)
        assert l_star <= best_fixed(losses, decision_set, "finite", cells=41)[1] * (1 + 1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.floats(0.05, 3.0), st.integers(0, 2**31))
def test_least_squares_in_a_ball(dim, rows, radius, seed):
    """Optimality: the residual's gradient is a non-positive multiple of x, zero inside."""
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((rows, dim)), rng.standard_normal(rows)
    x = constrained_least_squares(A, b, Ball(np.zeros(dim), radius))
    gradient = A.T @ (A @ x - b)
    assert np.linalg.norm(x) <= radius * (1 + 1e-9)
    if np.linalg.norm(x) < radius * (1 - 1e-7):
        assert np.linalg.norm(gradient) < 1e-7 * max(1, np.linalg.norm(A.T @ b))
    else:
        assert gradient @ x == pytest.approx(-np.linalg.norm(gradient) * radius, rel=1e-5, abs=1e-7)


def test_best_fixed_uses_the_rounds_that_count():
    first = QuadraticMemoryLoss(np.array([[[0.5], [0.5]]]), np.array([-1.0]))
    rest = QuadraticMemoryLoss(np.array([[[0.5], [0.5]]]), np.array([0.5]))
    x, l_star = best_fixed([first, rest, None, rest], Box(np.array([-1.0]), np.array([1.0])))
    assert x[0] == pytest.approx(0.5) and l_star == pytest.approx(0.0, abs=1e-20)
    assert best_fixed([None, None], Ball(np.ones(2), 1.0))[1] == 0.0


def test_inventory_matches_a_step_by_step_warehouse():
    """Orders up to x_t arrive L rounds later; costs of the true stock once the memory covers the past."""
    rng = np.random.default_rng(4)
    lead, rounds = 3, 60
    demand = rng.uniform(0.5, 1.0, rounds)
    levels = rng.uniform(3.0, 4.5, rounds)  # spread below 2 L rounds' demand: older levels have no effect
    losses, _ = inventory_losses(demand, lead, 1.0, 4.0, 5.0)
    on_hand, pipeline = 0.0, [0.0] * lead
    for t in range(rounds):
        order = max(0.0, levels[t] - on_hand - sum(pipeline))
        pipeline.append(order)
        on_hand += pipeline.pop(0)
        on_hand -= demand[t]
        cost = max(on_hand, 0.0) + 4.0 * max(-on_hand, 0.0)
        loss = losses[t]
        if t >= 2 * lead:
            assert loss is not None
            assert loss.value(levels[t - 2 * lead : t + 1, None]) == pytest.approx(cost)
    last = losses[-1]
    assert last is not None
    assert last.unary(np.array([3.7])) == last.value(np.full((2 * lead + 1, 1), 3.7))


def test_caching_matches_a_list_that_forgets():
    """Brute force: replay the window, append admitted pages, keep the `capacity` latest distinct ones."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        m, capacity = int(rng.integers(2, 9)), int(rng.integers(1, 4))
        pages, scores, thresholds = rng.integers(0, 5, m), rng.random(m), rng.random(m)
        cache: list[int] = []
        for page, score, threshold in zip(pages[:-1], scores[:-1], thresholds[:-1], strict=True):
            if score >= threshold:
                cache = [p for p in cache if p != page] + [page]
                cache = cache[-capacity:]
        miss = pages[-1] in pages[:-1] and pages[-1] not in cache
        assert CachingLoss(pages, scores, capacity).value(thresholds[:, None]) == float(miss)


def test_perfect_caching_threshold_costs_nothing_and_others_do():
    losses = caching_losses(500, 12, 3, np.random.default_rng(6))
    total = sum_losses([loss for loss in losses if loss is not None])
    low, right, high = np.asarray(total.unary(np.array([[0.0], [0.52], [0.9]])))
    assert right == 0.0 and low > 20 and high > 20


def test_sign_losses_are_spread_over_the_counted_rounds():
    losses = sign_losses(100, 40, 0.25, 5, np.random.default_rng(7))
    assert sum(loss is not None for loss in losses) == 40
    assert all(loss is None for loss in losses[:4])
    with pytest.raises(ValueError, match=r"\[0, 96\]"):
        sign_losses(100, 97, 0.1, 5, np.random.default_rng(0))


@pytest.mark.parametrize(("name", "length"), [("sunspots", 309), ("elnino", 732), ("co2", 2283)])
def test_real_series(name, length):
    series = load_series(name)
    assert series.shape == (length,) and np.abs(series).max() <= 1.0
    assert np.isfinite(series).all() and 0.3 < series.std() < 0.55


def test_own_disturbances_are_read(tmp_path):
    w = np.random.default_rng(8).standard_normal((7, 2))
    np.save(tmp_path / "w.npy", w)
    np.savetxt(tmp_path / "w.csv", w, delimiter=",")
    np.savetxt(tmp_path / "w.txt", w)
    for name in ("w.npy", "w.csv", "w.txt"):
        assert read_disturbances(tmp_path / name, 2) == pytest.approx(w)
    with pytest.raises(ValueError, match=r"3 columns, got shape \(7, 2\)"):
        read_disturbances(tmp_path / "w.csv", 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuadraticMemoryLoss(np.ones((2, 3)), np.ones(2)), "shape"),
        (lambda: QuadraticMemoryLoss(np.ones((2, 1, 3)), np.ones(3)), "a must have shape"),
        (lambda: QuadraticMemoryLoss(np.ones((1, 1, 1)), np.array([np.nan])), "finite"),
        (lambda: QuadraticMemoryLoss(np.ones((1, 1, 1)), np.ones(1), -1.0), "non-negative"),
        (lambda: LinearSignLoss(2.0, 1), "sign"),
        (lambda: CallableLoss(len, 1, backend="jax"), "backend"),
        (lambda: CallableLoss(len, 0), "memory"),
        (lambda: Ball(np.zeros(2), 0.0), "radius"),
        (lambda: Box(np.ones(2), np.zeros(2)), "lo < hi"),
        (lambda: Simplex(1), "d >= 2"),
        (lambda: FiniteSet(np.zeros((0, 2))), "N >= 1"),
        (lambda: Box(-np.ones(4), np.ones(4)).grid(5), "hit_and_run"),
        (lambda: SwitchingExpertLoss(np.array([2.0]), 1.0), r"\[0, 1\]"),
        (lambda: InventoryLoss(np.ones(4), 1.0, 1.0, 1.0), "2 L \\+ 1"),
        (lambda: CachingLoss(np.array([1]), np.array([0.5]), 0), "capacity"),
        (lambda: standardise(np.ones(5)), "vary"),
        (lambda: load_series("tides"), "sunspots, elnino, co2"),
        (lambda: sum_losses([]), "at least one"),
        (lambda: best_fixed([LinearSignLoss(1, 1)], Simplex(2), "quadratic"), "does not fit"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
