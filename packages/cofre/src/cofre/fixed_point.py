"""The fixed-point pass: encode, iterate one block, decode (sections 3.2 and 3.3 of the method).

Everything here works on any module with `encode`, `apply_block` and `decode`, not on this package's models only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

DEFAULT_ITERATIONS = 6


@dataclass(frozen=True)
class DenoiserOutput:
    """What a denoiser gives.

    Attributes:
        logits: (batch, length, vocabulary + 1), the mask's logit last.
        hidden: (batch, length, width), the normed state that the output matrix multiplies.
        solution: last iterate of the solver, with register rows if the model has them; `None` from a plain model.
        residuals: relative residual `||F(h) - h|| / ||h||` of the state before each iteration, (iterations, batch);
            only where it was asked for.
    """

    logits: Float[Tensor, "batch length symbols"]
    hidden: Float[Tensor, "batch length width"]
    solution: Float[Tensor, "batch rows width"] | None = None
    residuals: Float[Tensor, "iterations batch"] | None = None


@runtime_checkable
class FixedPointModel(Protocol):
    """A denoiser in the four parts of equation 2: `encode` is P and G, `apply_block` is F, `decode` is H."""

    def encode(
        self, z: Tensor, t: Tensor | None = None, classes: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...  # h_pre and the injection
    def apply_block(
        self, h: Tensor, injection: Tensor, t: Tensor | None = None, classes: Tensor | None = None
    ) -> Tensor: ...
    def decode(self, h: Tensor, t: Tensor | None = None, classes: Tensor | None = None) -> DenoiserOutput: ...


@dataclass
class SJFB:
    """Numbers of iterations of stochastic Jacobian-free backpropagation: without gradient, then with.

    Attributes:
        no_grad: smallest and largest number without gradient, `N_ng ~ U{0..4}` in the paper.
        grad: the same with gradient, `N_g ~ U{3..6}`.
        generator: source of the draws (on the CPU).

    Raises:
        ValueError: for an empty or negative range, or one that allows no iteration with gradient.
    """

    no_grad: tuple[int, int] = (0, 4)
    grad: tuple[int, int] = (3, 6)
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.no_grad[0] <= self.no_grad[1]:
            raise ValueError(f"no_grad must be (low, high) with 0 <= low <= high, got {self.no_grad}")
        if not 1 <= self.grad[0] <= self.grad[1]:
            raise ValueError(f"grad must be (low, high) with 1 <= low <= high, got {self.grad}")

    def draw(self) -> tuple[int, int]:
        """`(N_ng, N_g)` of one training step."""
        (no_grad,) = torch.randint(self.no_grad[0], self.no_grad[1] + 1, (1,), generator=self.generator).tolist()
        (grad,) = torch.randint(self.grad[0], self.grad[1] + 1, (1,), generator=self.generator).tolist()
        return no_grad, grad


def relative_residual(
    after: Float[Tensor, "batch rows width"], before: Float[Tensor, "batch rows width"]
) -> Float[Tensor, " batch"]:
    """`||F(h) - h||_2 / ||h||_2` of each sample."""
    norm = before.flatten(1).norm(dim=1).clamp_min(torch.finfo(before.dtype).tiny)
    return (after - before).flatten(1).norm(dim=1) / norm


def denoise(
    model: nn.Module,
    z: Integer[Tensor, "batch length"],
    t: Float[Tensor, " batch"] | None = None,
    classes: Integer[Tensor, " batch"] | None = None,
    *,
    iterations: int | None = None,
    no_grad_iterations: int = 0,
    init: Tensor | Callable[[Tensor], Tensor] | None = None,
    track_residuals: bool = False,
) -> DenoiserOutput:
    """One refinement pass of a plain denoiser, or `encode -> N plain iterations -> decode` of a fixed-point model.

    The starting state is detached, so that the gradient runs through the iterations with gradient, the injection and
    the decoder only (Jacobian-free backpropagation).

    Args:
        model: a `FixedPointModel`, or a module `(z, t, classes) -> DenoiserOutput`.
        z: tokens, masked ones with the mask's id.
        t: diffusion time of each sample, for a model that is conditioned on it.
        classes: class of each sample, for a class-conditional model.
        iterations: iterations (with gradient, if gradients are on); 6 if not given.
        no_grad_iterations: iterations without gradient before those.
        init: starting state, or a function that makes it from `h_pre`; `h_pre` itself if not given.
        track_residuals: also give the relative residuals.

    Raises:
        ValueError: for fewer than one iteration, or solver options for a plain model.
    """
    if not isinstance(model, FixedPointModel):
        if iterations is not None or no_grad_iterations or init is not None or track_residuals:
            raise ValueError(f"{type(model).__name__} has no fixed-point block: it takes no iterations or start")
        return model(z, t, classes)
    count = DEFAULT_ITERATIONS if iterations is None else iterations
    if count < 1 or no_grad_iterations < 0:
        raise ValueError(f"expected iterations >= 1 and no_grad_iterations >= 0, got {count} and {no_grad_iterations}")
    h_pre, injection = model.encode(z, t, classes)
    start = h_pre if init is None else init(h_pre) if callable(init) else init
    if start.shape != h_pre.shape:
        raise ValueError(f"the starting state must have shape {tuple(h_pre.shape)}, got {tuple(start.shape)}")
    h, residuals = start.detach(), []
    for index in range(no_grad_iterations + count):
        with torch.no_grad() if index < no_grad_iterations else nullcontext():
            after = model.apply_block(h, injection, t, classes)
        if track_residuals:
            residuals.append(relative_residual(after.detach(), h.detach()))
        h = after
    output = model.decode(h, t, classes)
    return DenoiserOutput(output.logits, output.hidden, h, torch.stack(residuals) if residuals else None)
