"""The layer mixer against its literal formula and closed forms."""

import math

import pytest
import torch
from comprexit import DepthMixer


def literal(mixer, states, mask):
    """Section 3.2 as written: keys and values of every layer."""
    h = torch.stack(list(states))
    q = mixer.query((mixer.layer_logits.softmax(0)[:, None, None, None] * h).sum(0))
    k = mixer.key(h) + mixer.layer_embeddings[:, None, None]
    alpha = ((q * k).sum(-1) / (math.sqrt(k.shape[-1]) * 0.7)).softmax(0)
    return (alpha[..., None] * mixer.value(h)).sum(0) * mask[..., None], alpha.movedim(0, -1) * mask[..., None]


@pytest.fixture
def states():
    return tuple(torch.randn(2, 5, 16) for _ in range(4))


@pytest.fixture
def mask():
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, :2] = False
    return mask


def trained(**options):
    mixer = DepthMixer(16, 4, gate_size=8, **options)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mixer


def test_equals_the_literal_formula(states, mask):
    mixer = trained()
    for ours, theirs in zip(mixer(states, mask), literal(mixer, states, mask), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_gradients_equal_those_of_the_literal_formula(states, mask):
    mixer = trained()
    direction = torch.randn(2, 5, 16)
    ours = torch.autograd.grad((mixer(states, mask)[0] * direction).sum(), list(mixer.parameters()))
    theirs = torch.autograd.grad((literal(mixer, states, mask)[0] * direction).sum(), list(mixer.parameters()))
    for (name, _), one, other in zip(mixer.named_parameters(), ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_the_keys_bias_has_no_gradient(states, mask):
    """It adds the same number to every layer's score."""
    mixer = trained()
    gradient = torch.autograd.grad(mixer(states, mask)[0].square().sum(), mixer.key.bias)[0]
    assert gradient.abs().max() < 1e-4


def test_without_queries_all_layers_count_alike(states, mask):
    mixer = DepthMixer(16, 4, gate_size=8)
    torch.nn.init.zeros_(mixer.query.weight)
    torch.nn.init.zeros_(mixer.query.bias)
    anchors, weights = mixer(states, mask)
    torch.testing.assert_close(weights[mask], torch.full((int(mask.sum()), 4), 0.25))
    torch.testing.assert_close(anchors, mixer.value(torch.stack(states).mean(0)) * mask[..., None])


def test_a_low_temperature_picks_one_layer(states, mask):
    _, weights = trained(temperature=1e-4)(states, mask)
    torch.testing.assert_close(weights[mask].max(-1).values, torch.ones(int(mask.sum())), rtol=0, atol=1e-3)


def test_pads_get_nothing(states, mask):
    anchors, weights = trained()(states, mask)
    assert (anchors[~mask] == 0).all() and (weights[~mask] == 0).all()
    torch.testing.assert_close(weights[mask].sum(-1), torch.ones(int(mask.sum())))


def test_stacked_states_are_the_same(states, mask):
    mixer = trained()
    torch.testing.assert_close(mixer(torch.stack(states), mask), mixer(states, mask))


@pytest.mark.parametrize("depth, expected", [("last", lambda s: s[-1]), ("mean", lambda s: torch.stack(s).mean(0))])
def test_ablations(states, mask, depth, expected):
    mixer = trained(depth=depth)
    torch.testing.assert_close(mixer(states, mask)[0], mixer.value(expected(states)) * mask[..., None])


def test_half_precision_states(states, mask):
    mixer = trained()
    anchors, _ = mixer(tuple(s.half() for s in states), mask)
    torch.testing.assert_close(anchors, mixer(states, mask)[0], rtol=1e-2, atol=3e-2)


def test_bad_input(states, mask, unchecked):
    with pytest.raises(ValueError, match=r"expected 5 hidden states \(layers \+ 1\), got 4"):
        DepthMixer(16, 5)(states, mask)
    with pytest.raises(ValueError, match="gate_size must be at least 1, got 0"):
        DepthMixer(16, 5, gate_size=0)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        DepthMixer(16, 5, temperature=0.0)
    with pytest.raises(ValueError, match="depth must be one of adaptive, mean, last, got 'first'"):
        DepthMixer(16, 5, depth="first")
