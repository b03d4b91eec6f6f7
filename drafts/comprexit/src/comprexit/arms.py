"""The methods that experiments compare: how each is built on a small or a large model, and its learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .baselines import (
    ICAE,
    FiveHundredX,
    FullContext,
    MeanPool,
    MemoryConfig,
    NoContext,
    PoolConfig,
    PromptConfig,
    PromptTuning,
    RatioConfig,
    Truncated,
)
from .beacon import Beacon, BeaconConfig
from .compressor import Compressor
from .frozen_lm import FrozenLM
from .model import CompressorConfig, ComprExIT


@dataclass(frozen=True)
class Shape:
    """Sizes that depend on the language model and its contexts, not on the method."""

    window: int = 128
    gate_size: int = 256
    metric_size: int = 256
    projector_gain: float = 0.4
    max_slots: int = 128
    lora_rank: int = 128
    lora_alpha: float = 32.0
    lora_dropout: float = 0.05
    beacon_window: int = 64

    def compressor(self, ratio: int) -> CompressorConfig:
        return CompressorConfig(
            ratio=ratio,
            window=self.window,
            gate_size=self.gate_size,
            metric_size=self.metric_size,
            projector_gain=self.projector_gain,
        )

    def memory(self, ratio: int, memory_init: str) -> MemoryConfig:
        return MemoryConfig(
            ratio=ratio,
            max_slots=self.max_slots,
            lora_rank=self.lora_rank,
            lora_alpha=self.lora_alpha,
            lora_dropout=self.lora_dropout,
            memory_init=memory_init,  # pyright: ignore[reportArgumentType]
        )


@dataclass(frozen=True)
class Arm:
    """One method.

    Attributes:
        label: name in figures.
        build: makes it for a model, a shape and a ratio.
        learning_rate: on the recall task, the best of the grid on a seed of its own; None: nothing to train.
        published_learning_rate: on large models.
    """

    name: str
    label: str
    build: Callable[[FrozenLM, Shape, int], Compressor]
    learning_rate: float | None = None
    published_learning_rate: float = 1e-4


def _comprexit(**changes) -> Callable[[FrozenLM, Shape, int], Compressor]:
    return lambda lm, shape, ratio: ComprExIT(lm, replace(shape.compressor(ratio), **changes))


def _memory(method: type[ICAE] | type[FiveHundredX], init: str) -> Callable[[FrozenLM, Shape, int], Compressor]:
    return lambda lm, shape, ratio: method(lm, shape.memory(ratio, init))


_ALL = (
    Arm("full", "full context", lambda lm, shape, ratio: FullContext(lm, RatioConfig(ratio))),
    Arm("truncated", "truncated context", lambda lm, shape, ratio: Truncated(lm, RatioConfig(ratio))),
    Arm("none", "no context", lambda lm, shape, ratio: NoContext(lm, RatioConfig(ratio))),
    Arm(
        "prompt",
        "prompt tuning",
        lambda lm, shape, ratio: PromptTuning(lm, PromptConfig(ratio, shape.max_slots)),
        3e-3,
    ),
    Arm("comprexit", "ComprExIT", _comprexit(), 3e-3),
    Arm("icae", "ICAE", _memory(ICAE, "scaled"), 3e-3, 3e-5),
    Arm("icae_normal", "ICAE, N(0, 1) memory", _memory(ICAE, "normal"), 3e-3, 3e-5),
    Arm("fivehundredx", "500xCompressor", _memory(FiveHundredX, "scaled"), 3e-2, 3e-5),
    Arm("fivehundredx_normal", "500x, N(0, 1) memory", _memory(FiveHundredX, "normal"), 3e-2, 3e-5),
    Arm(
        "beacon",
        "Activation Beacon",
        lambda lm, shape, ratio: Beacon(lm, BeaconConfig(ratio, shape.beacon_window)),
        3e-3,
    ),
    Arm(
        "mean_pool",
        "mean pooling",
        lambda lm, shape, ratio: MeanPool(lm, PoolConfig(ratio, shape.projector_gain)),
        3e-3,
    ),
    Arm("last_layer", "last layer only", _comprexit(depth="last"), 3e-3),
    Arm("mean_layer", "mean of layers", _comprexit(depth="mean"), 3e-3),
    Arm("no_transport", "no transport", _comprexit(assignment="segment_mean"), 3e-3),
    Arm("softmax", "softmax, no plan", _comprexit(assignment="softmax"), 3e-3),
    Arm("uniform_mass", "uniform mass", _comprexit(learned_mass=False), 3e-3),
    Arm("shuffled_seeds", "shuffled seeds", _comprexit(seeds="shuffled"), 3e-3),
    Arm("positional", "positional cost", _comprexit(position_weight=0.2), 3e-3),
)
ARMS: dict[str, Arm] = {arm.name: arm for arm in _ALL}


def get_arm(name: str) -> Arm:
    """The arm of that name.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in ARMS:
        raise ValueError(f"unknown method {name!r}; there are {', '.join(ARMS)}")
    return ARMS[name]
