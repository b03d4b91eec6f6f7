"""FPRM: what an iteration costs beside the plain blocks, and what leaving the batch saves."""

from dataclasses import replace

import pytest
import torch
from fprm import FPRM, FixedPointSolver, FPRMConfig, SolverConfig
from fprm.layers import rms_norm


def plain_blocks(model):
    """The same two transformer blocks, written out: pre-norm, plain sums, no convolution, no solver."""
    attention1, feed1, attention2, feed2 = model.block.sublayers
    eps = model.config.rms_eps

    def run(u):
        u = u + attention1(rms_norm(u, eps))
        u = u + feed1(rms_norm(u, eps))
        u = u + attention2(rms_norm(u, eps))
        return u + feed2(rms_norm(u, eps))

    return run


@pytest.mark.parametrize("training", [False, True], ids=["forward", "forward and backward"])
def test_an_iteration_costs_little_more_than_its_blocks(compare, training):
    torch.manual_seed(0)
    config = FPRMConfig.sudoku()
    model = FPRM(config)
    bare = FPRM(replace(config, residual_scale="none", conv="none"))
    bare.block.sublayers.load_state_dict(model.block.sublayers.state_dict())
    e = model.inject(torch.randint(10, (2, 81))).detach()
    z = model.initial_state(e)
    torch.testing.assert_close(bare.body(z, e), plain_blocks(bare)(z + e))

    solver = FixedPointSolver(SolverConfig())
    state, blocks = solver.init(2), plain_blocks(model)

    def iteration():
        result, _ = solver.step(state, z, model.body(z, e))
        if training:
            result.sum().backward()

    def plain():
        result = blocks(z + e)
        if training:
            result.sum().backward()

    with torch.set_grad_enabled(training):
        what = "one training iteration" if training else "one iteration"
        ratio = compare(
            f"{what} (convolution, scaling, solver), d = 512",
            iteration,
            plain,
            peer_name="two plain blocks",
            target=1.15,
        )
    assert ratio < 1.5


def test_finished_samples_leave_the_batch(compare):
    """Half of the samples need a quarter of the iterations of the others."""
    torch.manual_seed(0)
    weight = torch.linalg.qr(torch.randn(256, 256))[0]
    rates = torch.tensor([0.5, 0.87]).repeat(64)[:, None, None]
    start = torch.randn(128, 16, 256)

    def f(z, rates):
        return rates * (z @ weight) + 1.0

    solver = FixedPointSolver(SolverConfig(tau=1e-3))
    compact = solver.solve(f, start, context=(rates,))
    frozen = solver.solve(lambda z: f(z, rates), start)
    torch.testing.assert_close(compact.z, frozen.z)
    halves = compact.iterations.view(64, 2).float().mean(0)
    assert 0.2 < halves[0] / halves[1] < 0.3
    ratio = compare(
        "half the batch halts after a quarter of the iterations",
        lambda: solver.solve(f, start, context=(rates,)),
        lambda: solver.solve(lambda z: f(z, rates), start),
        peer_name="the same solver, batch kept to the end",
        target=0.75,
    )
    assert ratio < 1.0
