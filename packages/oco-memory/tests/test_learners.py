"""Oracles of the learners: closed forms, hand-computed games, laws of the sampler, invariants."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oco_memory import (
    AbsMemoryLoss,
    AnytimeOGD,
    Ball,
    Box,
    FiniteSet,
    FirstOrderOGD,
    LazyExponentialWeights,
    LinearSignLoss,
    MeanExponentialWeights,
    MemoryOGD,
    QuadraticMemoryLoss,
    RedrawExponentialWeights,
    SwitchingExpertLoss,
    best_fixed,
    lazy_ew_bound,
    play,
    play_finite,
    policy_regret,
)
from oco_memory.instances import absolute_losses, quadratic_losses, sign_losses, target_losses
from oco_memory.problems import experts_losses
from oco_memory.sampling import hit_and_run
from oco_memory.sweep import step_sweep
from oco_memory.weights import GridLaw
from scipy import stats

INTERVAL = Box(np.array([-1.0]), np.array([1.0]))
START = np.array([-1.0])


def tracking(coefficients: list[float], target: float, rounds: int) -> list:
    """(<coefficients, newest first> - target)^2 / 2."""
    C = np.array(coefficients[::-1])[None, :, None]
    return [QuadraticMemoryLoss(C, np.array([target]))] * rounds


def two_actions(first: float = 1.0, second: float = 0.0, rounds: int = 10) -> list:
    """Losses (first, second) a round on two actions, without memory."""
    point = FiniteSet.actions(2).points

    class Loss(LinearSignLoss):
        def value(self, z):
            return self.unary(z[..., -1, :])

        def unary(self, x):
            return np.where(x[..., 0] == point[0, 0], first, second)

    return [Loss(0.0, 1)] * rounds


def test_gradient_descent_without_memory_has_the_closed_form():
    result = play(MemoryOGD(INTERVAL, 1, 0.1, START), tracking([1.0], 0.5, 50))
    assert result.total == pytest.approx(1.125 * (1 - 0.9**100) / (1 - 0.81), rel=1e-12)
    assert result.total == pytest.approx(5.920895360138, rel=1e-12)
    assert result.total == result.unary_total


def test_gradient_descent_with_memory_counts_from_round_m():
    learner = MemoryOGD(INTERVAL, 3, 0.08, START)
    result = play(learner, tracking([0.5, 0.3, 0.2], 0.5, 40))
    assert result.total == pytest.approx(8.069246578279, rel=1e-10)
    assert result.unary_total == pytest.approx(7.311257819405, rel=1e-10)
    assert learner.play()[0] == pytest.approx(0.436900096047, rel=1e-10)


@pytest.mark.parametrize("rounds", [500, 1500])
def test_first_order_loss_does_not_depend_on_the_horizon(rounds):
    result = play(FirstOrderOGD(INTERVAL, 5, x0=START), tracking([0.2] * 5, 0.5, rounds))
    assert result.total == pytest.approx(13.733152211538, rel=1e-9)
    assert result.step_sizes[4] == pytest.approx(1 / (4 * 0.2 * 25))  # the cap 1/(4 beta m^2), beta = ||c||^2


def test_self_confident_step_follows_its_formula():
    """beta = 1, m = 2, D = 2: the second regime D / sqrt(2 beta m^2 S) starts where S passes 8 beta m^2 D^2 = 128."""
    rng = np.random.default_rng(0)
    losses = target_losses(rng.choice([-20.0, 20.0], size=12), np.array([0.0, 1.0]), QuadraticMemoryLoss)
    learner = FirstOrderOGD(INTERVAL, 2)
    result = play(learner, losses)
    assert result.step_sizes[-1] == pytest.approx(2 / math.sqrt(2 * 4 * learner.cumulative_unary_))
    assert result.step_sizes[-1] < 1 / 16
    pairs = zip(losses[1:], result.decisions[1:], strict=True)
    gradients = [loss.unary_grad(x)[0] for loss, x in pairs if loss is not None]
    norm = play(FirstOrderOGD(INTERVAL, 2, eta="adagrad-norm"), losses[:2]).step_sizes[-1]
    assert norm == pytest.approx(min(1 / 16, 2 / math.sqrt(2 * gradients[0] ** 2)))


def probabilities(learner: LazyExponentialWeights) -> np.ndarray:
    assert isinstance(learner.law, GridLaw)
    return learner.law.probabilities


def test_without_memory_exponential_weights_are_hedge():
    losses = two_actions()
    learner = LazyExponentialWeights(FiniteSet.actions(2), 1, eta=0.5, random_state=0)
    seen = []
    for loss in losses[:3]:
        learner.play()
        learner.update(loss)
        seen.append(probabilities(learner)[0])
    assert seen == pytest.approx([0.3775406688, 0.2689414214, 0.1824255238], rel=1e-9)


@pytest.mark.parametrize("lazy", [True, False])
def test_both_samplers_have_the_law_of_exponential_weights(lazy):
    runs = play_finite(two_actions(), FiniteSet.actions(2).points, eta=0.5, lazy=lazy, runs=5000, random_state=1)
    expected = 1 / (1 + np.exp(0.5 * np.arange(10)))
    counts = (runs.indices == 0).sum(axis=0)
    for count, p in zip(counts, expected, strict=True):
        assert stats.chisquare([count, 5000 - count], [5000 * p, 5000 * (1 - p)]).pvalue > 1e-4
    assert abs(runs.totals.mean() - 1.629679972539) < 4 * runs.totals.std() / math.sqrt(5000)
    assert 1.629679972539 < lazy_ew_bound(0.5, 0.0, 2, 1) == pytest.approx(1.7616294577)


def test_lazy_switches_as_rarely_as_computed():
    """From the first action only, with probability (1 - e^-eta) p_{t+1}(second) a round; 0.4933 over 11 decisions."""
    runs = play_finite(two_actions(rounds=11), FiniteSet.actions(2).points, eta=0.5, runs=5000, random_state=2)
    switches = (np.diff(runs.indices, axis=1) != 0).sum(axis=1)
    assert abs(switches.mean() - 0.493307149076) < 4 * switches.std() / math.sqrt(5000)
    assert (np.diff(runs.indices, axis=1) >= 0).all()


@pytest.mark.parametrize("eta", [0.3, "known", "doubling"])
@pytest.mark.parametrize("lazy", [True, False])
def test_batch_runs_repeat_the_online_learner(eta, lazy):
    rng = np.random.default_rng(3)
    losses = absolute_losses(400, 0.3, 0.4, 4, rng)
    losses[7] = losses[60] = None
    batch = play_finite(losses, INTERVAL.grid(33), eta=eta, lazy=lazy, runs=3, random_state=9)
    kind = LazyExponentialWeights if lazy else RedrawExponentialWeights
    for run, child in enumerate(np.random.default_rng(9).spawn(3)):
        online = kind(INTERVAL, 4, eta, batch.l_star, cells=33, random_state=child)
        result = play(online, losses)
        assert np.array_equal(result.decisions, INTERVAL.grid(33)[batch.indices[run]])
        assert result.total == pytest.approx(batch.totals[run])
        assert result.unary_total == pytest.approx(batch.unary_totals[run])
        assert online.n_redraws_ - batch.redraws[run] in (0, 1)  # the online learner draws once more after the end
        assert eta != "doubling" or online.law.restarts >= 2


def test_redraws_are_at_most_eta_times_the_loss():
    rng = np.random.default_rng(4)
    runs = play_finite(sign_losses(2000, 1000, 0.2, 3, rng), INTERVAL.grid(65), eta=0.2, runs=200, random_state=rng)
    excess = runs.redraws - 0.2 * runs.unary_totals
    assert excess.mean() <= 3 * excess.std() / math.sqrt(200)
    # 1 - exp(-eta f) against eta f with f <= 1: nearly as many as allowed
    assert runs.redraws.mean() > 0.8 * 0.2 * runs.unary_totals.mean()


def test_doubling_restarts_when_the_best_action_passes_the_guess():
    """Every action loses 1 a round: guesses ln 4 * 1, 2, 4 are passed after 2, 3, 6 rounds."""
    learner = LazyExponentialWeights(FiniteSet.actions(4), 1, random_state=0)
    etas = []
    for _ in range(11):
        learner.update(SameLoss(1))
        etas.append(learner.law.eta)
    restarts = [t + 1 for t in range(1, 11) if etas[t] != etas[t - 1]]
    assert restarts == [2, 5, 11]
    assert etas[2] == pytest.approx(math.sqrt(1 / 2)) and etas[6] == pytest.approx(1 / 2)


class SameLoss(LinearSignLoss):
    """1 for every decision."""

    def __init__(self, memory: int) -> None:
        super().__init__(0.0, memory)

    def value(self, z):
        return np.ones(z.shape[:-2])

    def unary(self, x):
        return np.ones(x.shape[:-1])


def test_prior_is_the_first_law():
    learner = LazyExponentialWeights(FiniteSet.actions(3), 1, eta=1.0, prior=np.array([1.0, 2.0, 1.0]), random_state=0)
    assert probabilities(learner) == pytest.approx([0.25, 0.5, 0.25])


def test_mean_exponential_weights_plays_the_mean():
    """Signs +1 only: weights e^{eta k x / 2}; with a fine grid the mean is coth(a) - 1/a, a = eta k / 2."""
    learner = MeanExponentialWeights(INTERVAL, 1, 0.5, cells=20_001)
    assert learner.play()[0] == pytest.approx(0.0, abs=1e-12)
    for _ in range(8):
        learner.update(LinearSignLoss(1, 1))
    assert learner.play()[0] == pytest.approx(1 / math.tanh(2.0) - 1 / 2.0, rel=1e-3)
    with pytest.raises(ValueError, match="convex"):
        MeanExponentialWeights(FiniteSet.actions(3), 1)


def test_hit_and_run_draws_a_truncated_gaussian():
    """exp(-8 |x - c|^2) in a box, coordinates independent: Kolmogorov-Smirnov on each."""
    rng = np.random.default_rng(5)
    box, centre = Box(-np.ones(2), np.ones(2)), np.array([0.4, -0.8])
    x, draws = np.zeros(2), []
    for _ in range(1000):
        x = hit_and_run(lambda y: float(-8 * ((y - centre) ** 2).sum()), box, x, 8, rng)
        draws.append(x)
    for axis in range(2):
        law = ((-1 - centre[axis]) * 4, (1 - centre[axis]) * 4, centre[axis], 0.25)
        assert stats.kstest(np.array(draws)[:, axis], "truncnorm", args=law).pvalue > 1e-3


def test_hit_and_run_draws_a_laplace_law():
    """exp(-6|x|) in [-1, 1], whose kink and tails show a wrong slice level."""
    rng, x, draws = np.random.default_rng(0), np.zeros(1), []
    for _ in range(2000):
        x = hit_and_run(lambda y: float(-6 * abs(y[0])), INTERVAL, x, 5, rng)
        draws.append(x[0])
    floor = math.exp(-6)

    def cdf(v):
        return np.where(v < 0, np.exp(6 * v) - floor, 2 - floor - np.exp(-6 * v)) / (2 - 2 * floor)

    assert stats.kstest(np.array(draws), cdf).pvalue > 1e-3


def test_hit_and_run_learner_agrees_with_the_grid():
    """Same weights in one dimension: mean losses within Monte-Carlo error."""
    rng = np.random.default_rng(6)
    losses = absolute_losses(25, 0.3, 0.3, 2, rng)
    grid = play_finite(losses, INTERVAL.grid(401), eta=0.5, runs=400, random_state=rng).totals
    walks = np.array(
        [
            play(
                LazyExponentialWeights(INTERVAL, 2, 0.5, sampler="hit_and_run", n_steps=6, random_state=rng), losses
            ).total
            for _ in range(40)
        ]
    )
    assert abs(grid.mean() - walks.mean()) < 4 * math.hypot(grid.std() / 20, walks.std() / math.sqrt(40))


def test_hit_and_run_takes_a_tuned_rate_in_ten_dimensions():
    losses = quadratic_losses(40, 10, 2, 0.3, np.random.default_rng(7))
    ball = Ball(np.zeros(10), 1.0)
    learner = LazyExponentialWeights(ball, 2, "known", 1.0, "hit_and_run", loss_range=1.62, horizon=40, random_state=0)
    result = play(learner, losses)
    assert result.n_switches > 0
    assert (np.linalg.norm(result.decisions, axis=1) <= 1 + 1e-9).all()


def test_step_sweep_is_many_games():
    losses = absolute_losses(200, 0.2, 0.5, 3, np.random.default_rng(8))
    steps = np.stack([np.full(200, 0.1), 0.7 / np.sqrt(np.arange(1, 201))], axis=1)
    totals = step_sweep(losses, INTERVAL, steps, START)
    assert totals[0] == pytest.approx(play(MemoryOGD(INTERVAL, 3, 0.1, START), losses).total)
    assert totals[1] == pytest.approx(play(AnytimeOGD(INTERVAL, 3, 0.7, START), losses).total)


def test_regret_against_a_constant_learner_is_its_distance_from_the_optimum():
    losses = tracking([0.5, 0.5], 0.5, 20)
    result = play(MemoryOGD(INTERVAL, 2, 1e-300, START), losses)
    assert policy_regret(result, losses, INTERVAL) == pytest.approx(19 * 1.125)


def test_fewer_rounds_than_memory_cost_nothing():
    losses = tracking([0.2] * 5, 0.5, 4)
    result = play(FirstOrderOGD(INTERVAL, 5), losses)
    assert result.total == 0.0 and policy_regret(result, losses, INTERVAL) == 0.0


def test_zero_loss_before_any_gradient_keeps_the_point():
    """A first loss of zero once made the step NaN, and NaN * 0 moved the point."""
    zero = QuadraticMemoryLoss(np.ones((1, 1, 1)), np.array([0.5]), 0.0)
    learner = FirstOrderOGD(INTERVAL, 1, x0=START)
    learner.update(zero)
    assert learner.play() == START


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**31), st.lists(st.integers(0, 29), min_size=1, max_size=10))
def test_padding_changes_no_decision(memory, seed, positions):
    rng = np.random.default_rng(seed)
    game = [None] * (memory - 1) + target_losses(
        rng.uniform(-1, 1, 30), np.full(memory, 1 / memory), AbsMemoryLoss, 0.5
    )
    smooth = [None] * (memory - 1) + quadratic_losses(30, 1, memory, 0.3, rng)
    for losses, make in (
        (smooth, lambda: FirstOrderOGD(INTERVAL, memory)),
        (smooth, lambda: FirstOrderOGD(INTERVAL, memory, eta="adagrad-norm")),
        (game, lambda: LazyExponentialWeights(INTERVAL, memory, random_state=seed)),
    ):
        padded, kept = [], []
        for t, loss in enumerate(losses):
            extra = positions.count(t - memory + 1)
            padded += [None] * extra + [loss]
            kept += [False] * extra + [True]
        assert np.array_equal(play(make(), losses).decisions, play(make(), padded).decisions[np.array(kept)])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_scaling_the_losses_leaves_the_iterates(dim, memory, factor, seed):
    losses = quadratic_losses(40, dim, memory, 0.5, np.random.default_rng(seed))
    scaled = [QuadraticMemoryLoss(loss.C, loss.a, factor) for loss in losses if isinstance(loss, QuadraticMemoryLoss)]
    ball = Ball(np.zeros(dim), 1.0)
    one, other = play(FirstOrderOGD(ball, memory), losses), play(FirstOrderOGD(ball, memory), scaled)
    assert other.decisions == pytest.approx(one.decisions, rel=1e-9, abs=1e-9)
    steps = one.step_sizes[memory - 1 :]
    assert (np.diff(steps) <= 1e-15).all()
    assert all(ball.contains(x) for x in one.decisions)


def test_window_is_the_last_decisions_oldest_first():
    learner = MemoryOGD(INTERVAL, 3, 0.5, START)
    played = []
    for loss in tracking([0.5, 0.3, 0.2], 0.5, 6):
        played.append(learner.play()[0])
        assert learner.window[:, 0].tolist() == ([played[0]] * 2 + played)[-3:]
        learner.update(loss)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FirstOrderOGD(INTERVAL, 0), "memory must be an integer >= 1, got 0"),
        (lambda: FirstOrderOGD(INTERVAL, 1, eta=-1.0), "eta must be positive"),
        (lambda: FirstOrderOGD(INTERVAL, 1, eta="best"), "'self-confident'"),
        (lambda: FirstOrderOGD(INTERVAL, 1, beta=0.0), "beta must be positive"),
        (lambda: FirstOrderOGD(INTERVAL, 1, x0=np.array([2.0])), "x0 must be a point"),
        (lambda: MemoryOGD(INTERVAL, 1, 0.0), "eta must be positive"),
        (lambda: AnytimeOGD(INTERVAL, 1, 0.0), "c must be positive"),
        (lambda: LazyExponentialWeights(INTERVAL, 1, eta=0.0), "eta must be positive"),
        (lambda: LazyExponentialWeights(INTERVAL, 1, eta="known"), "l_star"),
        (lambda: LazyExponentialWeights(INTERVAL, 1, loss_range=0.0), "loss_range"),
        (lambda: play_finite([], np.zeros((2, 1)), loss_range=0.0, table=np.zeros((0, 2))), "loss_range must be pos"),
        (lambda: LazyExponentialWeights(INTERVAL, 1, sampler="best"), "sampler"),
        (lambda: LazyExponentialWeights(INTERVAL, 1, prior=np.ones(3)), "prior must hold 65"),
        (lambda: LazyExponentialWeights(INTERVAL, 1, sampler="hit_and_run"), "hit_and_run needs"),
        (lambda: LazyExponentialWeights(Box(-np.ones(4), np.ones(4)), 1), "hit_and_run"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_losses_name_the_round():
    negative = two_actions(-1.0, -1.0, 1)[0]
    for learner in (
        LazyExponentialWeights(FiniteSet.actions(2), 1, random_state=0),
        FirstOrderOGD(INTERVAL, 1, 1.0),
    ):
        learner.update(None)
        with pytest.raises(ValueError, match=r"round 2: .*-1"):
            learner.update(negative)
    large = LazyExponentialWeights(FiniteSet.actions(2), 1, random_state=0)
    with pytest.raises(ValueError, match="round 1: a loss is 3, above loss_range = 1; pass an upper bound"):
        large.update(two_actions(3.0, 0.0, 1)[0])
    with pytest.raises(ValueError, match="memory 2, the learner has 3"):
        FirstOrderOGD(INTERVAL, 3).update(tracking([0.5, 0.5], 0.0, 1)[0])
    with pytest.raises(ValueError, match="does not say its smoothness"):
        FirstOrderOGD(INTERVAL, 1).update(AbsMemoryLoss(np.ones((1, 1, 1)), np.zeros(1)))
    with pytest.raises(ValueError, match="finite and non-negative"):
        play(FirstOrderOGD(INTERVAL, 1, 1.0), two_actions(math.nan, math.nan, 1))


def test_switching_cost_is_paid_once_a_change():
    losses = experts_losses(50, 4, 2.0, np.random.default_rng(0))
    runs = play_finite(losses, FiniteSet.actions(4).points, eta=0.5, runs=5, random_state=1)
    switches = (np.diff(runs.indices, axis=1) != 0).sum(axis=1)
    assert runs.totals - runs.unary_totals == pytest.approx(switches * 2.0 / 3.0)
    assert isinstance(losses[0], SwitchingExpertLoss)
    assert best_fixed(losses, FiniteSet.actions(4))[1] == 0.0
