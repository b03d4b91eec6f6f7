"""Four solvers of the master against search, and the checks that an answer must survive."""

from itertools import combinations

import numpy as np
import pytest
from finite_resolution import SolverError, TimeLimitError, UncoverableError, set_cover
from finite_resolution.covering import check_cover, harmonic, minimal_covers
from finite_resolution.set_systems import affine_plane, greedy_trap, random_sets
from hypothesis import given, settings
from hypothesis import strategies as st


def cheapest(covers, prices) -> float:
    m = len(prices)
    subsets = (s for size in range(m + 1) for s in combinations(range(m), size))
    return min(sum(prices[j] for j in s) for s in subsets if all(set(s) & set(c) for c in covers))


def by_element(sets, n):
    return [[j for j, s in enumerate(sets) if u in s] for u in range(n)]


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=25, deadline=None)
def test_exact_solvers_find_the_cheapest_cover(seed, weighted):
    rng = np.random.default_rng(seed)
    covers = by_element(random_sets(rng, 9, 7, 0.3), 9)
    prices = rng.integers(1, 9, 7) / 4 if weighted else np.full(7, 1.5)
    truth = cheapest(covers, prices)
    for solver in ("highs", "cpsat") if weighted else ("highs", "cpsat", "pysat"):
        found = set_cover(covers, prices, solver)
        assert found.value == pytest.approx(truth) and found.optimal
        assert all(set(found.selected) & set(c) for c in covers)
    greedy = set_cover(covers, prices, "greedy")
    most = max(sum(j in c for c in covers) for j in range(7))
    assert truth <= greedy.value + 1e-12 and greedy.value <= harmonic(most) * truth + 1e-9
    assert greedy.lower_bound <= truth + 1e-9


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_greedy_falls_into_its_trap(k):
    sets, n = greedy_trap(k)
    covers = by_element(sets, n)
    assert set_cover(covers, np.ones(len(sets)), "greedy").value == k
    assert set_cover(covers, np.ones(len(sets))).value == 2


def test_affine_plane():
    covers = by_element(*affine_plane())
    assert {set_cover(covers, np.ones(9), s).value for s in ("highs", "cpsat", "pysat")} == {5.0}


def test_nothing_to_cover():
    for solver in ("highs", "cpsat", "pysat", "greedy"):
        assert set_cover([], np.ones(3), solver).selected == ()


def test_dominated_cover_sets_are_dropped():
    assert minimal_covers([{0, 1, 2}, {1}, {0, 2}, {1, 2}, {0, 2}]) == [frozenset({1}), frozenset({0, 2})]


def test_a_reported_optimum_must_be_a_cover_of_its_price():
    matrix = np.array([[True, False], [False, True]])
    prices = np.array([1.0, 2.0])
    assert check_cover(matrix, prices, [0, 1], 3.0).value == 3.0
    with pytest.raises(SolverError, match="element 1 is not covered"):
        check_cover(matrix, prices, [0], 1.0)
    with pytest.raises(SolverError, match="costs 3"):
        check_cover(matrix, prices, [0, 1], 2.0)
    with pytest.raises(SolverError):
        check_cover(matrix, prices, [0, 1], float("nan"))


def test_time_limit():
    rng = np.random.default_rng(0)
    covers = by_element(random_sets(rng, 400, 200, 0.03), 400)
    with pytest.raises(TimeLimitError):
        set_cover(covers, rng.integers(50, 99, 200).astype(float), "highs", time_limit=0.01)
    with pytest.raises(TimeLimitError):
        set_cover(covers, rng.integers(50, 99, 200).astype(float), "cpsat", time_limit=0.01)


def test_bad_input():
    with pytest.raises(UncoverableError, match="element 1"):
        set_cover([{0}, set()], [1.0])
    with pytest.raises(ValueError, match="unknown query 3"):
        set_cover([{3}], [1.0])
    with pytest.raises(ValueError, match="price must be > 0"):
        set_cover([{0}], [0.0])
    with pytest.raises(ValueError, match="multiples of one unit"):
        set_cover([{0, 1}], [np.pi, 1.0], "cpsat")
    with pytest.raises(ValueError, match="equal"):
        set_cover([{0, 1}], [2.0, 1.0], "pysat")
