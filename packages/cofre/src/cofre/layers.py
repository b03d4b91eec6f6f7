"""The transformer block of MDLM (a DiT block), rotary positions, conditioning, and the injection of FPDM."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F


class Rotary(nn.Module):
    """Rotary position table, applied to queries and keys.

    Args:
        head_width: channels of one attention head; even.
        length: positions of the table.

    Raises:
        ValueError: for an odd head width; in `forward`, for a sequence that is longer than the table.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, head_width: int, length: int) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"rotary positions need an even head width, got {head_width}")
        frequency = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
        angle = torch.arange(length)[:, None] * frequency
        self.register_buffer("cos", angle.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2), persistent=False)

    def forward(self, x: Float[Tensor, "... length width"]) -> Float[Tensor, "... length width"]:
        """Rotate each pair of channels by an angle proportional to the position."""
        length = x.shape[-2]
        if length > len(self.cos):
            raise ValueError(f"a sequence of {length} is longer than the rotary table of {len(self.cos)} positions")
        left, right = x.chunk(2, dim=-1)
        return x * self.cos[:length] + torch.cat((-right, left), dim=-1) * self.sin[:length]


class RelativeBias(nn.Module):
    """Learned bias of the attention logits for each head and offset (T5).

    Heads start by looking to the left and to the right in turn, less far the earlier they come (one-sided ALiBi with
    slopes 1, 1, 1/2, 1/2, …). Rotary positions, and a bias of zeros, leave a small model at letter frequencies for
    hundreds of steps: the logits grow too slowly before a head can pick out one offset.

    Args:
        heads: attention heads.
        length: positions.

    Raises:
        ValueError: in `forward`, for a longer sequence.
    """

    OTHER_SIDE = -4.0  # starting bias of the token itself and of the side that a head does not look at
    offset: Tensor

    def __init__(self, heads: int, length: int) -> None:
        super().__init__()
        distance = torch.arange(1 - length, length)
        rows = []
        for head in range(heads):
            own_side = distance < 0 if head % 2 == 0 else distance > 0
            slope = 0.5 ** (head // 2)
            rows.append(torch.where(own_side, slope * (1.0 - distance.abs()), self.OTHER_SIDE))
        self.table = nn.Parameter(torch.stack(rows))
        position = torch.arange(length)
        self.register_buffer("offset", position[None] - position[:, None] + length - 1, persistent=False)

    def forward(self, length: int) -> Float[Tensor, "heads length length"]:
        """Bias of each query (row) and key (column)."""
        if length > len(self.offset):
            raise ValueError(f"a sequence of {length} is longer than the table of {len(self.offset)} positions")
        return self.table[:, self.offset[:length, :length]]


class TimestepEmbedding(nn.Module):
    """Sinusoidal features of the noise level and a two-layer network: the conditioning vector of adaLN."""

    features = 256

    def __init__(self, width: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(self.features, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, sigma: Float[Tensor, " batch"]) -> Float[Tensor, "batch width"]:
        """Embed noise levels."""
        half = self.features // 2
        frequency = torch.exp(-math.log(10_000.0) * torch.arange(half, device=sigma.device) / half)
        angle = sigma[:, None] * frequency
        return self.network(torch.cat((angle.cos(), angle.sin()), dim=-1))


def modulate(
    x: Float[Tensor, "batch length width"], shift: Float[Tensor, "rows 1 width"], scale: Float[Tensor, "rows 1 width"]
) -> Float[Tensor, "batch length width"]:
    """AdaLN's affine map; `rows` is the batch, or 1 for a condition that all samples share."""
    return x * (1 + scale) + shift


class Modulation(nn.Linear):
    """Linear map from the conditioning vector to `parts` vectors of the model's width, zero at the start."""

    def __init__(self, cond_dim: int, hidden: int, parts: int) -> None:
        super().__init__(cond_dim, parts * hidden)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        self.parts = parts

    def forward(self, cond: Float[Tensor, "rows cond"]) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """`parts` tensors of shape (rows, 1, hidden)."""
        return super().forward(cond)[:, None].chunk(self.parts, dim=-1)


class DiTBlock(nn.Module):
    """Pre-norm attention and MLP; with adaLN (gates that start at zero) if there is a conditioning vector.

    Args:
        hidden: width; a multiple of `heads`.
        heads: attention heads.
        cond_dim: width of the conditioning vector; `None` for a plain pre-norm block.
        dropout: on both branches, before they are added.

    Raises:
        ValueError: if `hidden` is not a multiple of `heads`.
    """

    def __init__(self, hidden: int, heads: int, cond_dim: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        if hidden % heads:
            raise ValueError(f"hidden width {hidden} is not a multiple of {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(hidden, bias=False)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.norm2 = nn.LayerNorm(hidden, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(approximate="tanh"), nn.Linear(4 * hidden, hidden)
        )
        self.modulation = None if cond_dim is None else Modulation(cond_dim, hidden, 6)

    def forward(
        self,
        h: Float[Tensor, "batch length width"],
        positions: Rotary | RelativeBias | None = None,
        cond: Float[Tensor, "rows cond"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """One block pass."""
        if self.modulation is None or cond is None:
            h = h + self._drop(self._attend(self.norm1(h), positions))
            return h + self._drop(self.mlp(self.norm2(h)))
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(cond)
        h = h + gate1 * self._drop(self._attend(modulate(self.norm1(h), shift1, scale1), positions))
        return h + gate2 * self._drop(self.mlp(modulate(self.norm2(h), shift2, scale2)))

    def _attend(self, x: Tensor, positions: Rotary | RelativeBias | None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if isinstance(positions, Rotary):
            q, k = positions(q), positions(k)
        bias = positions(length) if isinstance(positions, RelativeBias) else None
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Injection(nn.Module):
    """FPDM's projections around the shared block: `W_2 GELU(W_1 [h ; g] + b_1) + b_2` (Fixed Point Diffusion
    Models)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * hidden, 2 * hidden)
        self.merge = nn.Linear(2 * hidden, hidden)

    def forward(
        self, h: Float[Tensor, "batch length width"], injection: Float[Tensor, "batch length width"]
    ) -> Float[Tensor, "batch length width"]:
        """State and injection merged into the input of the shared block."""
        return self.merge(F.gelu(self.mix(torch.cat((h, injection), dim=-1)), approximate="tanh"))


class FinalLayer(nn.Module):
    """Last norm (with adaLN if conditioned) and the output matrix, which starts at zero."""

    def __init__(self, hidden: int, symbols: int, cond_dim: int | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden, bias=False)
        self.modulation = None if cond_dim is None else Modulation(cond_dim, hidden, 2)
        self.linear = nn.Linear(hidden, symbols)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(
        self, h: Float[Tensor, "batch length width"], cond: Float[Tensor, "rows cond"] | None = None
    ) -> tuple[Float[Tensor, "batch length symbols"], Float[Tensor, "batch length width"]]:
        """Logits, and the normed state that the output matrix multiplies."""
        hidden = self.norm(h)
        if self.modulation is not None and cond is not None:
            hidden = modulate(hidden, *self.modulation(cond))
        return self.linear(hidden), hidden


def token_embedding(symbols: int, hidden: int, std: float = 0.02) -> nn.Embedding:
    """Embedding with normal entries; blocks that are not the identity at the start need a larger `std` than 0.02."""
    table = nn.Embedding(symbols, hidden)
    nn.init.normal_(table.weight, std=std)
    return table


def check_tokens(x: Integer[Tensor, ...], symbols: int, what: str) -> None:
    """Refuse token ids outside 0 … symbols - 1.

    Raises:
        TypeError: for tokens that are not integers.
        ValueError: for an id out of range.
    """
    if x.dtype == torch.bool or x.is_floating_point():
        raise TypeError(f"{what} must be integers, got {x.dtype}")
    if x.numel() and (int(x.min()) < 0 or int(x.max()) >= symbols):
        raise ValueError(f"{what} must lie in 0 … {symbols - 1}, got {int(x.min())} … {int(x.max())}")
