"""E2: the same code on real geometries, graphs and a tree."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting, stats
from kernel_fdr.baselines import plain_mirror
from kernel_fdr.estimator import KernelNullPrior
from kernel_fdr.kernels import Eigenfeatures
from kernel_fdr.reproduce.registry import paper
from kernel_fdr.reproduce.trials import column, record_fdr
from kernel_fdr.rules import count_mirror, count_seqstep
from kernel_fdr.simulate import (
    GEOMETRIES,
    GRAPHS,
    Space,
    clustered_space,
    draw_counts,
    fdp_and_power,
    graph_space,
    load_adbench,
    real_points,
    tree_space,
)

RULES = ("mirror", "seqstep", "mirror, no structure")


@dataclass(frozen=True)
class StructuresConfig:
    """Eight hypothesis spaces; counts from 50 draws."""

    spaces: tuple[str, ...] = (*GEOMETRIES, *GRAPHS, "tree")  # known names
    size: Count = 450  # hypotheses of a real geometry, in three clusters
    draws: Count = 50  # null draws of each hypothesis
    level: float = 0.1  # FDR level q
    replications: Count = 30  # data sets a space
    adbench_file: Path | None = None  # npz of ADBench with X and y, as one more geometry


def make_space(name: str, config: StructuresConfig, rng: np.random.Generator) -> tuple[Space, tuple[float, float]]:
    """A space and the Beta parameters of its signals' p-values (sibling's protocol: 0.05, 5 on real geometries)."""
    if name == "tree":
        return tree_space(), (0.3, 6.0)
    if name in GRAPHS:
        return graph_space(name, seed=zlib.crc32(name.encode())), (0.3, 6.0)
    points = load_adbench(config.adbench_file) if config.adbench_file and name == "adbench" else real_points(name)
    return clustered_space(points, rng, config.size), (0.05, 5.0)


@paper.experiment(
    smoke=StructuresConfig(size=90, replications=2),
    laptop=StructuresConfig(),
    paper=StructuresConfig(replications=1000),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"smoke": 0.1, "laptop": 3.0, "paper": 120},
    needs={"paper": "optional: an ADBench npz (adbench_file=…)"},
)
def structures(config: StructuresConfig, run: Run) -> None:
    """FDR and power gained by structure on real geometries, graphs and a tree."""
    names = [*config.spaces, *(["adbench"] if config.adbench_file else [])]
    rows = []
    for name in run.progress(names, "spaces"):
        space, (a, b) = make_space(name, config, run.rng)
        features = Eigenfeatures.of(space.kernel, space.locations)
        for replication in range(config.replications):
            data, signal = draw_counts(space, config.draws, run.rng, a, b)
            prior = KernelNullPrior(features, folds=3)
            decisions = (
                count_mirror(data, prior, config.level, random_state=replication),
                count_seqstep(data, prior, config.level, random_state=replication),
                plain_mirror(data, config.level, random_state=replication),
            )
            for rule, decision in zip(RULES, decisions, strict=True):
                rows.append((replication, name, rule, config.level, *fdp_and_power(decision.rejected, signal)))
    trials = pd.DataFrame(rows, columns=["replication", "space", "rule", "q", "fdp", "power"])
    run.table("structures", trials)
    record_fdr(run, trials[trials["rule"] != RULES[2]], ["rule", "space"])
    for name in names:
        with_structure = column(trials, "power", space=name, rule=RULES[0])
        without = column(trials, "power", space=name, rule=RULES[2])
        if name in StructuresConfig.spaces:
            run.measure(f"gain_{name}", stats.paired_difference(with_structure, without))


@paper.figures(structures)
def structures_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Power in each space, with its interval."""
    trials = tables["structures"]
    fig, ax = plotting.subplots(figsize=(7.2, 4.2))
    names = list(trials["space"].unique())
    for place, rule in enumerate(RULES):
        bars = [stats.mean(trials[(trials["space"] == name) & (trials["rule"] == rule)]["power"]) for name in names]
        at = np.arange(len(names)) + 0.22 * (place - 1)
        spread = np.array([[bar.value - bar.low, bar.high - bar.value] for bar in bars]).T
        values = [bar.value for bar in bars]
        ax.bar(at, values, 0.2, yerr=np.nan_to_num(spread), color=plotting.COLOURS[place], label=rule, capsize=2)
    ax.set_xticks(range(len(names)), labels=[name.replace("_", "\n") for name in names])
    ax.set(ylabel="power (share of signals found)", title="one rule, many structures: only the kernel changes")
    ax.legend()
    return {"structures": fig}
