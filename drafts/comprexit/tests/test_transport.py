"""Sinkhorn against POT, closed forms and invariants; segments."""

import math

import numpy as np
import ot
import pytest
import torch
from comprexit import segment_map, sinkhorn_log
from hypothesis import given, settings
from hypothesis import strategies as st


def problem(seed, windows=2, positions=12, slots=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    cost = 2 * torch.rand(windows, positions, slots, generator=generator, dtype=dtype)
    a = torch.rand(windows, positions, generator=generator, dtype=dtype) + 0.05
    b = torch.rand(windows, slots, generator=generator, dtype=dtype) + 0.05
    return cost, a / a.sum(-1, keepdim=True), b / b.sum(-1, keepdim=True)


@given(seed=st.integers(0, 10_000), n_iter=st.integers(1, 40), eps=st.floats(0.05, 2.0))
@settings(max_examples=40, deadline=None)
def test_columns_are_exact_after_any_number_of_iterations(seed, n_iter, eps):
    cost, a, b = problem(seed)
    plan = sinkhorn_log(cost, a, b, eps, n_iter)
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(1), b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_rows_converge(seed):
    cost, a, b = problem(seed)
    plan = sinkhorn_log(cost, a, b, 0.1, 300)
    torch.testing.assert_close(plan.sum(2), a, rtol=0, atol=1e-3)


@pytest.mark.parametrize("eps", [0.1, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_converged_plan_is_pots(seed, eps):
    cost, a, b = problem(seed, windows=1)
    plan = sinkhorn_log(cost, a, b, eps, 3000)[0]
    peer = ot.sinkhorn(
        a[0].numpy(), b[0].numpy(), cost[0].numpy(), eps, method="sinkhorn_log", stopThr=1e-13, numItermax=5000
    )
    np.testing.assert_allclose(plan.numpy(), peer, atol=1e-8)


@pytest.mark.parametrize("n_iter", [1, 7, 30])
def test_equal_iterations_give_pots_plan(n_iter):
    """POT updates the columns first, so its plan is ours for the transposed problem."""
    cost, a, b = problem(3, windows=1)
    plan = sinkhorn_log(cost, a, b, 0.1, n_iter)[0].numpy()
    peer = ot.sinkhorn(
        b[0].numpy(),
        a[0].numpy(),
        cost[0].T.numpy(),
        0.1,
        method="sinkhorn_log",
        stopThr=0,
        numItermax=n_iter,
        warn=False,
    ).T
    np.testing.assert_allclose(plan, peer, rtol=0, atol=1e-5)


def test_constant_cost_gives_the_product_plan_after_one_iteration():
    _, a, b = problem(0)
    plan = sinkhorn_log(torch.full((2, 12, 4), 0.7, dtype=torch.float64), a, b, 0.1, 1)
    torch.testing.assert_close(plan, a[:, :, None] * b[:, None, :])


def test_large_eps_gives_the_product_plan():
    cost, a, b = problem(1)
    torch.testing.assert_close(sinkhorn_log(cost, a, b, 1e9, 1), a[:, :, None] * b[:, None, :], rtol=1e-6, atol=0)


def test_one_slot_takes_everything():
    cost, a, _ = problem(0, slots=1)
    torch.testing.assert_close(sinkhorn_log(cost, a, torch.ones(2, 1, dtype=torch.float64))[..., 0], a)


def test_free_matching_is_the_identity():
    """Cost 0 on the diagonal and 2 off it at eps = 0.1: off-diagonal entries are e^-20 of the diagonal ones."""
    size = 8
    uniform = torch.full((1, size), 1 / size, dtype=torch.float64)
    plan = sinkhorn_log(2 * (1 - torch.eye(size, dtype=torch.float64))[None], uniform, uniform)[0]
    expected = torch.full((size, size), math.exp(-20.0), dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(plan * size, expected / expected.sum(0), rtol=1e-7, atol=0)


def test_rows_and_columns_without_mass_are_zero_and_leave_the_rest_alone():
    cost, a, b = problem(5, windows=1)
    alone = sinkhorn_log(cost, a, b)
    wide = torch.nn.functional.pad(cost, (1, 2, 3, 1), value=0.3)
    plan = sinkhorn_log(wide, torch.nn.functional.pad(a, (3, 1)), torch.nn.functional.pad(b, (1, 2)))
    torch.testing.assert_close(plan[:, 3:-1, 1:-2], alone)
    assert plan.sum().item() == pytest.approx(1.0) and (plan[:, :3] == 0).all() and (plan[:, :, -2:] == 0).all()


def test_gradients():
    cost, a, b = problem(0, windows=1, positions=4, slots=2)
    a[0, 0] = 0.0
    b = b * a.sum()

    def plan(cost, a, b):
        return sinkhorn_log(cost, a / a.sum() * b.sum(), b, 0.3, 5)

    assert torch.autograd.gradcheck(
        lambda cost, rest, b: plan(cost, torch.cat([a[:, :1], rest], 1), b),
        (cost.requires_grad_(), a[:, 1:].clone().requires_grad_(), b.requires_grad_()),
    )


def test_half_precision_is_computed_in_float32():
    cost, a, b = (x.to(torch.bfloat16) for x in problem(0, windows=1))
    b = b / b.float().sum()
    assert sinkhorn_log(cost, a / a.float().sum(), b).dtype == torch.float32


def test_segments():
    assert segment_map(10, 4).sum(0).tolist() == [3, 3, 2, 2]
    assert segment_map(10, 4).argmax(1).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]


@given(window=st.integers(1, 60), share=st.floats(0, 1))
def test_segments_share_out_every_position(window, share):
    slots = 1 + int(share * (window - 1))
    segments = segment_map(window, slots)
    lengths = segments.sum(0)
    assert (segments.sum(1) == 1).all()
    assert lengths.max() - lengths.min() <= 1 and (lengths.diff() <= 0).all()
    assert (segments.argmax(1).diff() >= 0).all()


def test_bad_input():
    cost, a, b = problem(0)
    with pytest.raises(ValueError, match="eps must be positive, got 0"):
        sinkhorn_log(cost, a, b, eps=0.0)
    with pytest.raises(ValueError, match="n_iter must be at least 1, got 0"):
        sinkhorn_log(cost, a, b, n_iter=0)
    with pytest.raises(ValueError, match="cost must be finite and not negative"):
        sinkhorn_log(cost - 3, a, b)
    with pytest.raises(ValueError, match="cost must be finite"):
        sinkhorn_log(cost * float("nan"), a, b)
    with pytest.raises(ValueError, match="same sum in each window"):
        sinkhorn_log(cost, a * 2, b)
    with pytest.raises(ValueError, match="slots must be between 1 and the window of 4 positions, got 5"):
        segment_map(4, 5)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        segment_map(0, 1)


def test_shapes_that_do_not_fit(unchecked):
    cost, a, b = problem(0)
    with pytest.raises(ValueError, match=r"expected cost \[N, W, S\], a \[N, W\] and b \[N, S\]"):
        sinkhorn_log(cost, b, a)
