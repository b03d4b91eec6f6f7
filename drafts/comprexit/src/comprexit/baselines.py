"""The compressors that ComprExIT is compared with, and the references that bound them (section 4 of the comparison)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from .compressor import Compressor
from .frozen_lm import Compressed, FrozenLM, cached_key_values, rotary_positions
from .model import Projector
from .transport import segment_map

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class RatioConfig:
    """`ratio` tokens of context for each memory position."""

    ratio: int = 4

    def __post_init__(self) -> None:
        if self.ratio < 1:
            raise ValueError(f"ratio must be at least 1, got {self.ratio}")


class FullContext(Compressor):
    """Upper bound: the context's own token embeddings, nothing compressed and nothing trained."""

    config_class = RatioConfig
    config: RatioConfig

    def __init__(self, lm: nn.Module | FrozenLM, config: RatioConfig | None = None) -> None:
        super().__init__(lm, config or RatioConfig())

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        return Compressed(mask, self.lm.embed(ids))


class Truncated(FullContext):
    """The last `ceil(T / ratio)` tokens: as many positions as a compressor fills, for nothing."""

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        kept = -(-ids.shape[1] // self.config.ratio)
        return Compressed(mask[:, -kept:], self.lm.embed(ids[:, -kept:]))


class NoContext(FullContext):
    """Lower bound: BOS and the query alone."""

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        return Compressed(mask[:, :0], self.lm.embed(ids[:, :0]))


@dataclass(frozen=True)
class PromptConfig(RatioConfig):
    """Prompt tuning: at most `max_slots` learned vectors."""

    max_slots: int = 128


class PromptTuning(Compressor):
    """Learned vectors, the same for every context: what training can gain without any compression."""

    config_class = PromptConfig
    config: PromptConfig

    def __init__(self, lm: nn.Module | FrozenLM, config: PromptConfig | None = None) -> None:
        super().__init__(lm, config or PromptConfig())
        shape = self.config.max_slots, self.lm.hidden_size
        self.prompt = nn.Parameter(self.lm.embedding_std * torch.randn(shape, device=self.lm.device))

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        prompt = self.prompt[: memory_size(ids, self.config.ratio, self.config.max_slots)]
        return Compressed(torch.ones_like(ids[:, : len(prompt)], dtype=torch.bool), prompt.expand(len(ids), -1, -1))


@dataclass(frozen=True)
class PoolConfig(RatioConfig):
    """Mean pooling; `projector_gain` as for ComprExIT."""

    projector_gain: float = 0.4


class MeanPool(Compressor):
    """Mean of the last layer's states over each of `ceil(T / ratio)` segments, then a perceptron (Feldman, Artzi)."""

    config_class = PoolConfig
    config: PoolConfig

    def __init__(self, lm: nn.Module | FrozenLM, config: PoolConfig | None = None) -> None:
        super().__init__(lm, config or PoolConfig())
        self.projector = Projector(self.lm.hidden_size, self.config.projector_gain).to(self.lm.device)

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        last = (self.lm.hidden_states(ids, mask) if states is None else states)[-1].float()
        tokens = ids.shape[1]
        segments = segment_map(tokens, -(-tokens // self.config.ratio)).to(last)
        counts = mask.to(last) @ segments
        means = torch.einsum("bth,ts->bsh", last * mask[..., None], segments) / counts.clamp_min(1.0)[..., None]
        return Compressed(counts > 0, self.projector(means))


@dataclass(frozen=True)
class MemoryConfig(RatioConfig):
    """Memory tokens read by a LoRA copy of the language model.

    `memory_init` is `normal` for N(0, 1), as published, or `scaled` for the standard deviation of the token embeddings,
    which trains far better in few steps.
    """

    max_slots: int = 128
    lora_rank: int = 128
    lora_alpha: float = 32.0
    lora_dropout: float = 0.05
    memory_init: Literal["normal", "scaled"] = "normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_init not in ("normal", "scaled"):
            raise ValueError(f"memory_init must be normal or scaled, got {self.memory_init!r}")


class MemoryTokens(Compressor):
    """What ICAE and 500xCompressor share: memory tokens appended to the context, in a LoRA copy of the model."""

    config_class = MemoryConfig
    config: MemoryConfig
    targets: tuple[str, ...]

    def __init__(self, lm: nn.Module | FrozenLM, config: MemoryConfig | None = None) -> None:
        super().__init__(lm, config or MemoryConfig())
        std = 1.0 if self.config.memory_init == "normal" else self.lm.embedding_std
        shape = self.config.max_slots, self.lm.hidden_size
        self.memory = nn.Parameter(std * torch.randn(shape, device=self.lm.device))
        lora = LoraConfig(
            r=self.config.lora_rank,
            lora_alpha=self.config.lora_alpha,  # pyright: ignore[reportArgumentType]
            lora_dropout=self.config.lora_dropout,
            target_modules=list(self.targets),
        )
        # The copy shares the frozen weights: only the adapters are new.
        shared = {id(p): p for p in self.lm.model.parameters()}
        self.encoder: Any = inject_adapter_in_model(lora, copy.deepcopy(self.lm.model.base_model, shared))

    def merged(self) -> MemoryTokens:
        """A copy whose adapters are merged into weights of its own: faster, as large as the language model."""
        twin = copy.deepcopy(self, {id(self.lm): self.lm})
        for module in twin.modules():
            if isinstance(module, BaseTunerLayer):
                module.merge()
        return twin

    def _encode(self, ids: Tensor, mask: Tensor, **options: Any) -> tuple[Any, int]:
        """The encoder's output over [context, memory tokens], and how many of the latter there are."""
        count = memory_size(ids, self.config.ratio, self.config.max_slots)
        memory = self.memory[:count].to(self.lm.model.dtype).expand(len(ids), -1, -1)
        whole = torch.cat([mask, mask.new_ones(len(ids), count)], dim=1)
        embeddings = torch.cat([self.lm.embed(ids), memory], dim=1)
        return self.encoder(inputs_embeds=embeddings, **FrozenLM._masked(whole), **options), count

    @torch.no_grad()
    def memory_attention(
        self, input_ids: Int[Tensor, "batch tokens"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch memory tokens"]:
        """Attention of memory tokens to context tokens, mean over layers and heads; each row is scaled to sum 1."""
        implementation = self.encoder.config._attn_implementation
        self.encoder.set_attn_implementation("eager")
        try:
            output, count = self._encode(input_ids, mask, output_attentions=True, use_cache=False)
        finally:
            self.encoder.set_attn_implementation(implementation)
        rows = torch.stack(output.attentions).mean((0, 2))[:, -count:, : input_ids.shape[1]]
        return rows / rows.sum(-1, keepdim=True)


class ICAE(MemoryTokens):
    """In-context autoencoder (Ge et al.): last-layer states of the memory tokens become the input embeddings."""

    targets = ALL_LINEAR

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        output, count = self._encode(ids, mask, use_cache=False)
        slots = output.last_hidden_state[:, -count:]
        return Compressed(torch.ones(slots.shape[:2], dtype=torch.bool, device=slots.device), slots)


class FiveHundredX(MemoryTokens):
    """500xCompressor (Li et al.): keys and values of the memory tokens in every layer are handed to the plain model.

    The memory tokens stand at positions T .. T + M - 1, so the reader goes on at T + M: any other start would give
    rotary distances that the model never saw.
    """

    targets = ("q_proj", "v_proj")

    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        output, count = self._encode(ids, mask, use_cache=True)
        key_values = tuple((k[:, :, -count:], v[:, :, -count:]) for k, v in cached_key_values(output))
        kept = torch.ones(len(ids), count, dtype=torch.bool, device=ids.device)
        return Compressed(kept, key_values=key_values, next_position=rotary_positions(mask)[:, -1] + 1 + count)


def memory_size(ids: Tensor, ratio: int, max_slots: int) -> int:
    """Memory positions for a context of that length.

    Raises:
        ValueError: for a context longer than `ratio * max_slots` tokens.
    """
    count = math.ceil(ids.shape[1] / ratio)
    if count > max_slots:
        raise ValueError(
            f"{ids.shape[1]} tokens need {count} memory tokens, there are {max_slots}; "
            "compress segments with compress_long, or raise max_slots"
        )
    return count
