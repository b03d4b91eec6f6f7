"""E3 and E7: Sudoku. FPRM beside recursive, ACT-halted and non-looped models (section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting, stats

from ..arms import ARMS, get_arm
from ..config import FPRMConfig, SolverConfig
from ..evaluation import accuracy_by_iteration, evaluate
from ..model import FPRM, LoopedModel
from ..recipes import SUDOKU, Recipe
from ..solver import ActHalting, FixedPointSolver
from ..tasks import PuzzleSet
from ..tasks import sudoku as task
from .comparison import rank_correlation, train_arm
from .declaration import paper

SMALL_MODEL = FPRMConfig(
    vocab_size=5,
    out_vocab_size=4,
    seq_len=16,
    hidden_size=32,
    num_heads=4,
    ffn_multiple=8,
    positions="learned",
    conv="conv2d",
)
SMALL_RECIPE = Recipe(
    steps=320,
    batch_size=32,
    learning_rate=4e-3,
    bptt=4,
    max_segments=4,
    q_loss_coeff=0.5,
    clip_norm=1.0,
    solver=SolverConfig(max_iter=64),
    ema_decay=0.98,
    cycles=(1, 3),
    trm_segments=4,
)
SMOKE_RECIPE = replace(SMALL_RECIPE, steps=3, batch_size=8, solver=SolverConfig(max_iter=16))


@dataclass(frozen=True)
class SudokuData:
    """Puzzles, model and training: generated 4x4 puzzles, or 9x9 puzzles from a CSV."""

    model: FPRMConfig = SMALL_MODEL
    recipe: Recipe = SMALL_RECIPE
    blanks: tuple[int, int] = (2, 12)  # fewest and most blank cells of the 4x4 puzzles
    train_puzzles: Count = 6000
    test_puzzles: Count = 660
    train_file: Path | None = None  # CSV in the layout of Sudoku-Extreme; needed for 9x9
    test_file: Path | None = None
    checkpoints: Path | None = None  # folder of `python -m fprm.pretrain`


@dataclass(frozen=True)
class SudokuConfig(SudokuData):
    """The models to compare."""

    arms: tuple[str, ...] = ("fprm", "act", "trm", "trm_conv", "shallow", "deep")


def load(config: SudokuData, run: Run) -> tuple[PuzzleSet, PuzzleSet]:
    """Training and test puzzles that share no complete grid.

    Raises:
        ValueError: if a 9x9 model is given no files.
    """
    if config.train_file is not None and config.test_file is not None:
        train, test = task.read_csv(config.train_file), task.read_csv(config.test_file, config.test_puzzles)
        return train, test
    if config.model.seq_len != 16:
        raise ValueError("9x9 Sudoku needs train_file and test_file (CSV: source,question,answer,rating)")
    # By grid, not by puzzle: another puzzle of the same grid would give the answer away.
    grids = run.rng.permutation(task.complete_grids())
    train = task.small_puzzles(grids[:220], config.train_puzzles, config.blanks, run.rng)
    return train, task.small_puzzles(grids[220:], config.test_puzzles, config.blanks, run.rng)


@paper.experiment(
    smoke=SudokuConfig(recipe=SMOKE_RECIPE, train_puzzles=200, test_puzzles=66),
    laptop=SudokuConfig(),
    paper=SudokuConfig(
        model=FPRMConfig.sudoku(),
        recipe=replace(SUDOKU, solver=SolverConfig(max_iter=1000)),
        arms=("fprm", "fixed_loop", "act", "trm", "trm_conv", "trm_conv_act", "hrm", "shallow", "deep"),
        test_puzzles=20_000,
    ),
    minutes={"laptop": 1.7, "paper": 20_000},
    needs={"paper": "Sudoku-Extreme CSVs (train_file=…, test_file=…) and GPUs; train first with `fprm.pretrain`"},
)
def sudoku(config: SudokuConfig, run: Run) -> None:
    """Train FPRM and its rivals on Sudoku; accuracy, iterations by difficulty, and what halting costs."""
    train, test = load(config, run)
    order = int(run.rng.integers(2**32))
    rows, points, evaluations = [], [], {}
    for name in config.arms:
        arm = get_arm(name)

        def source(order: int = order):
            return train.sampler(np.random.default_rng(order), task.augment)

        model, recipe = train_arm(arm, config.model, config.recipe, source, run, config.checkpoints)
        result = evaluate(model, test.inputs, test.labels, arm.solver(model, recipe), generator=_generator(run))
        evaluations[name] = result
        for blanks in np.unique(test.difficulty):
            chosen = test.difficulty == blanks
            rows.append((name, blanks, result.exact[chosen].mean(), result.iterations[chosen].mean()))
        if name == "fprm":
            points = _halting(model, recipe, test, run)
    run.table("by_blanks", pd.DataFrame(rows, columns=["arm", "blanks", "accuracy", "iterations"]))

    ours = evaluations["fprm"]
    for name, result in evaluations.items():
        run.measure(f"accuracy_{name}", stats.wilson(int(result.exact.sum()), len(test)))
        if name != "fprm":
            run.measure(f"fprm_minus_{name}", stats.bootstrap(ours.exact.astype(float) - result.exact))
    run.measure("converged", ours.converged.mean())
    _adaptivity(config, test, ours.iterations, run)
    if "act" in evaluations:
        act = evaluations["act"]
        run.measure("iterations_act", act.iterations.mean())
        points.append(("trained with ACT", 0.5, act.iterations.mean(), act.exact.mean()))
    halting = pd.DataFrame(points, columns=["rule", "setting", "iterations", "accuracy"])
    run.table("halting", halting)
    _efficiency(config.recipe, halting, run)


def _generator(run: Run) -> torch.Generator:
    return torch.Generator(run.device).manual_seed(run.seed)


def _adaptivity(config: SudokuConfig, test: PuzzleSet, iterations: np.ndarray, run: Run) -> None:
    """Rank correlation of blank cells and iterations, trained and untrained."""
    torch.manual_seed(run.seed)
    untrained = FPRM(config.model).to(run.device)
    before = evaluate(untrained, test.inputs, test.labels, config.recipe.solver, generator=_generator(run))
    rho = rank_correlation(test.difficulty, iterations)
    start = rank_correlation(test.difficulty, before.iterations).value
    run.measure("rho", rho)
    run.measure("rho_low", rho.low)
    run.measure("rho_untrained", start)
    run.measure("rho_gain", rho.value - start)
    easy, hard = np.quantile(test.difficulty, (0.25, 0.75))
    ratio = iterations[test.difficulty >= hard].mean() / iterations[test.difficulty <= easy].mean()
    run.measure("iterations_hard_over_easy", ratio)


def _halting(model: LoopedModel, recipe: Recipe, test: PuzzleSet, run: Run) -> list[tuple]:
    """Accuracy and mean iterations of one trained model under three rules: fixed budget, fixed point, halting head."""
    cap = recipe.bptt * recipe.max_segments
    points = []
    by_budget = accuracy_by_iteration(model, test.inputs, test.labels, cap, generator=_generator(run))
    points += [("fixed budget", n, float(n), accuracy) for n, accuracy in enumerate(by_budget, start=1)]
    for tau in (0.02, 0.05, 0.1, 0.2, 0.4):
        solver = FixedPointSolver(replace(recipe.solver, tau=tau, max_iter=cap))
        result = evaluate(model, test.inputs, test.labels, solver, generator=_generator(run))
        points.append(("fixed point", tau, result.iterations.mean(), result.exact.mean()))
    if recipe.q_loss_coeff > 0:
        for threshold in (0.1, 0.3, 0.5, 0.7, 0.9):
            solver = ActHalting(model.halt_logit, max_iter=cap, threshold=threshold)
            result = evaluate(model, test.inputs, test.labels, solver, generator=_generator(run))
            points.append(("halting head", threshold, result.iterations.mean(), result.exact.mean()))
    return points


def _efficiency(recipe: Recipe, points: pd.DataFrame, run: Run) -> None:
    """Cost of fixed-point halting against the cap, the best fixed budget, and halting heads."""
    cap = recipe.bptt * recipe.max_segments
    at_tau = (points["rule"] == "fixed point") & (points["setting"] == recipe.solver.tau)
    ours = points[at_tau].iloc[0]
    budget = points.query("rule == 'fixed budget'").set_index("iterations")["accuracy"]
    enough = np.flatnonzero(budget.to_numpy() >= ours["accuracy"] - 0.01)
    cheapest = enough[0] + 1 if enough.size else cap
    run.measure("iterations_fprm", ours["iterations"])
    run.measure("iterations_over_cap", ours["iterations"] / cap)
    run.measure("iterations_over_best_fixed", ours["iterations"] / cheapest)
    settings = points[points["rule"] == "fixed point"]
    as_good = settings[settings["accuracy"] >= budget[cap] - 0.01]
    run.measure("cost_at_equal_accuracy", as_good["iterations"].min() / cap if len(as_good) else 1.0)
    run.measure("accuracy_lost_by_halting", budget[cap] - ours["accuracy"])
    head = points.query("rule in ('halting head', 'trained with ACT')")
    better = (head["accuracy"] >= ours["accuracy"]) & (head["iterations"] <= ours["iterations"])
    strictly = (head["accuracy"] > ours["accuracy"]) | (head["iterations"] < ours["iterations"])
    run.measure("not_dominated_by_act", not (better & strictly).any())


@paper.figures(sudoku)
def sudoku_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Accuracy and iterations against difficulty; accuracy against cost for three halting rules."""
    labels = {name: arm.label for name, arm in ARMS.items()}
    fig, (accuracy, iterations) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    plotting.mean_curve(accuracy, tables["by_blanks"], x="blanks", y="accuracy", by="arm", labels=labels)
    accuracy.set(xlabel="blank cells", ylabel="puzzles solved exactly", ylim=(-0.02, 1.02))
    fig.legend(*accuracy.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    ours = tables["by_blanks"].query("arm == 'fprm'")
    plotting.mean_curve(iterations, ours, x="blanks", y="iterations")
    iterations.set(xlabel="blank cells", ylabel="iterations until the fixed point", ylim=(0, None))

    pareto, ax = plotting.subplots()
    points = tables["halting"].pivot_table(["iterations", "accuracy"], ["rule", "setting"], sort=False).reset_index()
    for index, (rule, group) in enumerate(points.groupby("rule", sort=False)):
        style = {"fixed budget": "-", "trained with ACT": "D"}.get(str(rule), "o-")
        ax.plot(group["iterations"], group["accuracy"], style, label=rule, color=plotting.COLOURS[index])
    ax.set(xlabel="mean iterations", ylabel="puzzles solved exactly", xscale="log")
    ax.legend(title="stopped by")
    return {"sudoku": fig, "halting": pareto}
