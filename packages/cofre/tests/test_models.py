import pytest
import torch
from cofre import (
    SJFB,
    DiTBlock,
    FixedPointDenoiser,
    MaskedDenoiser,
    count_block_passes,
    denoise,
    fp_maskgit,
    fp_mdlm_small,
    maskgit_large,
    mdlm_small,
)
from cofre.layers import RelativeBias, Rotary
from torch import nn


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_published_parameter_counts():
    with torch.device("meta"):
        assert count(DiTBlock(768, 12, 128)) == 7_677_696
        assert count(mdlm_small()) == 169_627_218
        assert count(fp_mdlm_small()) == 104_659_794
        assert count(fp_mdlm_small()) - count(mdlm_small(blocks=3)) == 590_592 + 2_360_832 + 1_180_416
        assert count(fp_maskgit()) < 0.45 * count(maskgit_large())


class Direct(nn.Module):
    """Projections replaced by the identity on the state."""

    def forward(self, h, injection):
        return h


@pytest.mark.parametrize("options", [{}, {"cond_dim": 8}, {"registers": 2, "positions": "learned"}])
@pytest.mark.parametrize(("pre", "post"), [(1, 1), (0, 2), (2, 0)])
def test_one_iteration_without_projections_is_a_plain_stack(fixed_point, options, pre, post):
    model = fixed_point(pre=pre, post=post, **options)
    model.inject = Direct()
    stack = MaskedDenoiser(7, 12, 16, 2, pre + 1 + post, **options).eval()
    blocks = [*model.pre_blocks, *model.shared_blocks, *model.post_blocks]
    stack.load_state_dict({k: v for k, v in model.state_dict().items() if k in stack.state_dict()}, strict=False)
    for target, block in zip(stack.blocks, blocks, strict=True):
        target.load_state_dict(block.state_dict())
    z = torch.randint(8, (3, 12))
    ours, theirs = model(z, iterations=1), stack(z)
    torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours.hidden, theirs.hidden, atol=1e-6, rtol=1e-6)
    assert ours.logits.std() > 0.01


def test_logits_are_the_output_matrix_times_hidden(fixed_point):
    model = fixed_point(cond_dim=8)
    output = model(torch.randint(8, (2, 12)), iterations=2)
    torch.testing.assert_close(output.logits, model.final.linear(output.hidden))


def test_iterations_are_repeated_applications(fixed_point):
    model = fixed_point()
    z = torch.randint(8, (2, 12))
    h, injection = model.encode(z)
    residuals = []
    for _ in range(3):
        after = model.apply_block(h, injection)
        residuals.append((after - h).flatten(1).norm(dim=1) / h.flatten(1).norm(dim=1))
        h = after
    output = model(z, iterations=2, no_grad_iterations=1, track_residuals=True)
    torch.testing.assert_close(output.solution, h)
    torch.testing.assert_close(output.logits, model.decode(h).logits)
    torch.testing.assert_close(output.residuals, torch.stack(residuals))


def test_rotary_depends_on_distance_only():
    rotary = Rotary(8, 20)
    q, k = torch.randn(8), torch.randn(8)

    def product(i, j):
        x = torch.zeros(20, 8)
        x[i] = q
        y = torch.zeros(20, 8)
        y[j] = k
        return float(rotary(x)[i] @ rotary(y)[j])

    assert product(3, 7) == pytest.approx(product(12, 16), abs=1e-5)
    assert product(3, 7) != pytest.approx(product(3, 8), abs=1e-3)
    assert product(0, 0) == pytest.approx(float(q @ k), abs=1e-5)


def test_zero_gates_make_every_block_the_identity():
    model = FixedPointDenoiser(7, 12, 16, 2, cond_dim=8)
    z = torch.randint(8, (2, 12))
    h, injection = model.encode(z)
    torch.testing.assert_close(model.apply_block(h, injection), model.inject(h, injection))
    torch.testing.assert_close(h, model.embedding(z))


def gradients(model, loss):
    return torch.autograd.grad(loss, (model.a, model.embedding))


def test_sjfb_without_free_iterations_is_ordinary_backpropagation(contraction):
    model, z = contraction(), torch.randint(6, (2, 4))
    ours = gradients(model, denoise(model, z, iterations=5).logits.square().sum())
    h_pre, injection = model.encode(z)
    h = h_pre.detach()
    for _ in range(5):
        h = model.apply_block(h, injection)
    for a, b in zip(ours, gradients(model, model.decode(h).logits.square().sum()), strict=True):
        torch.testing.assert_close(a, b)


def test_sjfb_cuts_the_gradient_of_free_iterations(contraction):
    model, z = contraction(), torch.randint(6, (2, 4))
    output = denoise(model, z, iterations=1, no_grad_iterations=3)
    h, injection = model.encode(z)
    with torch.no_grad():
        for _ in range(3):
            h = model.apply_block(h, injection)
    loss = model.decode(model.apply_block(h.detach(), injection)).logits.square().sum()
    for a, b in zip(gradients(model, output.logits.square().sum()), gradients(model, loss), strict=True):
        torch.testing.assert_close(a, b)


def test_many_iterations_with_gradient_give_the_implicit_gradient(contraction):
    """`dL/dA = (I - A^T)^(-1) g h*^T` for a linear F."""
    model, z = contraction(), torch.randint(6, (2, 4))
    (gradient,) = torch.autograd.grad(
        denoise(model, z, iterations=80, no_grad_iterations=80).logits.square().sum(), model.a
    )
    inverse = torch.linalg.inv(torch.eye(6, dtype=torch.float64) - model.a)
    h = (model.encode(z)[1] @ inverse.T).detach()
    g = 2 * h @ model.out.T @ model.out
    adjoint = g @ inverse  # rows (I - A^T)^(-1) g
    torch.testing.assert_close(gradient, torch.einsum("bli,blj->ij", adjoint, h))


def test_sjfb_draws_the_whole_ranges(generator):
    draws = [SJFB(generator=generator).draw() for _ in range(500)]
    assert {d[0] for d in draws} == set(range(5))
    assert {d[1] for d in draws} == set(range(3, 7))


@pytest.mark.parametrize("ranges", [{"no_grad": (3, 1)}, {"no_grad": (-1, 2)}, {"grad": (0, 3)}, {"grad": (5, 4)}])
def test_sjfb_refuses_bad_ranges(ranges):
    with pytest.raises(ValueError, match="must be \\(low, high\\)"):
        SJFB(**ranges)


def test_hooks_count_block_passes(fixed_point, plain):
    model = fixed_point(pre=2, fixed_point=2, post=1)
    with count_block_passes(model, 3) as counter:
        model(torch.randint(8, (3, 12)), iterations=4, no_grad_iterations=1)
    assert counter.passes == 2 + 5 * 2 + 1
    with count_block_passes(plain(), 3) as counter:
        pass
    assert counter.passes == 0
    model(torch.randint(8, (3, 12)))
    assert not any(block._forward_hooks for block in model.shared_blocks)


def test_classes_change_the_prediction(fixed_point):
    z = torch.full((1, 12), 7)
    for options in ({}, {"cond_dim": 8}):
        model = fixed_point(classes=3, **options)
        a, b = (model(z, classes=torch.tensor([c])).logits for c in (0, 3))
        assert (a - b).abs().max() > 1e-3


def test_time_conditioning_is_off_unless_asked_for(plain):
    z, early, late = torch.full((1, 12), 7), torch.tensor([0.1]), torch.tensor([0.9])
    fixed = plain(cond_dim=8)
    torch.testing.assert_close(fixed(z, early).logits, fixed(z, late).logits)
    timed = plain(cond_dim=8, time_conditioning=True)
    assert (timed(z, early).logits - timed(z, late).logits).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.randint(8, (2, 13))), "a sequence of 13 is longer than the model's 12 positions"),
        (lambda m: m(torch.tensor([[8]])), "tokens must lie in 0 … 7, got 8"),
        (lambda m: m(torch.tensor([[1]]), iterations=0), "iterations >= 1 and no_grad_iterations >= 0, got 0 and 0"),
        (lambda m: m(torch.tensor([[1]]), init=torch.zeros(1, 2, 16)), "starting state must have shape"),
    ],
)
def test_bad_calls(fixed_point, call, message):
    with pytest.raises(ValueError, match=message):
        call(fixed_point())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden": 15, "positions": "learned"}, "15 is not a multiple of 2 heads"),
        ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
        ({"pre": -1}, "pre, post >= 0 and fixed_point >= 1, got -1"),
        ({"time_conditioning": True}, "it needs cond_dim"),
        ({"hidden": 6}, "even head width, got 3"),
    ],
)
def test_bad_shapes(arguments, message):
    with pytest.raises(ValueError, match=message):
        FixedPointDenoiser(**({"vocab_size": 7, "length": 12, "hidden": 16, "heads": 2} | arguments))


def test_plain_models_take_no_iterations(plain):
    with pytest.raises(ValueError, match="MaskedDenoiser has no fixed-point block"):
        denoise(plain(), torch.tensor([[1]]), iterations=3)


def test_rotary_table_has_an_end():
    with pytest.raises(ValueError, match="a sequence of 9 is longer than the rotary table of 8"):
        Rotary(4, 8)(torch.randn(9, 4))


def test_class_conditional_models_need_classes(plain):
    with pytest.raises(ValueError, match="needs classes"):
        plain(classes=3)(torch.tensor([[1]]))


def test_heads_start_by_looking_left_and_right():
    bias = RelativeBias(4, 6)(5)
    assert bias.shape == (4, 5, 5)
    looked_at = bias.softmax(-1).argmax(-1)
    assert looked_at[:, 2].tolist() == [1, 3, 1, 3]  # the neighbours of the token in the middle
    assert bias[2, 4].tolist() == [-1.5, -1.0, -0.5, 0.0, -4.0]  # the third head: left, slope 1/2


def test_relative_bias_makes_a_head_look_at_one_offset():
    torch.manual_seed(0)
    block, x, bias = DiTBlock(16, 1), torch.randn(2, 6, 16), RelativeBias(1, 6)
    with torch.no_grad():
        bias.table.zero_()
        bias.table[0, 5 - 1] = 1e4  # offset -1: the token before
    values = block.qkv(block.norm1(x))[..., 32:]
    attended = block._attend(block.norm1(x), bias)
    torch.testing.assert_close(attended[:, 1:], block.out(values[:, :-1]))


def test_relative_bias_has_an_end():
    with pytest.raises(ValueError, match="a sequence of 9 is longer than the table of 8 positions"):
        RelativeBias(2, 8)(9)
