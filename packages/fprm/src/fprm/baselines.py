"""Models to compare with: TRM, HRM and transformers that do not loop. ACT halting stands in `fprm.solver`.

They share the injection, the block and the head of the model, so a comparison differs only in what it is about.
One `body` call of TRM and HRM is a complete supervision segment; train them with `bptt=1`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .config import FPRMConfig
from .layers import truncated_normal_
from .model import LoopBlock, LoopedModel

States = Float[Tensor, "batch 2 positions width"]


class _TwoLevelModel(LoopedModel):
    """Two states a position, the answer `z_H` and the latent `z_L`, kept side by side in dimension 1."""

    def __init__(self, config: FPRMConfig, high_cycles: int, low_cycles: int) -> None:
        if high_cycles < 1 or low_cycles < 1:
            raise ValueError(f"high_cycles and low_cycles must be at least 1, got {high_cycles} and {low_cycles}")
        super().__init__(config)
        self.high_cycles, self.low_cycles = high_cycles, low_cycles
        self.start: Tensor
        self.register_buffer("start", truncated_normal_(torch.empty(2, config.hidden_size), 1.0))

    def initial_state(self, injection: Float[Tensor, "batch positions width"], generator=None) -> States:
        """The same frozen random vectors for every sample and position; `generator` is not used."""
        batch, positions, width = injection.shape
        return self.start[None, :, None].expand(batch, 2, positions, width).clone()

    def latent(self, z: States) -> Float[Tensor, "batch positions width"]:
        """The answer state `z_H`."""
        return z[:, 0]


class TRM(_TwoLevelModel):
    """Tiny Recursive Model (arXiv 2510.04871): one shared post-norm block refines two states.

    A segment runs `high_cycles - 1` cycles without gradient and one with: `low_cycles` times
    `z_L = net(z_L + z_H + e)`, then `z_H = net(z_H + z_L)`.

    Args:
        config: shape; `norm` and `residual_scale` are set to the baseline's ("post", "none"). The paper's "TRM"
            has `conv="none"`, its "TRM + conv" has a convolution.
        high_cycles, low_cycles: cycles of one segment.

    Raises:
        ValueError: for fewer than one cycle.
    """

    def __init__(self, config: FPRMConfig, high_cycles: int = 3, low_cycles: int = 6) -> None:
        config = replace(config, norm="post", residual_scale="none", norm_placement="none")
        super().__init__(config, high_cycles, low_cycles)
        self.net = LoopBlock(config)

    @property
    def applications(self) -> int:
        """Applications of the block in one segment."""
        return self.high_cycles * (self.low_cycles + 1)

    def body(self, z: States, injection: Float[Tensor, "batch positions width"]) -> States:
        """One segment."""
        high, low = z[:, 0], z[:, 1]
        with torch.no_grad():
            for _ in range(self.high_cycles - 1):
                high, low = self._cycle(high, low, injection)
        high, low = self._cycle(high, low, injection)
        return torch.stack((high, low), dim=1)

    def _cycle(self, high: Tensor, low: Tensor, injection: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(self.low_cycles):
            low = self.net(low, high + injection)
        return self.net(high, low), low


class HRM(_TwoLevelModel):
    """Hierarchical Reasoning Model (arXiv 2506.21734): two modules and a one-step gradient.

    A segment is `high_cycles` times: `low_cycles` steps of the low module, one of the high module. Only the very last
    step of each carries a gradient.

    Args:
        config: shape; `norm`, `residual_scale` and `num_layers` are set to the baseline's ("post", "none", 4).
        high_cycles, low_cycles: cycles of one segment.
        num_layers: blocks in each module.

    Raises:
        ValueError: for fewer than one cycle.
    """

    def __init__(self, config: FPRMConfig, high_cycles: int = 2, low_cycles: int = 2, num_layers: int = 4) -> None:
        config = replace(config, norm="post", residual_scale="none", norm_placement="none", num_layers=num_layers)
        super().__init__(config, high_cycles, low_cycles)
        self.high_module, self.low_module = LoopBlock(config), LoopBlock(config)

    def body(self, z: States, injection: Float[Tensor, "batch positions width"]) -> States:
        """One segment."""
        high, low = z[:, 0], z[:, 1]
        with torch.no_grad():
            for step in range(1, self.high_cycles * self.low_cycles):
                low = self.low_module(low, high + injection)
                if step % self.low_cycles == 0:
                    high = self.high_module(high, low)
        low = self.low_module(low, high + injection)
        high = self.high_module(high, low)
        return torch.stack((high, low), dim=1)


class FixedDepthTransformer(LoopedModel):
    """A transformer that does not loop: `depth` pre-norm blocks with their own weights, applied once to the input.

    Args:
        config: shape; the residual sums are plain and the output is normalised, as usual for pre-norm.
        depth: number of blocks.

    Raises:
        ValueError: for a depth below one.
    """

    def __init__(self, config: FPRMConfig, depth: int = 2) -> None:
        config = replace(config, norm="pre", residual_scale="none", norm_placement="output", num_layers=depth)
        super().__init__(config)
        self.block = LoopBlock(config)

    def initial_state(self, injection: Float[Tensor, "batch positions width"], generator=None) -> Tensor:
        """Zeros: nothing is carried; `generator` is not used."""
        return torch.zeros_like(injection)

    def body(self, z: Tensor, injection: Float[Tensor, "batch positions width"]) -> Tensor:
        """The whole network. The convolution, which the loop applies to its state, is applied to the input here."""
        return self.block(injection, injection)

    def predict(
        self,
        x: Int[Tensor, "batch tokens"],
        puzzle_ids: Int[Tensor, " batch"] | None = None,
        *,
        solver=None,
        generator=None,
    ) -> Int[Tensor, "batch tokens"]:
        """Most likely class of every token, in one pass; `solver` and `generator` are not used."""
        injection = self.inject(x, puzzle_ids)
        with torch.no_grad():
            return self.readout(self.body(self.initial_state(injection), injection)).argmax(-1)
