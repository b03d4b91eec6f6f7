"""All compressors on a tiny model: reading, masks, frozen weights, checkpoints, published parameter counts."""

import copy

import pytest
import torch
from comprexit import (
    ICAE,
    Beacon,
    BeaconConfig,
    Compressed,
    CompressorConfig,
    ComprExIT,
    FiveHundredX,
    FrozenLM,
    FullContext,
    MeanPool,
    MemoryConfig,
    NoContext,
    PoolConfig,
    PromptConfig,
    PromptTuning,
    RatioConfig,
    Truncated,
    parameter_count,
)
from comprexit.reproduce.exact_checks import published_shape
from torch import nn

VOCABULARY_END = 10_000  # never generated
SMALL = CompressorConfig(window=8, gate_size=8, metric_size=8)
MEMORY = MemoryConfig(lora_rank=4, max_slots=16, lora_dropout=0.0)
METHODS = {
    "comprexit": lambda lm: ComprExIT(lm, SMALL),
    "mean_pool": lambda lm: MeanPool(lm, PoolConfig()),
    "icae": lambda lm: ICAE(lm, MEMORY),
    "fivehundredx": lambda lm: FiveHundredX(lm, MEMORY),
    "beacon": lambda lm: Beacon(lm, BeaconConfig(window=8)),
    "prompt": lambda lm: PromptTuning(lm, PromptConfig()),
}


@pytest.fixture(params=METHODS)
def method(request, lm):
    return METHODS[request.param](lm).eval()


def test_full_context_reads_like_the_model_itself(lm, ids, query):
    """Ratio 1 and the identity: nothing is lost on the way in."""
    whole = torch.cat([torch.full_like(ids[:, :1], 1), ids, query], dim=1)
    expected = lm.model(whole).logits[:, -6:]
    torch.testing.assert_close(lm.read(FullContext(lm).compress(ids), query), expected, rtol=1e-4, atol=1e-4)


def test_generation_is_the_models_own(lm, ids, query):
    whole = torch.cat([torch.full_like(ids[:, :1], 1), ids, query], dim=1)
    expected = lm.model.generate(whole, max_new_tokens=8, do_sample=False, pad_token_id=2)[:, whole.shape[1] :]
    ours = lm.generate(FullContext(lm).compress(ids), query, max_new_tokens=8)
    assert torch.equal(ours[:, : expected.shape[1]], expected)


def test_generation_agrees_with_reading(method, lm, ids, query):
    """The cached loop finds what reading the grown query finds, for slots and for caches."""
    compressed = method.compress(ids)
    new = lm.generate(compressed, query, max_new_tokens=4, eos_token_id=VOCABULARY_END)
    grown = query
    for step in range(4):
        best = lm.read(compressed, grown)[:, -1].argmax(-1)
        assert torch.equal(best, new[:, step])
        grown = torch.cat([grown, best[:, None]], dim=1)


@pytest.mark.parametrize("kept, expected", [(Truncated, 5), (NoContext, 0)])
def test_references(lm, ids, kept, expected):
    compressed = kept(lm, RatioConfig(4)).compress(ids)
    assert compressed.mask.shape == (3, expected)
    torch.testing.assert_close(compressed.embeddings, lm.embed(ids[:, 20 - expected :]))


def test_memory_size_and_finite_loss(method, ids, query):
    assert method.compress(ids).mask.shape[1] == 5
    assert torch.isfinite(method.loss(ids, None, query, query))


def test_left_padding_changes_nothing(method, lm, ids, query):
    """By a whole window, so that segments stay where they are."""
    if isinstance(method, PromptTuning | ICAE | FiveHundredX | MeanPool):
        ids_padded = torch.nn.functional.pad(ids, (0, 0))
        lengths = 0
    else:
        ids_padded, lengths = torch.nn.functional.pad(ids, (8, 0)), 8
    mask = torch.arange(ids_padded.shape[1]) >= lengths
    before = lm.read(method.compress(ids), query)
    after = lm.read(method.compress(ids_padded, mask.long().expand(3, -1)), query)
    torch.testing.assert_close(before, after, rtol=1e-3, atol=1e-3)


def test_memory_tokens_ignore_left_pads(lm, ids, query):
    """As many memory tokens, more pads: the same reading."""
    padded, mask = torch.nn.functional.pad(ids, (4, 0)), torch.nn.functional.pad(torch.ones_like(ids), (4, 0))
    for kind in (ICAE, FiveHundredX):
        method = kind(lm, MemoryConfig(ratio=24, lora_rank=4, max_slots=1, lora_dropout=0.0)).eval()
        torch.testing.assert_close(
            lm.read(method.compress(ids), query), lm.read(method.compress(padded, mask), query), rtol=1e-3, atol=1e-3
        )


def test_ignored_slots_do_not_matter(lm, query):
    slots = torch.randn(3, 4, 32)
    mask = torch.tensor([[True, True, True, True], [False, True, True, True], [True, False, True, False]])
    together = lm.read(Compressed(mask, slots), query)
    for row in range(3):
        alone = Compressed(mask[row][None, mask[row]], slots[row][None, mask[row]])
        torch.testing.assert_close(together[row], lm.read(alone, query[row : row + 1])[0], rtol=1e-4, atol=1e-4)


def test_only_the_compressor_is_trained(method, lm, ids, query):
    before = copy.deepcopy(lm.model.state_dict())
    optimizer = torch.optim.AdamW(method.trainable().values(), lr=1e-2)
    method.train().loss(ids, None, query, query).backward()
    assert all(p.grad is None for p in lm.model.parameters())
    # A cache of keys and values does not depend on the last layer's queries.
    unused = "layers.1.self_attn.q_proj" if isinstance(method, FiveHundredX) else "projections.1.q_proj"
    for name, parameter in method.trainable().items():
        assert (parameter.grad is None) == (unused in name), name
    optimizer.step()
    for name, value in lm.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_every_weight_of_comprexit_learns(lm, ids, query):
    method = ComprExIT(lm, SMALL)
    torch.nn.init.normal_(method.transport.mass.weight)
    method.loss(ids, None, query, query).backward()
    # These add the same to every entry of a softmax: their gradient is zero up to rounding.
    silent = {"mixer.key.bias", "transport.mass.bias", "transport.mass_norm.bias"}
    for name, parameter in method.trainable().items():
        size = parameter.grad.abs().max().item()
        assert size < 1e-6 if name in silent else size > 0, (name, size)


def test_cached_states_give_the_same_slots(lm, ids):
    method = ComprExIT(lm, SMALL)
    states = lm.hidden_states(ids, torch.ones_like(ids, dtype=torch.bool))
    torch.testing.assert_close(method.compress(ids, states=states).embeddings, method.compress(ids).embeddings)
    assert len(states) == lm.num_states == 3


def test_save_and_load(method, ids, query, tmp_path):
    for parameter in method.trainable().values():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    method.save_pretrained(tmp_path)
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) < 4 * method.num_trainable + 20_000
    again = type(method).from_pretrained(tmp_path, method.lm).eval()
    torch.testing.assert_close(again.loss(ids, None, query, query), method.loss(ids, None, query, query))
    assert again.config == method.config


def test_a_checkpoint_of_another_model_is_refused(lm, llama, tmp_path):
    ComprExIT(lm, SMALL).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="trained for hidden size 32 and 3 states, the model has 32 and 4"):
        ComprExIT.from_pretrained(tmp_path, llama(num_hidden_layers=3))
    with pytest.raises(ValueError, match="holds a ComprExIT, expected a MeanPool"):
        MeanPool.from_pretrained(tmp_path, lm)


def test_segments_of_a_long_context_are_independent(lm, ids):
    method = ComprExIT(lm, SMALL)
    long = method.compress_long(torch.cat([ids, ids.flip(1)], 1), segment=20)
    torch.testing.assert_close(
        long.embeddings, torch.cat([method.compress(x).embeddings for x in (ids, ids.flip(1))], 1)
    )
    ragged = method.compress_long(ids[:, :15], segment=8)
    assert ragged.mask.shape == (3, 4) and ragged.mask.all()
    with pytest.raises(ValueError, match="FiveHundredX keeps a cache"):
        FiveHundredX(lm, MEMORY).compress_long(ids, segment=8)


def test_500x_is_the_joint_forward_with_the_context_hidden(lm, ids, query):
    """Untrained adapters add nothing: the memory's cache equals one pass in which the query sees memory alone."""
    method = FiveHundredX(lm, MEMORY).eval()
    batch, tokens, memory = 3, 20, 5
    new = torch.cat([torch.full_like(query[:, :1], 1), query], dim=1)
    embeddings = torch.cat([lm.embed(ids), method.memory[:memory].expand(batch, -1, -1), lm.embed(new)], dim=1)
    length = embeddings.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    seen[tokens + memory :, :tokens] = False
    bias = torch.zeros(length, length).masked_fill(~seen, torch.finfo(torch.float32).min)
    joint = lm.model(inputs_embeds=embeddings, attention_mask=bias[None, None].expand(batch, 1, -1, -1)).logits
    torch.testing.assert_close(lm.read(method.compress(ids), query), joint[:, tokens + memory :], rtol=1e-3, atol=1e-3)


def test_beacons_with_the_models_projections_are_ordinary_tokens(lm, ids, query):
    """One window: the beacons' keys and values are those of a plain pass over the interleaved sequence."""
    method = Beacon(lm, BeaconConfig(ratio=4, window=20))
    mixed = torch.stack(
        [x for i in range(5) for x in (*lm.embed(ids)[:, 4 * i : 4 * i + 4].unbind(1), method.beacon.expand(3, -1))], 1
    )
    output = lm.model(inputs_embeds=mixed, use_cache=True)
    cache = output.cache if getattr(output, "cache", None) is not None else output.past_key_values
    compressed = method.compress(ids)
    for (_, values), layer in zip(compressed.key_values, cache.layers, strict=True):
        torch.testing.assert_close(values, layer.values[:, :, 4::5], rtol=1e-4, atol=1e-4)
    assert compressed.mask.shape == (3, 5)


def test_beacons_of_earlier_windows_matter(llama, ids):
    """Three layers: a beacon's first keys and values know nothing, its second its window, its third those before."""
    method = Beacon(FrozenLM(llama(num_hidden_layers=3)), BeaconConfig(window=8))
    changed = ids.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 50
    last = [method.compress(x).key_values[-1][1][:, :, -1] for x in (ids, changed)]
    assert (last[0] - last[1]).abs().max() > 1e-6


def test_merged_adapters_give_the_same_slots(lm, ids):
    for kind in (ICAE, FiveHundredX):
        method = kind(lm, MEMORY).eval()
        for name, parameter in method.trainable().items():
            if "lora_B" in name:
                parameter.data.normal_(std=0.05)
        before = copy.deepcopy(lm.model.state_dict())
        ours, merged = method.compress(ids), method.merged().compress(ids)
        if ours.embeddings is not None:
            torch.testing.assert_close(merged.embeddings, ours.embeddings, rtol=1e-3, atol=1e-3)
        assert all(torch.equal(v, before[k]) for k, v in lm.model.state_dict().items())


def test_memory_attention(lm, ids):
    method = ICAE(lm, MEMORY)
    rows = method.memory_attention(ids, torch.ones_like(ids, dtype=torch.bool))
    assert rows.shape == (3, 5, 20)
    torch.testing.assert_close(rows.sum(-1), torch.ones(3, 5))
    assert method.encoder.config._attn_implementation != "eager"


@pytest.mark.parametrize(
    "size, layers, count",
    [(2048, 16, 18_377_746), (3072, 28, 40_150_046), (4096, 32, 70_308_898), (576, 30, 1_784_544)],
)
def test_published_parameter_counts(size, layers, count):
    assert parameter_count(size, layers) == count


def test_counted_parameters():
    lm = FrozenLM(published_shape("1b"))
    assert sum(p.numel() for p in lm.model.parameters()) == 1_235_814_400
    assert ComprExIT(lm).num_trainable == 18_377_746
    icae = ICAE(lm)
    assert icae.num_trainable - icae.memory.numel() == 90_177_536


def test_half_precision_model(llama, ids, query):
    lm = FrozenLM(llama().to(torch.bfloat16))
    method = ComprExIT(lm, SMALL)
    assert method.transmit(ids, torch.ones_like(ids, dtype=torch.bool)).slots.plan.dtype == torch.float32
    assert torch.isfinite(method.loss(ids, None, query, query))


def test_bad_contexts(lm, unchecked):
    method = ComprExIT(lm, SMALL)
    ids = torch.randint(3, 50, (2, 6))
    with pytest.raises(ValueError, match=r"rows \[1\] have none"):
        method.compress(ids, torch.tensor([[1] * 6, [0] * 6]))
    with pytest.raises(ValueError, match="mask of 0 and 1, got values up to 2"):
        method.compress(ids, torch.full((2, 6), 2))
    with pytest.raises(ValueError, match=r"mask of shape \(2, 6\), got \(2, 5\)"):
        method.compress(ids, torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"padding must be on one side of the tokens; rows \[0\]"):
        method.compress(ids, torch.tensor([[1, 0, 1, 1, 1, 1], [1] * 6]))
    with pytest.raises(ValueError, match=r"expected token ids of shape \[batch, tokens\]"):
        method.compress(ids[0])
    with pytest.raises(ValueError, match="expected 3 hidden states"):
        method.compress(ids, states=[torch.zeros(2, 6, 32)])
    with pytest.raises(ValueError, match=r"expected labels of shape \(2, 6\)"):
        method.loss(ids, None, ids, ids[:, :3])
    with pytest.raises(ValueError, match="24 tokens need 6 memory tokens, there are 2"):
        ICAE(lm, MemoryConfig(max_slots=2, lora_rank=2)).compress(torch.ones(1, 24, dtype=torch.long))
    with pytest.raises(ValueError, match="segment must be at least 1, got 0"):
        method.compress_long(ids, segment=0)
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1"):
        lm.generate(method.compress(ids), ids, max_new_tokens=0)


def test_bad_models_and_settings(lm, unchecked):
    class Plain(nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(ValueError, match="Plain does not take inputs_embeds"):
        FrozenLM(Plain())
    with pytest.raises(ValueError, match="ratio must be at least 1, got 0"):
        MeanPool(lm, PoolConfig(ratio=0))
    with pytest.raises(ValueError, match="ratio must be at least 1, got 0"):
        ComprExIT(lm, CompressorConfig(ratio=0))
    with pytest.raises(ValueError, match="memory_init must be normal or scaled"):
        MemoryConfig(memory_init="zero")
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        BeaconConfig(window=0)


def test_the_context_is_read_after_bos(lm, ids):
    """Padded or not, the states are those of [BOS, context] without the first."""
    whole = torch.cat([torch.full_like(ids[:, :1], 1), ids], dim=1)
    expected = lm.model(whole, output_hidden_states=True).hidden_states
    padded = torch.nn.functional.pad(ids, (3, 0))
    ours = lm.hidden_states(padded, torch.arange(23).expand(3, -1) >= 3)
    for state, reference in zip(ours, expected, strict=True):
        torch.testing.assert_close(state[:, 3:], reference[:, 1:], rtol=1e-4, atol=1e-4)
