"""Training of compressors on a frozen language model (section 3.5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import Accelerator
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from .compressor import Compressor
from .frozen_lm import FrozenLM, check_context


@dataclass(frozen=True)
class Batch:
    """Contexts and what is to be predicted after them; the arguments of `Compressor.loss`."""

    context_ids: Int[Tensor, "batch tokens"]
    context_mask: Tensor | None
    target_ids: Int[Tensor, "batch target"]
    labels: Int[Tensor, "batch target"]
    states: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        moved = [None if x is None else x.to(device) for x in vars(self).values()]
        return Batch(*moved)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Recipe:
    """AdamW; the learning rate rises in a warm-up, stays, and falls to 0 over the last fifth (the shape is ours).

    Attributes:
        steps: optimiser steps.
        warmup_share: of the steps, over which the learning rate rises from 0.
        clip_norm: largest norm of the gradient.
        weight_decay: of AdamW.
        accumulation: batches for one step.
    """

    steps: int
    learning_rate: float = 1e-4
    warmup_share: float = 0.05
    clip_norm: float = 20.0
    weight_decay: float = 0.0
    accumulation: int = 1


# The paper's two phases: next-token prediction on 1 B tokens of 512-token contexts (16 contexts x 32 batches x 4 GPUs a
# step), and one epoch of questions (512 a step), whose number depends on the data.
NEXT_TOKEN = Recipe(steps=954, learning_rate=1e-4, warmup_share=0.05, accumulation=32)
QUESTIONS = Recipe(steps=1, learning_rate=1e-4, warmup_share=0.0, accumulation=16)


DECAY_SHARE = 0.2  # of the steps, at the end, over which the learning rate falls


class Point(NamedTuple):
    """One moment of a training: seconds spent in training alone, mean loss since the last point, and a score."""

    step: int
    seconds: float
    loss: float
    score: float


def train(
    compressor: Compressor,
    batches: Iterator[Batch],
    recipe: Recipe,
    *,
    evaluate: Callable[[], float] | None = None,
    every: int | None = None,
    progress: Callable[[Iterable[int]], Iterable[int]] = lambda steps: steps,
    accelerator: Accelerator | None = None,
    checkpoint: Path | None = None,
) -> list[Point]:
    """Train the compressor's own parameters in place; the language model stays as it is.

    Arguments:
        batches: endless, one batch at a time.
        evaluate: score of the compressor, asked every `every` steps and at the end; not part of the time.
        progress: wraps the iteration over steps.
        accelerator: of a run on several processes.
        checkpoint: folder that `save_pretrained` writes to at every evaluation and at the end.

    Raises:
        ValueError: for a method that has nothing to train.
    """
    parameters = list(compressor.trainable().values())
    if not parameters:
        raise ValueError(f"{type(compressor).__name__} has nothing to train")
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    warmup = max(1, round(recipe.warmup_share * recipe.steps))
    schedule = LambdaLR(optimizer, lambda step: _rate(step, warmup, recipe.steps))
    loss_of: torch.nn.Module = _Loss(compressor)
    if accelerator is not None:
        loss_of, optimizer = accelerator.prepare(loss_of, optimizer)
    points: list[Point] = []
    seconds, losses = 0.0, []
    compressor.train()
    for step in progress(range(1, recipe.steps + 1)):
        start = time.perf_counter()
        total = 0.0
        for _ in range(recipe.accumulation):
            loss = loss_of(next(batches).to(compressor.lm.device)) / recipe.accumulation
            if accelerator is None:
                loss.backward()
            else:
                accelerator.backward(loss)
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(parameters, recipe.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(total)
        seconds += time.perf_counter() - start
        if step == recipe.steps or (every is not None and step % every == 0):
            compressor.eval()
            score = evaluate() if evaluate is not None else float("nan")
            points.append(Point(step, seconds, sum(losses) / len(losses), score))
            losses.clear()
            if checkpoint is not None and (accelerator is None or accelerator.is_main_process):
                compressor.save_pretrained(checkpoint)
            compressor.train()
    compressor.eval()
    return points


def _rate(step: int, warmup: int, steps: int) -> float:
    return min(1.0, (step + 1) / warmup, (steps - step) / max(1.0, DECAY_SHARE * steps))


class _Loss(torch.nn.Module):
    """The loss as a module's forward, which is what data-parallel wrappers hook into."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__()
        self.compressor = compressor

    def forward(self, batch: Batch) -> Tensor:
        return self.compressor.loss(batch.context_ids, batch.context_mask, batch.target_ids, batch.labels, batch.states)


def cache_states(
    lm: FrozenLM,
    context_ids: Int[Tensor, "contexts tokens"],
    context_mask: Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float16,
    batch_size: int = 8,
) -> Float[Tensor, "states contexts tokens hidden"]:
    """Hidden states of many contexts, computed once: the model is frozen, so every epoch would find the same.

    `K * T * H` numbers a context; index the second axis for a batch.
    """
    mask = check_context(context_ids, context_mask)
    parts = [
        torch.stack([state.to(dtype) for state in lm.hidden_states(context_ids[rows], mask[rows])])
        for rows in torch.arange(len(context_ids)).split(batch_size)
    ]
    return torch.cat(parts, dim=1)
