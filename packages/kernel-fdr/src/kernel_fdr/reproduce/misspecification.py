"""E3: the FDR under wrong kernels, wrong alternatives and wrong length scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting, stats
from kernel_fdr.estimator import KernelNullPrior
from kernel_fdr.kernels import Eigenfeatures, FiniteKernel, Matern
from kernel_fdr.likelihood import Alternative, BetaBinomialAlternative
from kernel_fdr.reproduce.registry import paper
from kernel_fdr.reproduce.trials import record_fdr
from kernel_fdr.rules import count_mirror, count_seqstep
from kernel_fdr.simulate import Space, draw_counts, fdp_and_power, permuted_rows, plane, swapped_rows

KINDS = (
    "none",
    "permuted kernel",
    "swapped regions",
    "constant kernel",
    "length scale x 10",
    "length scale / 10",
    "f1 too flat",
    "f1 too sharp",
    "probit f1",
    "unequal draws",
)


@dataclass(frozen=True)
class MisspecificationConfig:
    """Wrong models of the 2-d benchmark."""

    kinds: tuple[str, ...] = KINDS
    side: Count = 25  # points a side of the grid
    draws: Count = 50  # null draws of each hypothesis
    level: float = 0.1  # FDR level q
    replications: Count = 60  # data sets a kind
    penalty: float = 10.0  # lambda; any value leaves the FDR controlled


def wrong_model(
    kind: str, space: Space, right: Eigenfeatures, rng: np.random.Generator
) -> tuple[Eigenfeatures, Alternative | str]:
    """Features and alternative of a kind of misspecification."""
    if kind == "permuted kernel":
        return right.reassigned(permuted_rows(len(space), rng)), "beta"
    if kind == "swapped regions":
        return right.reassigned(swapped_rows(space.alpha)), "beta"
    if kind == "constant kernel":
        return Eigenfeatures.of(FiniteKernel(np.ones((len(space), len(space)))), None, rank=1), "beta"
    if kind.startswith("length scale"):
        factor = 10.0 if kind.endswith("x 10") else 0.1
        return Eigenfeatures.of(Matern(0.15 * factor, 1.5, relative=False), space.locations), "beta"
    alternative = {
        "f1 too flat": BetaBinomialAlternative(5 * 0.3, 6 / 5),
        "f1 too sharp": BetaBinomialAlternative(0.3 / 5, 5 * 6.0),
        "probit f1": "probit",
    }.get(kind, "beta")
    return right, alternative


@paper.experiment(
    smoke=MisspecificationConfig(kinds=("permuted kernel", "f1 too flat"), side=12, replications=3),
    laptop=MisspecificationConfig(),
    paper=MisspecificationConfig(replications=1000),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"smoke": 0.1, "laptop": 2.0, "paper": 30},
)
def misspecification(config: MisspecificationConfig, run: Run) -> None:
    """FDR of both rules with wrong kernels, alternatives and length scales."""
    space = plane(config.side)
    right = Eigenfeatures.of(space.kernel, space.locations)
    rows = []
    for kind in run.progress(config.kinds, "kinds"):
        features, alternative = wrong_model(kind, space, right, run.rng)
        for replication in range(config.replications):
            if kind == "permuted kernel":
                features, _ = wrong_model(kind, space, right, run.rng)
            n = config.draws if kind != "unequal draws" else run.rng.integers(5, 2 * config.draws, len(space))
            data, signal = draw_counts(space, n, run.rng)
            prior = KernelNullPrior(features, lam=config.penalty, alternative=alternative)
            for rule, decide in (("mirror", count_mirror), ("seqstep", count_seqstep)):
                rejected = decide(data, prior, config.level, random_state=replication).rejected
                rows.append((replication, kind, rule, config.level, *fdp_and_power(rejected, signal)))
    trials = pd.DataFrame(rows, columns=["replication", "kind", "rule", "q", "fdp", "power"])
    run.table("misspecification", trials)
    cells = record_fdr(run, trials, ["rule", "kind"])
    worst = cells.iloc[int(cells["fdr"].to_numpy().argmax())]
    run.measure("worst_fdr", worst["fdr"], low=worst["fdr_low"], high=worst["fdr_high"])


@paper.figures(misspecification)
def misspecification_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """FDR and power under each kind."""
    trials = tables["misspecification"]
    kinds = list(trials["kind"].unique())
    fig, axes = plotting.subplots(1, 2, figsize=(9.6, 4.4), sharey=True)
    for place, rule in enumerate(("mirror", "seqstep")):
        for ax, value in zip(axes, ("fdp", "power"), strict=True):
            cells = [stats.mean(trials[(trials["kind"] == kind) & (trials["rule"] == rule)][value]) for kind in kinds]
            spread = np.array([[cell.value - cell.low, cell.high - cell.value] for cell in cells]).T
            at = np.arange(len(kinds)) + 0.24 * (place - 0.5)
            ax.errorbar(
                [cell.value for cell in cells],
                at,
                xerr=np.nan_to_num(spread),
                fmt=plotting.MARKERS[place],
                color=plotting.COLOURS[place],
                label=rule,
                capsize=2,
            )
    axes[0].axvline(0.1, color="0.4", linestyle="--", linewidth=1, label="level q")
    axes[0].set_yticks(range(len(kinds)), labels=kinds)
    axes[0].invert_yaxis()
    axes[0].set(xlabel="false discovery rate", xlim=(0, None), title="the level holds …")
    axes[1].set(xlabel="power (share of signals found)", xlim=(0, None), title="… power is what a wrong model costs")
    axes[0].legend(loc="lower left", fontsize=8)
    return {"misspecification": fig}
