"""E5: the sibling paper's natural gradient, and the null probability at unseen locations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from claimlab import Count, Run, costs, plotting, stats
from kernel_fdr.counts import MaskedCounts
from kernel_fdr.estimator import KernelNullPrior
from kernel_fdr.kernels import Eigenfeatures, FiniteKernel, Matern
from kernel_fdr.likelihood import BetaBinomialAlternative, likelihood_ratio
from kernel_fdr.reproduce.registry import paper
from kernel_fdr.simulate import draw_counts, permuted_rows, plane
from kernel_fdr.solver import objective, pointwise, solve_descent, solve_newton


@dataclass(frozen=True)
class SolverConfig:
    """Natural against plain gradient, Matern 5/2 of length 0.3 on the plane."""

    side: Count = 15  # points a side of the grid
    draws: Count = 50  # null draws of each hypothesis
    penalty: float = 1.0  # lambda
    bound: float = 500.0  # penalty of leaving [0, 1]
    steps: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4, 6e-4, 1e-3, 2e-3)  # step sizes tried by both
    clips: tuple[float, ...] = (5.0, np.inf)  # largest norms of a direction tried by both
    most: Count = 6000  # iterations of the natural gradient
    factor: float = 4.0  # the plain gradient gets this many times the natural one's iterations
    accuracy: float = 1e-3  # distance to the optimum relative to the start


@paper.experiment(
    smoke=SolverConfig(side=8, most=2500, steps=(6e-4, 1e-3), factor=3.0),
    laptop=SolverConfig(),
    paper=SolverConfig(side=25),
    seeds={"smoke": 1, "laptop": 3, "paper": 3},
    minutes={"smoke": 0.05, "laptop": 1.0, "paper": 10},
)
def solver(config: SolverConfig, run: Run) -> None:
    """Iterations of natural and plain gradient, each with its best step."""
    space = plane(config.side)
    features = Eigenfeatures.of(Matern(0.3, 2.5, relative=False), space.locations, rank=len(space))
    gram = features.values @ features.values.T
    data, _ = draw_counts(space, config.draws, run.rng)
    ratio = likelihood_ratio(data.masked(), BetaBinomialAlternative(0.3, 6.0))
    settings = (ratio, 0.9, config.penalty, config.bound)
    best = objective(solve_newton(features.values, *settings), features.values, *settings)[0]
    start = float(pointwise(np.full(len(space), 0.9), ratio, config.bound).loss.sum())
    target = best + config.accuracy * (start - best)

    def iterations(natural: bool, limit: int) -> tuple[int, float, float]:
        """Fewest iterations to the target over step sizes and clips (`limit` if none gets there), and which."""
        fewest, chosen, closest = limit, (config.steps[0], config.clips[0]), np.inf
        for step, clip in itertools.product(config.steps, config.clips):
            path = solve_descent(gram, *settings, step, fewest, natural, clip, target=target).objectives
            reached = path[-1] <= target and len(path) - 1 < fewest
            if reached:
                fewest = len(path) - 1
            if reached or path[-1] < min(closest, target if fewest < limit else np.inf):
                chosen, closest = (step, clip), path[-1]
        return fewest, *chosen

    natural, *natural_choice = iterations(True, config.most)
    plain, *plain_choice = iterations(False, int(config.factor * natural))
    run.measure("natural_iterations", natural)
    run.measure("plain_over_natural", plain / natural)
    timed = 50
    run.measure(
        "step_time_ratio",
        costs.paired_ratio(
            lambda: solve_descent(gram, *settings, 1e-6, timed),
            lambda: solve_descent(gram, *settings, 1e-6, timed, natural=False),
            repeats=7,
        ),
        timing=True,
    )
    curves = []
    for label, choice in (("natural gradient", natural_choice), ("plain gradient", plain_choice)):
        is_natural = choice is natural_choice
        path = solve_descent(gram, *settings, choice[0], plain, is_natural, choice[1], target=target).objectives
        shown = np.unique(np.geomspace(1, len(path), 60).astype(int)) - 1
        gap = (path[shown] - best) / (start - best)
        curves.append(pd.DataFrame({"method": label, "iteration": shown + 1, "gap": gap}))
    run.measure("natural_gap", float(curves[0]["gap"].iloc[-1]))
    run.table("descent", pd.concat(curves))


@paper.figures(solver)
def solver_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Distance to the optimum against iterations."""
    table = tables["descent"]
    fig, ax = plotting.subplots()
    for colour, (method, rows) in zip(plotting.COLOURS, table.groupby("method", sort=False), strict=False):
        for number, (_, one) in enumerate(rows.groupby("seed")):
            ax.plot(one["iteration"], one["gap"], color=colour, label=method if number == 0 else None)
    ax.axhline(1e-3, color="0.4", linestyle="--", linewidth=1)
    ax.set(
        xscale="log",
        yscale="log",
        ylim=(5e-4, 2),
        xlabel="iteration",
        ylabel="objective above the optimum / start",
        title="each with its best step size, one line a data set",
    )
    ax.legend()
    return {"solver": fig}


@dataclass(frozen=True)
class UnseenConfig:
    """Null probability at held-out points of the plane."""

    side: Count = 25  # points a side of the grid
    draws: Count = 50  # null draws of each hypothesis
    held_out: float = 0.2  # share of the points without a test
    replications: Count = 20  # data sets
    penalty: float = 10.0  # lambda
    rank: Count | None = None  # eigenfeatures; None keeps 95 % of the trace


@paper.experiment(
    smoke=UnseenConfig(side=15, replications=3),
    laptop=UnseenConfig(),
    paper=UnseenConfig(side=71, rank=500),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"smoke": 0.05, "laptop": 0.3, "paper": 30},
)
def unseen(config: UnseenConfig, run: Run) -> None:
    """Separation of nulls and signals by the null probability at held-out locations."""
    space = plane(config.side)
    gram = space.kernel.gram(space.locations)
    rows = []
    for _ in run.progress(range(config.replications), "data sets"):
        data, signal = draw_counts(space, config.draws, run.rng)
        test = run.rng.permutation(len(space))[: int(config.held_out * len(space))]
        train = np.setdiff1d(np.arange(len(space)), test)
        shown = data.masked()
        wrong = permuted_rows(len(space), run.rng)
        result = {"true alpha": roc_auc_score(signal[test], -space.alpha[test])}
        for label, matrix, extend in (
            ("kernel", gram, "rkhs"),
            ("logistic", gram, "logistic"),
            ("permuted", gram[np.ix_(wrong, wrong)], "rkhs"),
        ):
            counts = MaskedCounts(shown.cells[train], shown.n[train], train)
            prior = KernelNullPrior(FiniteKernel(matrix), config.penalty, extend=extend, rank=config.rank).fit(counts)
            result[label] = roc_auc_score(signal[test], -prior.predict_alpha(test))
        rows.append(result)
    aucs = pd.DataFrame(rows)
    run.table("held_out_auc", aucs)
    for label, name in (
        ("kernel", "auc"),
        ("permuted", "auc_permuted"),
        ("logistic", "auc_logistic"),
        ("true alpha", "auc_true_alpha"),
    ):
        run.measure(name, stats.mean(aucs[label]))
