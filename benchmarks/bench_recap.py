"""Our value iteration against pomdp-toolkit's, to the same value, and batched exhaustive search against a loop."""

from itertools import product

import numpy as np
import pytest
from recap import Controller, benchmarks, brute_force, solve

toolkit = pytest.importorskip("pomdp_toolkit")
solvers = pytest.importorskip("pomdp_toolkit.solvers")


def as_toolkit_model(pomdp):
    S, A, n_obs = pomdp.n_states, pomdp.n_actions, pomdp.n_observations
    return toolkit.POMDP(
        states=S, actions=A, observations=n_obs, transition_table=pomdp.T.transpose(1, 0, 2),
        observation_table=pomdp.Z.transpose(1, 0, 2),
        reward_table=np.broadcast_to(pomdp.r[:, :, None, None], (S, A, S, n_obs)).copy(),
        start_probabilities=pomdp.b0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tiger", "cheese"])
def test_value_iteration(name, compare):
    pomdp = benchmarks(name)
    model = as_toolkit_model(pomdp)

    def ours():
        return solve(pomdp)

    def peer():
        return solvers.PBVI_SSEA.solve(
            model, gamma=pomdp.gamma, expansions=30, max_belief_growth=30, update_passes=5, rng=0,
            print_progress=False, print_stats=False,
        )[0]  # fmt: skip

    value, theirs = float(ours().value(pomdp.b0)), float((peer().alpha_vector_array @ pomdp.b0).max())
    assert value == pytest.approx(theirs, rel=5e-3)
    assert value >= theirs - 1e-6  # the peer's settings stop a little below our value
    compare(f"value iteration, {name}", ours, peer, peer_name="pomdp-toolkit PBVI", target=2.0, repeats=5)


def test_exhaustive_search(compare):
    """5,832 controllers of 1d with three states, batched, against one linear solve a controller."""
    pomdp = benchmarks("1d")

    def loop():
        best = -np.inf
        for actions in product(range(2), repeat=3):
            if list(actions) == sorted(actions):
                for moves in product(range(3), repeat=6):
                    F = Controller(np.array(actions), np.array(moves).reshape(3, 2)).evaluate(pomdp)
                    best = max(best, float((F @ pomdp.b0).max()))
        return best

    assert brute_force(pomdp, 3).value(pomdp) == pytest.approx(loop(), abs=1e-9)
    compare(
        "exhaustive search, 1d with K=3", lambda: brute_force(pomdp, 3), loop, peer_name="one solve a controller",
        target=0.2, repeats=5,
    )  # fmt: skip
