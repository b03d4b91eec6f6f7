"""Optimisation: the recipe, one step, and the loop with an average of weights, validation and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from claimlab.pretraining import save_checkpoint

from .layers import check_tokens
from .objectives import Batch, Losses

Objective = Callable[[nn.Module, Batch, int], Losses]
BatchSource = Callable[[int], Batch]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Optimiser and schedule of one training (AdamW).

    Attributes:
        steps: optimiser steps.
        batch_size: samples in a step, over all processes.
        learning_rate, weight_decay, betas: of AdamW.
        warmup: steps of linear warm-up.
        decay: after it "constant", or "cosine" down to a twentieth.
        clip_norm: largest norm of the gradient.
        ema_decay: decay of the averaged weights that are evaluated; `None` evaluates the last ones.

    Raises:
        ValueError: for a count below 1 or a rate out of range.
    """

    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = 0
    decay: Literal["constant", "cosine"] = "constant"
    clip_norm: float = 1.0
    ema_decay: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError(f"steps and batch_size must be at least 1, got {self.steps} and {self.batch_size}")
        if not (0 < self.learning_rate < math.inf and self.clip_norm > 0):
            raise ValueError(f"expected learning_rate, clip_norm > 0, got {self.learning_rate}, {self.clip_norm}")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay must lie in (0, 1), got {self.ema_decay}")
        if self.decay not in ("constant", "cosine"):
            raise ValueError(f"decay must be 'constant' or 'cosine', got {self.decay!r}")

    def rate(self, step: int) -> float:
        """Share of the learning rate at step `step`, counted from 0."""
        rise = min(1.0, (step + 1) / max(self.warmup, 1))
        if self.decay == "constant":
            return rise
        progress = max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


# Section 3.3 and appendices. The fixed-point text model diverges at the base model's rate.
MDLM_OWT = Recipe(steps=1_000_000, batch_size=512, learning_rate=3e-4, warmup=2500, ema_decay=0.9999)
FP_MDLM_OWT = Recipe(steps=1_000_000, batch_size=512, learning_rate=2e-4, warmup=2500, ema_decay=0.9999)
CONSISTENCY_OWT = Recipe(steps=30_000, batch_size=512, learning_rate=2e-4, ema_decay=0.9999)
CONVERSION_OWT = Recipe(steps=40_000, batch_size=512, learning_rate=2e-4, ema_decay=0.9999)
IMAGENETTE = Recipe(
    steps=50_000, batch_size=128, learning_rate=5e-4, weight_decay=0.03, warmup=1500, decay="cosine", ema_decay=0.9999
)


class Trainer:
    """One optimiser step at a time on a model, by any objective.

    Args:
        model: trained in place.
        objective: `(model, batch, step) -> Losses`.
        recipe: optimiser and schedule.
        accelerator: an `accelerate.Accelerator`, for several processes.
    """

    def __init__(self, model: nn.Module, objective: Objective, recipe: Recipe, *, accelerator: Any = None) -> None:
        self.model, self.objective, self.recipe, self.accelerator = model, objective, recipe, accelerator
        self.steps = 0
        decayed = [p for p in model.parameters() if p.ndim > 1]
        kept = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": kept, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=True)
        self.average = (
            None
            if recipe.ema_decay is None
            else AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema_decay))
        )

    @property
    def evaluated(self) -> nn.Module:
        """The model to evaluate: the averaged weights, if the recipe keeps an average."""
        return self.model if self.average is None else cast(nn.Module, self.average.module)

    def step(self, batch: Batch) -> Mapping[str, float]:
        """One step; the parts of the loss.

        Raises:
            ValueError: for data that hold the mask or other ids out of range.
            RuntimeError: if the loss is not finite.
        """
        symbols: int = self.model.vocab_size  # pyright: ignore[reportAssignmentType]
        check_tokens(batch.tokens, symbols, "training tokens")
        self.steps += 1
        self.model.train()
        losses = self.objective(self.model, batch, self.steps)
        if not bool(losses.total.isfinite()):
            raise RuntimeError(f"the loss is {float(losses.total)} at step {self.steps}; try a smaller learning rate")
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * self.recipe.rate(self.steps - 1)
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()
        self._average_gradients()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
        return losses.parts

    def _average_gradients(self) -> None:
        """Over processes; the objectives call the model in parts, which a wrapper of the whole model would not see."""
        if self.accelerator is None or self.accelerator.num_processes == 1:
            return
        for parameter in self.model.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self.accelerator.reduce(gradient, reduction="mean")

    def state(self) -> dict[str, Any]:
        """Everything that a continued training needs."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.steps}
        return state if self.average is None else state | {"average": self.average.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.steps = state["step"]


def train(
    model: nn.Module,
    source: BatchSource,
    objective: Objective,
    recipe: Recipe,
    *,
    accelerator: Any = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 1000,
    validate: Callable[[nn.Module, int], bool] | None = None,
    validate_every: int = 1000,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
    log: Callable[[int, Mapping[str, float]], None] | None = None,
) -> nn.Module:
    """Train a model in place and return the one to evaluate: the averaged weights, if the recipe keeps an average.

    Args:
        model: on the device where it shall train.
        source: gives `n` new samples, on that device.
        objective: see `cofre.objectives`.
        recipe: optimiser and schedule.
        accelerator: an `accelerate.Accelerator`; each process trains on its share of the batch from its own source.
        checkpoint: file to continue from, if it is there, and to write.
        checkpoint_every: steps between writing it.
        validate: called with the model to evaluate and the step; ends the training by returning true.
        validate_every: steps between validations; the last step is validated too.
        progress: wraps the steps, to show how far the training is.
        log: called after each step with the parts of the loss.

    Raises:
        ValueError: if the batch does not divide among the processes, or as `Trainer.step`.
        RuntimeError: if the loss stops being finite.
    """
    processes = 1 if accelerator is None else accelerator.num_processes
    if recipe.batch_size % processes:
        raise ValueError(f"a batch of {recipe.batch_size} does not divide among {processes} processes")
    trainer = Trainer(model, objective, recipe, accelerator=accelerator)
    if checkpoint is not None and checkpoint.exists():
        trainer.load(torch.load(checkpoint, map_location="cpu", weights_only=True))
    main = accelerator is None or accelerator.is_main_process
    for step in progress(range(trainer.steps + 1, recipe.steps + 1)):
        parts = trainer.step(source(recipe.batch_size // processes))
        last = step == recipe.steps
        if log is not None:
            log(step, parts)
        if checkpoint is not None and main and (last or step % checkpoint_every == 0):
            save_checkpoint(checkpoint, trainer.state())
        if validate is not None and (last or step % validate_every == 0) and validate(trainer.evaluated.eval(), step):
            break
    return trainer.evaluated.eval()
