"""Warm starts of the solver between refinement steps: none, full, three-state reuse (algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor

ReuseKind = Literal["none", "full", "three_state"]
RULES: tuple[ReuseKind, ...] = get_args(ReuseKind)


@dataclass(frozen=True)
class ReuseRule:
    """How much of the previous step's solution starts the solver.

    Attributes:
        kind: "none" starts from `h_pre`, "full" from the previous solution, "three_state" mixes them token by token.
        masked: weight of a still masked token, rising from the first to the second with the visible share of its
            sequence.
        changed: weight of a newly revealed token.

    Raises:
        ValueError: for an unknown kind, a weight outside [0, 1] or a falling range.
    """

    kind: ReuseKind = "none"
    masked: tuple[float, float] = (0.75, 0.90)
    changed: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in RULES:
            raise ValueError(f"reuse must be 'none', 'full' or 'three_state', got {self.kind!r}")
        if not 0 <= self.masked[0] <= self.masked[1] <= 1:
            raise ValueError(f"masked must be two weights 0 <= low <= high <= 1, got {self.masked}")
        if not 0 <= self.changed <= 1:
            raise ValueError(f"changed must lie in [0, 1], got {self.changed}")


def reuse_coefficients(
    z: Integer[Tensor, "batch length"], z_prev: Integer[Tensor, ...], mask_id: int, rule: ReuseRule
) -> Float[Tensor, "batch length"]:
    """Weight gamma of the previous solution for each token.

    Args:
        z: tokens of this step.
        z_prev: tokens that the previous solution was made from.
        mask_id: id of the mask.
        rule: "three_state" gives 1 to unchanged visible tokens, `rule.changed` to changed ones, and to still masked
            ones `low + (high - low) * v` with `v` the visible share of the sequence.

    Raises:
        ValueError: if the shapes differ.
    """
    if z.shape != z_prev.shape:
        raise ValueError(f"z and z_prev must have one shape, got {tuple(z.shape)} and {tuple(z_prev.shape)}")
    if rule.kind != "three_state":
        return torch.full(z.shape, float(rule.kind == "full"), device=z.device)
    low, high = rule.masked
    masked = z == mask_id
    visible_share = 1 - masked.float().mean(1, keepdim=True)
    unchanged = torch.where(masked, low + (high - low) * visible_share, 1.0)
    return torch.where(z == z_prev, unchanged, rule.changed)


def warm_start(
    h_pre: Float[Tensor, "batch rows width"],
    h_prev: Float[Tensor, ...],
    coefficients: Float[Tensor, "batch length"],
) -> Float[Tensor, "batch rows width"]:
    """`gamma * h_prev + (1 - gamma) * h_pre`; register rows, which stand before the tokens, count as unchanged.

    Raises:
        ValueError: if the states differ in shape or have fewer rows than there are coefficients.
    """
    registers = h_pre.shape[1] - coefficients.shape[1]
    if h_pre.shape != h_prev.shape or registers < 0:
        raise ValueError(
            f"states {tuple(h_pre.shape)} and {tuple(h_prev.shape)} do not fit coefficients {tuple(coefficients.shape)}"
        )
    weight = torch.nn.functional.pad(coefficients, (registers, 0), value=1.0)[..., None].to(h_pre.dtype)
    return torch.lerp(h_pre, h_prev, weight)
