"""The trainer: losses, carry, replacement, what is kept for backward, data-parallel gradients."""

import math

import pytest
import torch
from fprm import (
    FPRM,
    TRM,
    Batch,
    DeepSupervisionTrainer,
    FixedDepthTransformer,
    FixedPointSolver,
    SolverConfig,
    stablemax_cross_entropy,
)
from fprm.recipes import Recipe, train
from fprm.training import IGNORE, decay_groups, softmax_cross_entropy
from torch.nn import functional as F

from claimlab.costs import saved_bytes


def source(count):
    inputs = torch.randint(5, (count, 16))
    return Batch(inputs, (inputs + 1) % 5)


def trainer(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return DeepSupervisionTrainer(model, optimizer, **({"batch_size": 4, "bptt": 2, "max_segments": 3} | options))


def test_stablemax_worked_values():
    logits = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    losses = stablemax_cross_entropy(logits, torch.tensor([1, 0]))
    assert losses.tolist() == pytest.approx([math.log(2), 0.2231435513], abs=1e-9)
    assert losses.dtype == torch.float64


def test_stablemax_has_finite_gradients_at_large_logits():
    logits = torch.tensor([[1e6, -1e6, 0.0]], requires_grad=True)
    stablemax_cross_entropy(logits, torch.tensor([1])).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_softmax_is_the_usual_one():
    logits, labels = torch.randn(3, 4, 5), torch.randint(5, (3, 4))
    expected = -logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    torch.testing.assert_close(softmax_cross_entropy(logits, labels), expected)


@pytest.mark.parametrize("loss", ["stablemax", "softmax"])
def test_all_labels_ignored_is_no_loss_and_no_gradient(tiny, loss):
    model = FPRM(tiny())
    batch = Batch(torch.zeros(4, 16, dtype=torch.int64), torch.full((4, 16), IGNORE))
    result = trainer(model, loss=loss).step(lambda count: batch)
    assert result["loss"] == 0.0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())


def test_a_segment_is_k_damped_iterations_from_the_carried_state(tiny):
    """Losses and gradients against the same steps written out."""
    model = FPRM(tiny()).double()
    t = trainer(model, loss="softmax", solver=SolverConfig(tau=-1.0))
    t.step(source)
    carry, x, y = t.carry, t.carry.batch.inputs, t.carry.batch.labels
    z = carry.z.clone()
    t.step(source)
    got = model.block.scaling.alpha2_logit.grad.clone()
    e = model.inject(x)
    for _ in range(2):
        z = model.body(z, e)
    model.zero_grad()
    loss = F.cross_entropy(model.readout(z).flatten(0, 1), y.flatten(), reduction="none").view(4, 16).mean(1).sum() / 4
    loss.backward()
    torch.testing.assert_close(got, model.block.scaling.alpha2_logit.grad)
    torch.testing.assert_close(t.carry.z, z.detach())


def test_carried_states_are_detached(tiny):
    t = trainer(FPRM(tiny()))
    t.step(source)
    assert not t.carry.z.requires_grad
    assert t.carry.z.grad_fn is None


def test_samples_are_replaced_after_their_last_segment(tiny):
    t = trainer(FPRM(tiny()), solver=SolverConfig(tau=-1.0), max_segments=3)
    replaced = [t.step(source)["replaced"] for _ in range(7)]
    assert replaced == [4, 0, 0, 4, 0, 0, 4]


def test_a_converged_sample_alone_is_replaced(tiny):
    """Sample 0 starts at its fixed point; the others cannot converge in one segment."""
    model = FPRM(tiny(init_std=50.0, initial_state="frozen")).double()
    t = trainer(model, bptt=1, max_segments=50, solver=SolverConfig(tau=1e-6))
    t.step(source)
    injection = model.inject(t.carry.batch.inputs[:1]).detach()
    with torch.no_grad():
        z = FixedPointSolver(SolverConfig(tau=1e-8)).solve(lambda u: model.body(u, injection), t.carry.z[:1]).z
    t.carry.z = torch.cat((z, t.carry.z[1:]))
    before = t.carry.batch.inputs.clone()
    t.step(source)
    assert t.carry.halted.tolist() == [True, False, False, False]
    t.step(source)
    assert torch.equal(t.carry.batch.inputs[1:], before[1:])
    assert not torch.equal(t.carry.batch.inputs[0], before[0])
    assert t.carry.segments.tolist() == [1, 3, 3, 3]
    assert t.carry.solver.iterations.tolist() == [1, 3, 3, 3]


def test_memory_grows_with_bptt_and_not_with_segments(tiny):
    def saved(bptt, segments):
        model = FPRM(tiny())
        t = trainer(model, bptt=bptt, max_segments=100, solver=SolverConfig(tau=-1.0))
        for _ in range(segments):
            t.step(source)
        return saved_bytes(lambda: t.run_segment(t.carry))

    assert saved(2, 1) == saved(2, 6)
    two, four, six = (saved(k, 1) for k in (2, 4, 6))
    assert six - four == pytest.approx(four - two, rel=0.01)
    assert four > 1.6 * two


def test_act_replaces_when_the_head_fires_but_not_while_exploring(tiny):
    model = FPRM(tiny())
    torch.nn.init.constant_(model.halting_head.bias, 5.0)
    eager = trainer(model, halting="act", exploration=0.0)
    assert [eager.step(source)["replaced"] for _ in range(3)] == [4, 4, 4]
    exploring = trainer(model, halting="act", exploration=1.0, generator=torch.Generator().manual_seed(0))
    exploring.step(source)
    assert not exploring.carry.halted.any()
    assert (exploring.carry.least_segments >= 2).all()
    torch.nn.init.constant_(model.halting_head.bias, -5.0)
    patient = trainer(model, halting="act")
    assert [patient.step(source)["replaced"] for _ in range(4)] == [4, 0, 0, 4]


def test_the_halting_head_learns_whether_the_answer_is_right(tiny):
    model = FPRM(tiny())
    t = trainer(model, q_loss_coeff=0.5, solver=SolverConfig(tau=-1.0))
    plain = trainer(model, solver=SolverConfig(tau=-1.0))
    torch.manual_seed(1)
    with_head = t.step(source)["loss"]
    torch.manual_seed(1)
    without = plain.step(source)["loss"]
    # No answer is right at the start, so the head's loss is log(1 + exp(-5)).
    assert with_head - without == pytest.approx(0.5 * math.log1p(math.exp(-5.0)), rel=1e-3)


def test_jacobian_penalty_is_the_squared_frobenius_norm_on_average(tiny):
    model = FPRM(tiny(seq_len=4, hidden_size=8, conv="none", positions="none")).double()
    t = trainer(model, jacobian_penalty=1.0, generator=torch.Generator().manual_seed(0))
    e = model.inject(torch.randint(5, (1, 4)))
    z = model.initial_state(e)
    jacobian = torch.autograd.functional.jacobian(lambda u: model.body(u, e), z).reshape(32, 32)
    estimates = torch.stack([t._jacobian_norm(z.clone(), e).detach() for _ in range(300)])
    error = estimates.std() / math.sqrt(300)
    assert abs(estimates.mean() - jacobian.square().sum()) < 4 * error
    t.step(lambda count: Batch(torch.randint(5, (count, 4)), torch.randint(5, (count, 4))))
    assert model.block.sublayers[0].qkv.weight.grad is not None


def test_coefficients_have_no_weight_decay(tiny):
    groups = decay_groups(FPRM(tiny()), 0.1)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [len(group["params"]) for group in groups][1] == 2
    assert len(decay_groups(TRM(tiny()), 0.1)) == 1


class TwoProcesses:
    """Stands for an accelerator: the other process has the same gradients."""

    num_processes = 2
    is_main_process = True

    def reduce(self, tensor, reduction):
        assert reduction == "sum"
        return 2 * tensor


def test_summed_gradients_of_two_processes_are_those_of_the_whole_batch(tiny):
    model = FPRM(tiny(initial_state="frozen")).double()
    half = source(4)
    whole = Batch(half.inputs.repeat(2, 1), half.labels.repeat(2, 1))
    gradients = []
    for options, batch in ((({"batch_size": 8}), whole), ({"batch_size": 4, "accelerator": TwoProcesses()}, half)):
        result = trainer(model, **options).step(lambda count, batch=batch: batch)
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        losses = gradients, result["loss"]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert losses[1] > 0


def recipe(**changes):
    return Recipe(**({"steps": 40, "batch_size": 16, "learning_rate": 1e-2, "bptt": 2, "max_segments": 4} | changes))


def test_training_lowers_the_loss_and_keeps_an_average(tiny):
    model = FPRM(tiny())
    losses = []
    trained = train(model, source, recipe(ema_decay=0.5, warmup_steps=5), log=lambda step, m: losses.append(m["loss"]))
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert trained is not model
    weights, averaged = model.head.weight, trained.head.weight
    assert not torch.equal(weights, averaged)
    torch.testing.assert_close(weights, averaged, rtol=0.2, atol=0.1)


def test_warm_up_rises_linearly(tiny):
    rates = []
    model = FixedDepthTransformer(tiny(), 1)
    before = model.head.weight.clone()
    train(model, source, recipe(steps=1, warmup_steps=100, learning_rate=1.0, bptt=1, halting="none"))
    moved = (model.head.weight - before).abs().max().item()
    rates.append(moved)
    assert moved == pytest.approx(0.01, rel=0.1)  # AdamW's first step is as long as the learning rate


def test_an_interrupted_training_continues_from_its_checkpoint(tiny, tmp_path):
    path = tmp_path / "run" / "fprm.pt"
    options = {"checkpoint": path, "checkpoint_every": 2}
    train(FPRM(tiny()), source, recipe(steps=4, ema_decay=0.9), **options)
    steps = []
    model = FPRM(tiny())
    train(model, source, recipe(steps=6, ema_decay=0.9), log=lambda step, m: steps.append(step), **options)
    assert steps == [5, 6]
    again = FPRM(tiny())
    finished = train(again, source, recipe(steps=6, ema_decay=0.9), **options)
    for one, other in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(finished.head.weight, again.head.weight)
    assert [p.name for p in path.parent.iterdir()] == ["fprm.pt"]


def test_bad_options(tiny, unchecked):
    with pytest.raises(ValueError, match="bptt must be at least 1, got 0"):
        trainer(FPRM(tiny()), bptt=0)
    with pytest.raises(ValueError, match="loss must be one of"):
        trainer(FPRM(tiny()), loss="mse")
    with pytest.raises(ValueError, match="halting must be"):
        trainer(FPRM(tiny()), halting="never")
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        recipe(steps=0)
    with pytest.raises(ValueError, match="learning_rate must be positive"):
        recipe(learning_rate=0.0)
    with pytest.raises(ValueError, match=r"ema_decay must lie in \(0, 1\), got 1.0"):
        recipe(ema_decay=1.0)
    with pytest.raises(ValueError, match="does not divide among 2 processes"):
        train(FPRM(tiny()), source, recipe(batch_size=15), accelerator=TwoProcesses())


def test_a_loss_that_is_not_finite_is_an_error(tiny):
    model = FPRM(tiny())
    with torch.no_grad():
        model.head.weight[0, 0] = float("nan")
    with pytest.raises(RuntimeError, match="the loss is not finite: nan"):
        trainer(model).step(source)
