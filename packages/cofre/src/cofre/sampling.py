"""Generation: the refinement loop with warm starts, and the ancestral sampler (sections 3.1 and 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from .diffusion import PUBLISHED_SCHEDULE, LogLinearSchedule, draw_categorical
from .fixed_point import DEFAULT_ITERATIONS, FixedPointModel, denoise
from .models import count_block_passes
from .reuse import ReuseRule, reuse_coefficients, warm_start


@dataclass(frozen=True)
class StepRecord:
    """One refinement step: time, masked share before it, iterations (0 for a plain model)."""

    time: float
    masked_share: float
    iterations: int


@dataclass(frozen=True)
class SampleResult:
    """Generated tokens and what they cost.

    Attributes:
        tokens: (n, length).
        block_passes: block forward passes a sample, counted by hooks on the blocks.
        history: one record a step.
    """

    tokens: Integer[Tensor, "n length"]
    block_passes: float
    history: list[StepRecord] = field(repr=False)


@dataclass(frozen=True)
class SolvedStep:
    """What an observer of the sampler sees after each pass; `previous*` is `None` at the first step."""

    index: int
    z: Integer[Tensor, "n length"]
    previous_z: Integer[Tensor, "n length"] | None
    solution: Float[Tensor, "n rows width"] | None
    previous_solution: Float[Tensor, "n rows width"] | None
    residuals: Float[Tensor, "iterations n"] | None


@runtime_checkable
class Sampler(Protocol):
    """Decides which masked positions a step reveals.

    Attributes:
        monotone: whether a revealed token stays as it is; three-state reuse needs it.
        uses_confidence: whether `reveal` wants the probability of the drawn value at every masked position.
        guidance: scale `w` of classifier-free guidance, `(1 + w) conditional - w unconditional` logits; 0 for none.
    """

    @property
    def monotone(self) -> bool: ...
    @property
    def uses_confidence(self) -> bool: ...
    @property
    def guidance(self) -> float: ...

    def time(self, step: int, steps: int) -> float: ...  # diffusion time before the step
    def reveal(
        self, step: int, steps: int, masked: Tensor, confidence: Tensor | None, generator: torch.Generator | None
    ) -> Tensor: ...


@dataclass(frozen=True)
class AncestralSampler:
    """MDLM's sampler on a uniform grid: each masked position is revealed with probability `(alpha_s - alpha_t) / (1
    - alpha_t)`.

    The last step reveals everything, since it ends at time 0. Revealed tokens never change.
    """

    schedule: LogLinearSchedule = PUBLISHED_SCHEDULE
    monotone = True
    uses_confidence = False
    guidance = 0.0

    def time(self, step: int, steps: int) -> float:
        """Time before step `step`: 1 before the first."""
        return 1 - step / steps

    def reveal(
        self,
        step: int,
        steps: int,
        masked: Bool[Tensor, "n length"],
        confidence: Float[Tensor, "n length"] | None,
        generator: torch.Generator | None,
    ) -> Bool[Tensor, "n length"]:
        """Positions that this step reveals."""
        now, then = (
            self.schedule.alpha(torch.tensor(self.time(k, steps), dtype=torch.float64)) for k in (step, step + 1)
        )
        probability = float((then - now) / (1 - now))
        u = torch.rand(masked.shape, generator=generator, dtype=torch.float64).to(masked.device)
        return masked & (u < probability)


@torch.no_grad()
def sample(
    model: nn.Module,
    n: int,
    *,
    steps: int,
    iterations: int | Sequence[int] | None = None,
    reuse: ReuseRule | str = "none",
    sampler: Sampler | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
    classes: Integer[Tensor, " n"] | None = None,
    start: Integer[Tensor, "n length"] | None = None,
    observe: Callable[[SolvedStep], None] | None = None,
) -> SampleResult:
    """Generate `n` sequences in `steps` refinement steps.

    Values are drawn in float64: with float32 the tails are cut off and samples look better than they are.

    Args:
        model: any denoiser with `mask_id` and `length`.
        n: number of sequences.
        steps: refinement steps.
        iterations: of a fixed-point model: one number, or one a step (`cofre.allocate`).
        reuse: warm start of the solver between the steps of this call, a rule or the name of one.
        sampler: which positions are revealed when; MDLM's ancestral sampler if not given.
        generator: on the CPU, so that a seed gives the same samples on every device.
        temperature: divides the logits.
        classes: class of each sequence, for a class-conditional model.
        start: tokens to fill in, masked ones with the mask's id; everything masked if not given.
        observe: called after each pass. It must copy what it keeps: the loop holds the last solution only.

    Raises:
        ValueError: for a count below 1, iterations that do not fit the steps or the model, a reuse rule that a plain
            model or a remasking sampler cannot have, guidance without classes, or logits that are not numbers (with
            the step).
    """
    rule = reuse if isinstance(reuse, ReuseRule) else ReuseRule(reuse)  # pyright: ignore[reportArgumentType]
    sampler = sampler or AncestralSampler()
    counts = _iterations(model, steps, iterations)
    if n < 1 or temperature <= 0:
        raise ValueError(f"expected n >= 1 and temperature > 0, got {n} and {temperature}")
    if rule.kind != "none" and not counts:
        raise ValueError(f"{rule.kind!r} reuse needs a fixed-point model, got {type(model).__name__}")
    if rule.kind == "three_state" and not sampler.monotone:
        raise ValueError("three-state reuse assumes that revealed tokens stay: it cannot go with a remasking sampler")
    if sampler.guidance and classes is None:
        raise ValueError("classifier-free guidance needs classes, got None")
    pass_classes = classes
    if sampler.guidance and classes is not None:
        pass_classes = torch.cat((classes, torch.full_like(classes, model.classes)))  # pyright: ignore
    mask_id: int = model.mask_id  # pyright: ignore[reportAssignmentType]
    device = next(model.parameters()).device
    z = torch.full((n, model.length), mask_id, device=device) if start is None else start.clone()  # pyright: ignore
    if z.shape[0] != n:
        raise ValueError(f"start must hold n = {n} sequences, got {z.shape[0]}")

    history: list[StepRecord] = []
    previous_z = previous_solution = None
    with count_block_passes(model, n) as counter:
        for step in range(steps):
            masked = z == mask_id
            if not bool(masked.any()):
                break
            time = sampler.time(step, steps)
            z_in = torch.cat((z, z)) if sampler.guidance else z
            solver: dict[str, Any] = {}
            if counts:
                solver = {"iterations": counts[step], "track_residuals": observe is not None}
                if previous_solution is not None and previous_z is not None and rule.kind != "none":
                    solver["init"] = _warm_start_from(previous_solution, z_in, previous_z, mask_id, rule)
            output = denoise(model, z_in, torch.full((len(z_in),), time, device=device), pass_classes, **solver)
            history.append(StepRecord(time, float(masked.float().mean()), counts[step] if counts else 0))
            if observe is not None:
                observe(SolvedStep(step, z_in, previous_z, output.solution, previous_solution, output.residuals))
            previous_z, previous_solution = z_in, output.solution
            logits = output.logits
            if sampler.guidance:
                conditional, unconditional = logits.chunk(2)
                logits = (1 + sampler.guidance) * conditional - sampler.guidance * unconditional
            z = _fill_in(logits, z, masked, sampler, step, steps, temperature, generator)
    return SampleResult(z, counter.passes, history)


def _iterations(model: nn.Module, steps: int, iterations: int | Sequence[int] | None) -> list[int]:
    """Iterations of each step; empty for a plain model."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if not isinstance(model, FixedPointModel):
        if iterations is not None:
            raise ValueError(f"{type(model).__name__} is no fixed-point model: it takes no iterations")
        return []
    if iterations is None:
        iterations = DEFAULT_ITERATIONS
    counts = [iterations] * steps if isinstance(iterations, int) else list(iterations)
    if len(counts) != steps:
        raise ValueError(f"iterations must be one number or one for each of {steps} steps, got {len(counts)}")
    if min(counts) < 1:
        raise ValueError(f"iterations must be at least 1 in every step, got {min(counts)}")
    return counts


def _warm_start_from(
    solution: Tensor, z: Tensor, previous_z: Tensor, mask_id: int, rule: ReuseRule
) -> Callable[[Tensor], Tensor]:
    coefficients = reuse_coefficients(z, previous_z, mask_id, rule)
    return lambda h_pre: warm_start(h_pre, solution, coefficients)


def _fill_in(
    logits: Tensor,
    z: Tensor,
    masked: Tensor,
    sampler: Sampler,
    step: int,
    steps: int,
    temperature: float,
    generator: torch.Generator | None,
) -> Tensor:
    """Draw values and put them where the sampler reveals."""
    reveal = masked if sampler.uses_confidence else sampler.reveal(step, steps, masked, None, generator)
    chosen = logits[reveal][:, :-1] / temperature  # the mask is never drawn
    if bool(chosen.isnan().any()):
        raise ValueError(f"the model gave logits that are not a number at step {step + 1} of {steps}")
    values, probability = draw_categorical(chosen, generator)
    filled = z.clone()
    filled[reveal] = values
    if sampler.uses_confidence:
        confidence = torch.full(z.shape, -1.0, dtype=torch.float64, device=z.device)
        confidence[reveal] = probability
        filled = torch.where(sampler.reveal(step, steps, masked, confidence, generator), filled, z)
    return filled
