"""How a model is trained: the published recipes, and the loop that follows one on any number of processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from claimlab.pretraining import save_checkpoint

from .config import SolverConfig
from .model import LoopedModel
from .training import BatchSource, DeepSupervisionTrainer, Halting, decay_groups


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Optimiser, schedule and supervision of one training.

    Attributes:
        steps: optimiser steps.
        batch_size: samples in a step, over all processes.
        learning_rate, weight_decay, betas: of AdamW.
        warmup_steps: steps of linear warm-up; constant after it.
        bptt: iterations with gradient in a segment.
        max_segments: segments that a sample lives at most.
        solver: the fixed-point solver, also of the evaluation.
        loss: "stablemax" or "softmax" cross-entropy.
        q_loss_coeff: weight of the halting head's loss.
        halting: what replaces a sample early.
        ema_decay: decay of the averaged weights that are evaluated; `None` evaluates the last ones.
        clip_norm: largest norm of the gradient.
        cycles: high and low cycles of one segment of TRM.
        trm_segments: segments that TRM and HRM live at most; they always run all of them in evaluation.

    Raises:
        ValueError: for a count or rate out of range.
    """

    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    warmup_steps: int = 0
    bptt: int = 6
    max_segments: int = 12
    solver: SolverConfig = field(default_factory=SolverConfig)
    loss: Literal["stablemax", "softmax"] = "stablemax"
    q_loss_coeff: float = 0.0
    halting: Halting = "fixed_point"
    ema_decay: float | None = None
    clip_norm: float | None = None
    cycles: tuple[int, int] = (3, 6)
    trm_segments: int = 16

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "bptt", "max_segments", "trm_segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be positive and finite, got {self.learning_rate}")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay must lie in (0, 1), got {self.ema_decay}")


# Table of hyper-parameters, section 5 and appendix; 60,000 epochs of 1000 puzzles in batches of 768.
SUDOKU = Recipe(
    steps=78_125,
    batch_size=768,
    learning_rate=1e-3,
    weight_decay=1e-3,
    warmup_steps=2000,
    bptt=6,
    max_segments=12,
    q_loss_coeff=0.5,
    ema_decay=0.999,
)
MAZE = Recipe(
    steps=78_125,
    batch_size=768,
    learning_rate=1e-4,
    weight_decay=1.0,
    warmup_steps=2000,
    bptt=6,
    max_segments=24,
    q_loss_coeff=0.5,
    ema_decay=0.999,
)
# 50 epochs of 2,000,000 sequences in batches of 1024.
STATE_TRACKING_A5 = Recipe(
    steps=97_657,
    batch_size=1024,
    learning_rate=1e-4,
    weight_decay=0.01,
    bptt=4,
    max_segments=128,
    solver=SolverConfig(max_iter=160),
)
STATE_TRACKING_S5 = replace(STATE_TRACKING_A5, solver=SolverConfig(gamma_train=0.95, patience=10, max_iter=160))


def train(
    model: LoopedModel,
    source: BatchSource,
    recipe: Recipe,
    *,
    generator: torch.Generator | None = None,
    accelerator: Any = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 1000,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
    log: Callable[[int, dict[str, float]], None] | None = None,
) -> LoopedModel:
    """Train a model by a recipe and return the one to evaluate: the averaged weights, if the recipe keeps an average.

    The model is trained in place, on the device it is on. With an `accelerate.Accelerator` of several processes each
    trains on its share of the batch from its own `source`; the processes must start from equal weights.

    Args:
        model: the model.
        source: gives `n` new examples.
        recipe: what to do.
        generator: source of initial states, on the model's device.
        accelerator: see above.
        checkpoint: file to continue from, if it is there, and to write every `checkpoint_every` steps. The samples in
            flight are not kept: a continued training draws new ones.
        progress: wraps the steps, to show how far the training is.
        log: called after every step with its number and its measures.

    Raises:
        ValueError: if the batch does not divide among the processes.
        RuntimeError: if the loss stops being finite.
    """
    processes = 1 if accelerator is None else accelerator.num_processes
    if recipe.batch_size % processes:
        raise ValueError(f"a batch of {recipe.batch_size} does not divide among {processes} processes")
    optimizer = torch.optim.AdamW(decay_groups(model, recipe.weight_decay), lr=recipe.learning_rate, betas=recipe.betas)
    warmup = max(recipe.warmup_steps, 1)
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
    ema = None
    if recipe.ema_decay is not None:
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema_decay))
    trainer = DeepSupervisionTrainer(
        model,
        optimizer,
        recipe.solver,
        batch_size=recipe.batch_size // processes,
        bptt=recipe.bptt,
        max_segments=recipe.max_segments,
        loss=recipe.loss,
        q_loss_coeff=recipe.q_loss_coeff,
        halting=recipe.halting,
        clip_norm=recipe.clip_norm,
        scheduler=scheduler,
        ema=ema,
        accelerator=accelerator,
        generator=generator,
    )
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler} | ({} if ema is None else {"ema": ema})
    done = _load(checkpoint, parts)
    main = accelerator is None or accelerator.is_main_process
    for step in progress(range(done + 1, recipe.steps + 1)):
        measures = trainer.step(source)
        if log is not None:
            log(step, measures)
        if checkpoint is not None and main and (step % checkpoint_every == 0 or step == recipe.steps):
            state = {name: part.state_dict() for name, part in parts.items()}
            save_checkpoint(checkpoint, state | {"step": step})
    trained = model if ema is None else cast(LoopedModel, ema.module)
    return trained.eval()


def _load(path: Path | None, parts: dict[str, Any]) -> int:
    if path is None or not path.exists():
        return 0
    content = torch.load(path, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(content[name])
    return content["step"]
