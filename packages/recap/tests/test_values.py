"""Published and exhaustively computed numbers of the benchmarks."""

import numpy as np
import pytest
from recap import BENCHMARKS, benchmarks, brute_force, exact_value_iteration, fib, qmdp, solve, upper_value
from recap.baselines import coordinate_ascent, window_moves

# Best deterministic K-state controller by exhaustion, from its best start node.
OPTIMA = [
    ("tiger", 1, -20.0), ("tiger", 2, -20.0), ("tiger", 3, -20.0), ("1d", 1, 0.813953488), ("1d", 2, 0.953488372),
    ("1d", 3, 1.260344828), ("ejs1", 1, 8.981973223), ("ejs1", 2, 8.981973223), ("ejs1", 3, 8.981973223),
    ("parr95", 1, 6.327782647), ("parr95", 2, 6.327782647), ("shuttle", 1, 0.0), ("shuttle", 2, 18.923359570),
    ("cheng.D3-5", 1, 169.724400662), ("cheng.D3-5", 2, 169.724400662), ("cheese", 1, 0.236646896),
    ("4x4", 1, 0.229566033), ("4x4", 2, 3.732273312), ("light-maze", 1, 0.0),
]  # fmt: skip

OPTIMAL_VALUES = {
    "tiger": 19.3714, "1d": 1.2603, "4x3": 1.904, "cheese": 3.486, "4x4": 3.7323, "shuttle": 32.890, "parr95": 7.2010,
    "ejs1": 9.734, "light-maze": 4.622, "cheng.D3-5": 169.765, "rocksample-3-2": 15.2416,
}  # fmt: skip

LAST_OBSERVATION = {"4x3": 0.4525, "cheese": 0.6523, "4x4": 0.5167, "shuttle": 18.9234, "light-maze": 0.7232}


@pytest.mark.parametrize(("name", "K", "value"), OPTIMA)
def test_exhaustive_optimum(name, K, value):
    assert brute_force(benchmarks(name), K).value(benchmarks(name)) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("K", "value"), [(1, -4.0), (3, -3.265235)])
def test_exhaustive_optimum_of_a_short_sighted_tiger(K, value):
    pomdp = benchmarks("tiger", gamma=0.75)
    assert brute_force(pomdp, K).value(pomdp) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_optimal_value_is_enclosed(name, solved):
    pomdp, vf = solved(name)
    value = OPTIMAL_VALUES[name]
    assert vf.value(pomdp.b0) == pytest.approx(value, abs=max(1e-3, 2e-5 * value))
    upper = upper_value(pomdp, pomdp.b0[None], vf).value(pomdp.b0)
    assert upper >= vf.value(pomdp.b0) - 1e-9
    if name != "cheng.D3-5":  # many beliefs stay reachable there; exact value iteration certifies that one
        assert upper == pytest.approx(value, abs=2e-3)


@pytest.mark.parametrize("name", ["tiger", "1d", "ejs1", "cheng.D3-5"])
def test_exact_value_iteration_agrees_with_point_based(name, exact, solved):
    pomdp, vf = exact(name)
    assert vf.error <= 1e-6
    assert vf.value(pomdp.b0) == pytest.approx(solved(name)[1].value(pomdp.b0), abs=2e-5)
    # The error holds on the whole simplex: one more backup anywhere gains no more than (1 - gamma) times it.
    beliefs = np.random.default_rng(0).dirichlet(np.full(pomdp.n_states, 0.5), 2_000)
    gain = np.max([_backup_value(pomdp, vf, b) - vf.value(b) for b in beliefs[:200]])
    assert gain <= vf.error * (1 - pomdp.gamma) + 1e-9


def _backup_value(pomdp, vf, belief):
    values = []
    for a in range(pomdp.n_actions):
        p, posterior = pomdp.filter(belief, a)
        values.append(belief @ pomdp.r[:, a] + pomdp.gamma * p @ vf.value(posterior))
    return max(values)


def test_tiger_has_nine_vectors_and_five_on_the_optimal_path(exact, solved):
    assert len(exact("tiger")[1].alphas) == 9
    assert len(solved("tiger")[1].alphas) == 5


def test_exact_value_iteration_against_deep_enumeration(random_pomdp):
    """Brute-force expectimax over a finite horizon encloses V*."""
    pomdp = random_pomdp(3, S=3, A=2, O=2, gamma=0.5)
    vf = exact_value_iteration(pomdp, tol=1e-8)

    def best(belief, depth, leaf):
        if depth == 0:
            return leaf
        found = []
        for a in range(pomdp.n_actions):
            p, posterior = pomdp.filter(belief, a)
            rest = sum(q * best(c, depth - 1, leaf) for q, c in zip(p, posterior, strict=True) if q > 0)
            found.append(belief @ pomdp.r[:, a] + pomdp.gamma * rest)
        return max(found)

    low = best(pomdp.b0, 5, pomdp.r.min() / (1 - pomdp.gamma))
    high = best(pomdp.b0, 5, pomdp.r.max() / (1 - pomdp.gamma))
    assert low - 1e-9 <= vf.value(pomdp.b0) <= high + 1e-9
    assert high - low < 0.5


def test_fast_informed_bound():
    assert float((benchmarks("tiger").b0 @ fib(benchmarks("tiger"))).max()) == pytest.approx(87.18, abs=1e-2)
    for name, value in (("shuttle", 32.890), ("parr95", 7.2010)):
        pomdp = benchmarks(name)
        assert float((pomdp.b0 @ fib(pomdp)).max()) == pytest.approx(value, abs=1e-3)
    pomdp = benchmarks("shuttle")
    assert float((pomdp.b0 @ qmdp(pomdp)).max()) == pytest.approx(32.890, abs=1e-3)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_bounds_from_the_mdp_are_ordered(name, solved):
    pomdp, vf = solved(name)
    beliefs = np.random.default_rng(1).dirichlet(np.full(pomdp.n_states, 0.3), 200)
    informed, mdp = (beliefs @ fib(pomdp)).max(axis=1), (beliefs @ qmdp(pomdp)).max(axis=1)
    assert (vf.value(beliefs) <= informed + 1e-6).all()
    assert (informed <= mdp + 1e-6).all()


@pytest.mark.parametrize(("name", "value"), LAST_OBSERVATION.items())
def test_last_observation_memory(name, value):
    pomdp = benchmarks(name)
    moves = window_moves(pomdp.n_observations, pomdp.n_observations + 1)
    found = coordinate_ascent(pomdp, moves, np.random.default_rng(0)).value(pomdp)
    assert found == pytest.approx(value, abs=1e-3)


def test_peer_solver_reaches_no_more_than_the_optimum(solved):
    peer = pytest.importorskip("pomdp_toolkit")
    solvers = pytest.importorskip("pomdp_toolkit.solvers")
    pomdp, vf = solved("tiger")
    model = peer.POMDP(
        states=2, actions=3, observations=2, transition_table=pomdp.T.transpose(1, 0, 2),
        observation_table=pomdp.Z.transpose(1, 0, 2),
        reward_table=np.broadcast_to(pomdp.r[:, :, None, None], (2, 3, 2, 2)).copy(), start_probabilities=pomdp.b0,
    )  # fmt: skip
    solution, _ = solvers.PBVI_SSEA.solve(
        model, gamma=0.95, expansions=30, max_belief_growth=30, update_passes=5, rng=0, print_progress=False,
        print_stats=False,
    )  # fmt: skip
    value = (solution.alpha_vector_array @ pomdp.b0).max()
    assert value <= vf.value(pomdp.b0) + 1e-6
    assert value == pytest.approx(vf.value(pomdp.b0), rel=5e-3)


def test_solving_a_renumbered_model_gives_the_same_value(solved):
    from recap import POMDP

    pomdp, vf = solved("shuttle")
    s, o = np.random.default_rng(0).permutation(8), np.random.default_rng(1).permutation(5)
    twin = POMDP(pomdp.T[:, s][:, :, s], pomdp.Z[:, s][:, :, o], pomdp.r[s], pomdp.gamma, pomdp.b0[s])
    assert solve(twin).value(twin.b0) == pytest.approx(vf.value(pomdp.b0), abs=1e-5)
    assert brute_force(twin, 2).value(twin) == pytest.approx(18.923359570, abs=1e-6)
