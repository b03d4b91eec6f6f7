"""Loss and information are separate axes: the core/nuisance family (specification E1, E1b)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import spearmanr

from claimlab import Count, Run, plotting, stats
from fisher_glass.fisher import EnvironmentFisher, logistic_fisher
from fisher_glass.projection import inverse_projected_information
from fisher_glass.reproduce.declaration import paper
from fisher_glass.risk import cvar, fisher_glass
from fisher_glass.synthetic import (
    core_nuisance_information,
    core_nuisance_quadrature,
    direction_error,
    fit_logistic,
    logistic_loss,
    sample_core_nuisance,
    sigmoid_moments,
)

CORRELATIONS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
MAJORITY = 0.5
CORE = np.array([1.0, 0.0])


@dataclass(frozen=True)
class SeparationConfig:
    """Loss-information separation (reconstructed statement)."""

    signal: float = 2.0  # b, log-odds per unit of the core
    samples: Count = 20_000  # samples per environment and repetition
    repetitions: Count = 60  # samples of every environment
    refits: Count = 1600  # refits on samples of one environment, for its estimation error
    scarce: Count = 500  # samples of one environment for the fragility test
    rare_share: float = 0.01  # weight of the rare environment, and the tail share of both CVaRs


@paper.experiment(
    smoke=SeparationConfig(samples=4000, repetitions=10, refits=60),
    laptop=SeparationConfig(),
    paper=SeparationConfig(repetitions=200, refits=2000),
    minutes={"laptop": 0.8, "paper": 10},
)
def separation(config: SeparationConfig, run: Run) -> None:
    """Loss, accuracy and raw information stay as the nuisance copies the core; Fisher-Glass diverges."""
    b, weights, alpha = config.signal, np.array([1 - config.rare_share, config.rare_share]), config.rare_share
    rows = []
    for rho in run.progress(CORRELATIONS, "correlations"):
        closed = core_nuisance_information(b, rho)
        population = EnvironmentFisher.from_matrices([_population(b, MAJORITY), _population(b, rho)], weights)
        report = fisher_glass(population, CORE, alpha=alpha, ridge=0.0)
        losses, accuracies, raw, sampled = _sampled_environment(config, rho, run.rng)
        features, labels = sample_core_nuisance(run.rng, (config.refits, config.samples), b, rho)
        estimates = fit_logistic(features, labels, b * CORE)
        features, labels = sample_core_nuisance(run.rng, (config.refits, config.scarce), b, rho)
        scarce = fit_logistic(features, labels)
        rows.append(
            {
                "rho": rho,
                "delta": np.sqrt(1 - rho**2),
                "closed_form": closed,
                "glass": report.per_env[1],
                "fisher_glass": report.value,
                "loss": losses[:, 1].mean(),
                "loss_cvar": np.mean([cvar(loss, weights, alpha)[0] for loss in losses]),
                "accuracy": accuracies.mean(),
                "raw_information": raw.mean(),
                "sampled_glass": sampled.mean(),
                "task_error": config.samples * np.mean((estimates[:, 0] - b) ** 2),
                "decorrelated_error": direction_error(scarce).mean(),
            }
        )
    table = pd.DataFrame(rows).set_index("rho", drop=False)
    run.table("separation", table)
    run.measure("loss_tail_ratio", table.loss_cvar[0.999] / table.loss_cvar[0.5])
    run.measure("accuracy_difference", table.accuracy[0.5] - table.accuracy[0.999])
    run.measure("fragility_ratio", table.decorrelated_error[0.999] / table.decorrelated_error[0.5])
    run.measure("raw_information_spread", table.raw_information.max() / table.raw_information.min() - 1)
    run.measure("loss_spread", table.loss.max() / table.loss.min() - 1)
    strong = table[table.rho >= 0.95]
    _, ll = sigmoid_moments(b)
    run.measure("glass_exponent", stats.loglog_slope(strong.delta, strong.fisher_glass - 1 / ll).value)
    run.measure("quadrature_error", (table.glass / table.closed_form - 1).abs().max())
    run.measure("sampled_glass_error", (table.sampled_glass / table.closed_form - 1).abs().max())
    run.measure("task_error_error", (table.task_error / table.closed_form - 1).abs().max())


def _population(b: float, rho: float) -> np.ndarray:
    points, weights = core_nuisance_quadrature(rho)
    return logistic_fisher(points, expit(b * points[:, 0]), weights)


def _sampled_environment(
    config: SeparationConfig, rho: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Losses (repetitions, [majority, rare]) of a head trained on the mixture, its rare accuracy, raw F_TT and 1/I of
    the rare one.

    The head is fitted to one sample of the mixture and judged on another; the Fisher information is that of the true
    head.
    """
    b, n = config.signal, config.samples
    rare = max(1, round(config.rare_share * n))
    losses = np.empty((config.repetitions, 2))
    accuracy, raw, glass = (np.empty(config.repetitions) for _ in range(3))
    for i in range(config.repetitions):
        parts = [sample_core_nuisance(rng, (m,), b, r) for m, r in ((n - rare, MAJORITY), (rare, rho))]
        features, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        theta = fit_logistic(features[None], labels[None])[0]
        common, common_labels = sample_core_nuisance(rng, (n,), b, MAJORITY)
        test, test_labels = sample_core_nuisance(rng, (n,), b, rho)
        losses[i] = logistic_loss(common @ theta, common_labels).mean(), logistic_loss(test @ theta, test_labels).mean()
        accuracy[i] = ((test @ theta > 0) == (test_labels == 1)).mean()
        F = logistic_fisher(test, expit(b * test[:, 0]))
        raw[i] = F[0, 0]
        glass[i] = inverse_projected_information(F, CORE)[0, 0]
    return losses, accuracy, raw, glass


@paper.figures(separation)
def separation_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Loss, raw information and glass value of the rare environment against delta, each over its value at rho = 0."""
    table = tables["separation"]
    columns = {
        "glass": "glass value 1 / I (population)",
        "sampled_glass": "glass value 1 / I (samples)",
        "raw_information": "raw information F_TT",
        "loss": "loss",
    }
    long = table.melt(["seed", "delta"], list(columns), "quantity")
    at_zero = long[long.delta == 1].set_index(["seed", "quantity"])["value"]
    long["value"] /= at_zero.reindex(pd.MultiIndex.from_frame(long[["seed", "quantity"]])).to_numpy()
    fig, ax = plotting.subplots()
    plotting.mean_curve(ax, long, x="delta", y="value", by="quantity", labels=columns)
    ax.set(xscale="log", yscale="log", xlabel="delta = sqrt(1 - rho²)", ylabel="relative to rho = 0")
    ax.legend()
    return {"separation": fig}


@dataclass(frozen=True)
class ConverseConfig:
    """Converse independence (reconstructed statement)."""

    signal: float = 2.0  # b, log-odds per unit of the core
    samples: Count = 20_000  # samples per cell and repetition
    repetitions: Count = 10  # samples of every cell
    flips: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)  # label flip probabilities, rising from 0


@paper.experiment(
    smoke=ConverseConfig(samples=5000, repetitions=3),
    laptop=ConverseConfig(),
    paper=ConverseConfig(repetitions=100),
    minutes={"laptop": 0.1, "paper": 1},
)
def converse(config: ConverseConfig, run: Run) -> None:
    """Label noise raises the loss of a refitted model and lowers Fisher-Glass."""
    rows = []
    for rho in run.progress(CORRELATIONS, "correlations"):
        for flip in config.flips:
            shape = (config.repetitions, config.samples)
            features, labels = sample_core_nuisance(run.rng, shape, config.signal, rho, flip)
            heads = fit_logistic(features, labels)
            fresh, fresh_labels = sample_core_nuisance(run.rng, shape, config.signal, rho, flip)
            margins = np.einsum("fnd,fd->fn", fresh, heads)
            fishers = [logistic_fisher(z, expit(m)) for z, m in zip(fresh, margins, strict=True)]
            glass = [inverse_projected_information(F, CORE)[0, 0] for F in fishers]
            rows.append((rho, flip, logistic_loss(margins, fresh_labels).mean(), np.mean(glass)))
    table = pd.DataFrame(rows, columns=["rho", "flip", "loss", "glass"])
    run.table("converse", table)
    clean = table[table.flip == config.flips[0]].set_index("rho")
    noisy = table[table.flip == config.flips[-1]].set_index("rho")
    run.measure("loss_ratio", (noisy.loss / clean.loss).min())
    run.measure("glass_ratio", (noisy.glass / clean.glass).max())
    run.measure("absolute_rank_correlation", abs(spearmanr(table.loss, table.glass).statistic))


@paper.figures(converse)
def converse_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Fisher-Glass against loss: one line a flip rate, points are correlations."""
    mean = tables["converse"].groupby(["flip", "rho"], as_index=False)[["loss", "glass"]].mean()
    fig, ax = plotting.subplots()
    for colour, marker, (flip, cells) in zip(plotting.COLOURS, "os^DvP", mean.groupby("flip"), strict=False):
        ax.plot(cells.loss, cells.glass, marker=marker, color=colour, label=f"{flip:.0%} flips")
    ax.set(yscale="log", xlabel="loss (nats)", ylabel="glass value 1 / I")
    fig.legend(title="correlation\nrises upwards", loc="outside right upper")
    return {"converse": fig}
