"""What the trained experiments share: training an arm as its recipe says, and a rank correlation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from claimlab import Run, stats
from claimlab.stats import Interval

from ..arms import Arm
from ..config import FPRMConfig
from ..model import LoopedModel
from ..recipes import Recipe, train
from ..training import BatchSource


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
        checkpoint=None if checkpoints is None else arm.checkpoint(checkpoints, run.seed),
        progress=lambda steps: run.progress(steps, label or arm.label),
    )
    return trained, own


def rank_correlation(difficulty: np.ndarray, iterations: np.ndarray) -> Interval:
    """Spearman's correlation with its bootstrap interval; 0 if every puzzle took the same number of iterations."""
    if (iterations == iterations[0]).all():
        return Interval(0.0, 0.0, 0.0)
    return stats.spearman(difficulty, iterations, resamples=500)
