"""E1: FDR and power of all rules on the plane, over draws and levels."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting, stats
from kernel_fdr.baselines import (
    bh,
    bh_least_rejections,
    by,
    cross_weighted_bh,
    ebh,
    lfdr_threshold,
    plain_mirror,
    sabha,
    storey,
)
from kernel_fdr.counts import CountData
from kernel_fdr.estimator import FixedNullPrior, KernelNullPrior
from kernel_fdr.kernels import Eigenfeatures
from kernel_fdr.likelihood import BetaBinomialAlternative
from kernel_fdr.reproduce.registry import paper
from kernel_fdr.reproduce.trials import column, record_fdr
from kernel_fdr.rules import count_mirror, count_seqstep, default_block, selective_seqstep
from kernel_fdr.simulate import Space, draw_counts, fdp_and_power, permuted_rows, plane

TRUTH = BetaBinomialAlternative(0.3, 6.0)


@dataclass(frozen=True)
class ControlConfig:
    """The 2-d benchmark: two smooth regions of signals on a grid."""

    side: Count = 25  # points a side of the grid
    draws: Counts = (10, 20, 50, 200)  # null draws of each hypothesis
    levels: tuple[float, ...] = (0.05, 0.1, 0.2)  # FDR levels q
    replications: Count = 100  # data sets a number of draws
    peer_replications: Count = 20  # of these, with the baselines that fit several models
    rank: Count | None = None  # eigenfeatures; None keeps 95 % of the trace


def rejections(
    data: CountData,
    space: Space,
    features: Eigenfeatures,
    levels: tuple[float, ...],
    peers: bool,
    seed: int,
    rng: np.random.Generator,
) -> dict[tuple[str, float], np.ndarray]:
    """Rejections of every rule at every level on one data set."""
    prior = KernelNullPrior(features).fit(data.masked())
    block_prior = KernelNullPrior(features).fit(data.block_masked(default_block(data.n)))
    known = KernelNullPrior(features, lam=prior.lam_, alternative=TRUTH).fit(data.masked())
    truth = FixedNullPrior(space.alpha, TRUTH).fit(data)
    found = {}
    for q in levels:
        found["mirror", q] = count_mirror(data, prior, q, random_state=seed).rejected
        found["seqstep", q] = count_seqstep(data, block_prior, q, random_state=seed).rejected
        found["mirror, known f1", q] = count_mirror(data, known, q, random_state=seed).rejected
        found["mirror, true prior", q] = count_mirror(data, truth, q, random_state=seed).rejected
        found["seqstep, true prior", q] = count_seqstep(data, truth, q, random_state=seed).rejected
        found["mirror, no structure", q] = plain_mirror(data, q, random_state=seed).rejected
        found["BH", q], found["BY", q], found["Storey-BH", q] = bh(data, q), by(data, q), storey(data, q)
        found["oracle lfdr", q] = lfdr_threshold(data, truth, q)
    if peers:
        shown = KernelNullPrior(features, lam=prior.lam_).fit(data)
        permuted = KernelNullPrior(features.reassigned(permuted_rows(len(data), rng)), lam=prior.lam_)
        permuted.fit(data.masked())
        for q in levels:
            found["mirror, permuted kernel", q] = count_mirror(data, permuted, q, random_state=seed).rejected
            found["lfdr threshold", q] = lfdr_threshold(data, shown, q)
            found["SABHA", q] = sabha(data, features, q, prior.lam_)
            found["cross-weighted BH", q] = cross_weighted_bh(data, features, q, prior.lam_, seed)
            found["e-BH", q] = ebh(data, features, q, prior.lam_, seed)
    return found


@paper.experiment(
    smoke=ControlConfig(side=12, draws=(20, 50, 200), levels=(0.1,), replications=2, peer_replications=1),
    laptop=ControlConfig(),
    paper=ControlConfig(side=100, replications=1000, peer_replications=100, rank=500),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"smoke": 0.1, "laptop": 3.5, "paper": 3000},
)
def control(config: ControlConfig, run: Run) -> None:
    """FDR and power of both rules and all baselines on the plane, over draws and levels."""
    space = plane(config.side)
    features = Eigenfeatures.of(space.kernel, space.locations, config.rank)
    rows = []
    jobs = list(itertools.product(range(config.replications), config.draws))
    for replication, n in run.progress(jobs, "data sets"):
        data, signal = draw_counts(space, n, run.rng)
        peers = replication < config.peer_replications
        found = rejections(data, space, features, config.levels, peers, replication, run.rng)
        for (rule, q), rejected in found.items():
            rows.append((replication, n, rule, q, *fdp_and_power(rejected, signal), int(signal.sum())))
        if replication == 0 and n == 50:
            run.figure("map", discovery_map(space, data, features, found["mirror", 0.1], found["BH", 0.1], signal))
    trials = pd.DataFrame(rows, columns=["replication", "n", "rule", "q", "fdp", "power", "signals"])
    run.table("trials", trials)

    ours = trials[trials["rule"].isin(["mirror", "seqstep"])]
    record_fdr(run, ours, ["rule", "n", "q"])
    for rule in ("mirror", "seqstep", "lfdr threshold"):
        values = trials[(trials["rule"] == rule) & (trials["q"] == 0.1)]["fdp"]
        run.measure(f"fdr_{rule.replace(' ', '_')}", stats.mean(values))
    excess = max(exact_fdr(*case) - case[2] for case in ENUMERATED)
    run.measure("exact_excess", excess, low=excess, high=excess)

    def powers(rule: str, n: int) -> np.ndarray:
        return column(trials, "power", rule=rule, n=n, q=0.1)

    for n in sorted({50, 200} & set(config.draws)):
        for label, suffix in (("true_prior", ", true prior"), ("fitted", "")):
            mirror, seqstep = powers(f"mirror{suffix}", n), powers(f"seqstep{suffix}", n)
            run.measure(f"gain_{label}_n{n}", stats.paired_difference(mirror, seqstep))
            run.measure(f"share_{label}_n{n}", stats.wilson(int((mirror >= seqstep).sum()), len(mirror)))
    if 50 in config.draws:
        gain = stats.paired_difference(powers("mirror", 50), powers("mirror, no structure", 50))
        run.measure("gain_over_plain_n50", gain)
        known = stats.paired_difference(powers("mirror, known f1", 50), powers("mirror", 50))
        run.measure("gain_known_alternative_n50", known)
    if 20 in config.draws:
        least = bh_least_rejections(len(space), 20, 0.1)
        run.measure("bh_least_rejections_n20", least, low=least, high=least)
        signals = column(trials, "signals", rule="BH", n=20, q=0.1)
        run.measure("bh_needs_over_signals", stats.mean(least / signals))
        run.measure("bh_power_n20", stats.mean(powers("BH", 20)))
        run.measure("mirror_power_n20", stats.mean(powers("mirror", 20)))


ENUMERATED = ((4, 3, 0.5, 0), (6, 1, 0.25, 0), (4, 3, 0.5, 2), (6, 1, 0.34, 2), (5, 2, 0.5, 1))
"""Small cases: hypotheses, draws, level, and how many (the first ones) are signals with K = 0."""


def exact_fdr(count: int, n: int, q: float, signals: int) -> float:
    """FDR of the mirror rule in a fixed order, by enumeration of every vector of null counts."""
    order, total = np.arange(count), 0.0
    null = order >= signals
    for counts in itertools.product(range(n + 1), repeat=count - signals):
        low, high = CountData(np.array([0] * signals + list(counts)), n).mirror_signs()
        rejected = selective_seqstep(low, high, order, q)[0]
        total += (rejected & null).sum() / max(1, rejected.sum())
    return float(total / (n + 1) ** (count - signals))


def discovery_map(
    space: Space, data: CountData, features: Eigenfeatures, rejected: np.ndarray, by_bh: np.ndarray, signal: np.ndarray
) -> Figure:
    """The truth, the counts, what was learnt, and the discoveries, on the plane."""
    side = int(np.sqrt(len(space)))
    prior = KernelNullPrior(features).fit(data.masked())
    fig, axes = plotting.subplots(2, 2, figsize=(8.4, 8.0), sharex=True, sharey=True)
    panels = (
        ("true null probability", space.alpha),
        ("Monte-Carlo p-values, 50 draws each", data.mc_pvalues),
        ("null probability learnt from masked counts", prior.alpha_),
    )
    for ax, (title, values) in zip(axes.flat, panels, strict=False):
        grid = values.reshape(side, side)
        ax.imshow(grid, origin="lower", extent=(0, 1, 0, 1), cmap="viridis", vmin=0, vmax=1)
        ax.set(title=title)
    fig.colorbar(axes[0, 0].images[0], ax=axes.ravel().tolist(), shrink=0.5, pad=0.02, label="probability")
    groups = (
        ("signals missed", signal & ~rejected, plotting.COLOURS[4], "o"),
        ("true discoveries", rejected & signal, plotting.COLOURS[0], "s"),
        ("false discoveries", rejected & ~signal, plotting.COLOURS[1], "X"),
    )
    last = axes[1, 1]
    for label, chosen, colour, marker in groups:
        x, y = np.asarray(space.locations)[chosen].T
        last.scatter(x, y, s=16, color=colour, marker=marker, label=f"{label} ({chosen.sum()})")
    last.set(title=f"mirror rule at q = 0.1 (BH finds {int(by_bh.sum())})", aspect="equal")
    last.legend(loc="lower right", fontsize=8, frameon=True)
    for ax in axes.flat:
        ax.grid(False)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    for ax in axes[1]:
        ax.set_xlabel("x")
    for ax in axes[:, 0]:
        ax.set_ylabel("y")
    return fig


@paper.figures(control)
def control_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Power and FDR against the number of draws."""
    trials = tables["trials"]
    trials = trials[trials["q"] == 0.1]
    fig, (left, right) = plotting.subplots(1, 2, figsize=(9.6, 4.2))
    rules = ["mirror", "seqstep", "mirror, no structure", "BH", "SABHA", "cross-weighted BH", "oracle lfdr"]
    shown = pd.concat([trials[trials["rule"] == rule] for rule in rules])
    for ax, value in ((left, "power"), (right, "fdp")):
        plotting.mean_curve(ax, shown, x="n", y=value, by="rule")
        ax.set(xscale="log", xlabel="null draws per hypothesis", ylim=(0, None))
        ax.set_xticks(sorted(trials["n"].unique()), labels=[str(n) for n in sorted(trials["n"].unique())])
        ax.minorticks_off()
    left.set(ylabel="power (share of signals found)", title="power at q = 0.1")
    right.set(ylabel="false discovery rate", title="FDR at q = 0.1")
    right.axhline(0.1, color="0.4", linestyle="--", linewidth=1)
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return {"power_and_fdr": fig}
