"""ComprExIT: compress the context of a frozen language model by explicit information transmission."""

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
from .depth import DepthMixer
from .frozen_lm import Compressed, FrozenLM
from .model import CompressorConfig, ComprExIT, parameter_count
from .slots import SlotOutput, SlotTransport
from .transport import segment_map, sinkhorn_log

__all__ = [
    "ICAE",
    "Beacon",
    "BeaconConfig",
    "ComprExIT",
    "Compressed",
    "Compressor",
    "CompressorConfig",
    "DepthMixer",
    "FiveHundredX",
    "FrozenLM",
    "FullContext",
    "MeanPool",
    "MemoryConfig",
    "NoContext",
    "PoolConfig",
    "PromptConfig",
    "PromptTuning",
    "RatioConfig",
    "SlotOutput",
    "SlotTransport",
    "Truncated",
    "parameter_count",
    "segment_map",
    "sinkhorn_log",
]
