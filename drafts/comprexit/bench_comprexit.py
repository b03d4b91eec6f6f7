"""ComprExIT: the batched plan beside POT, the folded layer mixer beside its literal form, cached training steps."""

import math

import numpy as np
import ot
import torch
from comprexit import CompressorConfig, ComprExIT, DepthMixer, FrozenLM, sinkhorn_log
from comprexit.training import cache_states
from transformers import LlamaConfig, LlamaForCausalLM

from claimlab import costs


def test_windows_in_one_batch(compare):
    """The windows of a context of 2,048 tokens, 30 iterations each; POT solves them one by one."""
    torch.manual_seed(0)
    cost = 2 * torch.rand(16, 128, 32, dtype=torch.float64)
    a, b = torch.full((16, 128), 1 / 128, dtype=torch.float64), torch.full((16, 32), 1 / 32, dtype=torch.float64)

    def pot() -> np.ndarray:
        options = {"method": "sinkhorn_log", "numItermax": 30, "stopThr": 0, "warn": False}
        # POT updates columns first: the transposed problem has the same order of updates as ours.
        return np.stack(
            [ot.sinkhorn(y, x, c.T, 0.1, **options).T for x, y, c in zip(*map(np.asarray, (a, b, cost)), strict=True)]
        )

    np.testing.assert_allclose(sinkhorn_log(cost, a, b).numpy(), pot(), atol=1e-10)
    compare("16 plans of 128 x 32", lambda: sinkhorn_log(cost, a, b), pot, peer_name="POT sinkhorn_log", target=1.0)


def test_layer_mixer(compare):
    """SmolLM2's shape: 31 states of 512 tokens and width 576."""
    torch.manual_seed(0)
    mixer = DepthMixer(576, 31)
    states = tuple(torch.randn(1, 512, 576) for _ in range(31))
    mask = torch.ones(1, 512, dtype=torch.bool)

    def literal():
        h = torch.stack(states)
        q = mixer.query((mixer.layer_logits.softmax(0)[:, None, None, None] * h).sum(0))
        k = mixer.key(h) + mixer.layer_embeddings[:, None, None]
        alpha = ((q * k).sum(-1) / (math.sqrt(256) * 0.7)).softmax(0)
        return (alpha[..., None] * mixer.value(h)).sum(0)

    torch.testing.assert_close(mixer(states, mask)[0], literal(), rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        compare(
            "layer mixer, 512 tokens, 31 states of 576",
            lambda: mixer(states, mask),
            literal,
            peer_name="keys and values of every layer",
            target=1 / 1.5,
            repeats=7,
        )
    ours, theirs = (costs.saved_bytes(f) for f in (lambda: mixer(states, mask)[0], literal))
    assert ours < 3 * theirs


def test_training_step_with_cached_states(compare):
    torch.manual_seed(0)
    shape = dict(vocab_size=1000, hidden_size=128, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4)
    lm = FrozenLM(LlamaForCausalLM(LlamaConfig(**shape)))
    method = ComprExIT(lm, CompressorConfig(window=128, gate_size=64, metric_size=64))
    ids, target = torch.randint(3, 1000, (4, 128)), torch.randint(3, 1000, (4, 32))
    states = cache_states(lm, ids, dtype=torch.float32)
    torch.testing.assert_close(method.loss(ids, None, target, target, states), method.loss(ids, None, target, target))
    compare(
        "a training step, 4 x 128 tokens",
        lambda: method.loss(ids, None, target, target, states).backward(),
        lambda: method.loss(ids, None, target, target).backward(),
        peer_name="the same without cached states",
        target=1 / 1.3,
        repeats=7,
    )
