"""Count data of Monte-Carlo tests, and the masks that hide which side of the null a count fell on.

A hypothesis with ``n`` draws from its null distribution has the count ``K``: how many draws were at least as extreme
as the observation. Under the null ``K`` is uniform on ``{0..n}``. A *mask* replaces ``K`` by a *cell*: a set of counts,
one of which is ``K``. Everything that is learnt is learnt from cells; the side of ``K`` in its cell is looked at only
when discoveries are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

Values = np.ndarray | Sequence[Any] | int | float
"""Numbers (or labels) that numpy makes an array of."""


def _whole_numbers(values: Values, name: str) -> Int[np.ndarray, " hypotheses"]:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a one-dimensional, non-empty array, got shape {array.shape}")
    if not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"{name} must hold whole numbers, got dtype {array.dtype}")
    bad = ~np.isfinite(array) | (array != np.round(array))
    if bad.any():
        raise ValueError(f"{name} must hold whole numbers, got {array[bad][0]} at position {int(np.argmax(bad))}")
    return array.astype(np.int64)


def check_stretch(stretch: int) -> None:
    """Raise ``ValueError`` unless the stretch is at least 1."""
    if stretch < 1:
        raise ValueError(f"stretch must be a whole number of at least 1, got {stretch}")


class CountData:
    """Exceedance counts of ``N`` hypotheses.

    Args:
        k: counts ``K``, shape ``(N,)``: null draws at least as extreme as the observation, ``0 <= k <= n``.
        n: null draws, shape ``(N,)`` or one number for all, ``n >= 1``.
        locations: where the hypotheses live: coordinates ``(N, d)``, or node labels ``(N,)`` of a graph, tree or
            precomputed kernel; ``None`` when the kernel lists the hypotheses itself, in the same order.
        adaptive: whether ``n`` was chosen while looking at (masked) data. Rules that are then not valid refuse to run.

    Raises:
        ValueError: for counts that are not whole numbers or outside ``0..n``, ``n < 1``, shapes that do not fit, or
            coordinates that are not finite.

    Source: section 3 of the specification of counts; reconstruction.
    """

    def __init__(self, k: Values, n: Values, locations: Values | None = None, adaptive: bool = False):
        self.k = _whole_numbers(k, "k")
        self.n = _whole_numbers(np.full(self.k.shape, n) if np.ndim(n) == 0 else n, "n")
        if self.n.shape != self.k.shape:
            raise ValueError(f"k and n need one entry per hypothesis, got shapes {self.k.shape} and {self.n.shape}")
        if (self.n < 1).any():
            raise ValueError(f"n must be at least 1, got {self.n.min()} at position {int(np.argmin(self.n))}")
        outside = (self.k < 0) | (self.k > self.n)
        if outside.any():
            i = int(np.argmax(outside))
            raise ValueError(f"k must lie in 0..n, got k = {self.k[i]} with n = {self.n[i]} at position {i}")
        self.locations = None if locations is None else check_locations(locations, len(self.k))
        self.adaptive = adaptive
        self.k.setflags(write=False)
        self.n.setflags(write=False)

    @classmethod
    def from_statistics(
        cls,
        observed: Values,
        null: np.ndarray | Sequence[Values],
        tie: str = "random",
        random_state: int | np.random.Generator | None = None,
        locations: Values | None = None,
    ) -> CountData:
        """Counts from observed statistics and their null draws (larger is more extreme).

        Args:
            observed: statistics, shape ``(N,)``.
            null: null draws, shape ``(N, n)``, or a list of ``N`` arrays of unequal length.
            tie: ``"random"`` ranks the observation uniformly among equal draws, which makes ``K`` exactly uniform under
                the null, also for discrete statistics; ``"conservative"`` counts every equal draw as an exceedance.
            random_state: seed or generator of the random ranks.
            locations: as in the class.

        Raises:
            ValueError: for shapes that do not fit, values that are not finite, or an unknown ``tie``.
        """
        if tie not in ("random", "conservative"):
            raise ValueError(f"tie must be 'random' or 'conservative', got {tie!r}")
        statistics = np.asarray(observed, dtype=float)
        draws = [np.asarray(row, dtype=float).ravel() for row in null]
        if statistics.ndim != 1 or len(draws) != len(statistics):
            raise ValueError(f"need one row of null draws per statistic, got {statistics.shape} and {len(draws)} rows")
        if not np.isfinite(statistics).all() or not all(np.isfinite(row).all() for row in draws):
            raise ValueError("statistics and null draws must be finite")
        greater = np.array([(row > value).sum() for row, value in zip(draws, statistics, strict=True)])
        equal = np.array([(row == value).sum() for row, value in zip(draws, statistics, strict=True)])
        if tie == "random":
            # The observation and its t equal draws are exchangeable, so its rank among them is uniform on {0..t}.
            equal = np.random.default_rng(random_state).integers(0, equal + 1)
        return cls(greater + equal, [len(row) for row in draws], locations)

    def __len__(self) -> int:
        return len(self.k)

    @property
    def mc_pvalues(self) -> Float[np.ndarray, " hypotheses"]:
        """Monte-Carlo p-values ``(K + 1) / (n + 1)``."""
        return (self.k + 1) / (self.n + 1)

    def unmasked(self) -> MaskedCounts:
        """Cells of one count: nothing is hidden. Not to be used for the order of a rule."""
        return self._cells(self.k, self.k, np.ones_like(self.k), np.zeros_like(self.k))

    def masked(self, stretch: int = 1) -> MaskedCounts:
        """The mirror mask: cell ``{j} + {n - z(j+1) + 1 .. n - z j}`` for stretch ``z``; ``{m, n - m}`` for ``z = 1``.

        Counts in no pair keep a cell of their own.
        """
        low, high = self.mirror_signs(stretch)
        value = np.where(low, self.k, np.where(high, (self.n - self.k) // stretch, self.k))
        paired = (low | high) & (2 * value != self.n if stretch == 1 else True)
        start = np.where(paired, self.n - stretch * (value + 1) + 1, 1)
        return self._cells(value, value, start, np.where(paired, self.n - stretch * value, 0))

    def mirror_signs(self, stretch: int = 1) -> tuple[Bool[np.ndarray, " hypotheses"], Bool[np.ndarray, " hypotheses"]]:
        """Low and high side of the mirror. With ``stretch = 1`` the middle count ``n / 2`` is high (conservative)."""
        check_stretch(stretch)
        if stretch == 1:
            low = 2 * self.k < self.n
            return low, ~low
        pairs = (self.n + 1) // (1 + stretch)
        return self.k < pairs, self.k > self.n - stretch * pairs

    def block_masked(self, k0: Values) -> MaskedCounts:
        """The block mask of rule A: cell ``{0..k0} + {n-k0..n}``; counts between the blocks are revealed."""
        low, high = self.block_signs(k0)
        inside, cut = low | high, np.broadcast_to(np.asarray(k0), self.k.shape)
        return self._cells(
            np.where(inside, 0, self.k),
            np.where(inside, cut, self.k),
            np.where(inside, self.n - cut, 1),
            np.where(inside, self.n, 0),
        )

    def block_signs(self, k0: Values) -> tuple[Bool[np.ndarray, " hypotheses"], Bool[np.ndarray, " hypotheses"]]:
        """Whether a count lies in the low block ``{0..k0}`` and in the high block ``{n-k0..n}``."""
        cut = np.asarray(k0)
        bad = (2 * (cut + 1) > self.n + 1) | (cut < 0)
        if np.any(bad):
            i = int(np.argmax(np.broadcast_to(bad, self.k.shape)))
            raise ValueError(
                f"k0 must be at least 0 with 2 (k0 + 1) <= n + 1, so that the blocks do not meet; "
                f"got k0 = {np.broadcast_to(cut, self.k.shape)[i]} with n = {self.n[i]}"
            )
        return self.k <= cut, self.k >= self.n - cut

    def censored(self, cut: Values) -> MaskedCounts:
        """Counts up to ``cut`` are revealed only as "at most cut" (for weights that must not see small p-values)."""
        below = self.k <= np.asarray(cut)
        last = np.where(below, np.asarray(cut), self.k)
        return self._cells(np.where(below, 0, self.k), last, np.ones_like(self.k), np.zeros_like(self.k))

    def _cells(self, low_start, low_end, high_start, high_end) -> MaskedCounts:
        cells = np.stack([low_start, low_end, high_start, high_end], axis=1).astype(np.int64)
        return MaskedCounts(cells, self.n, self.locations)


@dataclass(frozen=True, eq=False)
class MaskedCounts:
    """What a mask leaves of the counts: the cell that holds each one.

    Attributes:
        cells: inclusive ends ``(low_start, low_end, high_start, high_end)`` of the two runs of counts in a cell,
            shape ``(N, 4)``; a run with ``start > end`` is empty.
        n: null draws, shape ``(N,)``.
        locations: as in :class:`CountData`.
    """

    cells: Int[np.ndarray, "hypotheses 4"]
    n: Int[np.ndarray, " hypotheses"]
    locations: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.n)

    @property
    def m(self) -> Int[np.ndarray, " hypotheses"]:
        """Smallest count in each cell: ``min(K, n - K)`` under the mirror mask."""
        return self.cells[:, 0]

    def same_as(self, other: MaskedCounts) -> bool:
        """Whether two masked data sets show exactly the same."""
        return np.array_equal(self.cells, other.cells) and np.array_equal(self.n, other.n)

    @cached_property
    def distinct(self) -> DistinctCells:
        """The distinct cells; likelihoods are worked out once for each of them."""
        rows, inverse, repeats = np.unique(
            np.column_stack([self.cells, self.n]), axis=0, return_inverse=True, return_counts=True
        )
        low_width = rows[:, 1] - rows[:, 0] + 1
        high_width = np.maximum(rows[:, 3] - rows[:, 2] + 1, 0)
        size = low_width + high_width
        cell = np.repeat(np.arange(len(rows)), size)
        rank = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        in_low = rank < low_width[cell]
        k = np.where(in_low, rows[cell, 0] + rank, rows[cell, 2] + rank - low_width[cell])
        return DistinctCells(k, rows[cell, 4], np.cumsum(size) - size, size, rows[:, 4], inverse.ravel(), repeats)


@dataclass(frozen=True, eq=False)
class DistinctCells:
    """Distinct cells of masked counts, with their member counts laid end to end."""

    member_k: Int[np.ndarray, " members"]
    member_n: Int[np.ndarray, " members"]
    starts: Int[np.ndarray, " cells"]
    size: Int[np.ndarray, " cells"]
    n: Int[np.ndarray, " cells"]
    inverse: Int[np.ndarray, " hypotheses"]
    repeats: Int[np.ndarray, " cells"]


def check_locations(locations: Values, count: int | None = None) -> np.ndarray:
    """Locations as an array: coordinates ``(N, d)`` of finite floats, or labels ``(N,)``.

    Raises:
        ValueError: when their number is not ``count``, or a coordinate is not finite.
    """
    array = locations if isinstance(locations, np.ndarray) else np.asarray(locations)
    if array.ndim not in (1, 2):
        raise ValueError(f"locations must be coordinates (N, d) or labels (N,), got shape {array.shape}")
    if count is not None and len(array) != count:
        raise ValueError(f"need one location per hypothesis, got {len(array)} locations for {count} hypotheses")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("locations must be finite, got NaN or infinity")
    return array
