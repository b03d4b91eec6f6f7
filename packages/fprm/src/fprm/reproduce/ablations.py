"""E6: norm type, scaling, initial coefficients and convolution, on Sudoku (section 5.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting

from ..arms import get_arm
from ..config import FPRMConfig
from ..evaluation import accuracy_by_iteration, evaluate
from ..recipes import SUDOKU, Recipe
from ..tasks import sudoku as task
from .comparison import train_arm
from .declaration import paper
from .sudoku import SMALL_RECIPE, SMOKE_RECIPE, SudokuData, load

VARIANTS: dict[str, dict[str, Any]] = {
    "scaled": {},
    "alpha_low_low": {"alpha1_init": 0.25, "alpha2_init": 0.25},
    "alpha_low_high": {"alpha1_init": 0.25, "alpha2_init": 0.75},
    "alpha_high_high": {"alpha1_init": 0.75, "alpha2_init": 0.75},
    "unscaled": {"residual_scale": "none"},
    "post": {"residual_scale": "none", "norm": "post"},
    "peri": {"residual_scale": "none", "norm": "peri"},
    "no_conv": {"conv": "none"},
}
LABELS = {
    "scaled": "pre-norm, scaled (0.75, 0.25)",
    "alpha_low_low": "scaled (0.25, 0.25)",
    "alpha_low_high": "scaled (0.25, 0.75)",
    "alpha_high_high": "scaled (0.75, 0.75)",
    "unscaled": "pre-norm, unscaled",
    "post": "post-norm",
    "peri": "peri-norm",
    "no_conv": "scaled, no convolution",
}
SHORT_RECIPE = replace(SMALL_RECIPE, steps=130)


@dataclass(frozen=True)
class AblationConfig(SudokuData):
    """The Sudoku experiment with one thing changed, trained for less than half as long."""

    recipe: Recipe = SHORT_RECIPE
    depth: Count = 48  # iterations of the accuracy-by-depth curve


@paper.experiment(
    smoke=AblationConfig(recipe=replace(SMOKE_RECIPE, steps=2), train_puzzles=200, test_puzzles=66, depth=16),
    laptop=AblationConfig(test_puzzles=396),
    paper=AblationConfig(
        model=FPRMConfig.sudoku(), recipe=replace(SUDOKU, steps=SUDOKU.steps // 2), test_puzzles=20_000, depth=256
    ),
    minutes={"laptop": 2, "paper": 80_000},
    needs={"paper": "Sudoku-Extreme CSVs (train_file=…, test_file=…) and a GPU for days"},
)
def ablations(config: AblationConfig, run: Run) -> None:
    """Train variants of FPRM on Sudoku; accuracy and the depth that is of use."""
    train, test = load(config, run)
    order = int(run.rng.integers(2**32))
    curves, accuracy, budgets = [], {}, {}
    for name, changes in VARIANTS.items():

        def source(order: int = order):
            return train.sampler(np.random.default_rng(order), task.augment)

        folder = None if config.checkpoints is None else config.checkpoints / name
        shape = replace(config.model, **changes)
        model, own = train_arm(get_arm("fprm"), shape, config.recipe, source, run, folder, LABELS[name])
        result = evaluate(model, test.inputs, test.labels, own.solver, generator=_generator(run))
        accuracy[name] = float(result.exact.mean())
        run.measure(f"accuracy_{name}", accuracy[name])
        curve = accuracy_by_iteration(model, test.inputs, test.labels, config.depth, generator=_generator(run))
        curves += [(name, iteration, value) for iteration, value in enumerate(curve, start=1)]
        budgets[name] = int(np.argmax(curve >= 0.98 * curve.max())) + 1
    run.table("depth", pd.DataFrame(curves, columns=["variant", "iterations", "accuracy"]))

    run.measure("useful_depth_scaled", budgets["scaled"])
    run.measure("useful_depth_post", budgets["post"])
    run.measure("useful_depth_ratio", budgets["scaled"] / budgets["post"])
    run.measure("high_low_minus_low_low", accuracy["scaled"] - accuracy["alpha_low_low"])


def _generator(run: Run) -> torch.Generator:
    return torch.Generator(run.device).manual_seed(run.seed)


@paper.figures(ablations)
def ablation_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Accuracy against depth for every variant."""
    fig, panels = plotting.subplots(1, 2, figsize=(9.5, 3.8), sharey=True)
    groups = (
        ("scaled", "unscaled", "post", "peri", "no_conv"),
        ("scaled", "alpha_low_low", "alpha_low_high", "alpha_high_high"),
    )
    for ax, names in zip(panels, groups, strict=True):
        curves = tables["depth"].loc[tables["depth"]["variant"].isin(names)]
        plotting.mean_curve(ax, curves, x="iterations", y="accuracy", by="variant", labels=LABELS, markers=False)
        ax.set(xlabel="iterations (fixed budget)", xscale="log")
        ax.legend(fontsize="small")
    panels[0].set(ylabel="puzzles solved exactly")
    return {"ablations": fig}
