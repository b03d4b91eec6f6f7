"""Activation Beacon (Zhang et al.), a compact version: interleaved beacons whose keys and values are the memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import rotate_half

from .baselines import RatioConfig
from .compressor import Compressor
from .frozen_lm import Compressed, FrozenLM

PROJECTIONS = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class BeaconConfig(RatioConfig):
    """`window` raw tokens are read at once; one beacon follows every `ratio` of them."""

    window: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")


class Beacon(Compressor):
    """Windows of raw tokens with beacons in between; after each window only the beacons' keys and values stay.

    Beacons have query, key and value projections of their own (copies of the model's at the start), raw tokens the
    frozen ones. A beacon sees everything before it in its window and all earlier beacons ("full coverage"). Keys are
    kept unrotated: positions run over [earlier beacons, window] and are applied anew for each use. The reader sees all
    beacons at positions 0 .. M - 1 and goes on at M.

    Raises:
        ValueError: for a model that is not built like Llama (its attention needs `q_proj`, `k_proj`, `v_proj`).
    """

    config_class = BeaconConfig
    config: BeaconConfig

    def __init__(self, lm: nn.Module | FrozenLM, config: BeaconConfig | None = None) -> None:
        super().__init__(lm, config or BeaconConfig())
        backbone = self.lm.model.base_model
        layers = getattr(backbone, "layers", None)
        if layers is None or not all(hasattr(getattr(x, "self_attn", x), name) for x in layers for name in PROJECTIONS):
            raise ValueError(f"Beacon needs a decoder built like Llama, got {type(self.lm.model).__name__}")
        start = torch.tensor([self.lm.bos_token_id], device=self.lm.device)
        self.beacon = nn.Parameter(self.lm.model.get_input_embeddings()(start)[0].detach().clone())
        self.projections = nn.ModuleList(
            nn.ModuleDict({name: copy.deepcopy(getattr(layer.self_attn, name)) for name in PROJECTIONS})
            for layer in layers
        ).requires_grad_(True)

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        embeddings = self.lm.embed(ids)
        layers = self.lm.config.num_hidden_layers
        memory: list[tuple[Tensor, Tensor] | None] = [None] * layers
        memory_mask = mask[:, :0]
        for first in range(0, ids.shape[1], self.config.window):
            part = slice(first, first + self.config.window)
            memory, memory_mask = self._window(embeddings[:, part], mask[:, part], memory, memory_mask)
        count = memory_mask.shape[1]
        cos, sin = self._rotation(embeddings, count)
        kept = [pair for pair in memory if pair is not None]
        key_values = tuple((_rotate(keys, cos, sin), values) for keys, values in kept)
        return Compressed(memory_mask, key_values=key_values, next_position=torch.full_like(ids[:, 0], count))

    def _window(
        self, tokens: Tensor, mask: Tensor, memory: list[tuple[Tensor, Tensor] | None], memory_mask: Tensor
    ) -> tuple[list[tuple[Tensor, Tensor] | None], Tensor]:
        """One window through all layers: the beacons' unrotated keys and values, joined to those before."""
        batch, width, hidden_size = tokens.shape
        ratio = self.config.ratio
        owner = torch.arange(width, device=tokens.device) // ratio
        groups = int(owner[-1]) + 1
        raw = torch.arange(width, device=tokens.device) + owner
        beacons = torch.cat([(torch.arange(1, groups, device=tokens.device)) * (ratio + 1) - 1, raw[-1:] + 1])
        length = width + groups

        hidden = tokens.new_zeros(batch, length, hidden_size)
        hidden[:, raw] = tokens
        hidden[:, beacons] = self.beacon.to(tokens.dtype)
        valid = mask.new_zeros(batch, length)
        valid[:, raw] = mask
        beacon_valid = torch.zeros(batch, groups, dtype=torch.int, device=mask.device)
        beacon_valid = beacon_valid.index_add(1, owner, mask.int()) > 0
        valid[:, beacons] = beacon_valid

        before = memory_mask.shape[1]
        cos, sin = self._rotation(tokens, before + length)
        causal = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
        itself = torch.eye(length, dtype=torch.bool, device=mask.device)  # so that a pad attends to something
        window_part = (causal & valid[:, None, :]) | itself
        attend = torch.cat([memory_mask[:, None, :].expand(-1, length, -1), window_part], dim=2)[:, None]

        joined: list[tuple[Tensor, Tensor] | None] = []
        for layer, own, past in zip(self.lm.model.base_model.layers, self.projections, memory, strict=True):
            normed = layer.input_layernorm(hidden)
            heads = []
            for name in PROJECTIONS:
                frozen = getattr(layer.self_attn, name)(normed)
                projected = frozen.index_copy(1, beacons, own[name](normed[:, beacons]))  # pyright: ignore[reportIndexIssue]
                heads.append(projected.unflatten(-1, (-1, layer.self_attn.head_dim)).transpose(1, 2))
            query, key, value = heads
            all_keys = key if past is None else torch.cat([past[0], key], dim=2)
            all_values = value if past is None else torch.cat([past[1], value], dim=2)
            mixed = F.scaled_dot_product_attention(
                _rotate(query, cos[:, before:], sin[:, before:]),
                _rotate(all_keys, cos, sin),
                all_values,
                attn_mask=attend,
                enable_gqa=True,
            )
            hidden = hidden + layer.self_attn.o_proj(mixed.transpose(1, 2).flatten(2))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            new = key[:, :, beacons], value[:, :, beacons]
            joined.append(new if past is None else (torch.cat([past[0], new[0]], 2), torch.cat([past[1], new[1]], 2)))
        return joined, torch.cat([memory_mask, beacon_valid], dim=1)

    def _rotation(self, like: Tensor, length: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(length, device=like.device)[None]
        return self.lm.model.base_model.rotary_emb(like, position_ids=positions)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of `[B, heads, T, width]` by `[1, T, width]` cosines and sines."""
    return x * cos[:, None] + rotate_half(x) * sin[:, None]
