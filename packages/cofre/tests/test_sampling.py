import math

import numpy as np
import pytest
import torch
from cofre import AncestralSampler, MaskGITSampler, ReuseRule, allocate, halton_order, sample
from cofre.fixed_point import DenoiserOutput
from cofre.maskgit import arccos_masked_share
from scipy import stats
from torch import nn


class Fixed(nn.Module):
    """Gives the same logits everywhere and remembers what it was shown."""

    vocab_size, mask_id, classes = 3, 3, 2

    def __init__(self, length=8, logits=(0.0, 0.0, 0.0, 0.0)):
        super().__init__()
        self.length = length
        self.logits = nn.Parameter(torch.tensor(logits))
        self.seen = []

    def forward(self, z, t=None, classes=None):
        self.seen.append(z.clone())
        logits = self.logits.expand(*z.shape, -1)
        if classes is not None:  # the class raises the logit of its own symbol; none raises nothing
            logits = logits + nn.functional.one_hot(classes.clamp_max(2), 4)[:, None] * (classes < 2)[:, None, None]
        return DenoiserOutput(logits, logits)


def test_each_step_reveals_an_equal_share(generator):
    """P(revealed at step k) = 1 / T: chi-square over 32,000 tokens."""
    model = Fixed(length=64)
    sample(model, 500, steps=5, generator=generator)
    masked = [int((z == 3).sum()) for z in model.seen] + [0]
    revealed = -np.diff(masked)
    assert masked[0] == 32_000
    assert stats.chisquare(revealed).pvalue > 1e-3


def test_revealed_tokens_stay_and_nothing_is_left_masked(generator):
    model = Fixed()
    result = sample(model, 20, steps=6, generator=generator)
    for before, after in zip(model.seen, [*model.seen[1:], result.tokens], strict=True):
        visible = before != 3
        assert (after[visible] == before[visible]).all()
    assert int(result.tokens.max()) < 3


def test_values_follow_the_model(generator):
    result = sample(
        Fixed(logits=(1.0, 0.0, -1.0, 50.0)), 3000, steps=2, generator=generator
    )  # the mask's logit is ignored
    frequencies = torch.bincount(result.tokens.flatten(), minlength=3) / result.tokens.numel()
    torch.testing.assert_close(frequencies, torch.tensor([1.0, 0.0, -1.0]).softmax(0), atol=0.012, rtol=0)


def test_temperature_sharpens(generator):
    result = sample(Fixed(logits=(1.0, 0.0, -1.0, 0.0)), 2000, steps=1, temperature=0.5, generator=generator)
    frequencies = torch.bincount(result.tokens.flatten(), minlength=3) / result.tokens.numel()
    torch.testing.assert_close(frequencies, torch.tensor([2.0, 0.0, -2.0]).softmax(0), atol=0.012, rtol=0)


def test_visible_input_comes_back_without_a_pass(plain):
    start = torch.randint(7, (2, 12))
    result = sample(plain(), 2, steps=4, start=start)
    assert (result.tokens == start).all() and result.block_passes == 0 and result.history == []


def test_infilling_keeps_what_is_given(plain):
    start = torch.full((2, 12), 7)
    start[:, ::2] = 3
    assert (sample(plain(), 2, steps=4, start=start).tokens[:, ::2] == 3).all()


def test_counted_passes_are_the_budget(fixed_point, plain):
    model = fixed_point(pre=2, post=1)
    counts = allocate(60, 6, 2, 1, 1)
    result = sample(model, 3, steps=6, iterations=counts, reuse="three_state")
    assert result.block_passes == 60
    assert [record.iterations for record in result.history] == counts
    assert sample(plain(), 3, steps=5).block_passes == 15


def test_guidance_mixes_logits_and_counts_twice(fixed_point, generator):
    classes = torch.zeros(4000, dtype=torch.long)
    result = sample(
        Fixed(2), 4000, steps=1, classes=classes, sampler=MaskGITSampler(grid=(1, 2), guidance=1.5), generator=generator
    )
    frequencies = torch.bincount(result.tokens.flatten(), minlength=3) / result.tokens.numel()
    torch.testing.assert_close(frequencies, torch.tensor([2.5, 0.0, 0.0]).softmax(0), atol=0.015, rtol=0)
    model = fixed_point(classes=2)
    sampler = MaskGITSampler(grid=(3, 4), guidance=1.0)
    doubled = sample(
        model, 2, steps=3, iterations=2, classes=torch.tensor([0, 1]), sampler=sampler, reuse="three_state"
    )
    assert doubled.block_passes == 2 * 3 * 4


@pytest.mark.parametrize("rule", ["none", "full", "three_state"])
def test_contractions_reach_one_fixed_point_from_every_start(rule, contraction, generator):
    model = contraction(norm=0.5)
    solutions = []

    def observe(step):
        exact = model.encode(step.z)[1] @ torch.linalg.inv(torch.eye(6, dtype=torch.float64) - model.a).T
        solutions.append(float((step.solution - exact).abs().max()))

    sample(model, 3, steps=3, iterations=60, reuse=rule, generator=generator, observe=observe)
    assert len(solutions) == 3 and max(solutions) < 1e-10


def test_full_reuse_starts_from_the_last_solution_and_a_new_call_does_not(contraction, generator):
    model, steps = contraction(), []
    for _ in range(2):
        sample(model, 2, steps=2, iterations=1, reuse="full", generator=generator, observe=steps.append)
    first, second, fresh = steps[0], steps[1], steps[2]
    expected = model.apply_block(first.solution, model.encode(second.z)[1])
    torch.testing.assert_close(second.solution, expected)
    h_pre, injection = model.encode(fresh.z)
    torch.testing.assert_close(fresh.solution, model.apply_block(h_pre, injection))
    assert fresh.previous_z is None


def test_three_state_start_is_the_mixture(contraction, generator):
    from cofre import reuse_coefficients, warm_start

    model, steps = contraction(), []
    rule = ReuseRule("three_state")
    sample(model, 2, steps=3, iterations=1, reuse=rule, generator=generator, observe=steps.append)
    z, last = steps[2].z, steps[1]
    h_pre, injection = model.encode(z)
    gamma = reuse_coefficients(z, last.z, 5, rule)
    torch.testing.assert_close(steps[2].solution, model.apply_block(warm_start(h_pre, last.solution, gamma), injection))


def test_same_seed_same_samples(fixed_point):
    model = fixed_point()
    a, b = (sample(model, 4, steps=3, generator=torch.Generator().manual_seed(5)).tokens for _ in range(2))
    assert (a == b).all()


def test_halton_order_visits_every_cell_once_and_spreads():
    order = halton_order(4, 8)
    assert sorted(order.tolist()) == list(range(32))
    rows, columns = order // 8, order % 8
    # bases 2 and 3: (0, 0), (1/2, 1/3), (1/4, 2/3), (3/4, 1/9)
    assert [(int(r), int(c)) for r, c in zip(rows[:4], columns[:4], strict=True)] == [(0, 0), (2, 2), (1, 5), (3, 0)]


def test_halton_sampler_reveals_along_the_order(generator):
    model = Fixed(length=16)
    sample(model, 3, steps=4, sampler=MaskGITSampler(grid=(4, 4)), generator=generator)
    order = halton_order(4, 4)
    for step, z in enumerate(model.seen):
        shown = 16 - (0 if step == 0 else math.floor(16 * arccos_masked_share(step / 4))) if step else 0
        assert set(np.flatnonzero((z[0] != 3).numpy())) == set(order[:shown].tolist())


def test_arccos_schedule():
    assert [arccos_masked_share(x) for x in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 2 / 3, 0.0])
    with pytest.raises(ValueError, match=r"got 1\.5"):
        arccos_masked_share(1.5)


def test_confidence_order_reveals_the_surest(generator):
    class Graded(Fixed):
        def forward(self, z, t=None, classes=None):
            self.seen.append(z.clone())
            sure = torch.arange(8.0).expand(len(z), -1)  # the last position is surest
            logits = torch.stack((3 * sure, 0 * sure, 0 * sure, 0 * sure), -1)
            return DenoiserOutput(logits, logits)

    model = Graded()
    sample(model, 50, steps=4, sampler=MaskGITSampler("confidence", grid=(2, 4)), generator=generator)
    shown = model.seen[1] != 3
    assert (shown.sum(1) == 8 - math.floor(8 * arccos_masked_share(0.25))).all()
    assert float(shown[:, 4:].float().mean()) > float(shown[:, :4].float().mean())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 2, "iterations": 0}, "at least 1 in every step, got 0"),
        ({"steps": 2, "iterations": [1, 2, 3]}, "one for each of 2 steps, got 3"),
        ({"steps": 2, "reuse": "half"}, "got 'half'"),
        ({"steps": 2, "temperature": 0.0}, "temperature > 0"),
        ({"steps": 2, "sampler": MaskGITSampler(grid=(5, 5))}, "5 x 5 does not hold sequences of 12"),
        ({"steps": 2, "sampler": MaskGITSampler(grid=(3, 4), guidance=1.0)}, "guidance needs classes"),
        ({"steps": 2, "start": torch.full((3, 12), 7)}, "must hold n = 2 sequences, got 3"),
    ],
)
def test_bad_calls(fixed_point, unchecked, arguments, message):
    with pytest.raises(ValueError, match=message):
        sample(fixed_point(), 2, **arguments)


def test_plain_models_have_nothing_to_reuse(plain):
    with pytest.raises(ValueError, match="'full' reuse needs a fixed-point model"):
        sample(plain(), 2, steps=2, reuse="full")
    with pytest.raises(ValueError, match="takes no iterations"):
        sample(plain(), 2, steps=2, iterations=3)


def test_remasking_samplers_cannot_have_three_state_reuse(fixed_point):
    class Remasking(AncestralSampler):
        monotone = False

    sample(fixed_point(), 2, steps=2, reuse="full", sampler=Remasking())
    with pytest.raises(ValueError, match="remasking sampler"):
        sample(fixed_point(), 2, steps=2, reuse="three_state", sampler=Remasking())


def test_logits_that_are_no_numbers_name_the_step(plain):
    model = plain()
    with torch.no_grad():
        model.final.linear.bias[2] = torch.nan
    with pytest.raises(ValueError, match="not a number at step 1 of 3"):
        sample(model, 2, steps=3)


@pytest.mark.parametrize("arguments", [{"order": "spiral"}, {"guidance": -1.0}, {"gumbel": -0.1}])
def test_bad_samplers(unchecked, arguments):
    with pytest.raises(ValueError):
        MaskGITSampler(**arguments)
