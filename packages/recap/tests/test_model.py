"""The model's checks and filter, and exact evaluation of controllers."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recap import POMDP, Controller, RandomizedController, benchmarks, brute_force
from recap.bounds import contraction
from scipy import sparse


def parts(name="1d"):
    pomdp = benchmarks(name)
    return {
        "T": pomdp.dense_transitions().copy(),
        "Z": pomdp.Z.copy(),
        "r": pomdp.r.copy(),
        "gamma": pomdp.gamma,
        "b0": pomdp.b0.copy(),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["T"].__setitem__((1, 2, 2), 0.5), "T[1] row 2 must sum to 1, got 0.5"),
        (lambda m: m["Z"].__setitem__((0, 3, 1), 1.5), "Z[0] row 3 must sum to 1, got 1.5"),
        (lambda m: m["T"].__setitem__((0, 0, 0), -0.25), "T[0] has a negative entry at row 0, column 0: -0.25"),
        (lambda m: m["Z"].__setitem__((1, 1, 0), np.nan), "Z[1] has an entry that is not finite at row 1, column 0"),
        (lambda m: m["r"].__setitem__((2, 1), np.inf), "r[2, 1] must be finite, got inf"),
        (lambda m: m.update(gamma=1.0), "gamma must lie strictly between 0 and 1, got 1.0"),
        (lambda m: m.update(b0=np.full(4, 0.3)), "b0 row 0 must sum to 1, got 1.2"),
        (lambda m: m.update(b0=np.full(3, 1 / 3)), "b0 must have shape (S,) = (4,), got (3,)"),
        (lambda m: m.update(r=m["r"].T), "r must have shape (S, A) = (4, 2), got (2, 4)"),
        (lambda m: m.update(T=m["T"][:1]), "T must have shape (A, S, S) = (2, 4, 4) to fit Z (2, 4, 2), got (1, 4, 4)"),
        (lambda m: m.update(states=("a", "b")), "states must have 4 names, got 2"),
    ],
)
def test_bad_models_are_refused(change, message):
    model = parts()
    change(model)
    with pytest.raises(ValueError, match=re.escape(message)):
        POMDP(**model)


def test_filter_by_hand():
    p, posterior = benchmarks("tiger").filter(np.array([0.5, 0.5]), 0)
    assert p == pytest.approx([0.5, 0.5])
    assert posterior == pytest.approx(np.array([[0.85, 0.15], [0.15, 0.85]]))
    _, again = benchmarks("tiger").filter(posterior[0], 0)
    assert again[0, 0] == pytest.approx(0.85**2 / (0.85**2 + 0.15**2))


def test_impossible_observation_gives_zeros():
    pomdp = benchmarks("1d")
    p, posterior = pomdp.filter(np.array([1.0, 0.0, 0.0, 0.0]), 0)
    assert p.tolist() == [1.0, 0.0]
    assert not posterior[1].any()


@pytest.mark.parametrize("belief", [np.full(4, 0.3), np.array([1.5, -0.5, 0, 0]), np.ones(3) / 3])
def test_filter_refuses_what_is_no_belief(belief):
    with pytest.raises(ValueError, match="belief"):
        benchmarks("1d").filter(belief, 0)


def test_filter_refuses_an_unknown_action():
    with pytest.raises(ValueError, match=re.escape("action must be in 0..1, got 2")):
        benchmarks("1d").filter(benchmarks("1d").b0, 2)


def test_unknown_benchmark():
    with pytest.raises(ValueError, match="unknown benchmark 'lion'; expected one of tiger, 1d"):
        benchmarks("lion")


def test_cassandra_variant_of_4x3_differs_in_one_place():
    difference = benchmarks("4x3", variant="cassandra").dense_transitions() - benchmarks("4x3").dense_transitions()
    assert [tuple(map(int, at)) for at in np.argwhere(np.abs(difference) > 1e-12)] == [(2, 9, 8), (2, 9, 9)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_filter_contracts_in_expectation(seed):
    """E_o |tau(b, a, o) - tau(c, a, o)| <= (1 - delta(T_a)) (2 - delta(Z_a)) |b - c|, o ~ p(. | b, a)."""
    rng = np.random.default_rng(seed)
    S, A, n = int(rng.integers(2, 5)), 2, int(rng.integers(2, 4))
    pomdp = POMDP(
        rng.dirichlet(np.ones(S), (A, S)), rng.dirichlet(np.ones(n), (A, S)), rng.normal(size=(S, A)), 0.9,
        rng.dirichlet(np.ones(S)),
    )  # fmt: skip
    kappa = contraction(pomdp)
    for _ in range(40):
        b, c = rng.dirichlet(np.full(S, 0.5), 2)
        for a in range(A):
            p, after_b = pomdp.filter(b, a)
            _, after_c = pomdp.filter(c, a)
            assert p @ np.abs(after_b - after_c).sum(axis=1) <= kappa * np.abs(b - c).sum() + 1e-9


def test_controller_value_by_hand():
    """Always listening costs 1 a step."""
    pomdp = benchmarks("tiger")
    assert Controller(np.array([0]), np.zeros((1, 2), dtype=int)).value(pomdp) == pytest.approx(-20)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_evaluation_solves_its_equation_and_occupancy_agrees(seed, K):
    pomdp = benchmarks("4x3")
    rng = np.random.default_rng(seed)
    controller = Controller(rng.integers(4, size=K), rng.integers(K, size=(K, 6)), int(rng.integers(K)))
    F = controller.evaluate(pomdp)
    for m, a in enumerate(controller.actions):
        expected = pomdp.r[:, a].copy()
        for o in range(6):
            expected += pomdp.gamma * pomdp.T[a] @ (pomdp.Z[a, :, o] * F[controller.next[m, o]])
        assert F[m] == pytest.approx(expected, abs=1e-10)
    occupancy = controller.occupancy(pomdp)
    assert occupancy.sum() == pytest.approx(1 / (1 - pomdp.gamma))
    earned = (occupancy * pomdp.r.T[controller.actions]).sum()
    assert earned == pytest.approx(controller.value(pomdp), abs=1e-8)


def test_simulation_agrees_with_the_exact_value():
    pomdp = benchmarks("shuttle")
    controller = brute_force(pomdp, 2)
    returns = controller.simulate(pomdp, 4_000, 300, np.random.default_rng(0))
    error = returns.std() / np.sqrt(len(returns))
    assert returns.mean() == pytest.approx(controller.value(pomdp), abs=4 * error)


def test_sparse_transitions_give_the_same_values():
    pomdp = benchmarks("cheese")
    twin = POMDP(tuple(sparse.csr_array(T) for T in pomdp.T), pomdp.Z, pomdp.r, pomdp.gamma, pomdp.b0)
    rng = np.random.default_rng(0)
    controller = Controller(rng.integers(4, size=3), rng.integers(3, size=(3, 7)))
    assert controller.evaluate(twin) == pytest.approx(controller.evaluate(pomdp), abs=1e-9)
    assert controller.occupancy(twin) == pytest.approx(controller.occupancy(pomdp), abs=1e-9)


def test_a_randomized_controller_with_certain_choices_is_the_deterministic_one():
    pomdp = benchmarks("parr95")
    rng = np.random.default_rng(2)
    controller = Controller(rng.integers(3, size=3), rng.integers(3, size=(3, 6)))
    update = np.zeros((3, 3, 6, 3))
    for m in range(3):
        for o in range(6):
            update[m, :, o, controller.next[m, o]] = 1.0
    randomized = RandomizedController(np.eye(3)[controller.actions], update)
    assert randomized.evaluate(pomdp) == pytest.approx(controller.evaluate(pomdp), abs=1e-9)


def test_bad_controllers_are_refused():
    with pytest.raises(ValueError, match=re.escape("next must hold memory states 0..1, got 0..2")):
        Controller(np.array([0, 1]), np.array([[0, 2], [1, 1]]))
    for actions, following in (([3], [[0, 0]]), ([0], [[0, 0, 0]])):
        with pytest.raises(ValueError, match="does not fit a model with 2 observations and 3 actions"):
            Controller(np.array(actions), np.array(following)).value(benchmarks("tiger"))
    with pytest.raises(ValueError, match="exceed the limit of 60000"):
        brute_force(benchmarks("4x3"), 3)
    with pytest.raises(ValueError, match="K must be at least 1, got 0"):
        brute_force(benchmarks("tiger"), 0)
    with pytest.raises(TypeError, match="K"):
        brute_force(benchmarks("tiger"), 2.0)  # type: ignore[arg-type]


def test_dot_shows_every_edge():
    pomdp = benchmarks("tiger")
    text = Controller(np.array([0, 2]), np.array([[1, 0], [0, 0]])).to_dot(pomdp)
    assert '0 -> 1 [label="hear-left"]' in text
    assert '1 -> 0 [label="hear-left, hear-right"]' in text
