"""Reserves and portfolios against convex programs and closed forms; influence against exact differences."""

from inspect import unwrap

import cvxpy as cp
import numpy as np
import pytest
from fisher_glass import (
    EnvironmentFisher,
    allocate_reserve,
    cvar,
    environment_fishers,
    fisher_glass,
    glass_decrease,
    logistic_rows,
    portfolio_weights,
    select_repairs,
    tail_transverse_influence,
    with_reserve,
)
from fisher_glass.portfolio import ball_tail
from fisher_glass.synthetic import core_nuisance_fisher
from hypothesis import example, given, settings
from hypothesis import strategies as st

CORE = np.array([1.0, 0.0])


def random_problem(seed: int, E: int, d: int = 4):
    rng = np.random.default_rng(seed)
    matrices = []
    for _ in range(E):
        A = rng.standard_normal((d, int(rng.integers(2, d + 2))))
        matrices.append(A @ A.T / d * 10 ** rng.uniform(-2, 0))
    A, t = rng.standard_normal((d, 8)), rng.standard_normal(d)
    return matrices, rng.dirichlet(3 * np.ones(E)), A @ A.T / 8, t / np.linalg.norm(t)


@pytest.mark.parametrize(("seed", "E", "alpha"), [(0, 5, 0.3), (1, 9, 0.1), (2, 20, 0.5), (3, 6, 1.0)])
def test_reserve_allocation_is_the_optimum_of_the_convex_program(seed, E, alpha):
    matrices, pi, R, t = random_problem(seed, E)
    ours = allocate_reserve(EnvironmentFisher.from_matrices(matrices, pi), R, 0.1, t, alpha=alpha, ridge=1e-3)
    r, u, c, g = cp.Variable(E), cp.Variable(E, nonneg=True), cp.Variable(), cp.Variable(E)
    constraints = [r >= 0, r <= 1, pi @ r == 0.1, u >= g - c]
    for e, F in enumerate(matrices):
        constraints.append(cp.matrix_frac(t, (1 - r[e]) * F + r[e] * R + 1e-3 * np.eye(4)) <= g[e])
    peer = cp.Problem(cp.Minimize(c + pi @ u / alpha), constraints)
    peer.solve()
    assert ours.value == pytest.approx(peer.value, rel=1e-4)
    assert ours.value <= ours.uniform_value <= ours.before
    assert ours.shares @ pi == pytest.approx(0.1)


def test_many_environments_are_allocated():
    matrices, pi, R, t = random_problem(7, 60)
    ours = allocate_reserve(EnvironmentFisher.from_matrices(matrices, pi), R, 0.05, t, alpha=0.2, ridge=1e-4)
    assert ours.value < ours.uniform_value


@pytest.mark.parametrize("share", [1e-3, 0.02, 0.3, 1.0])
def test_reserve_bounds_a_null_environment(share):
    null, R = EnvironmentFisher.from_matrices([core_nuisance_fisher(2.0, 1.0)]), core_nuisance_fisher(2.0, 0.0)
    assert fisher_glass(with_reserve(null, R, share), CORE, ridge=1e-12).value <= 1 / (share * R[0, 0]) * (1 + 1e-9)


def test_reserve_in_a_null_environment_by_hand():
    null, R = EnvironmentFisher.from_matrices([np.array([[1.0, 1.0], [1.0, 1.0]])]), np.diag([2.0, 3.0])
    r = 0.25
    F = np.array([[1 - r + 2 * r, 1 - r], [1 - r, 1 - r + 3 * r]])
    expected = F[1, 1] / (F[0, 0] * F[1, 1] - F[0, 1] ** 2)
    assert fisher_glass(with_reserve(null, R, r), CORE, ridge=0.0).value == pytest.approx(expected)


@given(st.integers(0, 10_000), st.floats(0.1, 1.0))
@example(65, 0.3)  # a kink of the CVaR that stops a gradient method 0.04 % above the optimum
@settings(max_examples=15, deadline=None)
def test_portfolio_weights_are_the_optimum_of_the_convex_program(seed, alpha):
    rng = np.random.default_rng(seed)
    infos, pi = 10 ** rng.uniform(-2, 0, size=(3, 15)), rng.dirichlet(2 * np.ones(15)) + 1e-3
    pi /= pi.sum()
    weights, value = portfolio_weights(infos, pi, alpha)
    w, c = cp.Variable(3, nonneg=True), cp.Variable()
    objective = c + pi @ cp.pos(cp.inv_pos(w @ infos) - c) / alpha
    peer = cp.Problem(cp.Minimize(objective), [cp.sum(w) == 1])
    peer.solve()
    assert value == pytest.approx(peer.value, rel=1e-5)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    assert value == pytest.approx(cvar(1 / (weights @ infos), pi, alpha)[0])


@pytest.mark.parametrize(("m", "volume"), [(1, 2.0), (2, np.pi), (3, 4 * np.pi / 3)])
def test_ball_tail_is_the_volume_and_the_observed_share(m, volume):
    t = 0.2 / m
    assert ball_tail(m, t) == pytest.approx(volume * (m * t) ** (m / 2) / 2**m)
    delta = np.random.default_rng(m).uniform(-1, 1, size=(m, 400_000))
    assert (np.mean(delta**2, axis=0) <= t).mean() == pytest.approx(ball_tail(m, t), rel=0.02)


def repair_problem(seed: int, n: int = 40, d: int = 5, E: int = 3, candidates: int = 25):
    rng = np.random.default_rng(seed)
    z, p, env = rng.standard_normal((n, d)), rng.random(n), np.arange(n) % E
    fisher = environment_fishers(z, p, env, "pooled")
    rows = logistic_rows(rng.standard_normal((candidates, d)), rng.random(candidates)) / np.sqrt(n)
    return fisher, rows, rng.integers(E, size=candidates), rng.exponential(size=candidates), rng.standard_normal(d)


def with_candidate(fisher, row, e):
    matrices = fisher.F
    matrices[e] += np.outer(row, row)
    return EnvironmentFisher.from_matrices(matrices, fisher.weights, fisher.labels)


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=20, deadline=None)
def test_gain_is_the_exact_difference(seed, given_nuisance):
    fisher, rows, env, _, t = repair_problem(seed)
    nuisance = np.random.default_rng(seed).standard_normal((5, 2)) if given_nuisance else None
    before = fisher_glass(fisher, t, nuisance, ridge=0.01).per_env
    gain = glass_decrease(fisher, rows, env, t, nuisance, ridge=0.01)
    for i in (0, 7, 24):
        after = fisher_glass(with_candidate(fisher, rows[i], env[i]), t, nuisance, ridge=0.01).per_env
        assert gain[i] == pytest.approx(before[env[i]] - after[env[i]], abs=1e-10 * before[env[i]])


def test_influence_is_tail_weight_times_gain_times_leverage():
    fisher, rows, env, losses, t = repair_problem(1)
    report = fisher_glass(fisher, t, alpha=0.5, ridge=0.01)
    gain = glass_decrease(fisher, rows, env, t, ridge=0.01)
    expected = report.tail_weights[env] * gain * losses / np.median(losses)
    np.testing.assert_allclose(tail_transverse_influence(fisher, rows, env, losses, t, alpha=0.5, ridge=0.01), expected)
    np.testing.assert_allclose(
        tail_transverse_influence(
            fisher, rows, env, losses, t, alpha=0.5, ridge=0.01, direction_power=2.0, leverage_power=0.5
        ),
        (report.tail_weights[env] * gain) ** 2 * (losses / np.median(losses)) ** 0.5,
    )


@pytest.mark.parametrize("policy", ["tti", "direction"])
def test_greedy_rank_one_updates_equal_refactorising(policy):
    fisher, rows, env, losses, t = repair_problem(2)
    chosen, path = select_repairs(fisher, rows, env, losses, t, budget=8, policy=policy, alpha=0.5, ridge=0.01)
    current, left, expected = fisher, list(range(len(rows))), []
    for _ in range(8):
        use = losses[left] if policy == "tti" else None
        scores = tail_transverse_influence(current, rows[left], env[left], use, t, alpha=0.5, ridge=0.01)
        if policy == "tti":  # the leverage stays over the median of the whole pool
            scores = scores * np.median(losses[left]) / np.median(losses)
        best = left.pop(int(np.argmax(scores)))
        expected.append(best)
        current = with_candidate(current, rows[best], env[best])
    assert chosen.tolist() == expected
    assert path[-1] == pytest.approx(fisher_glass(current, t, alpha=0.5, ridge=0.01).value, rel=1e-10)


def test_policies_choose_what_they_say():
    fisher, rows, env, losses, t = repair_problem(3)
    options = {"budget": 6, "alpha": 0.5, "ridge": 0.01}
    by_loss, path = select_repairs(fisher, rows, env, losses, t, policy="loss", **options)
    assert by_loss.tolist() == np.argsort(-losses)[:6].tolist()
    assert (np.diff(path) <= 1e-12).all() and len(path) == 7
    one_shot, _ = select_repairs(fisher, rows, env, losses, t, policy="direction", greedy=False, **options)
    scores = tail_transverse_influence(fisher, rows, env, None, t, alpha=0.5, ridge=0.01)
    assert one_shot.tolist() == np.argsort(-scores, kind="stable")[:6].tolist()
    random, _ = select_repairs(fisher, rows, env, None, t, policy="random", rng=np.random.default_rng(1), **options)
    assert len(set(random.tolist())) == 6


def test_greedy_does_not_pick_near_duplicates():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((50, 3))
    fisher = environment_fishers(z, np.full(50, 0.5), np.zeros(50, dtype=int), "pooled")
    t = np.eye(3)[0]
    # Twenty copies of what helps most at first, and three of what helps less at first but in another direction.
    pool = np.vstack([np.tile([3.0, 3.0, 0.0], (20, 1)), np.tile([2.5, -2.5, 0.0], (3, 1))]) / 5
    options = {"budget": 4, "policy": "direction", "alpha": 1.0, "ridge": 1e-4}
    env = np.zeros(len(pool), dtype=int)
    greedy, greedy_path = select_repairs(fisher, pool, env, None, t, **options)
    _, shot_path = select_repairs(fisher, pool, env, None, t, greedy=False, **options)
    assert greedy_path[-1] < shot_path[-1] and (greedy >= 20).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, s, e, x, t: select_repairs(f, s, e, x, t, budget=0), "1..25"),
        (lambda f, s, e, x, t: select_repairs(f, s, e, x, t, budget=26), "got 26"),
        (lambda f, s, e, x, t: select_repairs(f, s, e, x, t, budget=1, policy="best"), "'best'"),
        (
            lambda f, s, e, x, t: select_repairs(f, s, e, None, t, budget=1, policy="loss"),
            "needs the candidates' losses",
        ),
        (lambda f, s, e, x, t: tail_transverse_influence(f, s, e + 5, x, t), "not audited"),
        (lambda f, s, e, x, t: tail_transverse_influence(f, s, e, -x, t), "non-negative"),
        (lambda f, s, e, x, t: unwrap(tail_transverse_influence)(f, s[:, :3], e, x, t), r"\(n >= 1, 5\)"),
        (lambda f, s, e, x, t: tail_transverse_influence(f, s, e, x, t, ridge=0.0), "positive ridge"),
        (lambda f, s, e, x, t: unwrap(tail_transverse_influence)(f, s, e, x, np.eye(5)[:, :2]), "one task direction"),
        (lambda f, s, e, x, t: allocate_reserve(f, np.eye(5), 1.2, t), "budget must lie"),
        (lambda f, s, e, x, t: allocate_reserve(f, np.eye(5), 0.1, t, ridge=0.0), "positive ridge"),
        (lambda f, s, e, x, t: with_reserve(f, np.eye(5), 1.2), "shares"),
        (lambda f, s, e, x, t: with_reserve(f, np.eye(4), 0.2), "size 5"),
        (lambda f, s, e, x, t: portfolio_weights(np.array([[1.0, 0.0], [1.0, 0.0]])), "blind in environment 1"),
        (lambda f, s, e, x, t: portfolio_weights(np.array([[1.0, -1.0]])), "negative"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(*repair_problem(0))
