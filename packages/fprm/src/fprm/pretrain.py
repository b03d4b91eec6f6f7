"""Train one arm at the paper's size, on one process or many, and leave a checkpoint for the experiments.

torchrun --nproc-per-node 8 -m fprm.pretrain sudoku --train-file train.csv --arm fprm --out checkpoints
claimlab run fprm --scale paper --experiment sudoku --set checkpoints=checkpoints --set train_file=train.csv …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from claimlab import pretraining

from .arms import ARMS, get_arm
from .config import FPRMConfig
from .recipes import MAZE, STATE_TRACKING_A5, STATE_TRACKING_S5, SUDOKU, Recipe, train
from .tasks import maze, state_tracking, sudoku
from .training import BatchSource

TASKS: dict[str, tuple[FPRMConfig, Recipe]] = {
    "sudoku": (FPRMConfig.sudoku(), SUDOKU),
    "maze": (FPRMConfig.maze(), MAZE),
    "A5": (FPRMConfig.state_tracking(), STATE_TRACKING_A5),
    "S5": (FPRMConfig.state_tracking(vocab_size=120), STATE_TRACKING_S5),
}
TRAIN_LENGTH = 32


def make_source(task: str, train_file: Path | None, rng: np.random.Generator) -> BatchSource:
    """Training examples of a task, augmented as the paper does (mazes are not).

    Raises:
        ValueError: if Sudoku or mazes are given no file, or a malformed one.
    """
    if task in ("A5", "S5"):
        table = state_tracking.group_table(task)
        return lambda count: state_tracking.make_batch(table, count, TRAIN_LENGTH, rng)
    if train_file is None:
        raise ValueError(f"{task} needs --train-file (CSV: source,question,answer,rating)")
    if task == "sudoku":
        return sudoku.read_csv(train_file).sampler(rng, sudoku.augment)
    return maze.read_csv(train_file).sampler(rng)


def pretrain(
    task: str,
    *,
    arm: str = "fprm",
    train_file: Path | None = None,
    out: Path = Path("checkpoints"),
    seed: int = 0,
    steps: int | None = None,
    batch_size: int | None = None,
    model_changes: dict | None = None,
    log_every: int = 100,
) -> Path:
    """Train one arm and return its checkpoint; continues from it if it is there.

    Args:
        task: "sudoku", "maze", "A5" or "S5".
        arm: a name of `fprm.arms.ARMS`.
        train_file: CSV of the puzzles.
        out: folder of the checkpoint, `<arm>-seed<seed>.pt`.
        seed: of the weights; every process draws its own examples.
        steps, batch_size: other values than the recipe's.
        model_changes: other fields of the model's configuration.
        log_every: steps between printed lines.

    Raises:
        ValueError: for an unknown task or arm, or as `make_source` and `fprm.recipes.train`.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}; there are {', '.join(TASKS)}")
    shape, recipe = TASKS[task]
    shape = replace(shape, **(model_changes or {}))
    recipe = replace(recipe, steps=steps or recipe.steps, batch_size=batch_size or recipe.batch_size)
    chosen = get_arm(arm)
    accelerator = Accelerator()
    torch.manual_seed(seed)
    model = chosen.build(shape, recipe).to(accelerator.device)
    source = make_source(task, train_file, np.random.default_rng([seed, accelerator.process_index]))

    path = chosen.checkpoint(out, seed)
    train(
        model,
        source,
        chosen.recipe(recipe),
        generator=torch.Generator(accelerator.device).manual_seed(seed * 1000 + accelerator.process_index),
        accelerator=accelerator,
        checkpoint=path,
        log=pretraining.printer(accelerator, log_every),
    )
    accelerator.wait_for_everyone()
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: `python -m fprm.pretrain TASK …`, alone or under torchrun."""
    parser = pretraining.parser("fprm.pretrain", __doc__)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--arm", choices=list(ARMS), default="fprm")
    parser.add_argument("--train-file", type=Path)
    pretraining.call(pretrain, parser, arguments)


if __name__ == "__main__":
    main()
