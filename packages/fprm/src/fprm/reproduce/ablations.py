"""E6: norm type, scaling, initial coefficients, gamma and patience, on Sudoku (section 5.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Run, plotting

from ..arms import get_arm
from ..config import FPRMConfig, SolverConfig
from ..evaluation import accuracy_by_iteration, evaluate
from ..model import LoopedModel
from ..recipes import SUDOKU, Recipe
from ..tasks import PuzzleSet
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
GAMMAS = (0.5, 0.8, 0.9, 0.95, 0.99)
PATIENCES = (3, 5, 10)
SHORT_RECIPE = replace(SMALL_RECIPE, steps=200)


@dataclass(frozen=True)
class AblationConfig(SudokuData):
    """The Sudoku experiment with one thing changed, trained for less than half as long."""

    recipe: Recipe = SHORT_RECIPE
    depth: int = 48  # iterations of the accuracy-by-depth curve


@paper.experiment(
    smoke=AblationConfig(recipe=replace(SMOKE_RECIPE, steps=2), train_puzzles=200, test_puzzles=66, depth=16),
    laptop=AblationConfig(),
    paper=AblationConfig(
        model=FPRMConfig.sudoku(), recipe=replace(SUDOKU, steps=SUDOKU.steps // 2), test_puzzles=20_000, depth=256
    ),
    minutes={"laptop": 2, "paper": 80_000},
    needs={"paper": "Sudoku-Extreme CSVs (train_file=…, test_file=…) and a GPU for days"},
)
def ablations(config: AblationConfig, run: Run) -> None:
    """Train variants of FPRM on Sudoku; accuracy, depth that is of use, and the solver's two dials."""
    train, test = load(config, run)
    order = int(run.rng.integers(2**32))
    curves, accuracy, budgets = [], {}, {}
    sweeps: list[tuple] = []
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
        if name == "scaled":
            sweeps = _solver_sweeps(model, own, test, run)
    run.table("depth", pd.DataFrame(curves, columns=["variant", "iterations", "accuracy"]))
    dials = pd.DataFrame(sweeps, columns=["dial", "value", "iterations", "accuracy"])
    run.table("dials", dials)

    run.measure("useful_depth_scaled", budgets["scaled"])
    run.measure("useful_depth_post", budgets["post"])
    run.measure("useful_depth_ratio", budgets["scaled"] / budgets["post"])
    run.measure("high_low_minus_low_low", accuracy["scaled"] - accuracy["alpha_low_low"])
    by_gamma = dials.query("dial == 'gamma'")
    run.measure("iterations_nondecreasing_in_gamma", (np.diff(by_gamma["iterations"]) >= 0).all())
    run.measure("iterations_gamma_high_over_low", by_gamma["iterations"].iloc[-1] / by_gamma["iterations"].iloc[0])
    run.measure("accuracy_gamma_high_minus_low", by_gamma["accuracy"].iloc[-1] - by_gamma["accuracy"].iloc[0])
    by_patience = dials.query("dial == 'patience'")["accuracy"]
    run.measure("patience_accuracy_spread", by_patience.max() - by_patience.min())


def _generator(run: Run) -> torch.Generator:
    return torch.Generator(run.device).manual_seed(run.seed)


def _solver_sweeps(model: LoopedModel, recipe: Recipe, test: PuzzleSet, run: Run) -> list[tuple]:
    """Iterations and accuracy of one trained model at other values of gamma and patience."""

    def point(dial: str, value: float, solver: SolverConfig) -> tuple:
        result = evaluate(model, test.inputs, test.labels, solver, generator=_generator(run))
        return dial, value, result.iterations.mean(), result.exact.mean()

    return [point("gamma", gamma, replace(recipe.solver, gamma_eval=gamma)) for gamma in GAMMAS] + [
        point("patience", patience, replace(recipe.solver, patience=patience, gamma_eval=0.99))
        for patience in PATIENCES
    ]


@paper.figures(ablations)
def ablation_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Accuracy against depth for every variant; iterations and accuracy against gamma."""
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
    dial, (cost, gain) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    gammas = tables["dials"].query("dial == 'gamma'")
    plotting.mean_curve(cost, gammas, x="value", y="iterations")
    plotting.mean_curve(gain, gammas, x="value", y="accuracy")
    for ax, label in ((cost, "mean iterations until the fixed point"), (gain, "puzzles solved exactly")):
        ax.set(xlabel="gamma (factor of the step size)", ylabel=label)
    return {"ablations": fig, "gamma": dial}
