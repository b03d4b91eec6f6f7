"""E5: shortest paths in mazes (section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting, stats

from ..arms import ARMS, get_arm
from ..config import FPRMConfig, SolverConfig
from ..evaluation import evaluate
from ..model import LoopedModel
from ..recipes import MAZE, Recipe
from ..tasks import PuzzleSet
from ..tasks import maze as task
from .comparison import rank_correlation, train_arm
from .declaration import paper

SMALL_MODEL = FPRMConfig(
    vocab_size=5,
    seq_len=49,
    hidden_size=32,
    num_heads=4,
    ffn_multiple=8,
    positions="learned",
    conv="conv2d",
    norm_placement="output",
)
SMALL_RECIPE = Recipe(
    steps=280,
    batch_size=32,
    learning_rate=4e-3,
    bptt=4,
    max_segments=4,
    clip_norm=1.0,
    solver=SolverConfig(max_iter=64),
    ema_decay=0.98,
    cycles=(1, 3),
    trm_segments=4,
)


@dataclass(frozen=True)
class MazeConfig:
    """Mazes: generated small ones, or 30x30 ones from a CSV."""

    model: FPRMConfig = SMALL_MODEL
    recipe: Recipe = SMALL_RECIPE
    arms: tuple[str, ...] = ("fprm", "trm", "shallow")
    side: Count = 7  # cells of an edge, walls included
    openings: int = 2  # walls opened beyond a perfect maze
    train_mazes: Count = 3000
    test_mazes: Count = 400
    train_file: Path | None = None  # CSV in the layout of Maze-Hard; needed for 30x30
    test_file: Path | None = None
    checkpoints: Path | None = None  # folder of `python -m fprm.pretrain`


def load(config: MazeConfig, run: Run) -> tuple[PuzzleSet, PuzzleSet]:
    """Training and test mazes, none in both.

    Raises:
        ValueError: if a 30x30 model is given no files.
    """
    if config.train_file is not None and config.test_file is not None:
        return task.read_csv(config.train_file), task.read_csv(config.test_file, config.test_mazes)
    if config.side % 2 == 0 or config.model.seq_len != config.side**2:
        raise ValueError("30x30 mazes need train_file and test_file (CSV: source,question,answer,rating)")
    mazes = task.random_mazes(config.train_mazes + config.test_mazes, config.side, config.openings, run.rng)
    train, test = mazes.take(np.arange(config.train_mazes)), mazes.take(np.arange(config.train_mazes, len(mazes)))
    known = {row.tobytes() for row in train.inputs}
    return train, test.take(np.array([row.tobytes() not in known for row in test.inputs]))


@paper.experiment(
    smoke=MazeConfig(
        recipe=replace(SMALL_RECIPE, steps=2, batch_size=4, solver=SolverConfig(max_iter=16)),
        train_mazes=20,
        test_mazes=16,
    ),
    laptop=MazeConfig(),
    paper=MazeConfig(
        model=FPRMConfig.maze(),
        recipe=replace(MAZE, solver=SolverConfig(max_iter=1000)),
        arms=("fprm", "trm", "trm_conv", "hrm", "shallow", "deep"),
        side=30,
        test_mazes=1000,
    ),
    seeds={"smoke": 1, "laptop": 1, "paper": 3},
    minutes={"laptop": 3, "paper": 20_000},
    needs={"paper": "Maze-Hard CSVs (train_file=…, test_file=…) and GPUs; train first with `fprm.pretrain`"},
)
def maze(config: MazeConfig, run: Run) -> None:
    """Train on mazes; accuracy of the whole shortest path, and iterations by its length."""
    train, test = load(config, run)
    order = int(run.rng.integers(2**32))
    rows, results = [], {}
    for name in config.arms:
        arm = get_arm(name)

        def source(order: int = order):
            return train.sampler(np.random.default_rng(order))

        model, recipe = train_arm(arm, config.model, config.recipe, source, run, config.checkpoints)
        generator = torch.Generator(run.device).manual_seed(run.seed)
        solver = arm.solver(model, recipe)
        results[name] = evaluate(model, test.inputs, test.labels, solver, generator=generator)
        for length in np.unique(test.difficulty):
            chosen = test.difficulty == length
            exact, iterations = results[name].exact[chosen], results[name].iterations[chosen]
            rows.append((name, length, exact.mean(), iterations.mean()))
        if name == "fprm":
            run.figure("answers", _draw_answers(model, test, config))
    run.table("by_length", pd.DataFrame(rows, columns=["arm", "length", "accuracy", "iterations"]))

    for name, result in results.items():
        run.measure(f"accuracy_{name}", stats.wilson(int(result.exact.sum()), len(test)))
        run.measure(f"tokens_{name}", stats.mean(result.tokens))
        if name != "fprm":
            gap = stats.bootstrap(results["fprm"].exact.astype(float) - result.exact)
            run.measure(f"fprm_minus_{name}", gap)
    run.measure("rho", rank_correlation(test.difficulty, results["fprm"].iterations))


def _draw_answers(model: LoopedModel, test: PuzzleSet, config: MazeConfig) -> Figure:
    """A few mazes with the path that the model gives after 1, 4 and all iterations."""
    fig, axes = plotting.subplots(3, 4, figsize=(8, 6.4))
    chosen = np.argsort(-test.difficulty, kind="stable")[:3]
    x = torch.from_numpy(test.inputs[chosen]).to(next(model.parameters()).device)
    side = int(np.sqrt(test.inputs.shape[1]))
    colours = ListedColormap([colormaps["Greys"](0.85), "white", "#009E73", "#D55E00", "#56B4E9"])
    columns = [("maze", test.inputs[chosen]), ("shortest path", test.labels[chosen])]
    for title, solver in (("after 1 iteration", SolverConfig.fixed(1)), ("at the fixed point", config.recipe.solver)):
        generator = torch.Generator(x.device).manual_seed(0)
        columns.append((title, model.predict(x, solver=solver, generator=generator).cpu().numpy()))
    for column, (title, grids) in enumerate(columns):
        for row, grid in enumerate(grids):
            ax = axes[row, column]
            ax.imshow(grid.reshape(side, side), cmap=colours, vmin=0, vmax=4)
            ax.set(xticks=[], yticks=[], title=title if row == 0 else "")
            ax.grid(False)
    return fig


@paper.figures(maze)
def maze_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Accuracy and iterations against the length of the path."""
    labels = {name: arm.label for name, arm in ARMS.items()}
    fig, (accuracy, iterations) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    plotting.mean_curve(accuracy, tables["by_length"], x="length", y="accuracy", by="arm", labels=labels)
    accuracy.set(xlabel="steps of the shortest path", ylabel="path exactly right", ylim=(-0.02, 1.02))
    fig.legend(*accuracy.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    ours = tables["by_length"].query("arm == 'fprm'")
    plotting.mean_curve(iterations, ours, x="length", y="iterations")
    iterations.set(xlabel="steps of the shortest path", ylabel="iterations until the fixed point", ylim=(0, None))
    return {"maze": fig}
