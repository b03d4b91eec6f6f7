"""E4: where to spend null draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting, stats
from kernel_fdr.allocation import allocate
from kernel_fdr.estimator import KernelNullPrior
from kernel_fdr.kernels import Eigenfeatures
from kernel_fdr.reproduce.registry import paper
from kernel_fdr.reproduce.trials import column, record_fdr
from kernel_fdr.rules import count_mirror
from kernel_fdr.simulate import draw_truth, fdp_and_power, plane

MAIN = ("uniform", "knowledge_gradient")


@dataclass(frozen=True)
class AllocationConfig:
    """Policies on the 2-d benchmark at equal total budget."""

    side: Count = 25  # points a side of the grid
    budgets: Counts = (15, 20, 30, 50)  # mean draws per hypothesis, for uniform and knowledge gradient
    judged: Count = 30  # budget at which all policies are compared
    policies: tuple[str, ...] = (*MAIN, "one_step_gradient", "variance", "low_lfdr", "a_optimal")
    pilot: Count = 10  # draws of every hypothesis first
    step: Count = 10  # draws of a chosen hypothesis in a round
    rounds: Count = 8
    level: float = 0.1  # FDR level q
    penalty: float = 10.0  # lambda of every fit
    replications: Count = 40  # truths; each is shared by all policies


@paper.experiment(
    smoke=AllocationConfig(side=10, budgets=(20, 30), rounds=2, replications=2),
    laptop=AllocationConfig(),
    paper=AllocationConfig(replications=500),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"smoke": 0.1, "laptop": 4.0, "paper": 40},
)
def allocation(config: AllocationConfig, run: Run) -> None:
    """Power and FDR of allocation policies at equal budgets of null draws."""
    space = plane(config.side)
    features = Eigenfeatures.of(space.kernel, space.locations)
    prior = KernelNullPrior(features, lam=config.penalty)
    rows = []
    for replication in run.progress(range(config.replications), "truths"):
        signal, p = draw_truth(space.alpha, run.rng)
        for policy in config.policies:
            for budget in config.budgets:
                if policy not in MAIN and budget != config.judged:
                    continue
                data = allocate(
                    lambda chosen, draws, p=p: run.rng.binomial(draws, p[chosen]),
                    len(space),
                    budget * len(space),
                    prior,
                    config.pilot,
                    config.step,
                    config.rounds,
                    policy,
                    config.level,
                    random_state=replication,
                )
                rejected = count_mirror(data, prior, config.level, random_state=replication).rejected
                outcome = fdp_and_power(rejected, signal)
                rows.append((replication, policy, budget, config.level, *outcome, data.n.sum() / len(space)))
    trials = pd.DataFrame(rows, columns=["replication", "policy", "budget", "q", "fdp", "power", "spent"])
    run.table("allocation", trials)
    record_fdr(run, trials, ["policy", "budget"])

    uniform = np.stack([column(trials, "power", policy="uniform", budget=budget) for budget in config.budgets], axis=1)
    at = config.budgets.index(config.judged)
    for policy in config.policies:
        power = column(trials, "power", policy=policy, budget=config.judged)
        if policy in MAIN:
            run.measure(f"power_{policy}", stats.mean(power))
        if policy == "knowledge_gradient":
            gain = stats.paired_difference(power, uniform[:, at])
            run.measure("gain", gain)
            run.measure("gain_estimate", gain.value, low=gain.value, high=gain.value)
            rows_of = np.arange(len(power))
            run.measure(
                "budget_ratio",
                stats.bootstrap(
                    rows_of,
                    lambda chosen, power=power: (
                        uniform_budget(config.budgets, uniform[chosen], power[chosen].mean()) / config.judged
                    ),
                ),
            )
        elif policy != "uniform":
            run.measure(f"gain_{policy}", stats.paired_difference(power, uniform[:, at]))


def uniform_budget(budgets: tuple[int, ...], power: np.ndarray, wanted: float) -> float:
    """Budget at which uniform allocation reaches a mean power, by interpolation; the largest one tried if none does.

    ``power`` has one row per replication and one column per budget.
    """
    curve = np.maximum.accumulate(power.mean(axis=0))
    return float(np.interp(wanted, curve, budgets))


@paper.figures(allocation)
def allocation_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Power against budget."""
    trials = tables["allocation"]
    fig, ax = plotting.subplots()
    labels = {name: name.replace("_", " ") for name in trials["policy"].unique()}
    main = trials[trials["policy"].isin(MAIN)]
    plotting.mean_curve(ax, main, x="budget", y="power", by="policy", labels=labels)
    others = [name for name in trials["policy"].unique() if name not in MAIN]
    for place, name in enumerate(others, start=2):
        cell = trials[trials["policy"] == name]
        value = stats.mean(cell["power"])
        error = np.nan_to_num([[value.value - value.low], [value.high - value.value]])
        ax.errorbar(
            cell["budget"].iloc[0] + 0.5 * (place - 1),
            value.value,
            yerr=error,
            fmt=plotting.MARKERS[place],
            color=plotting.COLOURS[place],
            label=labels[name],
            capsize=2,
        )
    ax.set(
        xlabel="null draws in all / hypotheses",
        ylabel="power (share of signals found)",
        ylim=(0, None),
        title="mirror rule at q = 0.1 after allocation",
    )
    ax.legend()
    return {"allocation": fig}
