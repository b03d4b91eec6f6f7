"""Cases that are solved without a general set cover (names from the abstract, contents a reconstruction).

Separability: product sets and libraries whose queries each touch one block. Nested coverage: several error levels of
    one direction.
Interval incidence: cover sets that are contiguous in a given order.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int

from finite_resolution.certificate import all_minimal_hard_tuples
from finite_resolution.covering import CoverResult
from finite_resolution.design import Design, optimal_design
from finite_resolution.errors import UncoverableError
from finite_resolution.feasible import ConvexSet, FiniteDecisions, ProductSet
from finite_resolution.problem import Problem, Queries
from finite_resolution.validation import Numbers, nonnegative, number_array
from finite_resolution.verify import verify_design

MAX_BLOCK_QUERIES = 16


@dataclass(frozen=True)
class SeparableDesign:
    """A design block by block.

    Attributes:
        selected: for each block the indices of its own queries; None when no design suffices.
        price: total price, infinite when there is none.
        worst_regrets: each block's worst regret with its queries; their sum is the worst regret of the whole.
    """

    selected: tuple[tuple[int, ...], ...] | None
    price: float
    worst_regrets: tuple[float, ...]


def separable_design(blocks: Sequence[Problem], eps_total: float | None = None) -> SeparableDesign:
    """The cheapest design for independent blocks: X and the library are products, which are never listed.

    The worst regret of the whole is the sum of the blocks' worst regrets. With `eps_total` each block's frontier of
    (price, worst regret)
    over its 2^M designs is merged block by block (multiple-choice knapsack; the frontier stays as short as the number
    of different
    total prices, so with unit prices the work is quadratic in the number of blocks). Without it every block keeps its
    own eps.

    Raises:
        ValueError: no blocks, eps_total < 0, or a block with more than 16 queries when eps_total is given.
    """
    if not blocks:
        raise ValueError("blocks is empty: expected at least one problem")
    if eps_total is None:
        designs = [optimal_design(block) for block in blocks]
        if any(d.selected is None for d in designs):
            return SeparableDesign(None, math.inf, ())
        selected = tuple(d.selected or () for d in designs)
        regrets = tuple(verify_design(b, s).worst_gap for b, s in zip(blocks, selected, strict=True))
        return SeparableDesign(selected, sum(d.price for d in designs), regrets)

    budget = nonnegative("eps_total", eps_total) + sum(block.gap_tol for block in blocks)
    frontiers = [_frontier(block) for block in blocks]
    price, regret = np.zeros(1), np.zeros(1)
    trails: list[np.ndarray] = []  # for each kept pair of a merge: (kept pair before, point of the block's frontier)
    for frontier in frontiers:
        total_price = np.add.outer(price, [w for w, _, _ in frontier])
        total_regret = np.add.outer(regret, [r for _, r, _ in frontier])
        kept = _pareto(total_price.ravel(), total_regret.ravel(), budget)
        if not len(kept):
            return SeparableDesign(None, math.inf, ())
        trails.append(np.column_stack(np.unravel_index(kept, total_price.shape)))
        price, regret = total_price.ravel()[kept], total_regret.ravel()[kept]
    at, chosen = 0, []  # pairs are sorted by price: the first is the cheapest
    for trail in reversed(trails):
        at, point = int(trail[at, 0]), int(trail[at, 1])
        chosen.append(point)
    points = [frontier[point] for frontier, point in zip(frontiers, reversed(chosen), strict=True)]
    return SeparableDesign(tuple(s for _, _, s in points), float(price[0]), tuple(r for _, r, _ in points))


def _frontier(block: Problem) -> list[tuple[float, float, tuple[int, ...]]]:
    m = len(block.queries)
    if m > MAX_BLOCK_QUERIES:
        raise ValueError(f"a block may have at most {MAX_BLOCK_QUERIES} queries (its 2^M designs are listed), got {m}")
    designs = [s for size in range(m + 1) for s in combinations(range(m), size)]
    prices = np.array([block.queries.price[list(s)].sum() for s in designs])
    regrets = np.array([verify_design(block, s).worst_gap for s in designs])
    return [(float(prices[i]), float(regrets[i]), designs[i]) for i in _pareto(prices, regrets, math.inf)]


def _pareto(price: np.ndarray, regret: np.ndarray, budget: float) -> np.ndarray:
    """Indices of the pairs within the budget that no other pair beats in both, by rising price."""
    order = np.lexsort((regret, price))
    order = order[regret[order] <= budget]
    before = np.r_[np.inf, np.minimum.accumulate(regret[order])[:-1]] if len(order) else np.zeros(0)
    return order[regret[order] < before]


def product_problem(blocks: Sequence[Problem], eps: float) -> Problem:
    """The blocks as one explicit problem: every combination of their costs (for comparison; it grows as the product
    of their sizes).

    Raises:
        ValueError: no blocks, or a block of indivisible decisions.
    """
    if not blocks:
        raise ValueError("blocks is empty: expected at least one problem")
    if any(isinstance(block.X, FiniteDecisions) for block in blocks):
        raise ValueError("a block has indivisible decisions: only convex blocks have a product here")
    sets: list[ConvexSet] = [block.X for block in blocks]  # type: ignore[misc]
    grid = np.meshgrid(*(np.arange(len(block.costs)) for block in blocks), indexing="ij")
    costs = np.hstack([block.costs[index.ravel()] for block, index in zip(blocks, grid, strict=True)])
    width = sum(block.X.dim for block in blocks)
    Q, column = [], 0
    for block in blocks:
        rows = np.zeros((len(block.queries), width))
        rows[:, column : column + block.X.dim] = block.queries.Q
        column += block.X.dim
        Q.append(rows)
    queries = Queries(
        np.vstack(Q),
        np.concatenate([b.queries.delta for b in blocks]),
        np.concatenate([b.queries.price for b in blocks]),
    )
    return Problem(ProductSet(sets), costs, queries, eps)


def nested_cover(
    query_direction: Int[np.ndarray, " m"],
    reach: Float[np.ndarray, " m"],
    prices: Float[np.ndarray, " m"],
    tuple_direction: Int[np.ndarray, " k"],
    tuple_range: Float[np.ndarray, " k"],
) -> CoverResult:
    """Set cover where each tuple is seen by one direction: one query a direction, the cheapest that reaches its
    tightest tuple.

    Query j covers tuple t when their directions are equal and `reach[j] < tuple_range[t]` (reach is `2 delta_j` for a
    unit direction).
    The cover sets of one direction are nested. O(M + k).

    Raises:
        ValueError: lengths differ.
        UncoverableError: a tuple that no query covers.
    """
    if not len(query_direction) == len(reach) == len(prices) or len(tuple_direction) != len(tuple_range):
        raise ValueError(
            "query_direction, reach and prices must have one length, tuple_direction and tuple_range another"
        )
    count = int(max(query_direction.max(initial=-1), tuple_direction.max(initial=-1))) + 1
    tightest = np.full(count, np.inf)
    np.minimum.at(tightest, tuple_direction, tuple_range)
    needed = np.zeros(count, dtype=bool)
    needed[tuple_direction] = True
    able = np.flatnonzero(needed[query_direction] & (reach < tightest[query_direction]))
    direction = query_direction[able]
    cheapest = np.full(count, np.inf)
    np.minimum.at(cheapest, direction, prices[able])
    if np.isinf(cheapest[needed]).any():
        unserved = int(np.flatnonzero(needed & np.isinf(cheapest))[0])
        raise UncoverableError(
            f"no query of direction {unserved} reaches its tightest tuple, of range {tightest[unserved]:g}"
        )
    winners = able[prices[able] == cheapest[direction]]
    first = np.full(count, len(prices))
    np.minimum.at(first, query_direction[winners], winners)
    selected = tuple(sorted(first[needed].tolist()))
    value = float(prices[list(selected)].sum())
    return CoverResult(selected, value, value, True)


def nested_design(problem: Problem) -> Design:
    """The cheapest design when the queries are error levels of one direction, or of several that see different hard
    tuples.

    One direction needs no hard tuple: they are windows of the sorted readings, found by N linear programs with two
        pointers. With several
    directions the minimal hard tuples are listed.

    Raises:
        ValueError: a hard tuple is told apart by two directions, so coverage is not nested.
    """
    Q = problem.queries.Q
    length = np.linalg.norm(Q, axis=1)
    seeing = np.flatnonzero(length > 0)
    units = Q[seeing] / length[seeing, None]
    units *= np.where(units[np.arange(len(units)), np.abs(units).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    directions, of_query = np.unique(np.round(units, 12), axis=0, return_inverse=True)
    of_query = of_query.reshape(-1)
    reach = problem.separated_above[seeing] / length[seeing]
    spread = problem.costs @ directions.T
    tuples = _hard_windows(problem, spread[:, 0]) if len(directions) == 1 else all_minimal_hard_tuples(problem)
    of_tuple, ranges = [], []
    for members in tuples:
        widths = np.ptp(spread[list(members)], axis=0)
        seen_by = np.unique(of_query[reach < widths[of_query]])
        if len(seen_by) == 0:
            return Design(problem, None, math.inf, math.inf, "infeasible", (), tuple(tuples), members)
        if len(seen_by) > 1:
            raise ValueError(f"hard tuple {members} is told apart by {len(seen_by)} directions: coverage is not nested")
        of_tuple.append(int(seen_by[0]))
        ranges.append(float(widths[seen_by[0]]))
    cover = nested_cover(
        of_query, reach, problem.queries.price[seeing], np.array(of_tuple, dtype=int), np.array(ranges)
    )
    selected = tuple(int(seeing[j]) for j in cover.selected)
    return Design(problem, selected, cover.value, cover.value, "optimal", (), tuple(tuples))


def _hard_windows(problem: Problem, readings: np.ndarray) -> list[tuple[int, ...]]:
    """For each left end the shortest hard window of the costs sorted by reading; the tightest of all hard tuples is
    among them.
    """
    order = np.argsort(readings, kind="stable").tolist()
    windows, left = [], 0
    for right in range(len(order)):
        while problem.program.solve(order[left : right + 1]).worst_regret > problem.hard_above:
            windows.append(tuple(sorted(order[left : right + 1])))
            left += 1
    return windows


def has_consecutive_ones(rows: Numbers) -> bool:
    """Whether the ones of every row stand together, in the order given (a sufficient condition for a totally
    unimodular matrix).

    Raises:
        ValueError: not a matrix of zeros and ones.
    """
    matrix = number_array("rows", np.asarray(rows, dtype=float), (None, None))
    if not np.isin(matrix, (0.0, 1.0)).all():
        raise ValueError("rows must hold zeros and ones only")
    starts = np.diff(matrix, axis=1, prepend=0.0) == 1.0
    return bool((starts.sum(axis=1) <= 1).all())


def interval_cover(intervals: Numbers, prices: Numbers, n: int | None = None) -> CoverResult:
    """The cheapest intervals that cover the points `0..n-1`: a shortest path over prefixes, O(n + M log M).

    Args:
        intervals: shape (M, 2), query j covers the points `start <= p < stop`.
        prices: shape (M,), > 0.
        n: number of points; the largest stop when left out.

    Raises:
        ValueError: not whole numbers, start < 0 or start >= stop, or a price <= 0.
        UncoverableError: a point that no interval covers.
    """
    start, stop, prices = _interval_arguments(intervals, prices)
    n = int(stop.max(initial=0)) if n is None else n
    by_start = np.argsort(start, kind="stable").tolist()
    starts, stops, costs = start.tolist(), stop.tolist(), prices.tolist()
    cheapest = [0.0] * (n + 1)  # cheapest[p]: the points before p are covered
    last = [-1] * (n + 1)
    heap: list[tuple[float, int]] = []
    taken = 0
    for p in range(1, n + 1):
        while taken < len(by_start) and starts[by_start[taken]] < p:
            j = by_start[taken]
            heapq.heappush(heap, (cheapest[min(starts[j], n)] + costs[j], j))
            taken += 1
        while heap and stops[heap[0][1]] < p:
            heapq.heappop(heap)
        if not heap:
            raise UncoverableError(f"point {p - 1} is in no interval")
        cheapest[p], last[p] = heap[0]
    selected, p = [], n
    while p > 0:
        selected.append(last[p])
        p = starts[last[p]]
    return CoverResult(tuple(sorted(selected)), cheapest[n], cheapest[n], True)


def interval_stabbing(intervals: Numbers, prices: Numbers) -> CoverResult:
    """The cheapest points that hit every interval: the same case with the roles exchanged, O(M + k).

    Args:
        intervals: shape (k, 2), tuple t is covered by the queries `start <= j < stop`.
        prices: shape (M,), > 0.

    Raises:
        ValueError: not whole numbers, start < 0 or start >= stop, stop > M, or a price <= 0.
    """
    prices = _positive_prices(prices, None)
    start, stop, _ = _interval_arguments(intervals, np.ones(len(np.atleast_2d(np.asarray(intervals)))))
    m = len(prices)
    if len(stop) and stop.max() > m:
        raise ValueError(f"an interval ends at {int(stop.max())}, but there are {m} queries")
    # needed[j]: the latest start of the intervals that end at or before j; some selected query before j lies at or
    # after it
    needed = np.full(m + 1, -1)
    np.maximum.at(needed, stop, start)
    needed = np.maximum.accumulate(needed)
    cheapest, before = (
        [0.0] * (m + 1),
        [-1] * (m + 1),
    )  # query j selected, all intervals that end before it hit; m is the end
    window: deque[int] = deque([-1])  # candidates for the selected query before j, by rising value; -1 is the beginning
    value = lambda i: 0.0 if i < 0 else cheapest[i]  # noqa: E731
    for j in range(m + 1):
        while window[0] < needed[j]:
            window.popleft()
        before[j] = window[0]
        cheapest[j] = value(window[0]) + (float(prices[j]) if j < m else 0.0)
        while window and value(window[-1]) >= cheapest[j]:
            window.pop()
        window.append(j)
    selected, j = [], before[m]
    while j >= 0:
        selected.append(j)
        j = before[j]
    return CoverResult(tuple(sorted(selected)), cheapest[m], cheapest[m], True)


def consecutive_cover(covers: Sequence[Collection[int]], prices: Numbers) -> CoverResult:
    """Set cover by dynamic programming when the incidence is consecutive, in the order given, by tuple or by query.

    Raises:
        ValueError: neither the queries of each tuple nor the tuples of each query stand together.
        UncoverableError: an element has an empty cover set.
    """
    prices = _positive_prices(prices, None)
    matrix: Bool[np.ndarray, "k m"] = np.zeros((len(covers), len(prices)), dtype=bool)
    for k, cover in enumerate(covers):
        if not cover:
            raise UncoverableError(f"element {k} has an empty cover set: no selection covers it")
        matrix[k, list(cover)] = True
    if has_consecutive_ones(matrix):
        return interval_stabbing(_spans(matrix), prices)
    if has_consecutive_ones(matrix.T):
        used = np.flatnonzero(matrix.any(axis=0))
        found = interval_cover(_spans(matrix.T[used]), prices[used], len(covers))
        return CoverResult(tuple(int(used[j]) for j in found.selected), found.value, found.lower_bound, True)
    raise ValueError("the cover sets are not intervals in the order given, by tuple or by query")


def _spans(matrix: np.ndarray) -> np.ndarray:
    return np.column_stack([matrix.argmax(axis=1), matrix.shape[1] - matrix[:, ::-1].argmax(axis=1)])


def _positive_prices(prices: Numbers, length: int | None) -> np.ndarray:
    array = number_array("prices", prices, (length,))
    if array.size and array.min() <= 0:
        raise ValueError(f"price must be > 0, got {array.min():g} for query {int(array.argmin())}")
    return array


def _interval_arguments(intervals: Numbers, prices: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    array = number_array(
        "intervals", np.reshape(intervals, (-1, 2)) if np.size(intervals) == 0 else intervals, (None, 2)
    )
    if (array != np.round(array)).any():
        raise ValueError("intervals must be whole numbers")
    start, stop = array.astype(int).T
    if (start < 0).any() or (start >= stop).any():
        j = int(np.argmax((start < 0) | (start >= stop)))
        raise ValueError(f"interval {j} must have 0 <= start < stop, got [{start[j]}, {stop[j]})")
    return start, stop, _positive_prices(prices, len(array))
