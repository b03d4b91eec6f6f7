"""The reduction, the controllers and their optimum in hindsight, against simulation, python-control and cvxpy."""

import control as python_control
import numpy as np
import pytest
from oco_memory import (
    GPC,
    AnytimeGPC,
    Ball,
    DisturbanceActionPolicy,
    FirstOrderGPC,
    FirstOrderOGD,
    L1Cost,
    LazyEWController,
    LazyExponentialWeights,
    LinearFeedback,
    LinearSystem,
    OnlineController,
    QuadraticCost,
    SurrogateLoss,
    SurrogateMap,
    best_dac,
    exact_features,
    rollout,
    simulate,
    surrogate_features,
    surrogate_losses,
    truncation_length,
)
from oco_memory.plants import (
    double_integrator,
    pitch_plant,
    rotating_disturbance,
    rotation,
    rotation_plant,
    shocks,
    sinusoids,
)
from oco_memory.system import ControlCost
from scipy import linalg


def rng_system(rng: np.random.Generator, dx: int = 3, du: int = 2, radius: float = 0.6) -> LinearSystem:
    A = rng.standard_normal((dx, dx))
    return LinearSystem(radius * A / np.abs(np.linalg.eigvals(A)).max(), rng.standard_normal((dx, du)))


@pytest.mark.parametrize("plant", [double_integrator(), pitch_plant(), rotation_plant()])
def test_lqr_is_python_controls(plant):
    Q, R = np.diag(np.arange(1.0, plant.dx + 1)), 0.3 * np.eye(plant.du)
    K, P, poles = python_control.dlqr(plant.A, plant.B, Q, R)
    ours = plant.lqr(Q, R)
    assert ours == pytest.approx(np.asarray(K), rel=1e-7, abs=1e-9)
    assert np.sort_complex(np.linalg.eigvals(plant.closed_loop(ours))) == pytest.approx(np.sort_complex(poles))
    # without disturbances the cost from x0 is x0' P x0 / 2, P from the Riccati equation
    x0 = np.arange(1.0, plant.dx + 1)
    run = simulate(plant, LinearFeedback(plant, ours), np.zeros((400, plant.dx)), [QuadraticCost(Q, R)] * 400, x0)
    assert run.total == pytest.approx(x0 @ linalg.solve_discrete_are(plant.A, plant.B, Q, R) @ x0 / 2, rel=1e-8)
    assert np.asarray(P) == pytest.approx(linalg.solve_discrete_are(plant.A, plant.B, Q, R))


def test_online_controller_without_disturbances_is_lqr():
    """Recovered disturbances of 1e-17 once drove the policy to the edge of its ball."""
    plant = double_integrator()
    Q, R = np.eye(2), np.eye(1)
    K = plant.lqr(Q, R)
    controller = FirstOrderGPC(plant, K, H=2, S=20)
    x0 = np.array([1.0, -0.5])
    run = simulate(plant, controller, np.zeros((60, 2)), [QuadraticCost(Q, R)] * 60, x0)
    assert run.total == pytest.approx(x0 @ linalg.solve_discrete_are(plant.A, plant.B, Q, R) @ x0 / 2, rel=1e-6)
    assert controller.policy == pytest.approx(np.zeros((2, 1, 2)))


def test_surrogate_is_exact_when_the_plant_forgets():
    """A_K nilpotent of order S: the surrogate state of a constant policy is the state."""
    rng = np.random.default_rng(0)
    system = LinearSystem(np.array([[0.0, 1.0, 0.3], [0.0, 0.0, -2.0], [0.0, 0.0, 0.0]]), rng.standard_normal((3, 2)))
    w, M = rng.standard_normal((40, 3)), rng.standard_normal((4, 2, 3))
    phi_x, b_x, phi_u, b_u = surrogate_features(system, None, w, H=4, S=3)
    run = simulate(system, DisturbanceActionPolicy(system, M), w, [None] * 40)
    assert phi_x @ M.ravel() + b_x == pytest.approx(run.states, abs=1e-11)
    assert phi_u @ M.ravel() + b_u == pytest.approx(run.inputs, abs=1e-11)


def test_surrogate_error_decays_with_the_memory():
    rng = np.random.default_rng(1)
    system = double_integrator()
    K = system.lqr(np.eye(2), np.eye(1))
    w, M = rng.uniform(-1, 1, (80, 2)), 0.3 * rng.standard_normal((2, 1, 2))
    states = simulate(system, DisturbanceActionPolicy(system, M, K), w, [None] * 80).states
    errors = []
    for S in (4, 8, 16):
        phi_x, b_x, _, _ = surrogate_features(system, K, w, 2, S)
        errors.append(np.abs(phi_x @ M.ravel() + b_x - states).max())
        power = np.linalg.norm(np.linalg.matrix_power(system.closed_loop(K), S), 2)
        assert errors[-1] <= power * np.linalg.norm(states, axis=1).max() * 1.01
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert truncation_length(system, K, 1e-6) == next(
        S for S in range(100) if np.linalg.norm(np.linalg.matrix_power(system.closed_loop(K), S), 2) <= 1e-6
    )


def test_exact_features_are_the_closed_loop():
    rng = np.random.default_rng(2)
    system = rng_system(rng)
    K = 0.1 * rng.standard_normal((2, 3))
    maps, w = SurrogateMap(system, K, 3, 2), rng.standard_normal((30, 3))
    M = rng.standard_normal((3, 2, 3))
    phi, b = exact_features(maps, w)
    run = simulate(system, DisturbanceActionPolicy(system, M, K), w, [None] * 30)
    assert phi @ M.ravel() + b == pytest.approx(np.hstack([run.states, run.inputs]), abs=1e-9)


def test_surrogate_loss_is_the_counterfactual_run():
    """value(M_{t-S}, .., M_t) = cost of y_t, v_t computed from the definition, policies changing every round."""
    rng = np.random.default_rng(3)
    system, H, S, t = rng_system(rng), 2, 4, 20
    K = 0.1 * rng.standard_normal((2, 3))
    maps, w = SurrogateMap(system, K, H, S), rng.standard_normal((40, 3))
    cost = QuadraticCost(np.diag([1.0, 2.0, 0.0]), np.eye(2))
    loss = surrogate_losses(maps, w, [cost] * 40)[t]
    assert loss is not None
    M = rng.standard_normal((S + 1, H, 2, 3))  # M[k] is played in round t - S + k
    A_K = system.A - system.B @ K
    y = np.zeros(3)
    for s in range(t - S, t):
        push = w[s] + system.B @ sum(M[s - t + S][j - 1] @ w[s - j] for j in range(1, H + 1))
        y = A_K @ y + push
    v = -K @ y + sum(M[S][j - 1] @ w[t - j] for j in range(1, H + 1))
    assert loss.value(M.reshape(S + 1, -1)) == pytest.approx(cost.value(y, v))
    flat = M[0].ravel()
    assert loss.unary(flat) == pytest.approx(loss.value(np.repeat(flat[None], S + 1, axis=0)))
    numeric = [(loss.unary(flat + h) - loss.unary(flat - h)) / 2e-6 for h in 1e-6 * np.eye(len(flat))]
    assert loss.unary_grad(flat) == pytest.approx(numeric, rel=1e-5, abs=1e-6)
    hessian = np.array([loss.unary_grad(flat + e) - loss.unary_grad(flat) for e in np.eye(len(flat))])
    assert loss.unary_beta == pytest.approx(np.linalg.eigvalsh(hessian).max())
    assert loss.unary_beta is not None and loss.beta is not None
    assert loss.unary_beta <= (S + 1) * loss.beta * (1 + 1e-9)


def test_controllers_play_what_their_learners_play_on_the_losses():
    """Disturbances do not react: a closed loop equals its learner on the losses made in one pass."""
    rng = np.random.default_rng(4)
    system = rng_system(rng, 2, 2)
    w = sinusoids(120, 2, rng)
    costs: list[ControlCost | None] = [None] * 9
    costs += [QuadraticCost(np.eye(2), 0.1 * np.eye(2))] * 111
    maps = SurrogateMap(system, None, 3, 6)
    losses = surrogate_losses(maps, w, costs)
    for make in (
        lambda: FirstOrderGPC(system),
        lambda: FirstOrderGPC(system, memory_cost="theory"),
        lambda: GPC(system, eta=0.05),
        lambda: AnytimeGPC(system, c=0.5),
    ):
        run = simulate(system, make(), w, costs)
        learner, thetas = make().learner, np.empty((120, maps.dim))
        for t, loss in enumerate(losses):
            thetas[t] = learner.play()
            learner.update(loss)
        again = rollout(maps, thetas, w, costs)
        assert again.states == pytest.approx(run.states, abs=1e-9)
        assert again.total == pytest.approx(run.total, rel=1e-9)
        assert np.abs(thetas[-1]).max() > 1e-3


def test_first_order_controller_forgets_the_horizon():
    """A rotating disturbance can be cancelled: J* = 0, and the regret is the same number for every T."""
    system, totals = rotation_plant(), []
    for horizon in (600, 1200):
        w = rotating_disturbance(horizon, 2, 1.0, np.random.default_rng(5))
        costs = [None] * 9 + [QuadraticCost(np.eye(2), np.zeros((2, 2)))] * (horizon - 9)
        totals.append(simulate(system, FirstOrderGPC(system), w, costs).total)
        assert best_dac(SurrogateMap(system, None, 3, 6), w, costs, 2.0)[1] < 1e-12
    assert totals[1] == pytest.approx(totals[0], rel=1e-6)


@pytest.mark.parametrize("radius", [0.05, 5.0])
def test_best_policy_is_least_squares_inside_and_cvxpys_on_the_ball(radius):
    rng = np.random.default_rng(6)
    system = rng_system(rng, 2, 1)
    w = rng.standard_normal((80, 2))
    cost = QuadraticCost(np.eye(2), 0.2 * np.eye(1))
    maps = SurrogateMap(system, None, 2, 4)
    M, j_star = best_dac(maps, w, [cost] * 80, radius)
    assert np.linalg.norm(M) <= radius * (1 + 1e-9)
    for method in ("cvxpy", "scipy"):
        assert j_star == pytest.approx(best_dac(maps, w, [cost] * 80, radius, method)[1], rel=1e-5)
    run = simulate(system, DisturbanceActionPolicy(system, M), w, [cost] * 80)
    assert run.total == pytest.approx(j_star, rel=1e-9)
    if radius > 1:
        phi, b = exact_features(maps, w)
        free = np.linalg.lstsq((cost.root @ phi).reshape(-1, maps.dim), -(b @ cost.root.T).ravel(), rcond=None)[0]
        assert M.ravel() == pytest.approx(free, rel=1e-6, abs=1e-8)


def test_best_policy_for_the_l1_norm_beats_its_neighbours():
    rng = np.random.default_rng(7)
    system = rng_system(rng, 2, 1)
    w, costs = rng.standard_normal((60, 2)), [L1Cost(1.0, 0.5)] * 60
    maps = SurrogateMap(system, None, 1, 4)
    M, j_star = best_dac(maps, w, costs, 3.0)
    for step in 0.02 * rng.standard_normal((30, *M.shape)):
        other = simulate(system, DisturbanceActionPolicy(system, M + step), w, costs).total
        assert other >= j_star - 1e-6


def test_long_policies_reach_lqr_on_white_noise():
    """With i.i.d. noise LQR is optimal on average, and disturbance-action policies contain it up to truncation."""
    rng = np.random.default_rng(8)
    system = LinearSystem(np.array([[0.8, 0.2], [0.0, 0.6]]), np.array([[0.5], [1.0]]))
    cost = QuadraticCost(np.eye(2), np.eye(1))
    w, costs = rng.standard_normal((3000, 2)), [cost] * 3000
    lqr = simulate(system, LinearFeedback(system, system.lqr(cost.Q, cost.R)), w, costs).total
    j_star = best_dac(SurrogateMap(system, None, 20, 4), w, costs, 10.0)[1]
    assert 0.97 * lqr < j_star <= lqr * (1 + 1e-3)


def test_sampled_gain_controls_the_l1_norm():
    """One gain on a grid that holds the cancelling one: loss stops growing, no gradient used."""
    system = rotation_plant()
    w = rotating_disturbance(1500, 2, 1.0, np.random.default_rng(9))
    costs: list[ControlCost | None] = [None] * 7
    costs += [L1Cost()] * 1493
    basis = -rotation(1.0)[None, None]
    controller = LazyEWController(
        system, basis, (np.array([0.0]), np.array([2.0])), np.sqrt(2) / 0.4, S=6, random_state=0
    )
    run = simulate(system, controller, w, costs)
    assert run.costs[-300:].sum() < 0.02 * run.total
    assert controller.policy == pytest.approx(basis[0], abs=0.05)
    assert isinstance(controller.learner, LazyExponentialWeights)
    assert controller.learner.n_redraws_ < 100


def test_recovered_disturbances_are_the_true_ones():
    rng = np.random.default_rng(10)
    system = rng_system(rng)
    w = rng.standard_normal((20, 3))
    controller = GPC(system, H=2, S=3, eta=0.01)
    simulate(system, controller, w, [QuadraticCost(np.eye(3), np.eye(2))] * 20)
    assert controller._disturbances.past == pytest.approx(w[18:13:-1])


def test_shocks_and_sinusoids_have_their_sizes():
    rng = np.random.default_rng(11)
    w = shocks(5000, 3, 0.1, 0.5, rng)
    norms = np.linalg.norm(w, axis=1)
    assert 0.08 < (norms > 0).mean() < 0.12
    assert norms[norms > 0] == pytest.approx(0.5)
    assert np.abs(sinusoids(500, 2, rng)).max() <= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearSystem(np.ones((2, 3)), np.ones((2, 1))), "A must be square"),
        (lambda: LinearSystem(np.eye(2), np.ones((3, 1))), "B must have shape"),
        (lambda: LinearSystem(np.full((2, 2), np.nan), np.eye(2)), "finite"),
        (lambda: FirstOrderGPC(double_integrator()), r"unstable: spectral radius 1 >= 1"),
        (lambda: FirstOrderGPC(rotation_plant(), np.ones((1, 2))), "K must be"),
        (lambda: FirstOrderGPC(rotation_plant(), H=0), "H and S must be >= 1"),
        (lambda: FirstOrderGPC(rotation_plant(), radius=0.0), "radius"),
        (lambda: QuadraticCost(-np.eye(2), np.eye(1)), "Q must be symmetric and positive semidefinite"),
        (lambda: L1Cost(-1.0), "weights"),
        (lambda: truncation_length(rotation_plant(), None, -1.0), "tolerance must be positive, got -1.0"),
        (lambda: truncation_length(rotation_plant(), None, np.nan), "tolerance must be positive, got nan"),
        (lambda: surrogate_features(rotation_plant(), None, np.ones((4, 3)), 1, 1), r"\(T, 2\)"),
        (lambda: surrogate_features(rotation_plant(), None, np.full((4, 2), np.nan), 1, 1), "row 0"),
        (lambda: simulate(rotation_plant(), LinearFeedback(rotation_plant()), np.ones((4, 2)), []), "0 costs"),
        (lambda: FirstOrderGPC(rotation_plant()).play(np.ones(3)), "length 2"),
        (lambda: SurrogateMap(rotation_plant(), None, 2, 2, np.ones((1, 3, 2, 2))), "basis"),
        (
            lambda: OnlineController(
                SurrogateMap(rotation_plant(), None, 2, 2), FirstOrderOGD(Ball(np.zeros(3), 1.0), 3, 1.0)
            ),
            "memory 3 and dimension 8",
        ),
        (
            lambda: best_dac(SurrogateMap(rotation_plant(), None, 1, 1), np.ones((3, 2)), [L1Cost()] * 3, 1.0, "grid"),
            "method must be",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_surrogate_of_a_non_smooth_cost_has_no_smoothness():
    maps = SurrogateMap(rotation_plant(), None, 1, 2)
    loss = SurrogateLoss(maps, L1Cost(), np.ones((3, 2)))
    assert loss.beta is None and loss.unary_beta is None
