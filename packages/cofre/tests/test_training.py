import copy
from dataclasses import replace

import pytest
import torch
from cofre import SJFB, Batch, MarkovText, MaskedObjective, Recipe, Trainer, nelbo, train
from cofre.data import array_source
from cofre.training import FP_MDLM_OWT, IMAGENETTE, MDLM_OWT

RECIPE = Recipe(steps=6, batch_size=4, learning_rate=1e-2, ema_decay=0.5)


def objective(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return MaskedObjective(SJFB(generator=generator), generator=generator)


def source(seed=0):
    rows = torch.randint(7, (20, 12), generator=torch.Generator().manual_seed(1))
    return array_source(rows, generator=torch.Generator().manual_seed(seed))


def test_average_follows_its_definition(fixed_point):
    model = fixed_point()
    trainer = Trainer(model, objective(model), RECIPE)
    draw, expected = source(), None
    for _ in range(4):
        trainer.step(draw(4))
        weight = model.final.linear.weight.detach().clone()
        expected = weight if expected is None else 0.5 * expected + 0.5 * weight
    torch.testing.assert_close(trainer.evaluated.final.linear.weight, expected)
    assert trainer.evaluated is not model


def test_training_learns_a_pattern():
    """Sequences of one symbol: the bound falls far below the log 2 of independent tokens."""
    from cofre import FixedPointDenoiser

    torch.manual_seed(0)
    model = FixedPointDenoiser(2, 8, 16, 2)
    rows = torch.tensor([[0] * 8, [1] * 8])
    recipe = Recipe(steps=60, batch_size=16, learning_rate=1e-2, warmup=5)
    trained = train(model, array_source(rows, generator=torch.Generator().manual_seed(0)), objective(model), recipe)
    bound = float(nelbo(trained, rows.repeat(16, 1), 8, generator=torch.Generator().manual_seed(0)).mean())
    assert bound < 0.25  # log 2 / 8 = 0.087 is the optimum


def test_learning_rate_schedule():
    recipe = Recipe(steps=110, batch_size=1, learning_rate=1.0, warmup=10, decay="cosine")
    assert [recipe.rate(s) for s in (0, 4, 9, 60, 110)] == pytest.approx([0.1, 0.5, 1.0, 0.525, 0.05])
    assert replace(recipe, decay="constant").rate(100) == 1.0
    assert MDLM_OWT.learning_rate == 3e-4 and FP_MDLM_OWT.learning_rate < MDLM_OWT.learning_rate
    assert (IMAGENETTE.steps, IMAGENETTE.batch_size, IMAGENETTE.weight_decay) == (50_000, 128, 0.03)


def test_gradients_are_clipped(fixed_point):
    model = fixed_point()
    trainer = Trainer(model, objective(model), replace(RECIPE, clip_norm=1e-3))
    trainer.step(source()(4))
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert float(norm) <= 1e-3 * 1.001


def test_a_stopped_training_continues_where_it_was(fixed_point, tmp_path):
    """A checkpoint at step 3 and the rest give the weights of an unbroken run on the same batches."""
    start, batches = fixed_point(), [source(k)(4) for k in range(6)]

    class Draws:
        def __init__(self, first):
            self.rest = iter(batches[first:])

        def __call__(self, count):
            return next(self.rest)

    def per_step(model, batch, step):  # randomness that depends on the step only
        return objective(model, step)(model, batch, step)

    whole = train(copy.deepcopy(start), Draws(0), per_step, RECIPE)
    path = tmp_path / "arm.pt"
    train(copy.deepcopy(start), Draws(0), per_step, replace(RECIPE, steps=3), checkpoint=path)
    rest = train(copy.deepcopy(start), Draws(3), per_step, RECIPE, checkpoint=path)
    for a, b in zip(whole.parameters(), rest.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_validation_can_end_the_training(fixed_point):
    seen = []

    def validate(model, step):
        seen.append(step)
        assert not model.training
        return step >= 4

    model = fixed_point()
    train(model, source(), objective(model), RECIPE, validate=validate, validate_every=2)
    assert seen == [2, 4]


@pytest.mark.parametrize("token", [7, -1])
def test_tokens_out_of_range_are_refused(fixed_point, token):
    model = fixed_point()
    rows = torch.zeros(4, 12, dtype=torch.long)
    rows[2, 3] = token
    with pytest.raises(ValueError, match="training tokens must lie in 0 … 6"):
        Trainer(model, objective(model), RECIPE).step(Batch(rows))


def test_tokens_must_be_integers(fixed_point, unchecked):
    model = fixed_point()
    with pytest.raises(TypeError, match=r"training tokens must be integers, got torch\.float32"):
        Trainer(model, objective(model), RECIPE).step(Batch(torch.zeros(4, 12)))


def test_a_loss_that_is_not_finite_stops(fixed_point):
    model = fixed_point()
    with torch.no_grad():
        model.final.linear.bias[0] = torch.inf
    with pytest.raises(RuntimeError, match="at step 1; try a smaller learning rate"):
        Trainer(model, objective(model), RECIPE).step(source()(4))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"clip_norm": -1.0},
        {"ema_decay": 1.0},
    ],
)
def test_bad_recipes(changes):
    with pytest.raises(ValueError):
        replace(RECIPE, **changes)


def test_batches_must_divide_among_processes(fixed_point):
    class Three:
        num_processes = 3

    model = fixed_point()
    with pytest.raises(ValueError, match="a batch of 4 does not divide among 3 processes"):
        train(model, source(), objective(model), RECIPE, accelerator=Three())


def test_a_chain_can_be_the_source():
    chain = MarkovText.fit("the cat sat on the mat and the rat sat on the cat " * 20)
    assert Batch(chain.sample(3, 12)).classes is None
