"""Conversion of a trained MDLM into a fixed-point model, and the similarity of layers behind it (section 3.6)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from .layers import Injection
from .models import FixedPointDenoiser, MaskedDenoiser

SHIFT = 4.0  # GELU(x + 4) is x + 4 to within 2e-3 for |x| < 1
SHARE = 0.1  # of the injection in the merged input


def convert_mdlm(
    model: MaskedDenoiser, layers: tuple[int, int, int] = (0, 5, 11), *, initialise_projections: bool = True
) -> FixedPointDenoiser:
    """A 1/1/1 fixed-point model from three blocks of a trained stack, with its embedding, conditioning and output.

    Args:
        model: the trained stack; left as it is.
        layers: blocks (from 0) that become pre, iterated and post block. The paper takes layers 1, 6 and 12.
        initialise_projections: start the projections close to the identity (the form is a reconstruction); otherwise as
            in a new model.

    Raises:
        TypeError: for another model than a plain stack.
        ValueError: for a layer that the model does not have.
    """
    if not isinstance(model, MaskedDenoiser):
        raise TypeError(f"only a MaskedDenoiser can be converted, got {type(model).__name__}")
    if len(layers) != 3 or not all(0 <= layer < len(model.blocks) for layer in layers):
        raise ValueError(f"layers must be three of 0 … {len(model.blocks) - 1}, got {tuple(layers)}")
    converted = FixedPointDenoiser(**model.shape).to(next(model.parameters()).device)
    shared = {name: value for name, value in model.state_dict().items() if not name.startswith("blocks.")}
    converted.load_state_dict(shared, strict=False)
    for target, layer in zip(
        (converted.pre_blocks, converted.shared_blocks, converted.post_blocks), layers, strict=True
    ):
        target[0].load_state_dict(model.blocks[layer].state_dict())
    if initialise_projections:
        start_near_identity(converted)
    return converted


@torch.no_grad()
def start_near_identity(model: FixedPointDenoiser, share: float = SHARE) -> None:
    """Set the projections so that the merged input is nearly `(1 - share) h + share g`, with `g = h_pre`
    (reconstruction).

    `G = I`; `W_1 = I`, `b_1 = 4`, where GELU is nearly linear; `W_2 = [(1 - share) I, share I]`, `b_2 = -4`.

    Raises:
        ValueError: for a share outside [0, 1].
        TypeError: if the model's injection is not FPDM's.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}")
    if not isinstance(model.inject, Injection):
        raise TypeError(f"expected an Injection, got {type(model.inject).__name__}")
    identity = torch.eye(model.hidden)
    model.project.weight.copy_(identity)
    model.project.bias.zero_()
    model.inject.mix.weight.copy_(torch.eye(2 * model.hidden))
    model.inject.mix.bias.fill_(SHIFT)
    model.inject.merge.weight.copy_(torch.cat(((1 - share) * identity, share * identity), dim=1))
    model.inject.merge.bias.fill_(-SHIFT)


def linear_cka(x: Float[Tensor, "rows left"], y: Float[Tensor, "rows right"]) -> float:
    """Linear centred kernel alignment, `||X'Y||_F^2 / (||X'X||_F ||Y'Y||_F)` on centred features, rows being tokens.

    Raises:
        ValueError: for different numbers of rows, or features that are constant.
    """
    if len(x) != len(y):
        raise ValueError(f"both need the same rows, got {len(x)} and {len(y)}")
    x, y = (a.double() - a.double().mean(0) for a in (x, y))
    scale = (x.T @ x).norm() * (y.T @ y).norm()
    if float(scale) == 0.0:
        raise ValueError("features are constant: their alignment is not defined")
    return float((x.T @ y).square().sum() / scale)


@torch.no_grad()
def cka_profile(model: MaskedDenoiser, z: Integer[Tensor, "batch length"]) -> Float[Tensor, "blocks blocks"]:
    """Linear CKA between the outputs of all pairs of blocks on masked tokens `z`."""
    states: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> None:
        states.append(output[:, model.registers :].flatten(0, 1))

    handles = [block.register_forward_hook(keep) for block in model.blocks]
    try:
        model(z, torch.full((len(z),), 0.5, device=z.device))
    finally:
        for handle in handles:
            handle.remove()
    profile = torch.ones(len(states), len(states))
    for i, left in enumerate(states):
        for j in range(i):
            profile[i, j] = profile[j, i] = linear_cka(left, states[j])
    return profile
