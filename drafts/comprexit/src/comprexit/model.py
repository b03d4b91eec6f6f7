"""ComprExIT: depth-wise mixing, transport to slots, and a projector into the embedding space (section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .compressor import Compressor
from .depth import Depth, DepthMixer
from .frozen_lm import Compressed, FrozenLM
from .slots import Assignment, Seeds, SlotOutput, SlotTransport


@dataclass(frozen=True)
class CompressorConfig:
    """Settings of `ComprExIT`, the paper's by default; `DepthMixer` and `SlotTransport` say what they mean.

    `projector_gain` is the gain of the projector's Xavier-uniform weights: 0.4 suits the small token embeddings of
    large models.
    """

    ratio: int = 4
    window: int = 128
    gate_size: int = 256
    metric_size: int = 256
    temperature: float = 0.7
    eps: float = 0.1
    n_iter: int = 30
    projector_gain: float = 0.4
    depth: Depth = "adaptive"
    assignment: Assignment = "transport"
    learned_mass: bool = True
    position_weight: float = 0.0
    seeds: Seeds = "segments"


class Transmission(NamedTuple):
    """How one batch was compressed: for looking into the method."""

    compressed: Compressed
    slots: SlotOutput
    layer_weights: Float[Tensor, "batch tokens states"]


class Projector(nn.Sequential):
    """Two-layer perceptron from slots to input embeddings (section 3.3, step 6)."""

    def __init__(self, hidden_size: int, gain: float) -> None:
        first, second = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        super().__init__(first, nn.GELU(), second)
        for layer in (first, second):
            nn.init.xavier_uniform_(layer.weight, gain=gain)
            nn.init.zeros_(layer.bias)


class ComprExIT(Compressor):
    """The paper's compressor: about 1 % new parameters on a frozen language model, one forward pass.

    Arguments:
        lm: a Hugging Face decoder, or a `FrozenLM` made of one.
        config: settings.

    Raises:
        ValueError: for settings that a part refuses, or a model that does not take `inputs_embeds`.
    """

    config_class = CompressorConfig
    config: CompressorConfig

    def __init__(self, lm: nn.Module | FrozenLM, config: CompressorConfig | None = None) -> None:
        config = config or CompressorConfig()
        super().__init__(lm, config)
        hidden = self.lm.hidden_size
        self.mixer = DepthMixer(hidden, self.lm.num_states, config.gate_size, config.temperature, config.depth)
        self.transport = SlotTransport(
            hidden,
            window=config.window,
            ratio=config.ratio,
            metric_size=config.metric_size,
            eps=config.eps,
            n_iter=config.n_iter,
            learned_mass=config.learned_mass,
            position_weight=config.position_weight,
            assignment=config.assignment,
            seeds=config.seeds,
        )
        self.projector = Projector(hidden, config.projector_gain)
        self.to(self.lm.device)

    def transmit(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        mask: Bool[Tensor, "batch tokens"],
        states: Sequence[Tensor] | Tensor | None = None,
    ) -> Transmission:
        """`compress` on a checked batch, with the plan and the layer weights."""
        if states is None:
            states = self.lm.hidden_states(input_ids, mask)
        anchors, layer_weights = self.mixer(states, mask)
        slots = self.transport(anchors, mask)
        return Transmission(Compressed(slots.slot_mask, self.projector(slots.slots)), slots, layer_weights)

    def _compress(self, ids: Tensor, mask: Tensor, states: Sequence[Tensor] | Tensor | None) -> Compressed:
        return self.transmit(ids, mask, states).compressed


def parameter_count(hidden_size: int, num_layers: int, gate_size: int = 256, metric_size: int = 256) -> int:
    """Trainable parameters of `ComprExIT` on a model of that width and depth (section 3.5)."""
    states, square = num_layers + 1, hidden_size**2 + hidden_size
    depth = states + 2 * (hidden_size * gate_size + gate_size) + square + states * gate_size
    width = 3 * 2 * hidden_size + hidden_size * metric_size + metric_size + square + hidden_size + 1
    return depth + width + 2 * square


def norm_ratio(compressed: Compressed, lm: FrozenLM) -> float:
    """Mean norm of the valid slots over the mean norm of token embeddings; far from 1, the model reads noise."""
    if compressed.embeddings is None:
        raise ValueError("norm_ratio needs slots as embeddings, got a cache")
    slots = compressed.embeddings[compressed.mask].norm(dim=-1).mean()
    return (slots / lm.model.get_input_embeddings().weight.norm(dim=-1).mean()).item()
