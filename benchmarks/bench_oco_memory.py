"""First-order gradient steps, lazy sampling and control features beside their slower forms."""

import numpy as np
import pytest
from oco_memory import (
    Ball,
    Box,
    FirstOrderOGD,
    LazyExponentialWeights,
    QuadraticCost,
    RedrawExponentialWeights,
    SurrogateLoss,
    SurrogateMap,
    play_finite,
    surrogate_losses,
)
from oco_memory.instances import absolute_losses, quadratic_losses
from oco_memory.learner import Learner
from oco_memory.plants import rotation_plant, sinusoids
from oco_memory.weights import GridLaw


def drive(learner: Learner, losses: list) -> None:
    for loss in losses:
        learner.play()
        learner.update(loss)


def test_gradient_step_beside_the_grid(compare):
    """Spec target: at least 20 times faster a round than 65 x 65 cells."""
    losses = quadratic_losses(200, 2, 5, 0.3, np.random.default_rng(0))
    box = Box(-np.ones(2), np.ones(2))
    gradient = FirstOrderOGD(box, 5, 1.0)
    lazy = LazyExponentialWeights(box, 5, cells=65, loss_range=10.0, random_state=0)
    drive(gradient, losses * 20)
    drive(lazy, losses * 20)
    assert isinstance(lazy.law, GridLaw)
    best = lazy.law.points[lazy.law.probabilities.argmax()]
    assert np.linalg.norm(gradient.play() - best) < 0.3  # both near the optimum
    compare(
        "round of FirstOrderOGD, d = 2",
        lambda: drive(gradient, losses),
        lambda: drive(lazy, losses),
        peer_name="LazyExponentialWeights, 4,225 cells",
        target=1 / 20,
    )


def test_lazy_beside_redrawing(compare):
    """Spec target: at least 1.5 times faster with 10,000 points."""
    losses = quadratic_losses(100, 2, 2, 0.0, np.random.default_rng(1))
    box = Box(-np.ones(2), np.ones(2))
    learners = [
        kind(box, 2, 0.5, cells=100, loss_range=10.0, random_state=0)
        for kind in (LazyExponentialWeights, RedrawExponentialWeights)
    ]
    for learner in learners:
        drive(learner, losses)
    one, other = (learner.law for learner in learners)
    assert isinstance(one, GridLaw) and isinstance(other, GridLaw)
    assert np.array_equal(one.probabilities, other.probabilities)
    compare(
        "round of LazyExponentialWeights, N = 10,000",
        lambda: drive(learners[0], losses),
        lambda: drive(learners[1], losses),
        peer_name="RedrawExponentialWeights",
        target=1 / 1.5,
    )


def test_batch_beside_single_runs(compare):
    losses = absolute_losses(2000, 0.3, 0.3, 5, np.random.default_rng(2))
    box = Box(np.array([-1.0]), np.array([1.0]))
    children = np.random.default_rng(3).spawn(20)

    def singly() -> list[float]:
        totals = []
        for child in children:
            learner = LazyExponentialWeights(box, 5, 0.3, random_state=child)
            drive(learner, losses)
            totals.append(learner.cumulative_unary_)
        return totals

    batch = play_finite(losses, box.grid(65), eta=0.3, runs=20, random_state=3)
    assert singly() == pytest.approx(batch.unary_totals)
    compare(
        "20 lazy runs of 2,000 rounds",
        lambda: play_finite(losses, box.grid(65), eta=0.3, runs=20, random_state=3),
        singly,
        peer_name="20 online learners",
        target=1 / 5,
        repeats=5,
    )


def test_features_in_one_pass(compare):
    maps = SurrogateMap(rotation_plant(), None, 3, 6)
    w, cost = sinusoids(2000, 2, np.random.default_rng(4)), QuadraticCost(np.eye(2), np.eye(2))

    def one_by_one() -> list[SurrogateLoss]:
        padded = np.concatenate([np.zeros((maps.reach, 2)), w])
        return [SurrogateLoss(maps, cost, padded[t : t + maps.reach][::-1]) for t in range(len(w))]

    together = surrogate_losses(maps, w, [cost] * len(w))
    theta = np.ones(maps.dim)
    for a, b in zip(together[::100], one_by_one()[::100], strict=True):
        assert a is not None and a.unary(theta) == pytest.approx(b.unary(theta))
    compare(
        "control losses of 2,000 rounds",
        lambda: surrogate_losses(maps, w, [cost] * len(w)),
        one_by_one,
        peer_name="a loop over rounds",
        target=1 / 5,
        repeats=5,
    )


def test_first_order_beside_constant_steps(compare):
    """Adaptivity costs the step rule only: the peer is the same descent with a constant step."""
    losses = quadratic_losses(500, 10, 5, 0.3, np.random.default_rng(5))
    ball = Ball(np.zeros(10), 1.0)
    adaptive, constant = FirstOrderOGD(ball, 5, 1.0), FirstOrderOGD(ball, 5, 1.0, 1e-2)
    drive(adaptive, losses)
    drive(constant, losses)
    assert adaptive.play() == pytest.approx(constant.play(), abs=0.3)
    compare(
        "round with self-confident steps, d = 10",
        lambda: drive(adaptive, losses),
        lambda: drive(constant, losses),
        peer_name="the same with a constant step",
        target=1.3,
    )
