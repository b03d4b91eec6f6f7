"""Answers, and what they cost, for a set of puzzles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .config import SolverConfig
from .model import LoopedModel
from .solver import FixedPointSolver, SolverState
from .training import IGNORE


@dataclass(frozen=True)
class Evaluation:
    """One entry a puzzle.

    Attributes:
        exact: whether every asked token is right.
        final: whether the last asked token is right (the final state of a sequence).
        tokens: share of the asked tokens that are right.
        iterations: applications of the body.
        converged: whether the solver reached a fixed point (or the halting head fired).
    """

    exact: Bool[np.ndarray, " puzzles"]
    final: Bool[np.ndarray, " puzzles"]
    tokens: Float[np.ndarray, " puzzles"]
    iterations: Int[np.ndarray, " puzzles"]
    converged: Bool[np.ndarray, " puzzles"]


def evaluate(
    model: LoopedModel,
    inputs: Int[np.ndarray, "puzzles tokens"],
    labels: Int[np.ndarray, "puzzles tokens"],
    solver: FixedPointSolver | SolverConfig | None = None,
    *,
    batch_size: int = 512,
    generator: torch.Generator | None = None,
) -> Evaluation:
    """Answer every puzzle and compare.

    Args:
        inputs, labels: as in `PuzzleSet`.
        solver: when to halt; the paper's evaluation settings when `None`.
        batch_size: puzzles at a time.
        generator: source of the initial states, on the model's device.

    Raises:
        ValueError: if there is no puzzle; else as the model.
    """
    if not len(inputs):
        raise ValueError("there are no puzzles to evaluate")
    device = next(model.parameters()).device
    model.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, len(inputs), batch_size):
            x = torch.from_numpy(inputs[start : start + batch_size]).to(device)
            y = torch.from_numpy(labels[start : start + batch_size]).to(device)
            output = model(x, solver=solver, generator=generator)
            right, asked = output.logits.argmax(-1) == y, y != IGNORE
            last = asked.shape[1] - 1 - asked.flip(1).to(torch.int8).argmax(1)
            parts.append(
                (
                    (right | ~asked).all(1),
                    right.gather(1, last[:, None]).squeeze(1),
                    (right & asked).sum(1).double() / asked.sum(1).clamp(min=1),
                    output.iterations,
                    output.converged,
                )
            )
    return Evaluation(*(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)))


@torch.no_grad()
def accuracy_by_iteration(
    model: LoopedModel,
    inputs: Int[np.ndarray, "puzzles tokens"],
    labels: Int[np.ndarray, "puzzles tokens"],
    iterations: int,
    *,
    batch_size: int = 1024,
    generator: torch.Generator | None = None,
) -> Float[np.ndarray, " iterations"]:
    """Share of puzzles that are exactly right when all are stopped after 1, 2, … `iterations` plain iterations."""
    device = next(model.parameters()).device
    model.eval()
    solver = FixedPointSolver(SolverConfig.fixed(iterations))
    right = np.zeros(iterations)
    for start in range(0, len(inputs), batch_size):
        x = torch.from_numpy(inputs[start : start + batch_size]).to(device)
        y = torch.from_numpy(labels[start : start + batch_size]).to(device)

        def read(iteration: int, active: Tensor, z: Tensor, state: SolverState, y: Tensor = y) -> None:
            exact = ((model.readout(z).argmax(-1) == y) | (y == IGNORE)).all(1)
            right[iteration - 1] += exact.sum().item()

        injection = model.inject(x)
        z0 = model.initial_state(injection, generator)
        solver.solve(model.body, z0, context=(injection,), callback=read)
    return right / len(inputs)
