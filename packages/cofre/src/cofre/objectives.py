"""Training losses: the base models', cross-step consistency, and the two distillations (sections 3.3, 3.4, 3.6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from .diffusion import (
    PUBLISHED_SCHEDULE,
    LogLinearSchedule,
    antithetic_times,
    draw_categorical,
    mask_tokens,
    masked_cross_entropy,
    mdlm_loss,
    nested_masks,
    subs_log_probs,
    without_mask,
)
from .fixed_point import SJFB, DenoiserOutput, denoise

LINEAR_SHARE = LogLinearSchedule(eps=0.0)  # the masked share is t itself


class Batch(NamedTuple):
    """Training data: tokens (batch, length), and classes (batch) for a class-conditional model."""

    tokens: Tensor
    classes: Tensor | None = None


class Losses(NamedTuple):
    """The loss to minimise, and its parts for the log."""

    total: Tensor
    parts: Mapping[str, float]


@dataclass
class MaskedObjective:
    """Masked diffusion's NELBO; with `sjfb`, of a fixed-point model.

    Attributes:
        sjfb: draws the numbers of iterations; `None` for a plain model.
        schedule: noise schedule.
        class_dropout: probability that a sample loses its class (classifier-free guidance).
        generator: on the CPU.
    """

    sjfb: SJFB | None = None
    schedule: LogLinearSchedule = PUBLISHED_SCHEDULE
    class_dropout: float = 0.0
    generator: torch.Generator | None = None

    def draw_times(self, count: int) -> Float[Tensor, " count"]:
        """Times of a batch."""
        return antithetic_times(count, self.generator)

    def uniform(self, x: Tensor) -> Tensor:
        """One uniform number for each token."""
        return torch.rand(x.shape, generator=self.generator).to(x.device)

    def draw_classes(self, model: nn.Module, classes: Tensor | None) -> Tensor | None:
        """Classes with some dropped."""
        if classes is None or not self.class_dropout:
            return classes
        dropped = torch.rand(classes.shape, generator=self.generator).to(classes.device) < self.class_dropout
        return torch.where(dropped, model.classes, classes)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def draw_iterations(self) -> dict[str, Any]:
        """Solver options of one step."""
        if self.sjfb is None:
            return {}
        no_grad, grad = self.sjfb.draw()
        return {"no_grad_iterations": no_grad, "iterations": grad}

    def loss(self, logits: Tensor, x: Tensor, z: Tensor, t: Tensor) -> Tensor:
        """Mean over the batch of what the base model minimises."""
        return mdlm_loss(logits, x, z, t, self.schedule).mean()

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Loss of one training step."""
        x = batch.tokens
        t = self.draw_times(len(x)).to(x.device)
        z = mask_tokens(x, t, self.uniform(x), _mask_id(model), self.schedule)
        output = denoise(model, z, t, self.draw_classes(model, batch.classes), **self.draw_iterations())
        loss = self.loss(output.logits, x, z, t)
        return Losses(loss, {"base": float(loss.detach())})


@dataclass
class MaskGITObjective(MaskedObjective):
    """Plain cross-entropy of masked positions; the masked share is drawn from the arccos schedule."""

    schedule: LogLinearSchedule = LINEAR_SHARE

    def draw_times(self, count: int) -> Float[Tensor, " count"]:
        """Masked shares `arccos(u) / (pi / 2)`."""
        return torch.acos(antithetic_times(count, self.generator)) / (math.pi / 2)

    def loss(self, logits: Tensor, x: Tensor, z: Tensor, t: Tensor) -> Tensor:
        """Mean over all masked positions of the batch."""
        masked = z == logits.shape[-1] - 1
        return masked_cross_entropy(logits, x, masked).sum() / masked.sum().clamp_min(1)


@dataclass(frozen=True)
class ConsistencyConfig:
    """Cross-step consistency, and the distillation that adapts a converted model.

    Attributes:
        weight: largest lambda; reached linearly after `warmup` steps.
        warmup: steps.
        gap: smallest and largest time by which the teacher is ahead.
        stop_ratio: the first checkpoint whose validation perplexity exceeds the starting one by this factor is kept.
        kind: "mse" or "cosine" of pre-logit states, or "kl" of the predictions.
        reduction: "mean" or "sum" over channels, for "mse" (the paper does not say which; mean: reconstruction).

    Raises:
        ValueError: for a gap outside (0, 1) or falling, a negative weight or warm-up, a ratio below 1, an unknown kind.
    """

    weight: float = 0.1
    warmup: int = 5000
    gap: tuple[float, float] = (0.05, 0.30)
    stop_ratio: float = 1.15
    kind: Literal["mse", "cosine", "kl"] = "mse"
    reduction: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if not 0 < self.gap[0] <= self.gap[1] < 1:
            raise ValueError(f"gap must be (low, high) with 0 < low <= high < 1, got {self.gap}")
        if self.weight < 0 or self.warmup < 0 or self.stop_ratio < 1:
            raise ValueError(
                f"expected weight, warmup >= 0 and stop_ratio >= 1, got {self.weight}, {self.warmup}, {self.stop_ratio}"
            )
        if self.kind not in ("mse", "cosine", "kl") or self.reduction not in ("mean", "sum"):
            raise ValueError(f"unknown kind {self.kind!r} or reduction {self.reduction!r}")

    def weight_at(self, step: int) -> float:
        """Lambda at step `step`, counted from 1."""
        return self.weight * min(1.0, step / max(self.warmup, 1))

    def stops(self, perplexity: float, reference: float) -> bool:
        """Whether a checkpoint's validation perplexity has risen past the limit."""
        return perplexity > self.stop_ratio * reference


def consistency_loss(
    student: Float[Tensor, "batch length width"],
    teacher: Float[Tensor, "batch length width"],
    mask: Bool[Tensor, "batch length"],
    kind: Literal["mse", "cosine", "kl"] = "mse",
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Distance of the student from the detached teacher, mean over the positions of `mask`.

    Args:
        student, teacher: pre-logit states; for "kl" the logits, the mask's last.
        mask: positions that are masked in the student.
        kind: "mse", "cosine" (1 - cosine) or "kl" (teacher || student, nats).
        reduction: of channels, for "mse".

    Raises:
        ValueError: if the shapes differ or the kind is unknown.
    """
    if student.shape != teacher.shape or student.shape[:2] != mask.shape:
        raise ValueError(f"shapes differ: {tuple(student.shape)}, {tuple(teacher.shape)}, mask {tuple(mask.shape)}")
    s, c = student[mask], teacher[mask].detach()
    if kind == "mse":
        distance = (s - c).square()
        distance = distance.mean(-1) if reduction == "mean" else distance.sum(-1)
    elif kind == "cosine":
        distance = 1 - F.cosine_similarity(s, c, dim=-1)
    elif kind == "kl":
        distance = kl_divergence(without_mask(c).log_softmax(-1), without_mask(s).log_softmax(-1))
    else:
        raise ValueError(f"kind must be 'mse', 'cosine' or 'kl', got {kind!r}")
    return distance.sum() / max(len(distance), 1)


def kl_divergence(log_p: Float[Tensor, "... symbols"], log_q: Float[Tensor, "... symbols"]) -> Float[Tensor, ...]:
    """`KL(p || q)` in nats; symbols with probability 0 under p count 0."""
    possible = log_p > -math.inf
    difference = torch.where(possible, log_p, 0.0) - torch.where(possible, log_q, 0.0)
    return (log_p.exp() * difference).sum(-1)


def _distillation(target: Tensor, logits: Tensor, masked: Tensor) -> Tensor:
    """Mean over masked positions of `KL(target || prediction)`, 0 where there is none."""
    prediction = without_mask(logits[masked]).log_softmax(-1)
    return kl_divergence(target[masked], prediction).sum() / masked.sum().clamp_min(1)


def _mask_id(model: nn.Module) -> int:
    return cast(int, model.mask_id)


class _TwoMasks(NamedTuple):
    student_z: Tensor
    student_t: Tensor
    teacher_z: Tensor
    teacher_t: Tensor


def _draw_nested(base: MaskedObjective, gap: tuple[float, float], x: Tensor, mask_id: int) -> _TwoMasks:
    """Student's time as in base training, teacher's earlier by a random gap, both masks from the same numbers."""
    student_t = base.draw_times(len(x)).to(x.device)
    delta = gap[0] + (gap[1] - gap[0]) * torch.rand(len(x), generator=base.generator).to(x.device)
    teacher_t = torch.minimum(student_t, (student_t - delta).clamp_min(1e-3))
    student_z, teacher_z = nested_masks(x, student_t, teacher_t, base.uniform(x), mask_id, base.schedule)
    return _TwoMasks(student_z, student_t, teacher_z, teacher_t)


@dataclass
class ConsistencyObjective:
    """Base loss plus lambda times the distance to the same model's states at a cleaner, nested mask (section 3.4).

    Attributes:
        base: the base model's objective, on the student's tokens.
        config: weight, gaps, kind.
        teacher: another network for the teacher's pass (an average of weights, for the ablation); the model itself
            if `None`.
    """

    base: MaskedObjective
    config: ConsistencyConfig = ConsistencyConfig()
    teacher: nn.Module | None = None

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Loss of one training step; both passes make the same numbers of iterations."""
        x, mask_id = batch.tokens, _mask_id(model)
        masks = _draw_nested(self.base, self.config.gap, x, mask_id)
        classes, solver = self.base.draw_classes(model, batch.classes), self.base.draw_iterations()
        student = denoise(model, masks.student_z, masks.student_t, classes, **solver)
        with torch.no_grad():
            teacher = denoise(self.teacher or model, masks.teacher_z, masks.teacher_t, classes, **solver)
        base = self.base.loss(student.logits, x, masks.student_z, masks.student_t)
        what = "logits" if self.config.kind == "kl" else "hidden"
        distance = consistency_loss(
            getattr(student, what),
            getattr(teacher, what),
            masks.student_z == mask_id,
            self.config.kind,
            self.config.reduction,
        )
        total = base + self.config.weight_at(step) * distance
        return Losses(total, {"base": float(base.detach()), "consistency": float(distance.detach())})


@dataclass
class AdaptationObjective:
    """Base loss plus distillation from the frozen original, which sees a cleaner, nested mask (section 3.6).

    Attributes:
        base: objective of the converted model.
        teacher: the model that was converted.
        config: weight, warm-up and gaps.
        temperature: of both predictions; the divergence is multiplied by its square.
    """

    base: MaskedObjective
    teacher: nn.Module
    config: ConsistencyConfig = ConsistencyConfig()
    temperature: float = 1.5

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Loss of one training step. What only the teacher sees is a one-hot target (SUBS)."""
        x, mask_id = batch.tokens, _mask_id(model)
        masks = _draw_nested(self.base, self.config.gap, x, mask_id)
        student = denoise(model, masks.student_z, masks.student_t, batch.classes, **self.base.draw_iterations())
        with torch.no_grad():
            teacher: DenoiserOutput = denoise(self.teacher, masks.teacher_z, masks.teacher_t, batch.classes)
            target = subs_log_probs(teacher.logits / self.temperature, masks.teacher_z)
        masked = masks.student_z == mask_id
        divergence = _distillation(target, student.logits / self.temperature, masked)
        base = self.base.loss(student.logits, x, masks.student_z, masks.student_t)
        total = base + self.config.weight_at(step) * self.temperature**2 * divergence
        return Losses(total, {"base": float(base.detach()), "divergence": float(divergence.detach())})


@dataclass
class SDTTObjective:
    """Self-distillation through time (arXiv 2410.21035): one step of the student matches two half steps of the teacher.

    Attributes:
        base: times, masks and iterations.
        teacher: frozen model of the round before.
        step_size: length of the student's step in time; it doubles from round to round (`sdtt_step_sizes`).
    """

    base: MaskedObjective
    teacher: nn.Module
    step_size: float

    def __post_init__(self) -> None:
        if not 0 < self.step_size <= 1:
            raise ValueError(f"step_size must lie in (0, 1], got {self.step_size}")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Mean over masked positions of `KL(teacher || student)`."""
        x, mask_id = batch.tokens, _mask_id(model)
        t = self.base.draw_times(len(x)).to(x.device)
        z = mask_tokens(x, t, self.base.uniform(x), mask_id, self.base.schedule)
        target = self.targets(z, t)
        student = denoise(model, z, t, batch.classes, **self.base.draw_iterations())
        masked = z == mask_id
        divergence = _distillation(target, student.logits, masked)
        return Losses(divergence, {"divergence": float(divergence.detach())})

    @torch.no_grad()
    def targets(
        self, z: Integer[Tensor, "batch length"], t: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch length symbols"]:
        """The teacher's prediction of each position at the half step that reveals it, or at the last one."""
        alpha, half, mask_id = self.base.schedule.alpha, self.step_size / 2, _mask_id(self.teacher)
        target = subs_log_probs(denoise(self.teacher, z, t).logits, z)
        middle = (t - half).clamp_min(0)
        reveal = (alpha(middle) - alpha(t)) / (1 - alpha(t)).clamp_min(1e-6)
        values, _ = draw_categorical(target[..., :-1], self.base.generator)
        shown = (z == mask_id) & (self.base.uniform(z) < reveal[:, None])
        z_middle = torch.where(shown, values, z)
        second = subs_log_probs(denoise(self.teacher, z_middle, middle).logits, z_middle)
        return torch.where((z_middle == mask_id)[..., None], second, target)


def sdtt_step_sizes(first: float, rounds: int) -> list[float]:
    """Step sizes of the rounds: each twice the one before, at most 1.

    Raises:
        ValueError: for no round, or a first step outside (0, 1].
    """
    if rounds < 1 or not 0 < first <= 1:
        raise ValueError(f"expected rounds >= 1 and 0 < first <= 1, got {rounds} and {first}")
    return [min(1.0, first * 2**r) for r in range(rounds)]
