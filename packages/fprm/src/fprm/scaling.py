"""Coupled residual scaling: coefficients that keep the iterates of a loop bounded (section 3.3, theorem 1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .config import FPRMConfig


class Coefficients(NamedTuple):
    """Residual coefficients of one pass; floats, one value a channel, or one a position and channel."""

    alpha1: Tensor | float
    alpha2: Tensor | float
    beta1: Tensor | float
    beta2: Tensor | float


@overload
def coupled_betas(alpha1: float, alpha2: float, num_layers: int, eps: float = ...) -> tuple[float, float]: ...
@overload
def coupled_betas(
    alpha1: Tensor | float, alpha2: Tensor | float, num_layers: int, eps: float = ...
) -> tuple[Tensor | float, Tensor | float]: ...
def coupled_betas(alpha1: Any, alpha2: Any, num_layers: int, eps: float = 1e-5) -> Any:
    """The inner and outer coefficients that go with `alpha1` and `alpha2` (section 3.3).

        beta_2 = 1 - alpha_2 alpha_1^(2L)
        beta_1 = beta_2 (1 - alpha_1) / (1 - alpha_1^(2L))

    Then one pass over `2L` sub-layers of norm at most `c` turns a state of norm `s` into one of norm at most
    `alpha_1^(2L) s + beta_2 c`, which is what theorem 1 needs.

    Args:
        alpha1: inner coefficient, float or tensor, in [0, 1).
        alpha2: outer coefficient, float or tensor that broadcasts with `alpha1`, in [0, 1).
        num_layers: transformer blocks `L`.
        eps: guard of the denominator in `beta_1`; the theory has 0.

    Returns:
        `(beta_1, beta_2)`.

    Raises:
        ValueError: for a float coefficient outside [0, 1) or fewer than one layer. Tensors are not looked at:
            this runs in the inner loop, where they come from a sigmoid.
    """
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    for name, value in (("alpha1", alpha1), ("alpha2", alpha2)):
        if not isinstance(value, Tensor) and not 0.0 <= value < 1.0:
            raise ValueError(f"{name} must lie in [0, 1), got {value}")
    power = alpha1 ** (2 * num_layers)
    beta2 = 1.0 - alpha2 * power
    beta1 = beta2 * (1.0 - alpha1) / (1.0 - power + eps)
    return beta1, beta2


def iterate_bound(injection_norm: float, alpha2: float, sublayer_norm: float) -> float:
    """Largest norm of any limit of `u^0` (theorem 1): `||e|| + alpha_2 c_f`.

    Args:
        injection_norm: norm of the input injection `e`.
        alpha2: outer coefficient.
        sublayer_norm: bound `c_f` of every sub-layer's output norm.

    Raises:
        ValueError: for `alpha2` outside [0, 1) or a negative norm.
    """
    if not 0.0 <= alpha2 < 1.0:
        raise ValueError(f"alpha2 must lie in [0, 1), got {alpha2}")
    if injection_norm < 0 or sublayer_norm < 0:
        raise ValueError(f"norms must not be negative, got {injection_norm} and {sublayer_norm}")
    return injection_norm + alpha2 * sublayer_norm


def _logit(probability: float) -> float:
    return math.log(probability / (1.0 - probability))


class ResidualScaling(nn.Module):
    """Produces the four residual coefficients of a pass, in the way the configuration asks for.

    The logits carry no weight decay: see `decay_groups` in `fprm.training`.
    """

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        self.mode = config.residual_scale
        self.num_layers = config.num_layers
        self.outer_only = config.outer_only
        width = config.hidden_size
        logits = (_logit(config.alpha1_init), _logit(config.alpha2_init))
        if self.mode == "channel":
            self.alpha1_logit = nn.Parameter(torch.full((width,), logits[0]))
            self.alpha2_logit = nn.Parameter(torch.full((width,), logits[1]))
        elif self.mode == "input":
            # Zero weights: at the start every state gets the configured coefficients.
            self.alpha1_of_state, self.alpha2_of_state = nn.Linear(width, width), nn.Linear(width, width)
            for layer, logit in zip((self.alpha1_of_state, self.alpha2_of_state), logits, strict=True):
                nn.init.zeros_(layer.weight)
                nn.init.constant_(layer.bias, logit)
        else:
            self.alphas = (config.alpha1_init, config.alpha2_init)

    def forward(self, z: Float[Tensor, "batch positions width"]) -> Coefficients:
        if self.mode == "none":
            return Coefficients(1.0, 1.0, 1.0, 1.0)
        if self.mode == "channel":
            alpha1, alpha2 = self.alpha1_logit.sigmoid(), self.alpha2_logit.sigmoid()
        elif self.mode == "input":
            alpha1, alpha2 = self.alpha1_of_state(z).sigmoid(), self.alpha2_of_state(z).sigmoid()
        else:
            alpha1, alpha2 = self.alphas
        if self.outer_only:
            return Coefficients(1.0, alpha2, 1.0, 1.0 - alpha2)
        beta1, beta2 = coupled_betas(alpha1, alpha2, self.num_layers)
        return Coefficients(alpha1, alpha2, beta1, beta2)
