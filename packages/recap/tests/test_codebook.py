"""Codebooks, the closed loop, upper bounds, merging and the baselines."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recap import (
    BASELINES,
    BENCHMARKS,
    RECAP,
    Codebook,
    Controller,
    baseline,
    belief_sample,
    benchmarks,
    brute_force,
    decision_bound,
    merge_nodes,
    merge_table,
    refine,
    upper_bound,
)
from recap.baselines import _grid_points, quantised_policy, window_moves
from recap.bounds import dobrushin
from recap.codebook import code_of_vectors
from recap.reach import greedy_law


@pytest.fixture
def designed(solved):
    """name, K, options -> model, solution, sample, fitted RECAP."""

    def make(name: str, K: int, **options):
        pomdp, vf = solved(name)
        sample = belief_sample(pomdp, vf)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return pomdp, vf, sample, RECAP(K, **options).fit(pomdp, vf, sample)

    return make


def test_five_nodes_solve_tiger_and_four_do_not(designed):
    pomdp, vf, _, recap = designed("tiger", 5)
    assert recap.value_ == pytest.approx(19.3714, abs=1e-4)
    assert recap.path_[4].value(pomdp) < 0
    assert float(vf.value(pomdp.b0)) >= recap.value_ - 1e-6


@pytest.mark.parametrize(
    ("name", "K", "least"),
    [("1d", 3, 1.204), ("cheese", 8, 3.486), ("shuttle", 3, 31.86), ("shuttle", 6, 32.889), ("light-maze", 6, 4.622),
     ("ejs1", 12, 9.733), ("4x3", 6, 1.80), ("4x4", 3, 3.732), ("parr95", 4, 6.327), ("cheng.D3-5", 6, 169.765)],
)  # fmt: skip
def test_values_seen_by_the_prototype_are_reached(name, K, least, designed):
    assert designed(name, K)[3].value_ >= least


@pytest.mark.parametrize("name", ["1d", "shuttle", "parr95", "cheese"])
def test_value_rises_with_memory_and_never_beats_exhaustive_search(name, designed):
    pomdp, vf, _, recap = designed(name, 6)
    values = [recap.path_[K].value(pomdp) for K in range(1, 7)]
    assert (np.diff(values) >= -1e-9).all()
    assert values[0] == pytest.approx(brute_force(pomdp, 1).value(pomdp), abs=1e-9)
    assert values[-1] <= float(vf.value(pomdp.b0)) + 1e-5
    if name != "cheese":
        assert values[1] <= brute_force(pomdp, 2).value(pomdp) + 1e-9
    assert all(recap.path_[K].size <= K for K in recap.path_)


@pytest.mark.parametrize("options", [{}, {"nu": 1.0}, {"lam": 0.0}, {"mu": 0.0, "nu": 1.0}])
def test_design_lowers_the_objective_and_lloyd_the_distortion(options, designed):
    for name in ("4x3", "shuttle", "cheng.D3-5"):
        recap = designed(name, 6, nested=False, **options)[3]
        assert sum(len(entry["J"]) for entry in recap.history_) > 0
        for entry in recap.history_:
            assert (np.diff(entry["J"]) <= 1e-12).all()
            assert all(after <= before + 1e-9 for before, after in entry["lloyd"])
            assert (np.diff(entry["value"]) > 0).all()


def test_lloyd_representatives_are_the_best_vectors_of_their_cells(designed):
    """<alpha, .> is linear, so the mean of a cell tells the vector that loses the least on it."""
    _, vf, (beliefs, weights), recap = designed("4x3", 4, nested=False)
    code = recap.codebook_
    cell = code.encode(beliefs)
    for k in range(len(code.actions)):
        rows = cell == k
        cost = weights[rows] @ vf.distortion(beliefs[rows])
        assert cost.min() == pytest.approx(cost[vf.best(code.beliefs[k])], abs=1e-9)


def test_objective_by_hand(designed):
    pomdp, vf, (beliefs, weights), recap = designed("1d", 3, nested=False, nu=1.0, closed_loop=False)
    code, terms = recap.codebook_, recap.objective_
    value = np.asarray(vf.value(beliefs))
    served = np.array([max(alpha @ b for alpha in code.alphas) for b in beliefs])
    assert terms["distortion"] == pytest.approx(weights @ (value - served), abs=1e-12)
    closure = 0.0
    for k, a in enumerate(code.actions):
        mass = sum(w for w, b in zip(weights, beliefs, strict=True) if code.encode(b) == k)
        p, posterior = pomdp.filter(code.beliefs[k], int(a))
        for q, c in zip(p, posterior, strict=True):
            closure += mass * q * (vf.value(c) - max(alpha @ c for alpha in code.alphas))
    assert terms["closure"] == pytest.approx(closure, abs=1e-10)
    assert terms["J"] == pytest.approx(terms["distortion"] + terms["closure"] + terms["witness"])


def test_encoder_takes_the_smallest_index_on_ties(designed):
    _, vf, sample, _ = designed("tiger", 2)
    code = code_of_vectors(vf, np.array([1, 1, 0]), sample)
    assert set(np.asarray(code.encode(sample[0])).tolist()) <= {0, 2}


def test_refinement_keeps_only_what_helps(solved):
    pomdp, vf = solved("shuttle")
    sample = belief_sample(pomdp, vf)
    rng = np.random.default_rng(0)
    for _ in range(5):
        start = Controller(rng.integers(3, size=5), rng.integers(5, size=(5, 5)))
        refined, values = refine(pomdp, start, vf, sample)
        assert (np.diff(values) > 1e-9).all()
        assert refined.value(pomdp) == pytest.approx(values[-1])
        assert values[-1] >= start.best_start(pomdp).value(pomdp)


def test_same_seed_same_controller(designed):
    first, second = designed("4x3", 5, seed=3)[3], designed("4x3", 5, seed=3)[3]
    assert first.value_ == second.value_
    assert (first.controller_.next == second.controller_.next).all()


def test_fewer_vectors_than_memory_states_warns(solved):
    pomdp, vf = solved("tiger")
    with pytest.warns(UserWarning, match="the solution has 5 vectors, fewer than K=9"):
        recap = RECAP(9, nested=False).fit(pomdp, vf)
    assert len(recap.codebook_.alphas) == 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"K": 0}, ValueError, "K must be at least 1, got 0"),
        ({"K": 2, "restarts": 0}, ValueError, "restarts must be at least 1, got 0"),
        ({"K": 2, "lam": -1.0}, ValueError, "lam, nu and mu must not be negative, got -1.0, 0.0 and 1.0"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        RECAP(**options)


# Upper bounds ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["tiger", "1d", "shuttle", "ejs1", "parr95", "light-maze"]))
def test_bounds_hold_for_random_codebooks(solved, seed, name):
    pomdp, vf = solved(name)
    sample = belief_sample(pomdp, vf, episodes=30)
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, len(vf.alphas) + 1))
    code = code_of_vectors(vf, rng.choice(len(vf.alphas), K, replace=False), sample)
    gap = float(vf.value(pomdp.b0)) - code.controller(pomdp).value(pomdp)
    walked, a_priori = decision_bound(pomdp, code, vf, max_support=300), upper_bound(pomdp, code, vf)
    assert gap <= walked.regret + 1e-6
    assert walked.regret <= walked.distortion + 1e-6
    assert gap <= a_priori.value + 1e-6


def test_regret_identity(designed):
    """Without the tail the summed regret is the gap minus what the controller still loses at the horizon."""
    pomdp, vf, _, recap = designed("light-maze", 4)
    gap = float(vf.value(pomdp.b0)) - recap.value_
    bound = decision_bound(pomdp, recap, vf, horizon=300)
    assert bound.horizon == 300
    assert bound.regret - bound.tail == pytest.approx(gap, abs=1e-4)


def test_dobrushin_by_hand():
    assert dobrushin(np.array([[0.85, 0.15], [0.15, 0.85]])) == pytest.approx(0.3)
    assert dobrushin(np.eye(3)) == 0
    assert dobrushin(np.full((4, 4), 0.25)) == pytest.approx(1)


def test_a_code_that_loses_nothing_has_bound_zero(solved):
    """With every reachable belief a representative, filtering one gives another."""
    pomdp, vf = solved("parr95")
    beliefs = np.unique(np.vstack([greedy_law(pomdp, vf, t)[0] for t in range(8)]).round(12), axis=0)
    best = vf.best(beliefs)
    code = Codebook(beliefs, vf.alphas[best], vf.actions[best], "l2")
    bound = upper_bound(pomdp, code, vf)
    assert bound.eta == pytest.approx(0, abs=1e-9)
    assert bound.value == pytest.approx(0, abs=1e-5)
    assert not bound.vacuous
    assert code.controller(pomdp).value(pomdp) == pytest.approx(7.2010, abs=1e-4)
    two = Codebook(beliefs[:2], vf.alphas[best[:2]], vf.actions[best[:2]], "l2")
    assert upper_bound(pomdp, two, vf).vacuous


# Merging --------------------------------------------------------------------------------------------------------------


def test_merging_identical_nodes_is_free_and_opposite_ones_is_not(designed):
    pomdp, vf, _, recap = designed("tiger", 5)
    table = merge_table(pomdp, recap.controller_, vf)
    assert len(table) == 10
    assert (table.loss >= -1e-9).all()
    assert table.loss.max() > 10
    K = recap.controller_.size
    # split the start node in two that do the same, each fed by another observation
    actions = np.append(recap.controller_.actions, recap.controller_.actions[0])
    following = np.vstack([recap.controller_.next, recap.controller_.next[0]])
    doors = [k for k in range(K) if pomdp.actions[actions[k]] != "listen"]
    following[doors[0]] = np.where(following[doors[0]] == 0, K, following[doors[0]])
    doubled = Controller(actions, following, recap.controller_.m0)
    assert doubled.value(pomdp) == pytest.approx(recap.value_, abs=1e-9)
    merged = merge_nodes(pomdp, doubled, 0, K)
    assert merged.size == K
    assert merged.value(pomdp) == pytest.approx(recap.value_, abs=1e-6)
    with pytest.raises(ValueError, match=re.escape("expected two different nodes of 0..5, got 1 and 1")):
        merge_nodes(pomdp, doubled, 1, 1)


# Baselines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("model", ["1d", "shuttle", "4x3"])
def test_baselines_respect_the_budget_and_the_optimum(name, model, solved):
    pomdp, vf = solved(model)
    sample = belief_sample(pomdp, vf)
    for K in (1, 2, 5):
        controller = baseline(name, pomdp, K, vf, sample)
        assert controller.size <= K
        assert controller.value(pomdp) <= float(vf.value(pomdp.b0)) + 1e-4
        assert controller.value(pomdp) == baseline(name, pomdp, K, vf, sample).value(pomdp)


@pytest.mark.parametrize(("name", "K"), [("kmeans", 8), ("kl", 8), ("grid", 8), ("amdp", 8), ("random", 8)])
def test_enough_memory_solves_tiger(name, K, solved):
    pomdp, vf = solved("tiger")
    values = [baseline(name, pomdp, K, vf, belief_sample(pomdp, vf), seed=s).value(pomdp) for s in range(4)]
    assert max(values) == pytest.approx(19.3714, abs=1e-3)


def test_window_moves():
    assert window_moves(2, 3).tolist() == [[1, 2], [1, 2], [1, 2]]
    two = window_moves(2, 6)  # states: start, then (previous, last) = 00, 01, 10, 11
    assert two.tolist() == [[1, 4], [1, 2], [3, 4], [1, 2], [3, 4]]


def test_window_policy_is_the_best_of_all_on_a_small_model(solved):
    pomdp, vf = solved("1d")
    moves = window_moves(2, 3)
    best = max(
        Controller(np.array([a, b, c]), moves).best_start(pomdp).value(pomdp)
        for a in range(2)
        for b in range(2)
        for c in range(2)
    )
    assert baseline("window", pomdp, 3, vf, belief_sample(pomdp, vf)).value(pomdp) == pytest.approx(best, abs=1e-9)


def test_grid_points_are_the_nearest_lattice_points():
    rng = np.random.default_rng(0)
    beliefs = rng.dirichlet(np.ones(3), 50)
    lattice = np.array([[i, j, 4 - i - j] for i in range(5) for j in range(5 - i)])
    for belief, point in zip(beliefs, _grid_points(beliefs, 4), strict=True):
        distances = np.abs(belief * 4 - lattice).sum(axis=1)
        assert np.abs(belief * 4 - point).sum() == pytest.approx(distances.min(), abs=1e-9)


def test_quantised_policy_on_exact_states_is_the_mdp_policy():
    """With a corner for every state and states fully seen the quantised MDP is the MDP itself."""
    from recap import POMDP, qmdp

    base = benchmarks("cheng.D3-5")
    seen = POMDP(base.T, np.tile(np.eye(3), (3, 1, 1)), base.r, base.gamma, base.b0)
    policy = quantised_policy(seen, np.eye(3), lambda b: b.argmax(axis=-1))
    assert policy.tolist() == qmdp(seen).argmax(axis=1).tolist()


def test_unknown_baseline(solved):
    pomdp, vf = solved("tiger")
    with pytest.raises(ValueError, match="unknown baseline 'magic'; expected one of kmeans, kl"):
        baseline("magic", pomdp, 2, vf, belief_sample(pomdp, vf))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_sample_is_a_law_over_beliefs(name, solved):
    pomdp, vf = solved(name)
    beliefs, weights = belief_sample(pomdp, vf, episodes=20, horizon=10)
    assert weights.sum() == pytest.approx(1)
    assert beliefs.sum(axis=1) == pytest.approx(np.ones(len(beliefs)))
    assert len(np.unique(np.round(beliefs, 6), axis=0)) == len(beliefs)


def test_encoder_names_memory_states_of_the_controller(designed):
    """tiger's opening nodes serve the certain beliefs, its start node the uniform one."""
    pomdp, _, _, recap = designed("tiger", 5)
    certain, uniform = np.eye(2), np.array([0.5, 0.5])
    names = [pomdp.actions[recap.controller_.actions[recap.encode(belief)]] for belief in (*certain, uniform)]
    assert names == ["open-right", "open-left", "listen"]
    assert recap.encode(uniform) == recap.controller_.m0
