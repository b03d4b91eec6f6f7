import pytest
import torch
from cofre import ReuseRule, allocate, iteration_schedule, reuse_coefficients, warm_start
from hypothesis import given, settings
from hypothesis import strategies as st

M = 9
KINDS = ("fixed", "decreasing", "increasing", "cosine", "front_loaded")


def test_three_states_by_hand():
    z_prev, z = torch.tensor([[1, M, M, M]]), torch.tensor([[1, 2, M, M]])
    gamma = reuse_coefficients(z, z_prev, M, ReuseRule("three_state"))
    torch.testing.assert_close(gamma, torch.tensor([[1.0, 0.2, 0.825, 0.825]]))


def test_visible_share_is_each_sequence_own():
    z = torch.tensor([[M, M, M, M], [1, 2, 3, M]])
    gamma = reuse_coefficients(z, z, M, ReuseRule("three_state"))
    torch.testing.assert_close(gamma, torch.tensor([[0.75] * 4, [1.0, 1.0, 1.0, 0.8625]]))


def test_a_visible_token_that_changed_counts_as_changed():
    gamma = reuse_coefficients(torch.tensor([[3, 4]]), torch.tensor([[3, 5]]), M, ReuseRule("three_state"))
    torch.testing.assert_close(gamma, torch.tensor([[1.0, 0.2]]))


@pytest.mark.parametrize(("kind", "value"), [("none", 0.0), ("full", 1.0)])
def test_plain_rules_are_constant(kind, value):
    z = torch.tensor([[1, M]])
    assert reuse_coefficients(z, z, M, ReuseRule(kind)).unique().tolist() == [value]


def test_warm_start_mixes_rows_and_keeps_registers():
    h_pre, h_prev = torch.zeros(1, 3, 2), torch.ones(1, 3, 2)
    mixed = warm_start(h_pre, h_prev, torch.tensor([[0.25, 0.5]]))  # one register row before two tokens
    assert mixed[0, :, 0].tolist() == [1.0, 0.25, 0.5]


def test_warm_start_refuses_other_shapes():
    with pytest.raises(ValueError, match="do not fit coefficients"):
        warm_start(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="must have one shape"):
        reuse_coefficients(torch.tensor([[1]]), torch.tensor([[1, 2]]), M, ReuseRule("full"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "half"}, "got 'half'"),
        ({"kind": "three_state", "masked": (0.9, 0.8)}, "0 <= low <= high <= 1"),
        ({"kind": "three_state", "changed": 1.2}, "got 1.2"),
    ],
)
def test_bad_rules(unchecked, arguments, message):
    with pytest.raises(ValueError, match=message):
        ReuseRule(**arguments)


@given(kind=st.sampled_from(KINDS), steps=st.integers(1, 40), extra=st.integers(0, 200))
@settings(max_examples=200, deadline=None)
def test_schedules_spend_exactly_the_total_and_are_monotone(kind, steps, extra):
    counts = iteration_schedule(kind, steps, steps + extra)
    assert len(counts) == steps and sum(counts) == steps + extra and min(counts) >= 1
    rising = kind in ("increasing", "cosine")
    assert counts == sorted(counts, reverse=not rising)
    if kind == "fixed":
        assert max(counts) - min(counts) <= 1


def test_decreasing_schedule_runs_from_three_halves_to_one_half_of_the_mean():
    assert iteration_schedule("decreasing", 5, 100) == [30, 25, 20, 15, 10]
    assert iteration_schedule("increasing", 5, 100) == [10, 15, 20, 25, 30]
    assert iteration_schedule("front_loaded", 3, 30) == [20, 5, 5]


@given(
    budget=st.integers(1, 400),
    steps=st.integers(1, 40),
    pre=st.integers(0, 4),
    fp=st.integers(1, 3),
    post=st.integers(0, 4),
)
@settings(max_examples=200, deadline=None)
def test_allocation_stays_within_the_budget_and_wastes_less_than_an_iteration(budget, steps, pre, fp, post):
    smallest = steps * (pre + fp + post)
    if budget < smallest:
        with pytest.raises(ValueError, match=f"{steps} steps cost at least {smallest} block passes, got a budget of"):
            allocate(budget, steps, pre, fp, post)
        return
    cost = sum(pre + n * fp + post for n in allocate(budget, steps, pre, fp, post))
    assert budget - fp < cost <= budget


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sideways", 3, 9), "got 'sideways'"),
        (("fixed", 0, 9), "steps must be at least 1"),
        (("fixed", 4, 3), "4 steps need at least 4 iterations, got 3"),
    ],
)
def test_bad_schedules(unchecked, arguments, message):
    with pytest.raises(ValueError, match=message):
        iteration_schedule(*arguments)
