"""Set systems, and the converse reduction: every set-cover instance is a design problem of the same optimum."""

from collections.abc import Collection, Sequence
from itertools import product

import numpy as np

from finite_resolution.feasible import Box
from finite_resolution.problem import Problem, Queries
from finite_resolution.validation import Numbers


def problem_from_set_cover(sets: Sequence[Collection[int]], n: int, prices: Numbers | None = None) -> Problem:
    """A design problem whose sufficient designs are the covers of `{0..n-1}` by `sets` (reconstruction).

    X is the cube `[-1, 1]^n`, the costs are `+e_u` and `-e_u`, query j is the indicator of set j. The minimal hard
    tuples are the pairs
    `{+e_u, -e_u}` (gap 1 > eps = 0.5), and query j tells that pair apart exactly when u is in set j (range 2 > 2
    delta = 0.8). 2n costs and
    M queries of n numbers: linear in the size of the instance's incidence matrix. Any eps < 1 and delta < 1 would do;
        delta < 0.5 keeps
    indistinguishability an equivalence, so fibers are few.

    Args:
        sets: subsets of `{0..n-1}`.
        n: number of elements, >= 1.
        prices: price of each set; 1 when left out.

    Raises:
        ValueError: n < 1, or an element out of range.
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, got {n}")
    Q = np.zeros((len(sets), n))
    for j, elements in enumerate(sets):
        wrong = [u for u in elements if not 0 <= u < n]
        if wrong:
            raise ValueError(f"sets[{j}] has the element {wrong[0]}, expected 0 to {n - 1}")
        Q[j, list(elements)] = 1.0
    queries = Queries(
        Q, delta=np.full(len(sets), 0.4), price=np.ones(len(sets)) if prices is None else np.asarray(prices)
    )
    return Problem(Box(-np.ones(n), np.ones(n)), np.vstack([np.eye(n), -np.eye(n)]), queries, eps=0.5)


def affine_plane() -> tuple[list[set[int]], int]:
    """The affine plane of order 3: one set a point (9), holding the lines (12) through it. Smallest cover of the
    lines: 5 points.

    The 9-variable Steiner triple covering problem of Fulkerson, Nemhauser and Trotter (1974).
    """
    directions = [(0, 1), (1, 0), (1, 1), (1, 2)]
    lines = {
        frozenset(((x + t * dx) % 3, (y + t * dy) % 3) for t in range(3))
        for dx, dy in directions
        for x, y in product(range(3), repeat=2)
    }
    ordered = sorted(lines, key=sorted)
    return [{i for i, line in enumerate(ordered) if point in line} for point in product(range(3), repeat=2)], len(
        ordered
    )


def greedy_trap(k: int) -> tuple[list[set[int]], int]:
    """The family on which greedy takes k sets and 2 suffice: two rows of `2^k - 1` elements, cut by columns of `2^k,
    2^(k-1), .., 2`.

    Raises:
        ValueError: k < 1.
    """
    if k < 1:
        raise ValueError(f"k must be >= 1, got {k}")
    width = 2**k - 1
    starts = [sum(2 ** (k - 1 - i) for i in range(c)) for c in range(k)]
    columns = [
        {row * width + start + i for row in range(2) for i in range(2 ** (k - 1 - c))} for c, start in enumerate(starts)
    ]
    return [set(range(width)), set(range(width, 2 * width)), *columns], 2 * width


def random_sets(rng: np.random.Generator, n: int, m: int, density: float) -> list[set[int]]:
    """m random subsets of `{0..n-1}`; an element that none has is given to one of them, so a cover exists."""
    member = rng.random((m, n)) < density
    for u in np.flatnonzero(~member.any(axis=0)):
        member[rng.integers(m), u] = True
    return [set(np.flatnonzero(row).tolist()) for row in member]
