"""E1: parameters of the published shapes, counted on the meta device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from claimlab import Run

from ..layers import DiTBlock
from ..models import fp_mdlm_small, mdlm_small
from .declaration import paper


@dataclass(frozen=True)
class ParameterConfig:
    """The published shapes; nothing to set."""


@paper.experiment(smoke=ParameterConfig(), laptop=ParameterConfig(), paper=ParameterConfig(), deterministic=True)
def parameters(config: ParameterConfig, run: Run) -> None:
    """Count the parameters of MDLM and FP-MDLM at the published size, without allocating them."""
    with torch.device("meta"):
        plain, fixed_point = _count(mdlm_small()), _count(fp_mdlm_small())
        block = _count(DiTBlock(768, 12, 128))
    run.measure("mdlm", plain)
    run.measure("fp_mdlm", fixed_point)
    run.measure("saved_share", 1 - fixed_point / plain)
    run.measure("projections", fixed_point - (plain - 9 * block))


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
