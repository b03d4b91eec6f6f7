"""Masked diffusion: noise schedule, masks, the SUBS parametrisation, the NELBO (section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from .fixed_point import denoise

SMALLEST_TIME = 1e-3


@dataclass(frozen=True)
class LogLinearSchedule:
    """Keep probability `alpha(t) = 1 - (1 - eps) t`.

    Attributes:
        eps: what is still visible at t = 1.

    Raises:
        ValueError: for eps outside [0, 1).
    """

    eps: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.eps < 1:
            raise ValueError(f"eps must lie in [0, 1), got {self.eps}")

    def alpha(self, t: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """Probability that a position is visible at time `t`."""
        return 1 - (1 - self.eps) * t

    def sigma(self, t: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """Total noise, `-log alpha(t)`."""
        return -torch.log1p(-(1 - self.eps) * t)

    def loss_weight(self, t: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """`sigma'(t) / (exp(sigma(t)) - 1)`, which is `1 / t` for every eps."""
        derivative = (1 - self.eps) / self.alpha(t)
        return derivative / torch.expm1(self.sigma(t))


PUBLISHED_SCHEDULE = LogLinearSchedule()


def antithetic_times(count: int, generator: torch.Generator | None = None) -> Float[Tensor, " count"]:
    """One uniform time in each of `count` equal parts of [0, 1], scaled to [1e-3, 1]."""
    offset = torch.rand(1, generator=generator)
    t = (offset / count + torch.arange(count) / count) % 1
    return (1 - SMALLEST_TIME) * t + SMALLEST_TIME


def mask_tokens(
    x: Integer[Tensor, "batch length"],
    t: Float[Tensor, " batch"],
    u: Float[Tensor, "batch length"],
    mask_id: int,
    schedule: LogLinearSchedule = PUBLISHED_SCHEDULE,
) -> Integer[Tensor, "batch length"]:
    """Mask each position whose uniform number `u` is below `1 - alpha(t)`.

    Raises:
        ValueError: if the data already hold the mask.
    """
    if bool((x == mask_id).any()):
        raise ValueError(f"the data hold the mask's id {mask_id}; it stands for masked positions only")
    return torch.where(u < 1 - schedule.alpha(t)[:, None], mask_id, x)


def nested_masks(
    x: Integer[Tensor, "batch length"],
    t_student: Float[Tensor, " batch"],
    t_teacher: Float[Tensor, " batch"],
    u: Float[Tensor, "batch length"],
    mask_id: int,
    schedule: LogLinearSchedule = PUBLISHED_SCHEDULE,
) -> tuple[Integer[Tensor, "batch length"], Integer[Tensor, "batch length"]]:
    """The student's and the teacher's tokens from one uniform number a position: the teacher sees all that the
    student sees.

    Where both masks come out equal, the teacher sees one position more: the masked one with the largest `u`, which
    would be the next to be revealed (the choice is a reconstruction).

    Raises:
        ValueError: if a teacher's time is above its student's, or the data hold the mask.
    """
    if bool((t_teacher > t_student).any()):
        worst = int((t_teacher - t_student).argmax())
        raise ValueError(
            f"t_teacher must not be above t_student, got {float(t_teacher[worst]):.6g} > {float(t_student[worst]):.6g}"
        )
    student = mask_tokens(x, t_student, u, mask_id, schedule)
    teacher = mask_tokens(x, t_teacher, u, mask_id, schedule)
    equal = (student == teacher).all(1) & (student == mask_id).any(1)
    position = u.masked_fill(teacher != mask_id, -1.0).argmax(1)
    rows = equal.nonzero()[:, 0]
    teacher[rows, position[rows]] = x[rows, position[rows]]
    return student, teacher


def subs_log_probs(
    logits: Float[Tensor, "batch length symbols"], z: Integer[Tensor, "batch length"]
) -> Float[Tensor, "batch length symbols"]:
    """SUBS: the mask gets probability 0; a visible token is predicted as itself with probability 1."""
    mask_id = logits.shape[-1] - 1
    log_probs = without_mask(logits).log_softmax(-1)
    visible = torch.full_like(log_probs, -math.inf).scatter_(-1, z[..., None], 0.0)
    return torch.where((z != mask_id)[..., None], visible, log_probs)


def without_mask(logits: Float[Tensor, "... symbols"]) -> Float[Tensor, "... symbols"]:
    """Logits with that of the mask, the last symbol, at -inf."""
    return torch.cat((logits[..., :-1], torch.full_like(logits[..., -1:], -math.inf)), dim=-1)


def draw_categorical(
    logits: Float[Tensor, "... symbols"], generator: torch.Generator | None = None
) -> tuple[Integer[Tensor, ...], Float[Tensor, ...]]:
    """Draw from `softmax(logits)` in float64: the values and their probabilities.

    In float32 the tails are cut off, which makes samples look better than they are.
    """
    probabilities = logits.double().softmax(-1)
    # argmax of p / Exp(1) is a draw from p.
    noise = torch.empty(probabilities.shape, dtype=torch.float64).exponential_(generator=generator).to(logits.device)
    values = (probabilities / noise).argmax(-1)
    return values, probabilities.gather(-1, values[..., None])[..., 0]


def masked_cross_entropy(
    logits: Float[Tensor, "batch length symbols"],
    x: Integer[Tensor, "batch length"],
    masked: Bool[Tensor, "batch length"],
) -> Float[Tensor, "batch length"]:
    """Cross-entropy of the data at masked positions, 0 elsewhere (nats)."""
    loss = F.cross_entropy(logits[..., :-1].transpose(1, 2), x, reduction="none")
    return loss * masked


def mdlm_loss(
    logits: Float[Tensor, "batch length symbols"],
    x: Integer[Tensor, "batch length"],
    z: Integer[Tensor, "batch length"],
    t: Float[Tensor, " batch"],
    schedule: LogLinearSchedule = PUBLISHED_SCHEDULE,
) -> Float[Tensor, " batch"]:
    """Continuous-time NELBO of each sample, per token (nats): masked cross-entropy, weighted by `1 / t`, over all
    positions."""
    weight = schedule.loss_weight(t)
    masked = z == logits.shape[-1] - 1
    return weight * masked_cross_entropy(logits, x, masked).sum(1) / x.shape[1]


@torch.no_grad()
def nelbo(
    model: nn.Module,
    x: Integer[Tensor, "batch length"],
    n_times: int = 8,
    *,
    iterations: int | None = None,
    generator: torch.Generator | None = None,
    schedule: LogLinearSchedule = PUBLISHED_SCHEDULE,
) -> Float[Tensor, " batch"]:
    """Monte-Carlo NELBO of each sequence, per token (nats); `exp` of its mean is the validation perplexity.

    Args:
        model: any denoiser.
        x: data.
        n_times: antithetic times for each sequence.
        iterations: of a fixed-point model.
        generator: on the CPU.

    Raises:
        ValueError: if `n_times` is below 1 or the data hold the mask.
    """
    if n_times < 1:
        raise ValueError(f"n_times must be at least 1, got {n_times}")
    solver: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
    total = torch.zeros(len(x), device=x.device)
    # Stratified over times within each sequence: time k of sequence b is one of n_times * batch antithetic ones.
    times = antithetic_times(n_times * len(x), generator).view(n_times, len(x)).to(x.device)
    mask_id: int = model.mask_id  # pyright: ignore[reportAssignmentType]
    for t in times:
        u = torch.rand(x.shape, generator=generator).to(x.device)
        z = mask_tokens(x, t, u, mask_id, schedule)
        total += mdlm_loss(denoise(model, z, t, **solver).logits, x, z, t, schedule)
    return total / n_times
