"""MaskGIT's parts: the arccos schedule, the Halton order of a grid, its sampler (section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import qmc
from torch import Tensor


def arccos_masked_share(x: float) -> float:
    """Share that is still masked after a share `x` of the steps, `arccos(x) / (pi / 2)` (reconstruction).

    Raises:
        ValueError: for x outside [0, 1].
    """
    if not 0 <= x <= 1:
        raise ValueError(f"x must lie in [0, 1], got {x}")
    return math.acos(x) / (math.pi / 2)


def halton_order(height: int, width: int) -> Int[np.ndarray, " cells"]:
    """Cells of a grid, numbered row by row, in the order in which the Halton sequence of bases 2 and 3 first meets
    them.

    Raises:
        ValueError: for an empty grid.
    """
    if height < 1 or width < 1:
        raise ValueError(f"expected a grid of at least one cell, got {height} x {width}")
    sequence = qmc.Halton(d=2, scramble=False)
    order: dict[int, None] = {}  # keeps the order of first visits
    while len(order) < height * width:
        points = sequence.random(4 * height * width)
        cells = (points[:, 0] * height).astype(int) * width + (points[:, 1] * width).astype(int)
        order.update(dict.fromkeys(cells.tolist()))
    return np.array(list(order))


@cache
def _halton_rank(height: int, width: int) -> Int[Tensor, " cells"]:
    """Place of each cell in the Halton order; the same for every step of every sample."""
    return torch.from_numpy(halton_order(height, width).argsort())


@dataclass(frozen=True)
class MaskGITSampler:
    """Reveals a scheduled number of positions a step, along a Halton order or the most confident ones.

    Attributes:
        order: "halton" (fixed, low discrepancy) or "confidence" (probability of the drawn value).
        grid: height and width, for the Halton order.
        guidance: scale of classifier-free guidance.
        gumbel: for "confidence", strength of the noise on the log confidence; it falls to 0 over the steps.

    Raises:
        ValueError: for an unknown order, or a negative scale.
    """

    order: Literal["halton", "confidence"] = "halton"
    grid: tuple[int, int] = (16, 16)
    guidance: float = 0.0
    gumbel: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in ("halton", "confidence"):
            raise ValueError(f"order must be 'halton' or 'confidence', got {self.order!r}")
        if self.guidance < 0 or self.gumbel < 0:
            raise ValueError(f"guidance and gumbel must not be negative, got {self.guidance} and {self.gumbel}")

    @property
    def monotone(self) -> bool:
        """Revealed tokens stay."""
        return True

    @property
    def uses_confidence(self) -> bool:
        """Only the order by confidence does."""
        return self.order == "confidence"

    def time(self, step: int, steps: int) -> float:
        """Masked share before step `step`."""
        return arccos_masked_share(step / steps)

    def remaining(self, step: int, steps: int, length: int) -> int:
        """Positions that are still masked after step `step` (counted from 0): at least one less each step, 0 at the
        end."""
        target = math.floor(length * arccos_masked_share((step + 1) / steps))
        return max(0, min(target, length - 1 - step))

    def reveal(
        self,
        step: int,
        steps: int,
        masked: Bool[Tensor, "n length"],
        confidence: Float[Tensor, "n length"] | None,
        generator: torch.Generator | None,
    ) -> Bool[Tensor, "n length"]:
        """Positions that this step reveals.

        Raises:
            ValueError: if the Halton grid has another number of cells than the sequence.
        """
        length = masked.shape[1]
        keep = self.remaining(step, steps, length)
        if self.order == "halton":
            rank = _halton_rank(*self.grid)
            if len(rank) != length:
                raise ValueError(f"a grid of {self.grid[0]} x {self.grid[1]} does not hold sequences of {length}")
            return masked & (rank < length - keep).to(masked.device)
        assert confidence is not None
        score = confidence.clamp_min(torch.finfo(confidence.dtype).tiny).log()
        if self.gumbel:
            noise = -torch.empty(score.shape, dtype=score.dtype).exponential_(generator=generator).log()
            score = score + self.gumbel * (1 - (step + 1) / steps) * noise.to(score.device)
        score = score.masked_fill(~masked, torch.inf)  # visible ones stand first
        rank = score.argsort(dim=1, descending=True).argsort(dim=1)
        return masked & (rank < length - keep)
