"""The bounds: stated values, limits, and random games that must stay below them."""

import math

import numpy as np
import pytest
from oco_memory import (
    Ball,
    FirstOrderOGD,
    best_fixed,
    lazy_ew_bound,
    lazy_ew_convex_bound,
    lazy_ew_doubling_bound,
    memory_ogd_eta,
    play,
    self_confident_bound,
    smooth_ogd_bound,
    tuned_eta_lazy,
    tuned_eta_smooth,
)
from oco_memory.instances import random_smooth_losses


def test_stated_values():
    assert smooth_ogd_bound(0.01, 1.0, 1.0, 5, 0.0) == pytest.approx(1.3714133816, rel=1e-9)
    assert lazy_ew_bound(0.5, 0.0, 2, 1) == pytest.approx(1.7616294577, rel=1e-9)
    assert lazy_ew_bound(1.0, 0.0, 100, 5) == pytest.approx(5 * math.log(100) / (1 - math.exp(-1)))
    assert memory_ogd_eta(2.0, 1.5, 5, 1000) == pytest.approx(2 / (1.5 * math.sqrt(5000)))


def test_without_memory_theorem_b_is_the_textbook_bound():
    """m = 1: (L* + D^2/(2 eta)) / (1 - eta beta)."""
    assert smooth_ogd_bound(0.1, 3.0, 2.0, 1, 2.0) == pytest.approx((3 + 4 / 0.2) / 0.8)


def test_tuned_steps():
    assert tuned_eta_lazy(0.0, math.log(65), 5) == 1.0
    assert tuned_eta_lazy(100.0, 4.0, 4) == pytest.approx(0.1)
    assert tuned_eta_smooth(0.0, 1.0, 2, 2.0) == pytest.approx(1 / 16)
    assert tuned_eta_smooth(200.0, 1.0, 2, 2.0) == pytest.approx(2 / math.sqrt(1600))


def test_tuned_bounds_have_first_order_regret():
    """Excess over L* grows like its square root: 4 x for 16 x, up to lower-order terms."""
    m, n, beta = 5, 65, 0.2
    for excess in (
        lambda l_star: lazy_ew_bound(tuned_eta_lazy(l_star, math.log(n), m), l_star, n, m) - l_star,
        lambda l_star: smooth_ogd_bound(tuned_eta_smooth(l_star, beta, m, 2.0), l_star, beta, m, 2.0) - l_star,
        lambda l_star: lazy_ew_doubling_bound(l_star, n, m) - l_star,
        lambda l_star: self_confident_bound(l_star, beta, m, 2.0) - l_star,
    ):
        assert 3.5 < excess(1.6e7) / excess(1e6) < 4.6


def test_convex_bound_is_the_finite_one_with_d_log_t():
    assert lazy_ew_convex_bound(0.3, 9.0, 2, 1000, 4) == pytest.approx(
        (1 + 3 * 0.3) * (0.3 * 10 + 2 * math.log(1000)) / (1 - math.exp(-0.3))
    )


def test_a_step_too_long_has_no_bound():
    with pytest.warns(UserWarning, match="1/\\(m beta\\)"):
        assert smooth_ogd_bound(0.25, 1.0, 1.0, 4, 2.0) == math.inf


@pytest.mark.parametrize("seed", range(12))
def test_smooth_bounds_hold_on_random_games(seed):
    rng = np.random.default_rng(seed)
    dim, memory = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    losses = random_smooth_losses(80, dim, memory, rng)
    ball = Ball(np.zeros(dim), 1.0)
    beta = max(loss.beta for loss in losses if loss is not None and loss.beta is not None)
    l_star = best_fixed(losses, ball)[1]
    for share in (0.02, 0.2, 0.9):
        eta = share / (memory * beta)
        total = play(FirstOrderOGD(ball, memory, beta, eta), losses).total
        assert total <= smooth_ogd_bound(eta, l_star, beta, memory, 2.0) * (1 + 1e-9)
    total = play(FirstOrderOGD(ball, memory, beta), losses).total
    assert total <= self_confident_bound(l_star, beta, memory, 2.0) * (1 + 1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: lazy_ew_bound(0.0, 1.0, 2, 1),
        lambda: lazy_ew_bound(0.1, -1.0, 2, 1),
        lambda: smooth_ogd_bound(0.1, 1.0, 0.0, 1, 1.0),
        lambda: tuned_eta_smooth(1.0, 1.0, 1, 0.0),
        lambda: memory_ogd_eta(1.0, 1.0, 1, 0),
        lambda: lazy_ew_bound(0.1, 1.0, 2, 0),
        lambda: smooth_ogd_bound(0.1, 1.0, 1.0, 0, 1.0),
        lambda: lazy_ew_doubling_bound(1.0, 0, 1),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(ValueError, match=r"must be"):
        call()
