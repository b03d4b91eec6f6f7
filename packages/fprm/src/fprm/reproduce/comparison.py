"""What the trained experiments share: train an arm as its recipe says, or continue from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from claimlab import Run

from ..arms import Arm
from ..config import FPRMConfig
from ..model import LoopedModel
from ..recipes import Recipe, train
from ..training import BatchSource


def checkpoint_path(folder: Path, arm: str, seed: int) -> Path:
    """Where `python -m fprm.pretrain` leaves the weights of one arm and seed."""
    return folder / f"{arm}-seed{seed}.pt"


def train_arm(
    arm: Arm,
    config: FPRMConfig,
    recipe: Recipe,
    make_source: Callable[[], BatchSource],
    run: Run,
    checkpoints: Path | None = None,
    label: str = "",
) -> tuple[LoopedModel, Recipe]:
    """A trained model and the arm's own recipe.

    Every arm starts from the run's seed, whatever was trained before it. With `checkpoints` the training continues
    from the arm's file there, which holds a finished model if `fprm.pretrain` made it.
    """
    torch.manual_seed(run.seed)
    own = arm.recipe(recipe)
    model = arm.build(config, recipe).to(run.device)
    trained = train(
        model,
        make_source(),
        own,
        generator=torch.Generator(run.device).manual_seed(run.seed),
        checkpoint=None if checkpoints is None else checkpoint_path(checkpoints, arm.name, run.seed),
        progress=lambda steps: run.progress(steps, label or arm.label),
    )
    return trained, own
