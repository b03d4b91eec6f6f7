"""CoFRe: what three-state reuse adds to sampling, and training steps beside plain stacks."""

import pytest
import torch
from cofre import (
    SJFB,
    Batch,
    FixedPointDenoiser,
    MaskedDenoiser,
    MaskedObjective,
    Recipe,
    ReuseRule,
    Trainer,
    reuse_coefficients,
    sample,
)

SHAPE = {"hidden": 256, "heads": 4, "cond_dim": 32}


def seeded(rule):
    return {"generator": torch.Generator().manual_seed(0), "reuse": ReuseRule(rule)}


def test_three_state_reuse_costs_little(compare):
    """Three-state reuse with all weights 0 is no reuse: same answer, the mixing is what is timed."""
    torch.manual_seed(0)
    model = FixedPointDenoiser(27, 128, **SHAPE)
    z = torch.full((8, 128), 27)
    none = ReuseRule("three_state", masked=(0.0, 0.0), changed=0.0)
    assert float(reuse_coefficients(z, z, 27, none).max()) == 0.0
    plain = sample(model, 8, steps=4, iterations=4, **seeded("none"))
    mixed = sample(model, 8, steps=4, iterations=4, **(seeded("none") | {"reuse": ReuseRule("three_state")}))
    assert plain.block_passes == mixed.block_passes == 24
    ratio = compare(
        "sampling with three-state reuse, 4 steps of 4 iterations",
        lambda: sample(model, 8, steps=4, iterations=4, **seeded("three_state")),
        lambda: sample(model, 8, steps=4, iterations=4, **seeded("none")),
        peer_name="the same sampler without reuse",
        target=1.02,
    )
    assert ratio < 1.5


@pytest.mark.parametrize("vocabulary", [27, 50_257])
def test_a_training_step_is_cheaper_than_of_twelve_blocks(compare, vocabulary):
    torch.manual_seed(0)
    recipe = Recipe(steps=1000, batch_size=4, learning_rate=1e-4)
    # N_ng = 2 and N_g = 4: close to the means of the published ranges, and the same in each step.
    sjfb = SJFB(no_grad=(2, 2), grad=(4, 4))
    ours = Trainer(FixedPointDenoiser(vocabulary, 128, **SHAPE), MaskedObjective(sjfb), recipe)
    peer = Trainer(MaskedDenoiser(vocabulary, 128, blocks=12, **SHAPE), MaskedObjective(), recipe)
    batch = Batch(torch.randint(27, (4, 128)))
    ratio = compare(
        f"one training step, vocabulary {vocabulary}",
        lambda: ours.step(batch),
        lambda: peer.step(batch),
        peer_name="MDLM with 12 blocks",
        target=0.885,
        repeats=7,
    )
    assert ratio < 1.2
