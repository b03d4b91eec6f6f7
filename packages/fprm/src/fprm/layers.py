"""The plain parts of a transformer block: normalisation, attention, SwiGLU, rotary positions, local convolution."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .config import FPRMConfig

# Standard deviation of a standard normal cut at +-2: dividing by it restores the wanted one.
_TRUNCATED_STD = 0.87962566103423978


def truncated_normal_(tensor: Tensor, std: float, generator: torch.Generator | None = None) -> Tensor:
    """Fill with a normal that is cut at two standard deviations and re-scaled to have standard deviation `std`."""
    scale = std / _TRUNCATED_STD
    with torch.no_grad():
        return nn.init.trunc_normal_(tensor, std=scale, a=-2 * scale, b=2 * scale, generator=generator)


def linear(fan_in: int, fan_out: int, bias: bool = False) -> nn.Linear:
    """A linear layer with weights of standard deviation `1 / sqrt(fan_in)` and zero bias."""
    layer = nn.Linear(fan_in, fan_out, bias=bias)
    truncated_normal_(layer.weight, 1.0 / math.sqrt(fan_in))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def rms_norm(x: Float[Tensor, "*batch width"], eps: float) -> Float[Tensor, "*batch width"]:
    """Divide by the root mean square of the channels; no learned gain, at least float32 inside."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return F.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype)
    return F.rms_norm(x, (x.shape[-1],), eps=eps)


class Rotary(nn.Module):
    """Rotary position embedding of queries and keys; the table grows when a longer sequence comes."""

    cos: Tensor
    sin: Tensor

    def __init__(self, head_dim: int, base: float, length: int) -> None:
        super().__init__()
        self.frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        for name, table in zip(("cos", "sin"), self._tables(length), strict=True):
            self.register_buffer(name, table, persistent=False)

    def _tables(self, length: int) -> tuple[Tensor, Tensor]:
        angles = torch.outer(torch.arange(length, dtype=torch.float64), self.frequencies).repeat(1, 2)
        return angles.cos().to(torch.get_default_dtype()), angles.sin().to(torch.get_default_dtype())

    def forward(self, length: int) -> tuple[Float[Tensor, "positions dim"], Float[Tensor, "positions dim"]]:
        """Cosine and sine of every position's angles."""
        if length > self.cos.shape[0]:
            self.cos, self.sin = (table.to(self.cos) for table in self._tables(length))
        return self.cos[:length], self.sin[:length]


def rotate(x: Float[Tensor, "batch heads positions dim"], cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of channels `(i, i + dim/2)` by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Multi-head self-attention without biases."""

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.num_heads = config.num_heads
        self.causal = config.causal
        self.scale = 1.0 / (math.sqrt(config.head_dim) * config.softmax_temperature)
        self.qkv = linear(width, 3 * width)
        self.out = linear(width, width)
        self.rotary = None
        if config.positions == "rope":
            self.rotary = Rotary(config.head_dim, config.rope_base, config.prefix_len + config.seq_len)

    def forward(self, x: Float[Tensor, "batch positions width"]) -> Float[Tensor, "batch positions width"]:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if self.rotary is not None:
            cos, sin = self.rotary(length)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    """Gated feed-forward layer `down(silu(gate) * up)` without biases."""

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        self.gate_up = linear(config.hidden_size, 2 * config.ffn_width)
        self.down = linear(config.ffn_width, config.hidden_size)

    def forward(self, x: Float[Tensor, "batch positions width"]) -> Float[Tensor, "batch positions width"]:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class LocalConvolution(nn.Module):
    """Depth-wise convolution over the token positions; the prefix passes through.

    `conv1d` is causal (padded on the left only); `conv2d` runs over the square grid of the tokens.
    """

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        self.kind = config.conv
        self.prefix_len = config.prefix_len
        self.kernel = config.kernel
        width = config.hidden_size
        if self.kind == "conv1d":
            self.filter = nn.Conv1d(width, width, self.kernel, groups=width, bias=False)
        elif self.kind == "conv2d":
            self.filter = nn.Conv2d(width, width, self.kernel, padding=self.kernel // 2, groups=width, bias=False)

    def forward(self, z: Float[Tensor, "batch positions width"]) -> Float[Tensor, "batch positions width"]:
        if self.kind == "none":
            return z
        prefix, tokens = z[:, : self.prefix_len], z[:, self.prefix_len :]
        length = tokens.shape[1]
        channels_first = tokens.transpose(1, 2)
        if self.kind == "conv1d":
            mixed = self.filter(F.pad(channels_first, (self.kernel - 1, 0)))
        else:
            side = math.isqrt(length)
            mixed = self.filter(channels_first.unflatten(2, (side, side))).flatten(2)
        mixed = mixed.transpose(1, 2)
        return torch.cat((prefix, mixed), dim=1) if self.prefix_len else mixed
