"""The solver on maps whose fixed points are known, halting, freezing and compaction."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch
from fprm import ActHalting, FixedPointSolver, SolverConfig, critical_damping, relative_residual
from hypothesis import given, settings
from hypothesis import strategies as st


def scalar(value):
    return torch.tensor([value], dtype=torch.float64)


def reflect(z):
    return 2.0 - z


@pytest.mark.parametrize(
    ("gamma", "iterations", "residual", "z"),
    [(0.9, 25, 0.09432, 0.963971), (0.99, 190, 0.096331, 1.049591)],
)
def test_an_oscillation_is_damped_at_the_worked_step(gamma, iterations, residual, z):
    result = FixedPointSolver(SolverConfig(gamma_eval=gamma)).solve(reflect, scalar(3.0))
    assert result.iterations.item() == iterations
    assert result.residual.item() == pytest.approx(residual, abs=1e-5)
    assert result.z.item() == pytest.approx(z, abs=1e-6)
    assert result.converged.item()


def test_the_step_size_shrinks_when_patience_runs_out():
    states, steps = [], []

    def record(iteration, active, z, state):
        states.append(z.item())
        steps.append(state.step_size.item())

    solver = FixedPointSolver(SolverConfig(gamma_eval=0.9))
    result = solver.solve(reflect, scalar(3.0), callback=record)
    assert states[:7] == [-1.0, 3.0, -1.0, 3.0, -1.0, 3.0, -1.0]
    assert result.history[:4, 0].tolist() == pytest.approx([4.0, 4 / 3, 4.0, 4 / 3])
    assert states[7:10] == pytest.approx([2.6, -0.28, 2.024])
    assert steps[:7] == [1.0] * 6 + [0.9]


def test_training_and_evaluation_use_their_own_gamma():
    config = SolverConfig(gamma_train=0.5, gamma_eval=0.9)
    assert FixedPointSolver(config, training=True).gamma == 0.5
    assert FixedPointSolver(config).gamma == 0.9


def test_a_fixed_point_at_zero_never_converges_by_a_relative_residual():
    """A limit of the rule, not of this code: the residual of f(z) = -z is 2 wherever z is larger than the guard."""
    result = FixedPointSolver(SolverConfig(gamma_eval=0.9, max_iter=100, eps=1e-300)).solve(torch.neg, scalar(1.0))
    assert not result.converged.item()
    assert result.residual.item() == pytest.approx(2.0)
    assert result.iterations.item() == 100
    guarded = FixedPointSolver(SolverConfig(gamma_eval=0.9, max_iter=500)).solve(torch.neg, scalar(1.0))
    assert guarded.converged.item()
    assert abs(guarded.z.item()) < 1e-9


def test_a_vanished_step_size_is_not_convergence():
    """No step size makes f(z) = 3 z + 1 converge."""
    result = FixedPointSolver(SolverConfig(gamma_eval=0.1, patience=1)).solve(lambda z: 3 * z + 1, scalar(-1.0))
    assert result.iterations.item() < 10
    assert result.step_size.item() < 1e-3
    assert not result.converged.item()


def test_the_residual_compares_with_the_undamped_map():
    """A tiny step moves little, but is no fixed point: comparing successive iterates would halt at once."""
    solver = FixedPointSolver(SolverConfig(eta0=0.01, gamma_eval=1.0, max_iter=50, min_step=0.0))
    result = solver.solve(lambda z: 0.5 * z + 5.0, scalar(100.0))
    assert not result.converged.item()
    assert result.history[0].item() == pytest.approx(45.0 / 55.0)


def test_finds_the_fixed_point_of_the_cosine():
    result = FixedPointSolver(SolverConfig(tau=1e-12)).solve(torch.cos, scalar(1.0))
    assert result.z.item() == pytest.approx(0.7390851332151607, abs=1e-11)
    assert result.z.item() == pytest.approx(float(scipy.optimize.fixed_point(np.cos, 1.0)), abs=1e-8)


def test_finds_the_fixed_point_of_a_linear_map():
    matrix = torch.randn(6, 6, dtype=torch.float64)
    matrix = 0.9 * matrix / torch.linalg.matrix_norm(matrix, 2)
    shift = torch.randn(6, dtype=torch.float64)
    result = FixedPointSolver(SolverConfig(tau=1e-10)).solve(lambda z: z @ matrix.T + shift, torch.zeros(3, 6).double())
    exact = torch.linalg.solve(torch.eye(6, dtype=torch.float64) - matrix, shift)
    torch.testing.assert_close(result.z, exact.expand(3, 6), rtol=1e-7, atol=1e-7)


@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_the_residual_does_not_depend_on_scale(factor, seed):
    generator = torch.Generator().manual_seed(seed)
    z, fz = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    for mode in ("per_position", "global"):
        scaled = relative_residual(factor * z, factor * fz, mode=mode)
        torch.testing.assert_close(scaled, relative_residual(z, fz, mode=mode), rtol=1e-4, atol=0)


def test_residual_by_position_and_of_the_whole_state():
    z, fz = torch.zeros(1, 2, 2), torch.tensor([[[10.0, 4.0], [0.5, -1.0]]])
    assert relative_residual(z, fz).item() == pytest.approx(1.0)
    shifted = fz + torch.tensor([[[0.0, 0.0], [0.8, 0.0]]])
    assert relative_residual(shifted, fz).item() == pytest.approx(0.8, abs=1e-6)
    assert relative_residual(shifted, fz, mode="global").item() == pytest.approx(0.08, abs=1e-6)


def test_bfloat16_residual_is_computed_in_float32():
    z = torch.full((1, 4), 1.0, dtype=torch.bfloat16)
    fz = torch.full((1, 4), 1.0078125, dtype=torch.bfloat16)
    assert relative_residual(z, fz).item() == pytest.approx(0.0078125 / 1.0078125, rel=1e-6)


def batch_of_maps(seed, count=4):
    generator = torch.Generator().manual_seed(seed)
    rates = torch.rand(count, generator=generator, dtype=torch.float64) * 2.2 - 1.3
    shifts = torch.rand(count, 3, generator=generator, dtype=torch.float64) + 0.5
    start = 5 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return rates, shifts, start


def affine(z, rates, shifts):
    return rates[:, None] * z + shifts


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10_000))
def test_a_sample_does_not_depend_on_its_batch(seed):
    rates, shifts, start = batch_of_maps(seed)
    solver = FixedPointSolver(SolverConfig(tau=1e-3, gamma_eval=0.9, max_iter=200))
    together = solver.solve(affine, start, context=(rates, shifts))
    frozen = solver.solve(lambda z: affine(z, rates, shifts), start)
    for name in ("z", "iterations", "residual", "converged", "step_size"):
        assert torch.equal(getattr(together, name), getattr(frozen, name)), name
    torch.testing.assert_close(together.history, frozen.history, equal_nan=True)
    for i in range(len(start)):
        alone = solver.solve(affine, start[i : i + 1], context=(rates[i : i + 1], shifts[i : i + 1]))
        assert alone.iterations.item() == together.iterations[i].item()
        torch.testing.assert_close(alone.z[0], together.z[i], rtol=0, atol=0)


def test_halted_samples_are_frozen_and_leave_the_batch():
    rates = torch.tensor([0.0, -0.9, 0.5], dtype=torch.float64)
    shifts, start = torch.ones(3, 2, dtype=torch.float64), torch.full((3, 2), 10.0, dtype=torch.float64)
    sizes, seen = [], {}

    def f(z, rates, shifts):
        sizes.append(len(z))
        return affine(z, rates, shifts)

    def record(iteration, active, z, state):
        for index, value in zip(active.tolist(), z, strict=True):
            seen[index] = value.clone()

    result = FixedPointSolver().solve(f, start, context=(rates, shifts), callback=record)
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (3, 1)
    assert sum(sizes) == result.iterations.sum().item()
    assert result.iterations[[0, 2]].tolist() == [2, 6]
    for index in range(3):
        assert torch.equal(result.z[index], seen[index])
    assert torch.isnan(result.history[2:, 0]).all()


def test_a_small_tau_is_allowed_and_ends_at_the_cap():
    for tau in (0.0, -1.0):
        result = FixedPointSolver(SolverConfig(tau=tau, max_iter=7, min_step=0.0)).solve(
            lambda z: 0.5 * z + 1, scalar(9.0)
        )
        assert result.iterations.item() == 7
        assert not result.converged.item()


def test_fixed_iterations_are_plain():
    result = FixedPointSolver(SolverConfig.fixed(4)).solve(reflect, scalar(3.0))
    assert (result.z.item(), result.iterations.item(), result.step_size.item()) == (3.0, 4, 1.0)


def test_noise_is_reproducible_and_off_by_default():
    config = SolverConfig(noise_std=0.1, max_iter=3, tau=0.0)

    def run(seed):
        solver = FixedPointSolver(config, generator=torch.Generator().manual_seed(seed))
        return solver.solve(lambda z: z, torch.zeros(100, 2)).z

    assert torch.equal(run(1), run(1))
    assert run(1).std().item() == pytest.approx(0.1 * math.sqrt(3), rel=0.2)
    assert torch.equal(
        FixedPointSolver(replace(config, noise_std=0.0)).solve(lambda z: z, torch.ones(1, 2)).z, torch.ones(1, 2)
    )


def test_act_halts_each_sample_when_its_head_fires():
    solver = ActHalting(lambda z: z[:, 0] - 2.5, max_iter=10)
    result = solver.solve(lambda z: z + 1.0, torch.tensor([[0.0], [1.0], [-50.0]]), context=())
    assert result.iterations.tolist() == [3, 2, 10]
    assert result.converged.tolist() == [True, True, False]


@pytest.mark.parametrize(("value", "expected"), [(-3.0, 0.5), (0.0, 2.0), (0.5, 4.0)])
def test_critical_damping_of_real_eigenvalues(value, expected):
    assert critical_damping([value]) == pytest.approx(expected)


@given(st.floats(0.9, 2.0), st.floats(0.6, 3.1))
def test_critical_damping_is_where_the_step_stops_contracting(modulus, angle):
    value = modulus * np.exp(1j * angle)
    if value.real >= 0.99:
        return
    critical = critical_damping([value])
    assert abs(1 + 0.999 * critical * (value - 1)) < 1
    assert abs(1 + 1.001 * critical * (value - 1)) > 1


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="max_iter must be at least 1, got 0"):
        SolverConfig(max_iter=0)
    with pytest.raises(ValueError, match=r"gamma_eval must lie in \(0, 1\], got 1.5"):
        SolverConfig(gamma_eval=1.5)
    with pytest.raises(ValueError, match="residual must be 'per_position' or 'global', got 'l2'"):
        SolverConfig(residual="l2")
    with pytest.raises(ValueError, match="keep the state's shape"):
        FixedPointSolver().solve(lambda z: z[:, :1], torch.ones(2, 3))
    with pytest.raises(ValueError, match="context tensors must have 2 entries like z0, got 3"):
        FixedPointSolver().solve(affine, torch.ones(2, 3), context=(torch.ones(3), torch.ones(3, 3)))
    with pytest.raises(ValueError, match="real part below 1, got 1"):
        critical_damping([0.5, 1.0])
    with pytest.raises(ValueError, match="real part below 1, got nan"):
        critical_damping([0.5, float("nan")])
    with pytest.raises(ValueError, match="at least one"):
        critical_damping([])
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\), got 1"):
        ActHalting(lambda z: z[:, 0], threshold=1.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_names_the_iteration(bad):
    calls = iter(range(100))

    def f(z):
        return torch.full_like(z, bad) if next(calls) == 2 else 2.0 - z

    with pytest.raises(RuntimeError, match="not finite in iteration 3"):
        FixedPointSolver().solve(f, scalar(3.0))


def test_an_empty_batch():
    result = FixedPointSolver().solve(lambda z: z, torch.empty(0, 3, 4))
    assert result.z.shape == (0, 3, 4)
    assert result.iterations.shape == (0,)
    assert relative_residual(torch.empty(0, 3, 4), torch.empty(0, 3, 4)).shape == (0,)
