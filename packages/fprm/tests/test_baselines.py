"""The baselines: how often blocks are applied, where gradients flow, how they halt."""

import pytest
import torch
from fprm import HRM, TRM, Batch, DeepSupervisionTrainer, FixedDepthTransformer, SolverConfig
from fprm.arms import ARMS, get_arm
from fprm.recipes import Recipe


def count_applications(*modules):
    calls = []
    for module in modules:
        module.register_forward_hook(lambda m, i, o: calls.append(o.requires_grad))
    return calls


def test_trm_applies_its_block_21_times_and_differentiates_7(tiny):
    model = TRM(tiny(conv="none"))
    calls = count_applications(model.net)
    e = model.inject(torch.randint(5, (2, 16)))
    model.body(model.initial_state(e), e)
    assert len(calls) == model.applications == 21
    assert calls == [False] * 14 + [True] * 7


def test_trm_segment_is_the_published_recursion(tiny):
    model = TRM(tiny(conv="none"), high_cycles=1, low_cycles=2)
    e = model.inject(torch.randint(5, (2, 16)))
    z = model.initial_state(e)
    high, low = z[:, 0], z[:, 1]
    for _ in range(2):
        low = model.net(low, high + e)
    high = model.net(high, low)
    torch.testing.assert_close(model.body(z, e), torch.stack((high, low), 1))
    torch.testing.assert_close(model.readout(torch.stack((high, low), 1)), model.head(high))


def test_trm_block_is_post_norm(tiny):
    model = TRM(tiny())
    e = model.inject(torch.randint(5, (2, 16)))
    z = model.body(model.initial_state(e), e)
    torch.testing.assert_close(z.square().mean(-1).sqrt(), torch.ones(2, 2, 16), rtol=1e-3, atol=1e-3)


def test_hrm_differentiates_one_step_of_each_module(tiny):
    model = HRM(tiny(conv="none"))
    low, high = count_applications(model.low_module), count_applications(model.high_module)
    e = model.inject(torch.randint(5, (2, 16)))
    model.body(model.initial_state(e), e)
    assert low == [False, False, False, True]
    assert high == [False, True]
    assert len(model.low_module.sublayers) == 8
    t = DeepSupervisionTrainer(model, torch.optim.SGD(model.parameters(), lr=0.1), batch_size=2, bptt=1, halting="act")
    t.step(lambda count: Batch(torch.randint(5, (count, 16)), torch.randint(5, (count, 16))))
    assert all(p.grad is not None for name, p in model.named_parameters() if "halting" not in name)


def test_a_fixed_depth_transformer_ignores_its_state(tiny):
    model = FixedDepthTransformer(tiny(), 3)
    x = torch.randint(5, (2, 16))
    e = model.inject(x)
    assert torch.equal(model.body(torch.randn_like(e), e), model.body(model.initial_state(e), e))
    assert len(model.block.sublayers) == 6
    assert torch.equal(model.predict(x), model(x, solver=SolverConfig.fixed(3)).logits.argmax(-1))


def applications(arm, config, recipe):
    """Block-layer applications (with their batch) of one optimiser step."""
    own = arm.recipe(recipe)
    model = arm.build(config, recipe)
    rows = []
    for module in model.modules():
        if type(module).__name__ == "SwiGLU":
            module.register_forward_hook(lambda m, i, o: rows.append(len(o)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    t = DeepSupervisionTrainer(
        model, optimizer, own.solver, batch_size=own.batch_size, bptt=own.bptt, halting=own.halting
    )
    t.step(lambda count: Batch(torch.randint(5, (count, 16)), torch.randint(5, (count, 16))))
    return sum(rows)


@pytest.mark.parametrize("name", ["fprm", "fixed_loop", "act", "trm", "trm_conv", "shallow", "deep"])
def test_every_arm_costs_the_same_layer_applications(tiny, name):
    recipe = Recipe(steps=1, batch_size=4, learning_rate=1e-3, bptt=4, cycles=(1, 3))
    assert applications(get_arm(name), tiny(num_layers=2), recipe) == 4 * 4 * 2


def test_equal_parameters_means_equal(tiny):
    recipe = Recipe(steps=1, batch_size=4, learning_rate=1e-3)
    sizes = {}
    for name in ("fprm", "shallow", "trm_conv"):
        block = get_arm(name).build(tiny(num_layers=2), recipe)
        sizes[name] = sum(p.numel() for key, p in block.named_parameters() if "scaling" not in key)
    assert len(set(sizes.values())) == 1


def test_trm_is_evaluated_on_all_its_segments(tiny):
    recipe = Recipe(steps=1, batch_size=4, learning_rate=1e-3)
    arm = get_arm("trm")
    model, own = arm.build(tiny(), recipe), arm.recipe(recipe)
    output = model(torch.randint(5, (2, 16)), solver=arm.solver(model, own))
    assert output.iterations.tolist() == [16, 16]
    torch.nn.init.constant_(model.halting_head.bias, 5.0)
    early = get_arm("trm_conv_act")
    assert model(torch.randint(5, (2, 16)), solver=early.solver(model, own)).iterations.tolist() == [1, 1]


def test_bad_input(tiny):
    with pytest.raises(ValueError, match="must be at least 1, got 0 and 6"):
        TRM(tiny(), high_cycles=0)
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        FixedDepthTransformer(tiny(), 0)
    with pytest.raises(ValueError, match=f"unknown arm 'lstm'; there are {', '.join(ARMS)}"):
        get_arm("lstm")
