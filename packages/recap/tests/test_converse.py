"""The converse, decision witnesses and rate-distortion bounds."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recap import (
    RandomizedController,
    ValueFunction,
    blahut_arimoto,
    brute_force,
    constant_controller,
    converse_bound,
    converse_bounds,
    decision_witness,
    information_bound,
    jensen_gap,
    k_median,
    loss_at,
    partition_bound,
    rate_distortion,
    subset_bound,
    upper_value,
)
from recap.converse import value_of
from recap.reach import belief_layers, controller_law, greedy_law
from recap.witness import best_clique, gap_matrix
from scipy.optimize import linprog


@pytest.mark.parametrize(
    ("name", "K", "t_max", "value", "t"),
    [
        ("tiger", 1, 7, 3.8387, {2}), ("tiger", 2, 7, 1.3223, {2}), ("tiger", 3, 7, 0.1943, {7}),
        ("tiger", 4, 7, 0.0972, {7}), ("1d", 1, 6, 0.0271, {4}), ("1d", 2, 6, 0.0109, {3, 4}), ("1d", 3, 6, 0.0, {0}),
    ],
)  # fmt: skip
def test_known_bounds(name, K, t_max, value, t, exact):
    pomdp, vf = exact(name)
    bound = converse_bound(pomdp, vf, K, t_max=t_max)
    assert bound.value == pytest.approx(value, abs=2e-4)
    assert bound.t in t
    assert bound.certified


def test_bounds_of_one_bottleneck_at_each_time(exact):
    pomdp, vf = exact("tiger")
    losses = [float(vf.value(pomdp.b0)) - subset_bound(pomdp, vf, 1, t) for t in range(1, 8)]
    assert losses == pytest.approx([1.9686, 3.8387, 0.4530, 1.7977, 1.6191, 0.7031, 1.2594], abs=1e-4)


def _pruned_to_its_own_path(pomdp, vf):
    """Only the vectors in use at beliefs that the greedy policy reaches: V* there, but not at mixtures of them."""
    beliefs = np.vstack([greedy_law(pomdp, vf, t)[0] for t in range(12)])
    used = np.unique(vf.best(beliefs))
    return ValueFunction(vf.alphas[used], vf.actions[used], beliefs)


def test_an_incomplete_set_gives_a_false_bound_and_the_certified_one_does_not(exact):
    """Three nodes reach V* on 1d, so any positive bound for K = 3 is wrong."""
    pomdp, complete = exact("1d")
    reachable = _pruned_to_its_own_path(pomdp, complete)
    optimum = float(complete.value(pomdp.b0))
    assert brute_force(pomdp, 3).value(pomdp) == pytest.approx(optimum, abs=1e-9)
    false = max(float(reachable.value(pomdp.b0)) - subset_bound(pomdp, reachable, 3, t) for t in range(1, 7))
    assert false == pytest.approx(0.0038, abs=1e-4)
    assert converse_bound(pomdp, complete, 3).value == 0
    assert converse_bound(pomdp, reachable, 3).value == 0
    tricked = converse_bound(pomdp, reachable, 3, certified_only=False)
    assert tricked.value == pytest.approx(0.0038, abs=1e-4)
    assert not tricked.certified


@pytest.mark.parametrize("name", ["tiger", "1d", "ejs1", "cheng.D3-5"])
def test_no_controller_beats_the_bound(name, exact):
    pomdp, vf = exact(name)
    rng = np.random.default_rng(0)
    optimum = float(vf.value(pomdp.b0))
    for K in (1, 2, 3):
        bound = converse_bound(pomdp, vf, K).value
        if pomdp.n_actions**K * K ** (K * pomdp.n_observations) <= 60_000:
            assert bound <= optimum - brute_force(pomdp, K).value(pomdp) + 1e-6
        for _ in range(30):
            assert bound <= optimum - value_of(pomdp, RandomizedController.draw(pomdp, K, rng)) + 1e-6


@pytest.mark.parametrize(("name", "value"), [("light-maze", 0.231), ("cheese", 0.1416), ("4x3", 0.0806)])
def test_partition_form_is_certified_on_larger_models(name, value, solved):
    pomdp, vf = solved(name)
    bounds = converse_bounds(pomdp, vf, (1, 2))
    assert bounds[1].value == pytest.approx(value, abs=1e-3)
    assert bounds[1].certified
    assert bounds[2].value <= bounds[1].value
    assert bounds[1].value <= float(vf.value(pomdp.b0)) - constant_controller(pomdp).value(pomdp)


def test_partitions_and_subsets_agree_after_one_step(exact):
    """K vectors may be followed: the same as K cells, each served by the best vector of its mean."""
    pomdp, vf = exact("tiger")
    for name in ("tiger", "cheng.D3-5"):
        pomdp, vf = exact(name)
        for K in (1, 2):
            partitions = partition_bound(pomdp, K, vf.value)
            assert partitions == pytest.approx(subset_bound(pomdp, vf, K, 1), abs=1e-9)


def test_bound_refuses_bad_sizes(exact):
    pomdp, vf = exact("tiger")
    with pytest.raises(ValueError, match="K must be at least 1, got 0"):
        converse_bound(pomdp, vf, 0)
    with pytest.raises(TypeError, match="K"):
        converse_bound(pomdp, vf, True)
    with pytest.raises(ValueError, match="t_max must be at least 1, got 0"):
        converse_bound(pomdp, vf, 1, t_max=0)
    for bound in (loss_at, information_bound):
        with pytest.raises(ValueError, match="a time must be at least 0, got -1"):
            bound(pomdp, vf, constant_controller(pomdp), -1)
    with pytest.raises(ValueError, match="a time must be at least 0, got -1"):
        subset_bound(pomdp, vf, 1, -1)


def test_information_form_lies_below_the_controllers_own_loss(exact):
    pomdp, vf = exact("tiger")
    for K, t in ((2, 2), (3, 3)):
        controller = brute_force(pomdp, K)
        own, loss = loss_at(pomdp, vf, controller, t), float(vf.value(pomdp.b0)) - controller.value(pomdp)
        assert 0 <= information_bound(pomdp, vf, controller, t) <= own + 1e-8
        assert own <= loss + 1e-8


def test_laws_are_laws(solved):
    pomdp, vf = solved("cheese")
    beliefs, law = greedy_law(pomdp, vf, 3)
    assert law.sum() == pytest.approx(1)
    controller = constant_controller(pomdp)
    beliefs, law, _ = controller_law(pomdp, controller, 4)
    state = pomdp.b0 @ np.linalg.matrix_power(pomdp.T[controller.actions[0]], 4)
    assert law @ beliefs == pytest.approx(state, abs=1e-12)
    layers = belief_layers(pomdp, 3)
    assert len(layers) == 4
    assert len(layers[0].beliefs) == 1


# Witnesses ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_jensen_gap_is_a_symmetric_certificate(exact, seed):
    _, vf = exact("cheng.D3-5")
    rng = np.random.default_rng(seed)
    b, c = rng.dirichlet(np.full(3, 0.4), 2)
    gap = jensen_gap(vf, b, c)
    assert gap >= 0
    assert gap == pytest.approx(jensen_gap(vf, c, b), abs=1e-12)
    assert jensen_gap(vf, b, b) == pytest.approx(0, abs=1e-10)
    assert gap == pytest.approx(gap_matrix(vf, np.stack([b, c]))[0, 1], abs=1e-10)
    # any policy is at least the gap from the optimum at one of the two
    assert np.maximum(*vf.distortion(np.stack([b, c]))).min() >= gap - 1e-9
    w, v = rng.dirichlet(np.ones(2))
    assert jensen_gap(vf, b, c, float(w), float(v)) >= -1e-12


def test_gap_is_zero_exactly_where_one_vector_serves_both(solved):
    _, vf = solved("parr95")
    gaps = gap_matrix(vf, vf.beliefs)
    best = vf.distortion(vf.beliefs) <= 1e-9
    shared = best.astype(int) @ best.T.astype(int) > 0
    assert ((gaps < 1e-9) == shared).all()


def test_witness_bounds_stay_below_the_best_code(solved):
    for name, t in (("tiger", 2), ("tiger", 4), ("cheese", 1), ("cheese", 3), ("4x3", 2)):
        pomdp, vf = solved(name)
        beliefs, law = greedy_law(pomdp, vf, t)
        cost = vf.distortion(beliefs)
        for K in (1, 2, 3):
            order = np.argsort(-law)
            witness = best_clique(vf, beliefs[order], law[order], K, t, 1.0)
            if witness is None:
                continue
            best = k_median(law, cost, K)[0]
            least = rate_distortion(law, cost, np.log(K))
            assert witness.bound(K) <= best + 1e-9
            assert witness.bound(K, "fano") <= best + 1e-9
            assert witness.distortion_bound(np.log(K)) <= least + 1e-9
            assert least <= best + 1e-9


def test_witness_of_tiger(solved):
    """After two listens the two opposite beliefs need opposite doors."""
    witness = decision_witness(*solved("tiger"), K=1)
    assert witness.t == 2
    assert len(witness.probs) == 2
    assert witness.bound(1) == pytest.approx(1.919, abs=1e-3)
    assert witness.bound(2) == 0
    with pytest.raises(ValueError, match="form must be 'counting' or 'fano', got 'guess'"):
        witness.bound(1, "guess")


# Rate and distortion ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("D", [0.05, 0.2, 0.4])
def test_hamming_distortion_has_a_closed_form(n, D):
    """R(D) = log n - H(D) - D log(n - 1) for a uniform source of n symbols."""
    rate = np.log(n) + D * np.log(D) + (1 - D) * np.log(1 - D) - D * np.log(n - 1)
    if rate <= 0:
        pytest.skip("D beyond the zero-rate distortion")
    assert rate_distortion(np.full(n, 1 / n), 1 - np.eye(n), float(rate)) == pytest.approx(D, abs=1e-6)


def test_blahut_arimoto_meets_its_own_bound():
    rng = np.random.default_rng(0)
    p, d = rng.dirichlet(np.ones(6)), rng.random((6, 4))
    rate, distortion, lower = blahut_arimoto(p, d, 5.0, tol=1e-10)
    assert rate + 5 * distortion == pytest.approx(lower, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_distortion_rate_is_convex_falling_and_below_codes(seed):
    rng = np.random.default_rng(seed)
    p, d = rng.dirichlet(np.ones(5)), rng.random((5, 4))
    rates = np.linspace(0, np.log(5), 7)
    curve = np.array([rate_distortion(p, d, float(rate)) for rate in rates])
    assert curve[0] == pytest.approx((p @ d).min(), abs=1e-12)
    assert curve[-1] == pytest.approx(p @ d.min(axis=1), abs=1e-9)
    assert (np.diff(curve) <= 1e-7).all()
    assert (np.diff(curve, 2) >= -1e-5).all()
    for K in (1, 2, 3):
        assert rate_distortion(p, d, float(np.log(K))) <= k_median(p, d, K)[0] + 1e-9


def test_k_median_as_a_program_agrees_with_enumeration(monkeypatch):
    rng = np.random.default_rng(1)
    p, d = rng.dirichlet(np.ones(12)), rng.random((12, 9))
    enumerated = [k_median(p, d, K) for K in (1, 2, 4)]
    monkeypatch.setattr("recap.information._ENUMERATE", 0)
    for K, (cost, _) in zip((1, 2, 4), enumerated, strict=True):
        solved_cost, chosen = k_median(p, d, K)
        assert solved_cost == pytest.approx(cost, abs=1e-9)
        assert len(chosen) <= K


@pytest.mark.parametrize(
    ("p", "d", "rate", "message"),
    [
        (np.array([0.5, 0.6]), np.ones((2, 2)), 1.0, "p must be a distribution, got a sum of 1.1"),
        (np.array([np.nan, 1.0]), np.ones((2, 2)), 1.0, "p must be a distribution, got a sum of nan"),
        (np.array([0.5, 0.5]), np.array([[0.0, np.nan], [1.0, 0.0]]), 1.0, "got shape (2, 2) and 1 that are not"),
        (np.array([0.5, 0.5]), np.ones((2, 0)), 1.0, "d must hold finite numbers, got shape (2, 0)"),
        (np.array([0.5, 0.5]), np.ones((2, 2)), -1.0, "rate must be at least 0 nats, got -1.0"),
    ],
)
def test_bad_sources(p, d, rate, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rate_distortion(p, d, rate)


@pytest.mark.parametrize("slope", [-1.0, np.nan])
def test_a_slope_below_zero_is_refused(slope):
    with pytest.raises(ValueError, match="slope must be at least 0 and finite, got"):
        blahut_arimoto(np.array([0.5, 0.5]), np.eye(2), slope)


# The upper bound of V* ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiger", "1d", "cheng.D3-5"])
def test_upper_value_encloses_the_exact_one(name, exact, solved):
    pomdp, vf = exact(name)
    beliefs = np.random.default_rng(0).dirichlet(np.full(pomdp.n_states, 0.5), 12)
    upper = upper_value(pomdp, beliefs, solved(name)[1])
    everywhere = np.random.default_rng(1).dirichlet(np.full(pomdp.n_states, 0.5), 300)
    assert (upper.value(everywhere) >= vf.value(everywhere) - 1e-7).all()
    informed = (beliefs @ upper.q).max(axis=1)
    lowered = informed - upper.value(beliefs)
    assert (lowered >= -1e-9).all()
    assert lowered.max() > 0.5 * (informed - vf.value(beliefs)).max()


def test_linear_program_agrees_that_vectors_are_needed(exact):
    """Each of tiger's nine vectors is strictly best somewhere."""
    alphas = exact("tiger")[1].alphas
    for i in range(len(alphas)):
        others = np.delete(alphas, i, axis=0)
        # maximise x subject to <alpha_i - alpha_j, b> >= x
        A = np.column_stack([others - alphas[i], np.ones(len(others))])
        found = linprog([0, 0, -1], A_ub=A, b_ub=np.zeros(len(others)), A_eq=[[1, 1, 0]], b_eq=[1],
                        bounds=[(0, 1), (0, 1), (None, None)])  # fmt: skip
        assert found.x is not None and found.x[-1] > 1e-6
