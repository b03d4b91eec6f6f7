import math

import pytest
import torch
from cofre import LogLinearSchedule, mask_tokens, mdlm_loss, nelbo, nested_masks
from cofre.diffusion import antithetic_times, draw_categorical, subs_log_probs
from cofre.fixed_point import DenoiserOutput
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn


class Constant(nn.Module):
    """Predicts one law at every position, whatever it sees."""

    def __init__(self, probabilities, length=6):
        super().__init__()
        self.vocab_size = self.mask_id = len(probabilities)
        self.length = length
        logits = torch.cat(
            (torch.tensor(probabilities).log(), torch.tensor([3.0]))
        )  # a mask logit that must not matter
        self.logits = nn.Parameter(logits)

    def forward(self, z, t=None, classes=None):
        logits = self.logits.expand(*z.shape, -1)
        return DenoiserOutput(logits, logits)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.1])
def test_loss_weight_is_one_over_t(eps):
    weight = LogLinearSchedule(eps).loss_weight(torch.tensor([0.3, 0.5], dtype=torch.float64))
    torch.testing.assert_close(weight, torch.tensor([10 / 3, 2.0], dtype=torch.float64))


def test_schedule_values():
    schedule = LogLinearSchedule(1e-3)
    t = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)
    torch.testing.assert_close(schedule.alpha(t), torch.tensor([1.0, 0.75025, 0.001], dtype=torch.float64))
    torch.testing.assert_close((-schedule.sigma(t)).exp(), schedule.alpha(t))


@pytest.mark.parametrize("eps", [-0.1, 1.0])
def test_schedule_refuses_eps(eps):
    with pytest.raises(ValueError, match="eps must lie in"):
        LogLinearSchedule(eps)


def test_antithetic_times_have_one_in_each_part(generator):
    t = antithetic_times(50, generator)
    parts = ((t - 1e-3) / (1 - 1e-3) * 50).floor().long()
    assert sorted(parts.tolist()) == list(range(50))


@given(seed=st.integers(0, 10_000), length=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_teacher_sees_all_that_the_student_sees_and_more(seed, length):
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(5, (8, length), generator=g)
    t_student = torch.rand(8, generator=g)
    t_teacher = t_student * torch.rand(8, generator=g)
    student, teacher = nested_masks(x, t_student, t_teacher, torch.rand(8, length, generator=g), 5)
    masked_s, masked_t = student == 5, teacher == 5
    assert not (masked_t & ~masked_s).any()
    has_masks = masked_s.any(1)
    assert (masked_t.sum(1) < masked_s.sum(1))[has_masks].all()
    assert (student[~masked_s] == x[~masked_s]).all()
    assert (teacher[~masked_t] == x[~masked_t]).all()


def test_equal_masks_show_the_teacher_the_next_token_to_be_revealed():
    x = torch.tensor([[1, 2, 3, 4]])
    u = torch.tensor([[0.1, 0.45, 0.3, 0.9]])
    half = torch.tensor([0.5])
    student, teacher = nested_masks(x, half, half, u, 9)
    assert student.tolist() == [[9, 9, 9, 4]]
    assert teacher.tolist() == [[9, 2, 9, 4]]


def test_nested_masks_have_the_right_marginals(generator):
    x = torch.zeros(400, 500, dtype=torch.long)
    t = torch.full((400,), 0.6)
    student, teacher = nested_masks(x, t, t - 0.25, torch.rand(400, 500, generator=generator), 1)
    assert float((student == 1).float().mean()) == pytest.approx(0.999 * 0.6, abs=0.004)
    assert float((teacher == 1).float().mean()) == pytest.approx(0.999 * 0.35, abs=0.004)


def test_nested_masks_refuse_a_noisier_teacher():
    x, u = torch.zeros(2, 3, dtype=torch.long), torch.rand(2, 3)
    with pytest.raises(ValueError, match=r"t_teacher must not be above t_student, got 0.4 > 0.3"):
        nested_masks(x, torch.tensor([0.5, 0.3]), torch.tensor([0.1, 0.4]), u, 1)


def test_masks_in_the_data_are_refused():
    with pytest.raises(ValueError, match="the data hold the mask's id 4"):
        mask_tokens(torch.tensor([[1, 4]]), torch.tensor([0.5]), torch.rand(1, 2), 4)


def test_subs_gives_visible_tokens_and_never_the_mask():
    logits = torch.randn(1, 3, 4)
    z = torch.tensor([[2, 3, 0]])
    probabilities = subs_log_probs(logits, z).exp()
    assert probabilities[0, 0].tolist() == [0, 0, 1, 0]
    assert probabilities[0, 2].tolist() == [1, 0, 0, 0]
    torch.testing.assert_close(probabilities[0, 1, :3], logits[0, 1, :3].softmax(-1))
    assert probabilities[0, 1, 3] == 0


def test_loss_by_hand():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25, 9.0]] * 4]))
    x, z = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[3, 3, 2, 0]])
    loss = mdlm_loss(logits, x, z, torch.tensor([0.5]))
    assert float(loss) == pytest.approx((math.log(2) + math.log(4)) / 0.5 / 4, rel=1e-5)


def test_uniform_model_has_nelbo_log_v(generator):
    x = torch.randint(5, (400, 6), generator=generator)
    bound = nelbo(Constant([0.2] * 5), x, 64, generator=generator)
    error = float(bound.std()) / math.sqrt(len(bound))
    # weights 1/t in expectation meet a masked share of (1 - eps) t
    assert float(bound.mean()) == pytest.approx(0.999 * math.log(5), abs=4 * error)
    assert error < 0.015


def test_exact_posterior_of_an_iid_source_has_nelbo_its_entropy(generator):
    law = [0.7, 0.2, 0.1]
    x = torch.multinomial(torch.tensor(law), 400 * 6, replacement=True, generator=generator).view(400, 6)
    bound = nelbo(Constant(law), x, 64, generator=generator)
    entropy = -sum(p * math.log(p) for p in law)
    error = float(bound.std()) / math.sqrt(len(bound))
    assert float(bound.mean()) == pytest.approx(0.999 * entropy, abs=4 * error)
    assert float(nelbo(Constant([1 / 3] * 3), x, 64, generator=generator).mean()) > entropy + 0.1


def test_nelbo_refuses_no_times():
    with pytest.raises(ValueError, match="n_times must be at least 1, got 0"):
        nelbo(Constant([0.5, 0.5]), torch.zeros(1, 6, dtype=torch.long), 0)


def test_draws_follow_the_law_into_its_tail(generator):
    """A tail of 1e-9 that float32's cumulated sums would lose: its logit must be honoured, ratios kept."""
    logits = torch.log(torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)).float().expand(60_000, 3)
    values, probability = draw_categorical(logits, generator)
    frequencies = torch.bincount(values) / len(values)
    torch.testing.assert_close(frequencies, torch.tensor([0.6, 0.3, 0.1]), atol=0.008, rtol=0)
    assert probability.dtype == torch.float64
    torch.testing.assert_close(probability, logits[0].double().softmax(-1)[values])
