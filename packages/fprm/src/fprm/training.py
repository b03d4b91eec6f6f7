"""Deep supervision with a persistent carry: short unrolls with gradient, states kept between them (section 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.swa_utils import AveragedModel

from .config import SolverConfig
from .model import LoopedModel
from .solver import FixedPointSolver, SolverState

IGNORE = -100
Halting = Literal["fixed_point", "act", "none"]


class Batch(NamedTuple):
    """Examples: token ids and labels `(batch, tokens)` (a label of -100 is ignored), and puzzle ids `(batch,)`."""

    inputs: Int[Tensor, "batch tokens"]
    labels: Int[Tensor, "batch tokens"]
    puzzle_ids: Int[Tensor, " batch"] | None = None


BatchSource = Callable[[int], Batch]


def stablemax_cross_entropy(
    logits: Float[Tensor, "*batch classes"], labels: Int[Tensor, "*batch"], ignore_index: int = IGNORE
) -> Float[Tensor, "*batch"]:
    """Cross-entropy of each label under stablemax, in float64; 0 where the label is ignored.

    Stablemax replaces the exponential by `s(x) = x + 1` for `x >= 0` and `1 / (1 - x)` below.
    """
    x = logits.double()
    scores = torch.where(x >= 0, x + 1.0, 1.0 / (1.0 - x.clamp(max=0.0)))
    kept = labels != ignore_index
    chosen = scores.gather(-1, torch.where(kept, labels, 0).unsqueeze(-1)).squeeze(-1)
    loss = scores.sum(-1).log() - chosen.log()
    return torch.where(kept, loss, 0.0)


def softmax_cross_entropy(
    logits: Float[Tensor, "*batch classes"], labels: Int[Tensor, "*batch"], ignore_index: int = IGNORE
) -> Float[Tensor, "*batch"]:
    """Cross-entropy of each label under softmax, in at least float32; 0 where the label is ignored."""
    x = logits if logits.dtype == torch.float64 else logits.float()
    flat = F.cross_entropy(x.flatten(0, -2), labels.flatten(), ignore_index=ignore_index, reduction="none")
    return flat.view(labels.shape)


_LOSSES = {"stablemax": stablemax_cross_entropy, "softmax": softmax_cross_entropy}


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for AdamW: weight decay on everything but the logits of the residual coefficients."""
    free = [p for name, p in model.named_parameters() if "scaling." in name]
    rest = [p for name, p in model.named_parameters() if "scaling." not in name]
    groups = [{"params": rest, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention by the plain kernel, the only one with second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@dataclass
class Carry:
    """What stays between optimiser steps, one entry a sample."""

    batch: Batch
    z: Tensor
    solver: SolverState
    segments: Int[Tensor, " batch"]
    least_segments: Int[Tensor, " batch"]
    halted: Bool[Tensor, " batch"]


class Segment(NamedTuple):
    """Outcome of one segment, still attached to the graph."""

    loss: Tensor
    logits: Float[Tensor, "batch tokens classes"]
    z: Tensor
    solver: SolverState


class DeepSupervisionTrainer:
    """Trains any `LoopedModel` one supervision segment at a time.

    Each `step` replaces the samples that have halted, runs `bptt` iterations with gradient from the detached carried
    state, and updates the weights. What is saved for backward depends on `bptt` alone, never on how many segments a
    sample goes through.

    Args:
        model: the model; its `body` is one iteration.
        optimizer: over the model's parameters.
        solver: settings of the fixed-point solver.
        batch_size: samples in the carry (of this process).
        bptt: iterations with gradient `K` in a segment.
        max_segments: a sample is replaced after this many segments.
        loss: "stablemax" or "softmax" cross-entropy.
        q_loss_coeff: weight of the halting head's loss.
        halting: when a sample is replaced early: at its fixed point, when the halting head fires (then iterations are
            plain, and with probability `exploration` a sample must first live a random number of segments), or never.
        exploration: see `halting`.
        jacobian_penalty: weight of Hutchinson's estimate of `||J||_F^2` at the segment's last iteration, a sample.
        clip_norm: largest norm of the gradient.
        scheduler: learning-rate scheduler, stepped after each update.
        ema: averaged model, updated after each update.
        accelerator: an `accelerate.Accelerator` when several processes train together; gradients are summed over them.
        generator: source of initial states, exploration and probes.

    Raises:
        ValueError: for a count below one or an unknown option.
    """

    def __init__(
        self,
        model: LoopedModel,
        optimizer: torch.optim.Optimizer,
        solver: SolverConfig | None = None,
        *,
        batch_size: int,
        bptt: int = 6,
        max_segments: int = 12,
        loss: Literal["stablemax", "softmax"] = "stablemax",
        q_loss_coeff: float = 0.0,
        halting: Halting = "fixed_point",
        exploration: float = 0.1,
        jacobian_penalty: float = 0.0,
        clip_norm: float | None = None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        ema: AveragedModel | None = None,
        accelerator: Any = None,
        generator: torch.Generator | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("bptt", bptt), ("max_segments", max_segments)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if loss not in _LOSSES:
            raise ValueError(f"loss must be one of {tuple(_LOSSES)}, got {loss!r}")
        if halting not in ("fixed_point", "act", "none"):
            raise ValueError(f"halting must be 'fixed_point', 'act' or 'none', got {halting!r}")
        if halting != "fixed_point":
            solver = SolverConfig.fixed(bptt)
        self.model, self.optimizer, self.scheduler, self.ema = model, optimizer, scheduler, ema
        self.solver = FixedPointSolver(solver, training=True, generator=generator)
        self.batch_size, self.bptt, self.max_segments = batch_size, bptt, max_segments
        self.loss, self.q_loss_coeff = _LOSSES[loss], q_loss_coeff
        self.halting, self.exploration = halting, exploration
        self.jacobian_penalty, self.clip_norm = jacobian_penalty, clip_norm
        self.accelerator, self.generator = accelerator, generator
        self.processes = 1 if accelerator is None else accelerator.num_processes
        self.carry: Carry | None = None

    def step(self, source: BatchSource) -> dict[str, float]:
        """One optimiser step. `source(n)` gives `n` new examples.

        Returns:
            `loss` (mean over samples), `token_accuracy`, `exact_accuracy`, `residual` (mean), `replaced` (samples that
            were new in this step) and `segments` (mean number that the samples have lived).

        Raises:
            RuntimeError: if the loss is not finite.
        """
        self.model.train()
        replaced = self._refill(source)
        carry = self.carry
        assert carry is not None
        segment = self.run_segment(carry)
        if not torch.isfinite(segment.loss):
            raise RuntimeError(f"the loss is not finite: {segment.loss.item()}")
        self._update(segment.loss)
        carry.z, carry.solver = segment.z.detach(), segment.solver
        carry.segments = carry.segments + 1
        carry.halted = self._halted(carry)
        kept = carry.batch.labels != IGNORE
        right = (segment.logits.argmax(-1) == carry.batch.labels) | ~kept
        return {
            "loss": segment.loss.item() * self.processes,
            "token_accuracy": ((right & kept).sum() / kept.sum().clamp(min=1)).item(),
            "exact_accuracy": right.all(1).float().mean().item(),
            "residual": segment.solver.residual.mean().item(),
            "replaced": float(replaced),
            "segments": carry.segments.float().mean().item(),
        }

    def run_segment(self, carry: Carry) -> Segment:
        """`bptt` iterations with gradient and the loss, as a share of the global batch's mean."""
        batch, z, state = carry.batch, carry.z, carry.solver
        injection = self.model.inject(batch.inputs, batch.puzzle_ids)
        for _ in range(self.bptt):
            z, state = self.solver.step(state, z, self.model.body(z, injection))
        logits = self.model.readout(z)
        kept = batch.labels != IGNORE
        losses = self.loss(logits, batch.labels).sum(1) / kept.sum(1).clamp(min=1)
        if self.q_loss_coeff > 0:
            exact = ((logits.argmax(-1) == batch.labels) | ~kept).all(1).to(logits.dtype)
            q_loss = F.binary_cross_entropy_with_logits(self.model.halt_logit(z), exact, reduction="none")
            losses = losses + self.q_loss_coeff * q_loss
        loss = losses.sum() / (self.batch_size * self.processes)
        if self.jacobian_penalty > 0:
            loss = loss + self.jacobian_penalty * self._jacobian_norm(z.detach(), injection) / self.processes
        return Segment(loss, logits, z, state)

    def _jacobian_norm(self, z: Tensor, injection: Tensor) -> Tensor:
        """Hutchinson's estimate of the squared Frobenius norm of `df/dz`, mean over samples."""
        probe = torch.randn(z.shape, generator=self.generator, device=z.device, dtype=z.dtype)
        z = z.requires_grad_()
        with twice_differentiable():
            (product,) = torch.autograd.grad(self.model.body(z, injection), z, probe, create_graph=True)
        return product.square().flatten(1).sum(1).mean()

    def _update(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        if self.processes > 1:
            for parameter in parameters:
                parameter.grad = self.accelerator.reduce(parameter.grad, reduction="sum")
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.clip_norm)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def _halted(self, carry: Carry) -> Tensor:
        done = carry.segments >= self.max_segments
        if self.halting == "fixed_point":
            return done | carry.solver.halted
        if self.halting == "act":
            with torch.no_grad():
                fired = self.model.halt_logit(carry.z) > 0
            return done | (fired & (carry.segments >= carry.least_segments))
        return done

    def _refill(self, source: BatchSource) -> int:
        """Put new examples, fresh states and fresh solver states where samples have halted."""
        if self.carry is None:
            self.carry = self._fresh(source(self.batch_size))
            return self.batch_size
        carry = self.carry
        index = carry.halted.nonzero().squeeze(1)
        if index.numel() == 0:
            return 0
        new = self._fresh(source(index.numel()))
        old_ids, new_ids = carry.batch.puzzle_ids, new.batch.puzzle_ids
        carry.batch = Batch(
            carry.batch.inputs.index_copy(0, index, new.batch.inputs),
            carry.batch.labels.index_copy(0, index, new.batch.labels),
            None if old_ids is None or new_ids is None else old_ids.index_copy(0, index, new_ids),
        )
        carry.z = carry.z.index_copy(0, index, new.z)
        carry.solver = carry.solver.put(index, new.solver)
        carry.segments = carry.segments.index_copy(0, index, new.segments)
        carry.least_segments = carry.least_segments.index_copy(0, index, new.least_segments)
        return index.numel()

    @torch.no_grad()
    def _fresh(self, batch: Batch) -> Carry:
        device = next(self.model.parameters()).device
        ids = None if batch.puzzle_ids is None else batch.puzzle_ids.to(device)
        batch = Batch(batch.inputs.to(device), batch.labels.to(device), ids)
        injection = self.model.inject(batch.inputs, batch.puzzle_ids)
        size = injection.shape[0]
        count = torch.zeros(size, dtype=torch.int64, device=device)
        return Carry(
            batch=batch,
            z=self.model.initial_state(injection, self.generator),
            solver=self.solver.init(size, device),
            segments=count,
            least_segments=count + self._least_segments(size).to(device),
            halted=torch.zeros(size, dtype=torch.bool, device=device),
        )

    def _least_segments(self, size: int) -> Tensor:
        """Segments that a sample must live before its halting head counts (exploration of ACT)."""
        if self.halting != "act" or self.max_segments < 2:
            return torch.zeros(size, dtype=torch.int64)
        source = self.generator if self.generator is not None and self.generator.device.type == "cpu" else None
        explores = torch.rand(size, generator=source) < self.exploration
        least = torch.randint(2, self.max_segments + 1, (size,), generator=source)
        return torch.where(explores, least, 0)
