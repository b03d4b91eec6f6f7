import copy
import math

import pytest
import torch
from cofre import (
    SJFB,
    AdaptationObjective,
    Batch,
    ConsistencyConfig,
    ConsistencyObjective,
    MaskedObjective,
    MaskGITObjective,
    SDTTObjective,
    consistency_loss,
)
from cofre.objectives import kl_divergence, sdtt_step_sizes
from torch.nn import functional as F


@pytest.fixture
def batch():
    return Batch(torch.randint(7, (6, 12)))


def test_consistency_loss_by_hand():
    student = torch.tensor([[[1.0, 2.0], [5.0, 5.0], [0.0, 1.0]]])
    teacher = torch.tensor([[[0.0, 0.0], [9.0, 9.0], [0.0, 4.0]]])
    mask = torch.tensor([[True, False, True]])
    assert float(consistency_loss(student, teacher, mask)) == pytest.approx((2.5 + 4.5) / 2)
    assert float(consistency_loss(student, teacher, mask, reduction="sum")) == pytest.approx((5 + 9) / 2)
    cosine = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, 1.0]]]), torch.tensor([[True]])
    assert float(consistency_loss(*cosine, kind="cosine")) == pytest.approx(1 - math.sqrt(0.5), abs=1e-6)


def test_kl_is_torchs_and_ignores_impossible_symbols():
    p, q = torch.randn(5, 4).log_softmax(-1), torch.randn(5, 4).log_softmax(-1)
    torch.testing.assert_close(kl_divergence(p, q).sum(), F.kl_div(q, p, log_target=True, reduction="sum"))
    one_hot = torch.tensor([[0.0, -math.inf]])
    law = torch.tensor([[math.log(0.25), math.log(0.75)]])
    assert float(kl_divergence(one_hot, law)) == pytest.approx(math.log(4))
    logits = torch.randn(1, 2, 5), torch.randn(1, 2, 5), torch.ones(1, 2, dtype=torch.bool)
    s, c = (x[..., :4].log_softmax(-1) for x in logits[:2])  # without the mask's logit
    expected = F.kl_div(s, c, log_target=True, reduction="sum") / 2
    torch.testing.assert_close(consistency_loss(*logits, kind="kl"), expected)


def test_no_gradient_reaches_the_teacher():
    student, teacher = (torch.randn(2, 3, 4, requires_grad=True) for _ in range(2))
    for kind in ("mse", "cosine", "kl"):
        consistency_loss(student, teacher, torch.ones(2, 3, dtype=torch.bool), kind).backward()
    assert student.grad is not None and teacher.grad is None


def test_no_masked_position_gives_zero():
    states = torch.randn(1, 3, 2), torch.randn(1, 3, 2)
    assert float(consistency_loss(*states, torch.zeros(1, 3, dtype=torch.bool))) == 0.0


def test_consistency_objective_adds_the_weighted_distance(fixed_point, batch):
    """Same draws with two weights: the totals differ by the difference of weights times the distance."""
    model = fixed_point()

    def losses(weight, step=10):
        generator = torch.Generator().manual_seed(3)
        base = MaskedObjective(SJFB(generator=generator), generator=generator)
        return ConsistencyObjective(base, ConsistencyConfig(weight=weight, warmup=5))(model, batch, step)

    none, some = losses(0.0), losses(0.1)
    assert none.parts == some.parts and some.parts["consistency"] > 1e-4
    assert float(none.total.detach()) == pytest.approx(none.parts["base"], rel=1e-6)
    assert float((some.total - none.total).detach()) == pytest.approx(0.1 * some.parts["consistency"], rel=1e-3)
    warm = losses(0.1, step=1)
    assert float((warm.total - none.total).detach()) == pytest.approx(0.02 * some.parts["consistency"], rel=1e-2)


@pytest.mark.parametrize("kind", ["mse", "cosine", "kl"])
def test_consistency_gradient_leaves_the_teacher_alone(fixed_point, batch, kind):
    """With the model as its own teacher, the gradient is that of a frozen copy as the teacher."""
    model = fixed_point()

    def gradient(teacher):
        generator = torch.Generator().manual_seed(3)
        base = MaskedObjective(SJFB(generator=generator), generator=generator)
        total = ConsistencyObjective(base, ConsistencyConfig(weight=5.0, warmup=0, kind=kind), teacher)(
            model, batch, 1
        ).total
        return torch.autograd.grad(total, [p for p in model.parameters() if p.requires_grad])

    for own, frozen in zip(gradient(None), gradient(copy.deepcopy(model)), strict=True):
        torch.testing.assert_close(own, frozen)


def test_weight_rises_linearly_and_stays():
    config = ConsistencyConfig()
    assert [config.weight_at(s) for s in (1, 2500, 5000, 30_000)] == pytest.approx([0.1 / 5000, 0.05, 0.1, 0.1])
    assert config.stops(11.6, 10.0) and not config.stops(11.5, 10.0)


@pytest.mark.parametrize("gap", [(0.0, 0.3), (0.3, 0.05), (0.05, 1.0), (-0.1, 0.2)])
def test_bad_gaps(gap):
    with pytest.raises(ValueError, match="0 < low <= high < 1"):
        ConsistencyConfig(gap=gap)


@pytest.mark.parametrize("changes", [{"weight": -0.1}, {"warmup": -1}, {"stop_ratio": 0.9}, {"kind": "l1"}])
def test_bad_consistency_settings(unchecked, changes):
    with pytest.raises(ValueError):
        ConsistencyConfig(**changes)


def test_bad_consistency_shapes(unchecked):
    with pytest.raises(ValueError, match="shapes differ"):
        consistency_loss(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4), torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="got 'l1'"):
        consistency_loss(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), "l1")


def test_maskgit_draws_the_arccos_schedule(generator):
    shares = MaskGITObjective(generator=generator).draw_times(4000)
    # E arccos(U) / (pi / 2) = 2 / pi
    assert float(shares.mean()) == pytest.approx(2 / math.pi, abs=0.002)
    assert float(shares.min()) >= 0 and float(shares.max()) <= 1


def test_maskgit_loss_is_the_plain_mean():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25, 9.0]] * 4]))
    x, z = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[3, 3, 2, 0]])
    loss = MaskGITObjective().loss(logits, x, z, torch.tensor([0.5]))
    assert float(loss) == pytest.approx((math.log(2) + math.log(4)) / 2, rel=1e-5)


def test_dropped_classes_become_the_empty_class(fixed_point, generator):
    objective = MaskGITObjective(class_dropout=0.3, generator=generator)
    drawn = objective.draw_classes(fixed_point(classes=3), torch.ones(4000, dtype=torch.long))
    assert set(drawn.tolist()) == {1, 3}
    assert float((drawn == 3).float().mean()) == pytest.approx(0.3, abs=0.03)


def test_adaptation_adds_the_tempered_divergence(fixed_point, plain, batch):
    model, teacher = fixed_point(), plain()

    def losses(weight, temperature):
        generator = torch.Generator().manual_seed(3)
        base = MaskedObjective(SJFB(generator=generator), generator=generator)
        return AdaptationObjective(base, teacher, ConsistencyConfig(weight=weight, warmup=0), temperature)(
            model, batch, 1
        )

    none, some = losses(0.0, 1.5), losses(0.1, 1.5)
    difference = float((some.total - none.total).detach())
    assert difference == pytest.approx(0.1 * 1.5**2 * some.parts["divergence"], rel=1e-3)
    assert all(p.grad is None for p in teacher.parameters())
    with pytest.raises(ValueError, match="temperature must be positive"):
        losses(0.1, 0.0)


def test_what_only_the_teacher_sees_costs_cross_entropy(fixed_point, plain, batch):
    """With a teacher at time 0.001 nearly all targets are one-hot: the divergence is the student's cross-entropy."""
    model, teacher, seen = fixed_point(), plain(), {}

    class Captured(MaskedObjective):
        def draw_times(self, count):
            return torch.full((count,), 0.9)

        def uniform(self, x):
            u = torch.full(x.shape, 0.5)
            u[:, 8:] = 0.95  # visible to the student too
            return u

        def loss(self, logits, x, z, t):
            seen.update(logits=logits.detach(), masked=z == 7)
            return logits.sum() * 0

    objective = AdaptationObjective(Captured(), teacher, ConsistencyConfig(warmup=0, gap=(0.9, 0.9)), temperature=1.0)
    divergence = objective(model, batch, 1).parts["divergence"]
    assert seen["masked"].sum() == 8 * 6
    expected = F.cross_entropy(seen["logits"][seen["masked"]][:, :-1], batch.tokens[seen["masked"]])
    assert divergence == pytest.approx(float(expected), rel=1e-4)


def test_sdtt_targets_of_a_full_step(plain, generator):
    """A first half step that reveals nothing leaves the second prediction; one that reveals all keeps the first."""
    teacher = plain()
    z = torch.full((3, 12), 7)
    base = MaskedObjective(generator=generator)
    objective = SDTTObjective(base, teacher, step_size=1.0)
    base.uniform = lambda x: torch.ones(x.shape)
    stays = objective.targets(z, torch.ones(3))
    torch.testing.assert_close(stays[..., :7], teacher(z).logits[..., :7].log_softmax(-1))
    base.uniform = lambda x: torch.zeros(x.shape)
    torch.testing.assert_close(objective.targets(z, torch.ones(3)), stays)
    base.uniform = lambda x: torch.tensor([0.0, 1.0]).repeat(x.shape[1] // 2).expand(x.shape)
    mixed = objective.targets(z, torch.ones(3))
    torch.testing.assert_close(mixed[:, ::2], stays[:, ::2])
    assert (mixed[:, 1::2, :7] - stays[:, 1::2, :7]).abs().max() > 1e-4


def test_sdtt_student_equal_to_a_teacher_that_ignores_its_input_has_no_loss(plain, batch, generator):
    teacher = plain()
    with torch.no_grad():
        teacher.final.linear.weight.zero_()
    objective = SDTTObjective(MaskedObjective(generator=generator), teacher, 0.5)
    assert float(objective(copy.deepcopy(teacher), batch, 1).total.detach()) == pytest.approx(0.0, abs=1e-6)


def test_sdtt_rounds_double():
    assert sdtt_step_sizes(1 / 16, 6) == [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"got 0 and 0\.5"):
        sdtt_step_sizes(0.5, 0)
    with pytest.raises(ValueError, match="step_size must lie in"):
        SDTTObjective(MaskedObjective(), torch.nn.Identity(), 1.5)
