"""What the solver does while sampling: residuals, movement of tokens, change of predictions between steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from .diffusion import without_mask
from .fixed_point import denoise
from .objectives import kl_divergence
from .sampling import SolvedStep

STATES = ("newly revealed", "still masked", "visible")


@dataclass
class SolverProbe:
    """An observer for `cofre.sample`: relative residuals, and how far each kind of token moves between solutions.

    Attributes:
        mask_id: id of the mask.
        residuals: one tensor (iterations, n) for each step from the second on, where a warm start can matter.
        movement: for each state of a token a list of `(step, mean movement)`. A token's movement is
            `||h_i - h_(i-1)|| / ||h_(i-1)||` of its row of two successive solutions.
    """

    mask_id: int
    residuals: list[Tensor] = field(default_factory=list)
    movement: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def __call__(self, step: SolvedStep) -> None:
        """Take the numbers of one step; keeps no state of the network."""
        if step.residuals is None or step.solution is None:
            raise ValueError("a solver can be probed in a fixed-point model only")
        if step.previous_z is None or step.previous_solution is None:
            return
        self.residuals.append(step.residuals.cpu())
        registers = step.solution.shape[1] - step.z.shape[1]
        now, before = step.solution[:, registers:], step.previous_solution[:, registers:]
        moved = (now - before).norm(dim=-1) / before.norm(dim=-1).clamp_min(1e-12)
        masked, was_masked = step.z == self.mask_id, step.previous_z == self.mask_id
        for state, where in zip(STATES, (was_masked & ~masked, masked, ~was_masked), strict=True):
            if bool(where.any()):
                self.movement[state].append((step.index, float(moved[where].mean())))


@torch.no_grad()
def lagged_logit_kl(
    model: nn.Module,
    contexts: Sequence[Integer[Tensor, "batch length"]],
    lags: Sequence[int],
    *,
    times: Sequence[float] | None = None,
    iterations: int | None = None,
) -> Float[Tensor, "lags steps"]:
    """`KL(p_(s + lag) || p_s)` in nats, mean over positions that are masked in both contexts; NaN past the end.

    Args:
        model: any denoiser.
        contexts: tokens at successive steps of one trajectory, each showing all that the one before shows. Models that
            shall be compared must be given the same ones.
        lags: differences of steps, at least 1.
        times: diffusion time of each context, for a model that is conditioned on it.
        iterations: of a fixed-point model.

    Raises:
        ValueError: for a lag below 1 or not below the number of contexts.
    """
    if not lags or min(lags) < 1 or max(lags) >= len(contexts):
        raise ValueError(f"lags must lie in 1 … {len(contexts) - 1}, got {tuple(lags)}")
    mask_id: int = model.mask_id  # pyright: ignore[reportAssignmentType]
    solver: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
    predictions = []
    for step, z in enumerate(contexts):
        t = None if times is None else torch.full((len(z),), times[step], device=z.device)
        predictions.append(without_mask(denoise(model, z, t, **solver).logits).log_softmax(-1))
    grid = torch.full((len(lags), len(contexts)), torch.nan)
    for row, lag in enumerate(lags):
        for step in range(len(contexts) - lag):
            both = (contexts[step] == mask_id) & (contexts[step + lag] == mask_id)
            if bool(both.any()):
                grid[row, step] = kl_divergence(predictions[step + lag][both], predictions[step][both]).mean()
    return grid


def nested_contexts(
    x: Integer[Tensor, "batch length"], steps: int, mask_id: int, generator: torch.Generator | None = None
) -> list[Integer[Tensor, "batch length"]]:
    """A trajectory of real sequences: before step `k` of `steps` a share `k / steps` is visible, in a random order."""
    u = torch.rand(x.shape, generator=generator).to(x.device)
    return [torch.where(u < 1 - step / steps, mask_id, x) for step in range(steps)]
