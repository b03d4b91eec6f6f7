"""E6: permutation tests on real images, and on a gene-expression table of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from claimlab import Count, Run, plotting, stats
from kernel_fdr.baselines import bh, plain_mirror
from kernel_fdr.counts import CountData
from kernel_fdr.estimator import KernelNullPrior
from kernel_fdr.kernels import FiniteKernel, Kernel, Matern
from kernel_fdr.reproduce.registry import paper
from kernel_fdr.rules import count_mirror


@dataclass(frozen=True)
class RealConfig:
    """Digits 3 against 8, pixel by pixel; a small study against the full one."""

    images: Count = 10  # images of each digit in the small study
    draws: Count = 50  # permutations a pixel in the small study
    full_draws: Count = 999  # permutations in the full study
    full_level: float = 0.01  # p-value below which the full study calls a pixel different
    level: float = 0.1  # FDR level q
    replications: Count = 20  # small studies
    expression_file: Path | None = None  # CSV: samples x genes and a column `tissue`
    tissues: tuple[str, str] = ("liver", "kidney")  # compared in the expression file


def mean_difference_draws(
    first: np.ndarray, second: np.ndarray, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Absolute mean difference of each column, and its permutation draws ``(columns, draws)``.

    Every column gets permutations of its own, which removes one source of dependence between tests.
    """
    pooled = np.concatenate([first, second]).astype(float)
    weight = np.concatenate([np.full(len(first), 1 / len(first)), np.full(len(second), -1 / len(second))])
    null = np.empty((pooled.shape[1], draws))
    for column in range(pooled.shape[1]):
        null[column] = rng.permuted(np.tile(weight, (draws, 1)), axis=1) @ pooled[:, column]
    # Sums in different orders differ in the last bits: rounding keeps true ties as ties.
    return np.abs(weight @ pooled).round(9), np.abs(null).round(9)


def small_studies(
    run: Run, first: np.ndarray, second: np.ndarray, kernel: Kernel, locations: np.ndarray | None, config: RealConfig
) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Recall and precision of each rule against the full study; the full study; how often each rule finds each test."""
    observed, null = mean_difference_draws(first, second, config.full_draws, run.rng)
    full = CountData.from_statistics(observed, null, random_state=run.rng).mc_pvalues < config.full_level
    rows, found = [], []
    for replication in run.progress(range(config.replications), "small studies"):
        a, b = (group[run.rng.permutation(len(group))[: config.images]] for group in (first, second))
        statistics = mean_difference_draws(a, b, config.draws, run.rng)
        data = CountData.from_statistics(*statistics, random_state=run.rng, locations=locations)
        prior = KernelNullPrior(kernel)
        rules = {
            "mirror": count_mirror(data, prior, config.level, random_state=replication).rejected,
            "mirror, no structure": plain_mirror(data, config.level, random_state=replication).rejected,
            "BH": bh(data, config.level),
        }
        found.append(pd.DataFrame(rules))
        for rule, rejected in rules.items():
            hits = int((rejected & full).sum())
            rows.append((replication, rule, hits / full.sum(), hits / max(1, int(rejected.sum())), rejected.sum()))
    trials = pd.DataFrame(rows, columns=["replication", "rule", "recall", "precision", "rejections"])
    return trials, full, sum(found[1:], start=found[0].astype(float)) / len(found)


@paper.experiment(
    smoke=RealConfig(replications=2, full_draws=199),
    laptop=RealConfig(),
    paper=RealConfig(replications=200),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"smoke": 0.05, "laptop": 0.3, "paper": 3},
    needs={"paper": "optional: gene expression CSV (expression_file=…)"},
)
def real_images(config: RealConfig, run: Run) -> None:
    """Agreement of a small study with the full one, on images of digits."""
    images, digit = (np.asarray(part) for part in load_digits(return_X_y=True))
    axis = np.arange(8.0)
    locations = np.column_stack([grid.ravel() for grid in np.meshgrid(axis, axis)])
    kernel = Matern(1.5, 1.5, relative=False)
    trials, full, found = small_studies(run, images[digit == 3], images[digit == 8], kernel, locations, config)
    run.table("images", trials)
    by_rule = {rule: rows.sort_values("replication") for rule, rows in trials.groupby("rule")}
    mirror, plain = by_rule["mirror"], by_rule["mirror, no structure"]
    run.measure("recall_gain", stats.paired_difference(mirror["recall"], plain["recall"]))
    run.measure("recall_mirror", stats.mean(mirror["recall"]))
    run.measure("recall_bh", stats.mean(by_rule["BH"]["recall"]))
    some = mirror[mirror["rejections"] > 0]["precision"]
    run.measure("precision_mirror", stats.mean(some) if len(some) else 0.0)
    run.measure("full_study_pixels", full.sum(), low=full.sum(), high=full.sum())

    fig, axes = plotting.subplots(1, 3, figsize=(9.6, 3.6))
    panels = (
        (f"full study: {full.sum()} pixels differ", full),
        ("found in small studies: mirror", found["mirror"]),
        ("found in small studies: BH", found["BH"]),
    )
    for ax, (title, values) in zip(axes, panels, strict=True):
        ax.imshow(np.asarray(values, dtype=float).reshape(8, 8), cmap="viridis", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize=10)
        ax.grid(False)
    fig.colorbar(axes[0].images[0], ax=axes.tolist(), shrink=0.8, label="share of studies")
    run.figure("images", fig)

    if config.expression_file is not None:
        first, second, gene_kernel = read_expression(config.expression_file, config.tissues)
        run.table("expression", small_studies(run, first, second, gene_kernel, None, config)[0])


def read_expression(path: Path, tissues: tuple[str, str]) -> tuple[np.ndarray, np.ndarray, FiniteKernel]:
    """Samples of two tissues, and a gene kernel from the other tissues' correlations.

    The file has one row a sample, a column ``tissue`` and one numeric column a gene.

    Raises:
        ValueError: for a missing column or tissue, or too few samples.
    """
    table = pd.read_csv(path)
    tissue = next((name for name in ("tissue", "y") if name in table), None)
    if tissue is None:
        raise ValueError(f"{path} lacks the column 'tissue'; it has {list(table.columns[:5])}…")
    genes = table.drop(columns=tissue).select_dtypes("number")
    groups = [genes[table[tissue] == name].to_numpy(dtype=float) for name in tissues]
    others = genes[~table[tissue].isin(tissues)].to_numpy(dtype=float)
    for name, rows in (*zip(tissues, groups, strict=True), ("other tissues", others)):
        if len(rows) < 3:
            raise ValueError(f"{path} has {len(rows)} samples of {name}, at least 3 are needed")
    centred = others - others.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=0), 1e-12)
    correlation = centred.T @ centred
    # The entrywise square of a positive semi-definite matrix is one: genes that move together or opposite are close.
    return groups[0], groups[1], FiniteKernel((correlation + correlation.T) ** 2 / 4)
