"""The model: shapes, causality, published sizes, halting, gradients through the fixed point."""

import math

import pytest
import torch
import torch.nn.functional as F
from fprm import FPRM, FPRMConfig, SolverConfig
from fprm.layers import LocalConvolution, Rotary, rms_norm, rotate, truncated_normal_
from fprm.theory import implicit_gradient, truncated_gradient, truncation_bound
from fprm.training import twice_differentiable
from torch.func import functional_call


def test_published_size():
    model = FPRM(FPRMConfig.sudoku())
    assert sum(p.numel() for p in model.block.sublayers.parameters()) == 6_815_744
    assert model.block.convolution.filter.weight.numel() == 512 * 9
    total = sum(p.numel() for p in model.parameters())
    assert total == pytest.approx(7e6, rel=0.05)


@pytest.mark.parametrize("preset", [FPRMConfig.sudoku, FPRMConfig.maze, FPRMConfig.state_tracking])
def test_presets_take_changes(preset):
    assert preset(hidden_size=64).hidden_size == 64


def test_truncated_normal_has_the_wanted_deviation():
    sample = truncated_normal_(torch.empty(200_000), 6.0, torch.Generator().manual_seed(0))
    assert sample.std().item() == pytest.approx(6.0, rel=0.01)
    assert sample.abs().max().item() <= 12 / 0.8796 + 1e-3


def test_rms_norm_of_half_precision_is_computed_in_float32():
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # the square overflows float16
    torch.testing.assert_close(rms_norm(x, 1e-5), torch.ones(1, 4, dtype=torch.float16))


def test_rotary_scores_depend_on_distance_only():
    rotary = Rotary(8, 10_000.0, 4)
    cos, sin = rotary(20)  # longer than the table it was made with
    q, k = torch.randn(1, 1, 1, 8).expand(1, 1, 20, 8), torch.randn(1, 1, 1, 8).expand(1, 1, 20, 8)
    scores = (rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2))[0, 0]
    for offset in (0, 3, 7):
        diagonal = scores.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)


def test_conv1d_is_a_causal_sum_of_shifts(tiny):
    layer = LocalConvolution(tiny(conv="conv1d", conv_kernel=3, prefix_len=2))
    z = torch.randn(2, 2 + 6, 16)
    mixed = layer(z)
    weights = layer.filter.weight[:, 0]
    padded = F.pad(z[:, 2:], (0, 0, 2, 0))
    expected = sum(weights[:, i] * padded[:, i : i + 6] for i in range(3))
    torch.testing.assert_close(mixed[:, 2:], expected)
    assert torch.equal(mixed[:, :2], z[:, :2])


def test_conv2d_sees_the_neighbours_on_the_grid(tiny):
    layer = LocalConvolution(tiny(conv="conv2d"))
    z = torch.zeros(1, 16, 16)
    z[0, 5] = 1.0  # row 1, column 1
    touched = layer(z)[0].abs().sum(1).reshape(4, 4) > 0
    assert touched.nonzero().tolist() == [[r, c] for r in range(3) for c in range(3)]


@pytest.mark.parametrize("norm", ["pre", "post", "peri"])
@pytest.mark.parametrize("scale", ["channel", "fixed", "input", "none"])
@pytest.mark.parametrize("placement", ["none", "input", "output"])
def test_every_combination_runs_and_learns(tiny, norm, scale, placement):
    model = FPRM(tiny(norm=norm, residual_scale=scale, norm_placement=placement, prefix_len=2))
    output = model(torch.randint(5, (3, 16)), solver=SolverConfig(max_iter=3), grad_iterations=2)
    output.logits.square().mean().backward()
    assert output.logits.shape == (3, 16, 5)
    assert all(p.grad is not None for name, p in model.named_parameters() if "halting" not in name)


def test_the_body_is_the_published_formula(tiny):
    """One pass written out for scalar coefficients, one block, no convolution."""
    model = FPRM(tiny(residual_scale="fixed", conv="none", positions="none"))
    z, e = torch.randn(2, 16, 16), torch.randn(2, 16, 16)
    beta2 = 1 - 0.25 * 0.75**2
    beta1 = beta2 * 0.25 / (1 - 0.75**2 + 1e-5)
    u = 0.25 * z + beta2 * e
    for sublayer in model.block.sublayers:
        u = 0.75 * u + beta1 * sublayer(u / (u.square().mean(-1, keepdim=True) + 1e-5).sqrt())
    torch.testing.assert_close(model.body(z, e), u, rtol=1e-5, atol=1e-5)


def test_injection_scales_and_prefix(tiny):
    model = FPRM(tiny(prefix_len=3, num_puzzle_ids=4, positions="none"))
    x = torch.randint(5, (2, 16))
    e = model.inject(x, torch.tensor([1, 3]))
    assert e.shape == (2, 19, 16)
    assert torch.equal(e[:, :3], torch.zeros(2, 3, 16))
    torch.testing.assert_close(e[:, 3:], math.sqrt(16) * model.injection.tokens(x))
    with torch.no_grad():
        model.injection.puzzles.weight[3] = 1.0
    e = model.inject(x, torch.tensor([1, 3]))
    assert e[0, 0].abs().max() == 0
    assert torch.equal(e[1, 0], torch.full((16,), 4.0))


@pytest.mark.parametrize("iterations", [1, 5])
def test_causality(tiny, iterations):
    model = FPRM(tiny(causal=True, positions="none", conv="conv1d")).double()
    x = torch.randint(5, (1, 16))
    changed = x.clone()
    changed[0, 9] = (x[0, 9] + 1) % 5
    outputs = []
    for tokens in (x, changed):
        generator = torch.Generator().manual_seed(1)
        outputs.append(model(tokens, solver=SolverConfig.fixed(iterations), generator=generator).logits)
    assert torch.equal(outputs[0][:, :9], outputs[1][:, :9])
    assert not torch.allclose(outputs[0][:, 9], outputs[1][:, 9])


def test_halting_is_per_sample_whatever_the_batch(tiny):
    model = FPRM(tiny(num_layers=2, initial_state="frozen", conv="conv2d")).double().eval()
    x = torch.randint(5, (6, 16))
    solver = SolverConfig(tau=1e-4)
    together = model(x, solver=solver)
    for i in range(6):
        alone = model(x[i : i + 1], solver=solver)
        assert alone.iterations.item() == together.iterations[i].item()
        torch.testing.assert_close(alone.logits[0], together.logits[i])
    assert together.converged.all()
    assert model.effective_layers(together.iterations).tolist() == (2 * together.iterations).tolist()


def test_compaction_applies_the_body_once_for_each_iteration_of_each_sample(tiny):
    model = FPRM(tiny()).eval()
    rows = []
    model.block.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    output = model(torch.randint(5, (32, 16)), solver=SolverConfig(tau=1e-3))
    assert sum(rows) == output.iterations.sum().item()
    assert rows[-1] < rows[0]


def test_initial_states(tiny):
    model = FPRM(tiny())
    injection = model.inject(torch.zeros(2, 16, dtype=torch.int64))
    first, again = (model.initial_state(injection, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1])
    assert first.std().item() == pytest.approx(6.0, rel=0.1)
    frozen = FPRM(tiny(initial_state="frozen")).initial_state(injection)
    assert torch.equal(frozen[0, 0], frozen[1, 5])


def test_trace_and_prediction(tiny):
    model = FPRM(tiny(initial_state="frozen"))
    x = torch.randint(5, (2, 16))
    output = model(x, return_trace=True)
    assert output.trace.shape == (output.iterations.max(), 2)
    assert model(x).trace is None
    assert torch.equal(model.predict(x), output.logits.argmax(-1))


def test_an_empty_batch(tiny):
    output = FPRM(tiny())(torch.zeros(0, 16, dtype=torch.int64))
    assert output.logits.shape == (0, 16, 5)
    assert output.iterations.shape == (0,)


def test_truncated_gradients_approach_the_implicit_one(tiny):
    """Unrolling k steps from the fixed point, against a dense linear solve; the error obeys proposition 1."""
    config = tiny(seq_len=2, hidden_size=4, num_heads=1, ffn_multiple=4, conv="none", positions="none")
    block = FPRM(config).double().block
    injection = torch.randn(1, 2, 4, dtype=torch.float64)
    names, tensors = zip(*((n, p.detach()) for n, p in block.named_parameters()), strict=True)
    shapes = [t.shape for t in tensors]
    theta = torch.cat([t.flatten() for t in tensors])

    def f(z, theta):
        parts = theta.split([s.numel() for s in shapes])
        values = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        return functional_call(block, values, (z.view(1, 2, 4), injection)).flatten()

    with twice_differentiable():
        z = torch.zeros(8, dtype=torch.float64)
        for _ in range(200):
            z = f(z, theta)
        g = torch.randn(8, dtype=torch.float64)
        exact = implicit_gradient(f, z, theta, g)
        in_z, in_theta = torch.func.jacrev(f, argnums=(0, 1))(z, theta)
        sigma = torch.linalg.matrix_norm(in_z, 2).item()
        assert sigma < 1
        size = torch.linalg.matrix_norm(in_theta, 2).item() * g.norm().item()
        errors = []
        for k in (1, 2, 4, 8, 16):
            errors.append((truncated_gradient(f, z, theta, g, k) - exact).norm().item())
            assert errors[-1] <= size * truncation_bound(sigma, k, 8) + 1e-9
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * errors[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha1_init": 1.0}, r"alpha1_init must lie in \(0, 1\), got 1.0"),
        ({"alpha2_init": 0.0}, r"alpha2_init must lie in \(0, 1\), got 0.0"),
        ({"conv": "conv2d", "conv_kernel": 4}, "odd kernel, got 4"),
        ({"conv": "conv2d", "seq_len": 15}, "15 is not a perfect square"),
        ({"conv": "conv2d", "causal": True}, "cannot be causal"),
        ({"hidden_size": 18, "num_heads": 4}, "multiple of num_heads, got 18 and 4"),
        ({"hidden_size": 6, "num_heads": 2}, "even head dimension, got 3"),
        ({"norm": "layer"}, "norm must be one of"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"init_std": 0.0}, "init_std must be positive"),
    ],
)
def test_configurations_that_cannot_be_built(tiny, unchecked, changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_bad_tokens(tiny):
    model = FPRM(tiny(positions="learned", prefix_len=1, num_puzzle_ids=2))
    with pytest.raises(ValueError, match=r"token ids must lie in \[0, 5\), got 0 to 5"):
        model(torch.tensor([[0, 5]]))
    with pytest.raises(ValueError, match="learned positions end at 16 tokens, got 17"):
        model(torch.zeros(1, 17, dtype=torch.int64))
    with pytest.raises(IndexError, match=r"puzzle ids must lie in \[0, 2\), got 2"):
        model(torch.zeros(1, 4, dtype=torch.int64), torch.tensor([2]))
    with pytest.raises(ValueError, match="15 tokens are not a perfect square"):
        FPRM(tiny(conv="conv2d"))(torch.zeros(1, 15, dtype=torch.int64))


def test_a_state_that_is_not_finite_names_the_iteration(tiny):
    model = FPRM(tiny())
    with torch.no_grad():
        model.block.scaling.alpha1_logit[0] = float("nan")
    with pytest.raises(RuntimeError, match="not finite in iteration 1"):
        model(torch.zeros(1, 16, dtype=torch.int64))
