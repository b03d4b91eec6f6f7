"""The structured cases against the general method, by hand and at random."""

import numpy as np
import pytest
from finite_resolution import (
    Problem,
    Queries,
    UncoverableError,
    VertexHull,
    consecutive_cover,
    has_consecutive_ones,
    interval_cover,
    interval_stabbing,
    nested_cover,
    nested_design,
    optimal_design,
    separable_design,
    set_cover,
    verify_design,
)
from finite_resolution.datasets import random_problem
from finite_resolution.structured import product_problem
from hypothesis import given, settings
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=8, deadline=None)
def test_separable_equals_the_product(seed):
    rng = np.random.default_rng(seed)
    blocks = [random_problem(rng, 2, 3, 2) for _ in range(2)]
    total = rng.uniform(0.1, 0.9) * sum(verify_design(b, []).worst_gap for b in blocks)
    found, product = separable_design(blocks, total), product_problem(blocks, total)
    truth = optimal_design(product)
    assert found.price == pytest.approx(truth.price)
    if found.selected is not None:
        flat = [j + 2 * b for b, s in enumerate(found.selected) for j in s]
        assert verify_design(product, flat).worst_gap == pytest.approx(sum(found.worst_regrets), abs=1e-8)
        assert sum(found.worst_regrets) <= total + 1e-6


def test_separable_shares_out_the_tolerance_by_price():
    # two segments, costs +-1 (regret 0.5 unread, 0 read): with 0.5 in all one of them must be read, the cheaper
    def segment(price):
        return Problem(VertexHull([[0.0], [1.0]]), [[1.0], [-1.0]], Queries([[1.0]], price=[price]), 0.5)

    blocks = [segment(3.0), segment(2.0)]
    assert separable_design(blocks, 0.5).selected == ((), (0,))
    assert separable_design(blocks, 1.0).price == 0.0
    assert separable_design(blocks, 0.4).price == 5.0
    assert separable_design(blocks).selected == ((), ())  # each keeps its own 0.5
    with pytest.raises(ValueError, match="eps_total"):
        separable_design(blocks, -1.0)
    with pytest.raises(ValueError, match="blocks is empty"):
        separable_design([])


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_nested_cover_equals_the_integer_program(seed):
    rng = np.random.default_rng(seed)
    of_query, of_tuple = rng.integers(3, size=9), rng.integers(3, size=7)
    reach, width, prices = rng.uniform(0, 1, 9), rng.uniform(0.3, 2, 7), rng.integers(1, 9, 9).astype(float)
    covers = [np.flatnonzero((of_query == d) & (reach < w)).tolist() for d, w in zip(of_tuple, width, strict=True)]
    if all(covers):
        found = nested_cover(of_query, reach, prices, of_tuple, width)
        assert found.value == set_cover(covers, prices).value
        assert all(set(found.selected) & set(c) for c in covers)
    else:
        with pytest.raises(UncoverableError):
            nested_cover(of_query, reach, prices, of_tuple, width)


@given(seeds)
@settings(max_examples=15, deadline=None)
def test_one_direction_needs_one_query(seed):
    rng = np.random.default_rng(seed)
    base = random_problem(rng, 3, 8, 1)
    scales = rng.uniform(0.5, 2.0, 5) * rng.choice([-1.0, 1.0], 5)
    queries = Queries(
        scales[:, None] * base.queries.Q, rng.uniform(0, 0.4, 5) * np.ptp(base.readings), rng.uniform(1, 5, 5)
    )
    problem = base.replace(queries=queries)
    found, truth = nested_design(problem), optimal_design(problem)
    assert found.status == truth.status and found.price == pytest.approx(truth.price)
    if found.selected:
        assert len(found.selected) == 1 and verify_design(problem, found.selected).sufficient


def test_several_directions():
    # two independent hard pairs, each apart in one coordinate; across them (x1, x2) can please both up to 0.1
    X = VertexHull([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    costs = [[2.0, 0.1], [-2.0, 0.1], [0.1, 2.0], [0.1, -2.0]]
    Q, delta, price = [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [1.9, 0.1, 2.5, 0.1], [1.0, 5.0, 1.0, 4.0]
    problem = Problem(X, costs, Queries(Q, delta, price), eps=0.5)
    found = nested_design(problem)
    assert found.selected == optimal_design(problem).selected == (0, 3) and found.price == 5.0
    both = problem.replace(queries=Queries([[1.0, 0.0], [1.0, 0.1]], [0.1, 0.1]))
    with pytest.raises(ValueError, match="told apart by 2 directions"):
        nested_design(both)


def test_interval_cover_by_hand():
    intervals = [[0, 3], [2, 5], [0, 5], [3, 5]]
    assert interval_cover(intervals, [1.0, 1.0, 1.9, 1.0]).selected == (2,)
    assert interval_cover(intervals, [1.0, 1.0, 2.5, 0.5]).selected == (0, 3)
    assert interval_cover(intervals, [1.0, 1.0, 2.5, 0.5], n=3).selected == (0,)
    with pytest.raises(UncoverableError, match="point 2"):
        interval_cover([[0, 2], [3, 4]], [1.0, 1.0])
    with pytest.raises(ValueError, match="start < stop"):
        interval_cover([[2, 2]], [1.0])
    with pytest.raises(ValueError, match="price"):
        interval_cover([[0, 2]], [-1.0])
    with pytest.raises(ValueError, match="there are 1"):
        interval_stabbing([[0, 2]], [1.0])


@given(seeds, st.booleans())
@settings(max_examples=60, deadline=None)
def test_interval_programs_equal_the_integer_program(seed, by_tuple):
    rng = np.random.default_rng(seed)
    count, length = int(rng.integers(1, 12)), int(rng.integers(1, 12))
    start = rng.integers(0, length, count)
    rows = (np.arange(length) >= start[:, None]) & (np.arange(length) < (start + rng.integers(1, 5, count))[:, None])
    if not by_tuple:
        rows = rows.T[rows.any(axis=0)]
    prices = rng.integers(1, 9, rows.shape[1]).astype(float)
    covers = [np.flatnonzero(row).tolist() for row in rows]
    found = consecutive_cover(covers, prices)
    assert found.value == set_cover(covers, prices).value == prices[list(found.selected)].sum()
    assert all(set(found.selected) & set(c) for c in covers)


def test_consecutive_ones():
    assert has_consecutive_ones([[0, 1, 1], [0, 0, 0], [1, 1, 1]])
    assert not has_consecutive_ones([[1, 0, 1]])
    with pytest.raises(ValueError, match="not intervals"):
        consecutive_cover([{0, 1}, {1, 2}, {0, 2}], np.ones(3))  # an odd cycle, in either direction
    with pytest.raises(ValueError, match="zeros and ones"):
        has_consecutive_ones([[0.5]])
