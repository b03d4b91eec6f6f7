"""Transport to slots: literal formula, masking, windows, closed forms."""

import pytest
import torch
from comprexit import SlotTransport, segment_map, sinkhorn_log
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

HIDDEN = 16


def make(window=8, ratio=4, **options):
    torch.manual_seed(1)
    transport = SlotTransport(HIDDEN, window=window, ratio=ratio, metric_size=6, **options)
    for parameter in transport.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return transport


def literal(t, z, valid):
    """Section 3.3 for one window, as written: values of every token first, then the plan."""
    segments = segment_map(t.window, t.slots)
    counts = valid.float() @ segments
    seeds = (segments.T @ (z * valid[:, None])) / counts.clamp(min=1)[:, None]
    u = F.normalize(t.metric(t.metric_norm(z)), dim=-1)
    w = F.normalize(t.metric(t.metric_norm(seeds)), dim=-1)
    p = torch.zeros(t.window)
    p[valid] = t.mass(t.mass_norm(z[valid]))[:, 0].softmax(0)
    a = 0.95 * p + 0.05 * valid / valid.sum()
    b = (counts > 0) / (counts > 0).sum()
    plan = sinkhorn_log((1 - u @ w.T).clamp(min=0)[None], a[None], b[None], 0.1, 30)[0]
    return torch.stack(
        [plan[:, j] @ t.value(t.value_norm(z)) / b[j] if b[j] > 0 else torch.zeros(HIDDEN) for j in range(t.slots)]
    ), plan


def all_valid(anchors):
    return torch.ones(anchors.shape[:2], dtype=torch.bool)


def test_equals_the_literal_formula():
    transport = make()
    anchors = torch.randn(2, 8, HIDDEN)
    mask = all_valid(anchors)
    mask[1, :3] = False
    out = transport(anchors * mask[..., None], mask)
    for row in range(2):
        slots, plan = literal(transport, anchors[row] * mask[row, :, None], mask[row])
        torch.testing.assert_close(out.slots[row], slots, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out.plan[row, 0], plan, rtol=1e-4, atol=1e-5)


def test_source_mass_is_uniform_at_the_start():
    torch.manual_seed(0)
    transport = SlotTransport(HIDDEN, window=8, metric_size=6)
    anchors = torch.randn(2, 8, HIDDEN)
    mask = all_valid(anchors)
    mask[1, :3] = False
    mass = transport(anchors, mask).source_mass[:, 0]
    torch.testing.assert_close(mass, mask / mask.sum(1, keepdim=True))


@given(tokens=st.integers(1, 30), pads=st.integers(0, 10), window=st.integers(1, 12), ratio=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_invariants(tokens, pads, window, ratio):
    """Any lengths: every slot's weights sum to 1, every window's mass is handed out once, nothing is NaN."""
    ratio = min(ratio, window)
    transport = make(window, ratio)
    anchors = torch.randn(1, tokens, HIDDEN)
    mask = torch.arange(tokens)[None] >= min(pads, tokens - 1)
    out = transport(anchors * mask[..., None], mask)
    assert out.slots.shape[:2] == out.slot_mask.shape and torch.isfinite(out.slots).all()
    weights = out.weights()
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1)[out.slot_mask], torch.ones(int(out.slot_mask.sum())), rtol=0, atol=1e-5)
    assert (weights[..., :tokens] * ~mask[:, None, :]).sum() == 0
    served = out.slot_mask.new_zeros(1, out.plan.shape[1] * transport.slots)
    served[:, : out.slot_mask.shape[1]] = out.slot_mask
    windows_used = served.view(1, -1, transport.slots).any(-1)
    torch.testing.assert_close(out.source_mass.sum(-1), windows_used.float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.plan.sum((-2, -1)), windows_used.float(), rtol=0, atol=1e-5)
    assert (out.slots[~out.slot_mask] == 0).all()


def test_a_window_of_left_pads_changes_nothing_else():
    transport = make()
    anchors = torch.randn(2, 16, HIDDEN)
    mask = all_valid(anchors)
    mask[1, :3] = False
    anchors = anchors * mask[..., None]
    alone = transport(anchors, mask)
    padded = transport(F.pad(anchors, (0, 0, 8, 0)), F.pad(mask, (8, 0)))
    torch.testing.assert_close(padded.slots[:, 2:], alone.slots)
    torch.testing.assert_close(padded.plan[:, 1:], alone.plan)
    assert not padded.slot_mask[:, :2].any() and (padded.plan[:, 0] == 0).all()


@pytest.mark.parametrize("tokens, slots", [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 4)])
def test_number_of_slots(tokens, slots):
    anchors = torch.randn(1, tokens, HIDDEN)
    out = make()(anchors, all_valid(anchors))
    assert out.slots.shape[1] == slots and out.slot_mask.all()


def test_windows_do_not_mix():
    transport = make()
    anchors = torch.randn(1, 16, HIDDEN)
    changed = anchors.clone()
    changed[:, 8:] = torch.randn(1, 8, HIDDEN)
    before, after = (transport(x, all_valid(x)).slots for x in (anchors, changed))
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert (before[:, 2:] - after[:, 2:]).abs().max() > 0.1


def test_large_eps_makes_every_slot_the_mean():
    transport = make(eps=1e6, learned_mass=False)
    anchors = torch.randn(2, 8, HIDDEN)
    out = transport(anchors, all_valid(anchors))
    mean = transport.value(transport.value_norm(anchors)).mean(1, keepdim=True)
    torch.testing.assert_close(out.slots, mean.expand(-1, 2, -1), rtol=1e-4, atol=1e-5)


def test_constant_values_are_passed_on_unchanged():
    """Division by the slot's mass: without it slots shrink by 1 / S."""
    transport = make()
    torch.nn.init.zeros_(transport.value.weight)
    anchors = torch.randn(2, 8, HIDDEN)
    out = transport(anchors, all_valid(anchors))
    torch.testing.assert_close(out.slots, transport.value.bias.expand(2, 2, -1))


def test_segment_means():
    transport = make(assignment="segment_mean")
    anchors = torch.randn(1, 8, HIDDEN)
    values = transport.value(transport.value_norm(anchors))
    torch.testing.assert_close(transport(anchors, all_valid(anchors)).slots, values.view(1, 2, 4, -1).mean(2))


def test_softmax_slots_choose_alone():
    """Columns have their mass, rows need not have theirs: that is what transport adds."""
    anchors = torch.randn(1, 8, HIDDEN)
    alone = make(assignment="softmax")(anchors, all_valid(anchors))
    torch.testing.assert_close(alone.plan.sum(2), torch.full((1, 1, 2), 0.5))
    together = make(n_iter=300)(anchors, all_valid(anchors))
    torch.testing.assert_close(together.plan.sum(3), together.source_mass, rtol=0, atol=1e-3)
    assert (alone.plan.sum(3) - alone.source_mass).abs().max() > 0.05


def test_position_cost_keeps_mass_near():
    anchors = torch.randn(1, 8, HIDDEN)
    far = make(position_weight=100.0, learned_mass=False)(anchors, all_valid(anchors))
    torch.testing.assert_close(far.plan[0, 0].argmax(1), segment_map(8, 2).argmax(1))


def test_shuffled_seeds_are_other_seeds():
    assert not torch.equal(make(seeds="shuffled").segments, make().segments)
    assert make(seeds="shuffled").segments.sum(0).tolist() == [4, 4]


def test_all_parameters_get_gradients():
    transport = make()
    anchors = torch.randn(2, 8, HIDDEN)
    transport(anchors, all_valid(anchors)).slots.square().sum().backward()
    for name, parameter in transport.named_parameters():
        assert parameter.grad is not None, name
        # The biases of the score add the same to every token, which the softmax ignores.
        assert (parameter.grad.abs().max() > 1e-5) == (name not in ("mass.bias", "mass_norm.bias")), name


def test_bad_input():
    with pytest.raises(ValueError, match="ratio must be at least 1, got 0"):
        SlotTransport(HIDDEN, ratio=0)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        SlotTransport(HIDDEN, window=0)
    with pytest.raises(ValueError, match="eps must be positive, got -1"):
        SlotTransport(HIDDEN, eps=-1.0)
