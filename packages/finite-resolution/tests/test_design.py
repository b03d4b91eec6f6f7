"""The optimal design against the search over all designs, published instances and invariances; the decision rule."""

from types import SimpleNamespace

import numpy as np
import pytest
from finite_resolution import (
    Box,
    InconsistentReadingError,
    Polytope,
    Problem,
    Queries,
    VertexHull,
    certified_tolerance,
    gap,
    greedy_design,
    load_design,
    net_inflation,
    optimal_design,
    problem_from_set_cover,
    save_design,
    verify_design,
)
from finite_resolution.brute_force import BruteForce
from finite_resolution.covering import harmonic
from finite_resolution.datasets import random_problem, sheared_simplex, simplex_problem
from finite_resolution.set_systems import affine_plane, greedy_trap, random_sets
from hypothesis import given, settings
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def feasible_problem(seed: int, kind: str = "hull", m: int = 6) -> Problem:
    """A random problem that some design solves."""
    rng = np.random.default_rng(seed)
    while True:
        problem = sheared_simplex(rng, 2, 8, m) if kind == "sheared" else random_problem(rng, 2, 8, m, kind)
        if verify_design(problem, range(m)).sufficient:
            return problem


@given(seeds, st.sampled_from(["hull", "list", "polytope", "sheared"]), st.sampled_from([1, 50]))
@settings(max_examples=12, deadline=None)
def test_optimum_equals_the_search_over_all_designs(seed, kind, multi_cut):
    rng = np.random.default_rng(seed)
    problem = sheared_simplex(rng, 3, 7, 5) if kind == "sheared" else random_problem(rng, 3, 7, 5, kind)
    _, price = BruteForce(problem).best_design()
    found = optimal_design(problem, multi_cut=multi_cut)
    assert found.price == pytest.approx(price)
    if found.selected is None:
        assert found.status == "infeasible" and found.certificate is not None
        assert gap(problem, found.certificate) > problem.eps
        assert not any(np.ptp(problem.readings[list(found.certificate)], axis=0) > 2 * problem.queries.delta + 1e-6)
    else:
        assert found.status == "optimal" and found.lower_bound == found.price
        assert verify_design(problem, found.selected).sufficient
        bounds = [step.lower_bound for step in found.iterations]
        assert bounds == sorted(bounds)
        approximate = greedy_design(problem)
        assert approximate.status == "approximate"
        assert found.price <= approximate.price + 1e-9
        assert approximate.lower_bound <= found.price + 1e-9


def test_affine_plane_and_its_reduction():
    sets, n = affine_plane()
    assert (len(sets), n) == (9, 12) and all(len(s) == 4 for s in sets)
    assert optimal_design(problem_from_set_cover(sets, n)).price == 5


def test_greedy_trap():
    sets, n = greedy_trap(4)
    assert n == 30 and [len(s) for s in sets] == [15, 15, 16, 8, 4, 2]
    assert optimal_design(problem_from_set_cover(sets, n)).price == 2
    assert optimal_design(problem_from_set_cover(sets, n)).selected == (0, 1)


def test_engines_and_masters_are_interchangeable():
    rng = np.random.default_rng(5)
    problem = problem_from_set_cover(random_sets(rng, 8, 7, 0.3), 8)
    prices = {
        optimal_design(problem, verify, master).price
        for verify in ("fibers", "milp")
        for master in ("highs", "cpsat", "pysat")
    }
    assert len(prices) == 1


@given(seeds)
@settings(max_examples=8, deadline=None)
def test_what_must_not_change_the_optimum(seed):
    problem = feasible_problem(seed)
    rng = np.random.default_rng(seed)
    q, n, m = problem.queries, len(problem.costs), len(problem.queries)
    price = optimal_design(problem).price
    rows, columns = rng.permutation(n), rng.permutation(m)
    shuffled = Problem(
        problem.X, problem.costs[rows], Queries(q.Q[columns], q.delta[columns], q.price[columns]), problem.eps
    )
    scaled = Problem(problem.X, 7.0 * problem.costs, Queries(q.Q, 7.0 * q.delta, q.price), 7.0 * problem.eps)
    doubled = Problem(problem.X, np.vstack([problem.costs, problem.costs[:2]]), q, problem.eps)
    for other in (shuffled, scaled, doubled):
        assert optimal_design(other).price == pytest.approx(price)


@given(seeds, st.sampled_from(["hull", "list", "polytope"]))
@settings(max_examples=12, deadline=None)
def test_decisions_keep_their_promise(seed, kind):
    problem = feasible_problem(seed, kind)
    rng = np.random.default_rng(seed)
    design = optimal_design(problem)
    chosen = list(design.selected)
    for i, c in enumerate(problem.costs):
        e = problem.queries.delta[chosen] * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], len(chosen))
        decision = design.decide(problem.queries.Q[chosen] @ c + e)
        assert i in decision.fiber
        assert problem.regret(decision.x)[i] <= decision.worst_regret + 1e-9 <= problem.eps + 1e-6


def test_inconsistent_readings():
    problem = simplex_problem(3, eps=0.2)
    design = optimal_design(problem)
    assert design.price == 1.0  # one exact coordinate splits the triple
    with pytest.raises(InconsistentReadingError, match="no cost explains"):
        design.decide([0.4])
    with pytest.raises(ValueError, match="shape 1"):
        design.decide([0.0, 1.0])
    with pytest.raises(ValueError, match="NaN"):
        design.decide([np.nan])


def test_degenerate_designs_are_free():
    X = VertexHull(np.eye(3))
    lone = Problem(X, [[1.0, 2.0, 3.0]], Queries(np.zeros((0, 3))), 0.0)
    assert (optimal_design(lone).selected, optimal_design(lone).price, optimal_design(lone).status) == (
        (),
        0.0,
        "optimal",
    )
    tolerant = Problem(X, np.eye(3), Queries(np.eye(3)), eps=1.0)
    assert optimal_design(tolerant).selected == ()
    blind = Problem(X, np.eye(3), Queries(np.zeros((0, 3))), eps=0.1)
    nothing = optimal_design(blind)
    assert (nothing.status, nothing.certificate, nothing.selected, nothing.price) == (
        "infeasible",
        (0, 1, 2),
        None,
        np.inf,
    )
    with pytest.raises(ValueError, match="no sufficient design"):
        nothing.decide([])


def test_time_limit_is_never_called_optimal(monkeypatch):
    problem = problem_from_set_cover(*affine_plane())
    instant = optimal_design(problem, time_limit=1e-9)
    assert instant.status == "time_limit" and instant.selected is None and instant.lower_bound == 0.0

    now = [0.0]  # a clock that only the rounds move, so that a slow machine changes nothing
    clock = SimpleNamespace(monotonic=lambda: now[0])
    for module in ("design", "verify"):
        monkeypatch.setattr(f"finite_resolution.{module}.time", clock)

    def ten_minutes(step):
        now[0] += 600.0

    late = optimal_design(problem, time_limit=1500.0, multi_cut=1, on_iteration=ten_minutes)
    assert late.status == "time_limit" and len(late.iterations) == 3
    assert late.selected == tuple(range(9)) and verify_design(problem, late.selected).sufficient
    assert 0 < late.lower_bound <= 5 < late.price


def test_bad_arguments():
    problem = simplex_problem(3, 0.1)
    with pytest.raises(ValueError, match="multi_cut"):
        optimal_design(problem, multi_cut=0)
    with pytest.raises(ValueError, match="time_limit"):
        optimal_design(problem, time_limit=0.0)


@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_a_net_certifies_the_whole_cost_set(norm):
    rng = np.random.default_rng(2)
    X = Box(-np.ones(2), np.ones(2))
    ticks = np.linspace(-1, 1, 9)
    net = np.array([[a, b] for a in ticks for b in ticks])  # of the square [-1, 1]^2
    half = (ticks[1] - ticks[0]) / 2
    rho = half * {1: 2.0, 2: np.sqrt(2.0), "inf": 1.0}[norm]
    problem = Problem(X, net, Queries(np.eye(2), delta=[0.05, 0.05]), eps=0.6)
    inflated = net_inflation(problem, rho, norm)
    # dual norms of unit vectors are 1, so the errors grow by rho
    assert inflated.queries.delta == pytest.approx(0.05 + rho)
    diameter = {1: 2.0, 2: 2 * np.sqrt(2.0), "inf": 4.0}[norm]
    assert certified_tolerance(problem, rho, norm) == pytest.approx(0.6 + rho * diameter)
    if verify_design(inflated, [0, 1]).sufficient:
        design = optimal_design(inflated)
        for c in rng.uniform(-1, 1, (200, 2)):
            x = design.decide(c[list(design.selected)] + rng.uniform(-0.05, 0.05, len(design.selected))).x
            assert c @ x + np.abs(c).sum() <= certified_tolerance(problem, rho, norm) + 1e-6
    with pytest.raises(ValueError, match="rho"):
        net_inflation(problem, -1.0)


def test_saved_designs_decide_alike(tmp_path):
    open_sided = Polytope(A_ub=[[1.0, 1.0]], b_ub=[1.0], lb=[0.0, 0.0])
    for number, problem in enumerate(
        [
            feasible_problem(1),
            feasible_problem(2, "list"),
            feasible_problem(3, "polytope"),
            Problem(open_sided, [[-1.0, -2.0], [-2.0, -1.0]], Queries(np.eye(2)), 0.1),
            problem_from_set_cover([{0}, {1}], 2),
        ]
    ):
        design = optimal_design(problem)
        path = tmp_path / f"{number}.json"
        save_design(design, path)
        again = load_design(path)
        assert (again.selected, again.price, again.lower_bound, again.status) == (
            design.selected,
            design.price,
            design.lower_bound,
            design.status,
        )
        y = problem.readings[0, list(design.selected)]
        assert again.decide(y).fiber == design.decide(y).fiber
        assert again.decide(y).worst_regret == pytest.approx(design.decide(y).worst_regret, abs=1e-9)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="not a saved design"):
        load_design(tmp_path / "bad.json")


def test_harmonic_numbers():
    assert harmonic(4) == pytest.approx(25 / 12)
