"""Width-wise transmission: a transport plan hands the tokens' mass to slots, window by window (section 3.3)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from .transport import check_sinkhorn_settings, segment_map, transport_plan

Assignment = Literal["transport", "segment_mean", "softmax"]
Seeds = Literal["segments", "shuffled"]
UNIFORM_SHARE = 0.05  # of the source mass is spread evenly, so that no token is ever left out


class SlotOutput(NamedTuple):
    """Slots and how they came about.

    Attributes:
        slots: `[B, M, H]`, windows in order.
        slot_mask: `[B, M]`, False where a slot's segment has no valid token.
        plan: `[B, N, W, S]` mass that each position of each window hands to each slot of it.
        source_mass: `[B, N, W]` mass of each position, 0 on pads.
    """

    slots: Float[Tensor, "batch memory hidden"]
    slot_mask: Bool[Tensor, "batch memory"]
    plan: Float[Tensor, "batch windows positions slots"]
    source_mass: Float[Tensor, "batch windows positions"]

    def weights(self) -> Float[Tensor, "batch memory tokens"]:
        """Share of every token (windows in order, pads of the last window included) in every slot; rows sum to 1."""
        batch, windows, positions, slots = self.plan.shape
        rows = self.plan.transpose(2, 3)
        rows = rows / rows.sum(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
        whole = rows.new_zeros(batch, windows, slots, windows, positions)
        index = torch.arange(windows, device=rows.device)
        whole[:, index, :, index] = rows.transpose(0, 1)
        return whole.reshape(batch, windows * slots, windows * positions)[:, : self.slots.shape[1]]


class SlotTransport(nn.Module):
    """Token anchors -> slots, `ceil(window / ratio)` for each window of tokens.

    A slot starts as the mean of its segment (the seed), which only sets the cost of reaching it; what it receives is
    decided by the plan for the whole window: every slot the same mass, every token's learned mass handed out once.

    Arguments:
        hidden_size: width `H` of the language model.
        window: tokens `W` in a window; each window has a plan of its own.
        ratio: tokens for one slot, `r`.
        metric_size: width `d_c` of the space in which costs are cosine distances.
        eps, n_iter: of Sinkhorn's iteration.
        learned_mass: False leaves the source mass uniform (ablation).
        position_weight: weight of `((t - centre_j) / W)^2` in the cost; the paper's code has it at 0.
        assignment: `transport` is the method. Ablations: `segment_mean` averages the segment's tokens, `softmax` lets
            every slot choose its tokens without regard to the others.
        seeds: `segments` is the method; `shuffled` averages random tokens of the window instead (ablation).

    Raises:
        ValueError: for sizes or a ratio below 1, a ratio above the window, or settings that Sinkhorn refuses.
    """

    segments: Tensor

    def __init__(
        self,
        hidden_size: int,
        window: int = 128,
        ratio: int = 4,
        metric_size: int = 256,
        eps: float = 0.1,
        n_iter: int = 30,
        learned_mass: bool = True,
        position_weight: float = 0.0,
        assignment: Assignment = "transport",
        seeds: Seeds = "segments",
    ) -> None:
        super().__init__()
        check_sinkhorn_settings(eps, n_iter)
        for name, size in (("hidden_size", hidden_size), ("window", window), ("metric_size", metric_size)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if ratio < 1:
            raise ValueError(f"ratio must be at least 1, got {ratio}")
        for name, value, known in (("assignment", assignment, Assignment), ("seeds", seeds, Seeds)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {', '.join(get_args(known))}, got {value!r}")
        self.window, self.slots = window, -(-window // ratio)
        self.eps, self.n_iter = eps, n_iter
        self.learned_mass, self.position_weight, self.assignment = learned_mass, position_weight, assignment
        segments = segment_map(window, self.slots)
        if seeds == "shuffled":
            order = torch.randperm(window, generator=torch.Generator().manual_seed(0))
            segments = segments[order]
        self.register_buffer("segments", segments, persistent=False)
        self.metric_norm, self.metric = nn.LayerNorm(hidden_size), nn.Linear(hidden_size, metric_size)
        self.mass_norm, self.mass = nn.LayerNorm(hidden_size), nn.Linear(hidden_size, 1)
        self.value_norm, self.value = nn.LayerNorm(hidden_size), nn.Linear(hidden_size, hidden_size)
        nn.init.zeros_(self.mass.weight)
        nn.init.zeros_(self.mass.bias)

    def forward(self, anchors: Float[Tensor, "batch tokens hidden"], mask: Bool[Tensor, "batch tokens"]) -> SlotOutput:
        """Slots of every window; the last window is filled up with positions without mass."""
        batch, tokens, hidden = anchors.shape
        windows = -(-tokens // self.window)
        missing = windows * self.window - tokens
        z = F.pad(anchors, (0, 0, 0, missing)).reshape(batch * windows, self.window, hidden)
        valid = F.pad(mask, (0, missing)).reshape(batch * windows, self.window)

        counts = valid.to(z.dtype) @ self.segments.to(z.dtype)
        slot_valid = counts > 0
        seeds = torch.einsum("nwh,ws->nsh", z, self.segments.to(z.dtype)) / counts.clamp_min(1.0)[..., None]
        a = self._source_mass(z, valid)
        b = slot_valid / slot_valid.sum(-1, keepdim=True).clamp_min(1)
        plan = self._plan(z, seeds, valid, a, b.to(a.dtype), counts)

        # W_y is affine and a slot's weights sum to 1, so it may come after the sum: S products instead of W.
        weights = (plan / b[:, None, :].clamp_min(torch.finfo(plan.dtype).tiny)).to(z.dtype)
        slots = self.value(torch.einsum("nws,nwh->nsh", weights, self.value_norm(z))) * slot_valid[..., None]

        # Segments that begin after the last token hold nothing in any row.
        last = tokens - (windows - 1) * self.window
        used = int((self.segments[:last].sum(0) > 0).nonzero().max()) + 1
        memory = (windows - 1) * self.slots + used
        return SlotOutput(
            slots.reshape(batch, -1, hidden)[:, :memory],
            slot_valid.reshape(batch, -1)[:, :memory],
            plan.reshape(batch, windows, self.window, self.slots),
            a.reshape(batch, windows, self.window),
        )

    def _source_mass(self, z: Tensor, valid: Tensor) -> Tensor:
        present = valid.to(torch.promote_types(z.dtype, torch.float32))
        uniform = present / present.sum(-1, keepdim=True).clamp_min(1.0)
        if not self.learned_mass:
            return uniform
        scores = self.mass(self.mass_norm(z)).squeeze(-1).to(present.dtype)
        learned = scores.masked_fill(~valid, torch.finfo(present.dtype).min).softmax(-1)
        mass = ((1 - UNIFORM_SHARE) * learned + UNIFORM_SHARE * uniform) * present
        return mass / mass.sum(-1, keepdim=True).clamp_min(torch.finfo(mass.dtype).tiny)

    def _plan(self, z: Tensor, seeds: Tensor, valid: Tensor, a: Tensor, b: Tensor, counts: Tensor) -> Tensor:
        if self.assignment == "segment_mean":
            share = self.segments.to(a.dtype) * valid[..., None] / counts.clamp_min(1.0)[:, None, :]
            return share.to(a.dtype) * b[:, None, :]
        u = F.normalize(self.metric(self.metric_norm(z)).to(a.dtype), dim=-1)
        w = F.normalize(self.metric(self.metric_norm(seeds)).to(a.dtype), dim=-1)
        cost = 1.0 - u @ w.transpose(1, 2)
        if self.position_weight:
            cost = cost + self.position_weight * self._squared_distance().to(cost)
        if self.assignment == "softmax":
            logits = (cost / -self.eps).masked_fill(~valid[..., None], torch.finfo(cost.dtype).min)
            return logits.softmax(1) * valid[..., None] * b[:, None, :]
        return transport_plan(cost, a, b, self.eps, self.n_iter)

    def _squared_distance(self) -> Tensor:
        """`((t - centre_j) / W)^2` for every position and slot."""
        positions = torch.arange(self.window, device=self.segments.device, dtype=self.segments.dtype)
        centres = positions @ self.segments / self.segments.sum(0)
        return ((positions[:, None] - centres) / self.window).square()
