"""E4 and E7: state tracking, length generalisation, and the dials of the solver (sections 5.3 and 5.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting

from ..arms import ARMS, get_arm
from ..config import FPRMConfig, SolverConfig
from ..evaluation import evaluate
from ..model import LoopedModel
from ..recipes import STATE_TRACKING_A5, STATE_TRACKING_S5, Recipe
from ..solver import FixedPointSolver
from ..tasks import state_tracking as task
from ..training import Batch
from .comparison import train_arm
from .declaration import paper

SMALL_MODEL = FPRMConfig.state_tracking(vocab_size=6, seq_len=24, hidden_size=32, num_heads=4, ffn_multiple=8)
SMALL_RECIPE = Recipe(
    steps=500,
    batch_size=32,
    learning_rate=6e-3,
    bptt=4,
    max_segments=16,
    clip_norm=1.0,
    solver=SolverConfig(max_iter=100),
    ema_decay=0.98,
    cycles=(1, 3),
    trm_segments=4,
)


GAMMAS = (0.5, 0.8, 0.9, 0.95, 0.99)
PATIENCES = (3, 5, 10)
DIAL_COLUMNS = ["dial", "value", "iterations", "final", "damped"]


@dataclass(frozen=True)
class TrackingConfig:
    """Running products in a group; trained at one length, tested at others."""

    group: str = "S3"
    model: FPRMConfig = SMALL_MODEL
    recipe: Recipe | None = SMALL_RECIPE  # the published one of the group when None
    arms: tuple[str, ...] = ("fprm", "trm", "trm_conv", "shallow")
    train_length: Count = 8
    test_lengths: Counts = (2, 4, 8, 12, 16, 24)
    far_length: Count = 16  # length at which generalisation is judged
    test_sequences: Count = 300  # of each length
    checkpoints: Path | None = None  # folder of `python -m fprm.pretrain`


@paper.experiment(
    smoke=TrackingConfig(
        recipe=replace(SMALL_RECIPE, steps=3, batch_size=8, max_segments=4, solver=SolverConfig(max_iter=16)),
        test_lengths=(2, 8, 16),
        test_sequences=16,
    ),
    laptop=TrackingConfig(),
    paper=TrackingConfig(
        group="A5",
        model=FPRMConfig.state_tracking(),
        recipe=None,
        arms=("fprm", "trm", "trm_conv", "trm_conv_act", "shallow", "deep"),
        train_length=32,
        test_lengths=(8, 10, 16, 32, 64, 128),
        far_length=128,
        test_sequences=2000,
    ),
    minutes={"laptop": 2.5, "paper": 10_000},
    needs={"paper": "GPUs; train first with `fprm.pretrain` (S5: `--set group=S5`)"},
)
def state_tracking(config: TrackingConfig, run: Run) -> None:
    """Train on short products of group elements; accuracy and iterations on longer ones, and the solver's two dials."""
    table = task.group_table(config.group)
    shape = replace(config.model, vocab_size=len(table))
    published = STATE_TRACKING_S5 if config.group == "S5" else STATE_TRACKING_A5
    base = published if config.recipe is None else config.recipe
    order = int(run.rng.integers(2**32))
    tests = {length: task.make_batch(table, config.test_sequences, length, run.rng) for length in config.test_lengths}
    rows, dials = [], []
    for name in config.arms:
        arm = get_arm(name)

        def source(order: int = order):
            rng = np.random.default_rng(order)
            return lambda count: task.make_batch(table, count, config.train_length, rng)

        model, recipe = train_arm(arm, shape, base, source, run, config.checkpoints)
        if name == "fprm":
            dials = _solver_dials(model, recipe, tests[max(tests)], run)
        for length, batch in tests.items():
            solver = arm.solver(model, recipe)
            result = evaluate(model, batch.inputs.numpy(), batch.labels.numpy(), solver, generator=_generator(run))
            iterations = result.iterations
            rows.append(
                (
                    name,
                    length,
                    result.final.mean(),
                    result.exact.mean(),
                    iterations.mean(),
                    np.median(iterations),
                    result.converged.mean(),
                )
            )
    columns = ["arm", "length", "final", "sequence", "iterations", "median_iterations", "converged"]
    results = pd.DataFrame(rows, columns=columns)
    run.table("lengths", results)

    at = results.set_index(["arm", "length"])
    far, near = config.far_length, config.train_length
    short = max(length for length in config.test_lengths if length <= near / 3)
    for name in config.arms:
        run.measure(f"final_far_{name}", at.loc[(name, far), "final"])
        run.measure(f"final_near_{name}", at.loc[(name, near), "final"])
    run.measure("fprm_minus_trm", at.loc[("fprm", far), "final"] - at.loc[("trm", far), "final"])
    run.measure("fprm_minus_trm_conv", at.loc[("fprm", far), "final"] - at.loc[("trm_conv", far), "final"])
    run.measure("final_over_chance", at.loc[("fprm", far), "final"] * len(table))
    for kind in ("iterations", "median_iterations"):
        run.measure(f"{kind}_long_minus_short", at.loc[("fprm", far), kind] - at.loc[("fprm", short), kind])
    _judge_dials(pd.DataFrame(dials, columns=DIAL_COLUMNS), run)


def _generator(run: Run) -> torch.Generator:
    return torch.Generator(run.device).manual_seed(run.seed)


def _solver_dials(model: LoopedModel, recipe: Recipe, batch: Batch, run: Run) -> list[tuple]:
    """The trained model on the longest sequences, at other values of gamma and patience.

    Sudoku will not do: its samples converge before any of them runs out of patience, so the dials change nothing.
    """
    settings = [("gamma", gamma, replace(recipe.solver, gamma_eval=gamma)) for gamma in GAMMAS]
    settings += [("patience", p, replace(recipe.solver, patience=p, gamma_eval=0.99)) for p in PATIENCES]
    rows = []
    for dial, value, solver in settings:
        with torch.no_grad():
            injection = model.inject(batch.inputs.to(run.device))
            start = model.initial_state(injection, _generator(run))
            result = FixedPointSolver(solver).solve(model.body, start, context=(injection,))
            right = (model.readout(result.z).argmax(-1) == batch.labels.to(run.device))[:, -1]
        damped = result.step_size < solver.eta0
        iterations = result.iterations.double().mean().item()
        rows.append((dial, value, iterations, right.double().mean().item(), damped.double().mean().item()))
    return rows


def _judge_dials(dials: pd.DataFrame, run: Run) -> None:
    run.table("dials", dials)
    by_gamma = dials[dials["dial"] == "gamma"]
    low, high = by_gamma.iloc[0], by_gamma.iloc[-1]
    by_patience = dials[dials["dial"] == "patience"]["final"]
    run.measure("damped_share", high["damped"])
    run.measure("iterations_nondecreasing_in_gamma", (np.diff(by_gamma["iterations"]) >= 0).all())
    run.measure("iterations_gamma_high_over_low", high["iterations"] / low["iterations"])
    run.measure("accuracy_gamma_high_minus_low", high["final"] - low["final"])
    run.measure("patience_accuracy_spread", by_patience.max() - by_patience.min())


@paper.figures(state_tracking)
def state_tracking_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Accuracy and iterations against length, and against gamma."""
    labels = {name: arm.label for name, arm in ARMS.items()}
    fig, (accuracy, iterations) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    plotting.mean_curve(accuracy, tables["lengths"], x="length", y="final", by="arm", labels=labels)
    accuracy.set(xlabel="sequence length", ylabel="final state right", ylim=(-0.02, 1.02))
    fig.legend(*accuracy.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    ours = tables["lengths"].query("arm == 'fprm'")
    both = ours.melt(["seed", "length"], ["iterations", "median_iterations"], "kind", "value")
    names = {"iterations": "mean", "median_iterations": "median"}
    plotting.mean_curve(iterations, both, x="length", y="value", by="kind", labels=names)
    iterations.set(xlabel="sequence length", ylabel="iterations until the fixed point", ylim=(0, None))
    iterations.legend()
    dial, (cost, gain) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    gammas = tables["dials"].loc[tables["dials"]["dial"] == "gamma"]
    panels = ((cost, "iterations", "mean iterations until the fixed point"), (gain, "final", "final state right"))
    for ax, column, label in panels:
        plotting.mean_curve(ax, gammas, x="value", y=column)
        ax.set(xlabel="gamma (factor of the step size)", ylabel=label)
    return {"state_tracking": fig, "gamma": dial}
