"""How many samples an environment needs, and what predicts it (specification E2)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter
from scipy.special import expit
from scipy.stats import spearmanr

from claimlab import Count, Run, plotting, stats
from fisher_glass.fisher import EnvironmentFisher, logistic_fisher
from fisher_glass.reproduce.declaration import paper
from fisher_glass.reproduce.separation import CORE
from fisher_glass.risk import cvar, fisher_glass
from fisher_glass.synthetic import (
    core_nuisance_information,
    direction_error,
    first_order_sample_size,
    fit_logistic,
    gap_error,
    logistic_loss,
    sample_core_nuisance,
)

JUDGED = (0.9, 0.95, 0.98, 0.99, 0.995)
EXTENSION = (0.0, 0.5, 0.8)
GAP_CORRELATION = 0.98
FEWEST, MOST = 100, 120_000


@dataclass(frozen=True)
class SampleComplexityConfig:
    """Tail of inverse information and robust sample complexity (reconstructed statement)."""

    signal: float = 2.0  # b, log-odds per unit of the core
    fits: Count = 400  # fits averaged at every sample size
    targets: tuple[float, ...] = (0.02, 0.03, 0.04)  # eps, excess disagreement with the Bayes rule
    growth: float = 1.4  # ratio of one sample size to the one before
    mixtures: Count = 60  # random mixtures of environments
    environments: Count = 30  # environments a mixture
    audit_samples: Count = 2000  # samples of every environment that the diagnostics see
    alpha: float = 0.1  # tail share
    gap: float = 1.0  # half-width of the gap of the control without boundary mass


@dataclass(frozen=True)
class _Curve:
    """Errors (sizes, fits) of fits at growing sample sizes."""

    sizes: np.ndarray
    errors: np.ndarray

    def needed(self, eps: float, resample: np.random.Generator | None = None) -> float:
        """Sample size at which the mean error reaches eps, by log-log interpolation; on resampled fits if asked."""
        errors = self.errors
        if resample is not None:
            errors = np.take_along_axis(errors, resample.integers(errors.shape[1], size=errors.shape), axis=1)
        mean = np.minimum.accumulate(errors.mean(axis=1))
        return float(np.exp(np.interp(-np.log(eps), -np.log(mean), np.log(self.sizes))))


@paper.experiment(
    smoke=SampleComplexityConfig(fits=60, targets=(0.04, 0.06, 0.08), growth=1.7, mixtures=8, environments=15),
    laptop=SampleComplexityConfig(),
    paper=SampleComplexityConfig(fits=2000, growth=1.2, mixtures=100, audit_samples=20_000),
    seeds={"laptop": 5},
    minutes={"laptop": 1.5, "paper": 60},
)
def sample_complexity(config: SampleComplexityConfig, run: Run) -> None:
    """Samples needed follow g / eps^2 when there is mass at the boundary; Fisher-Glass ranks mixtures by their tail's
    need."""
    b, eps = config.signal, np.array(config.targets)
    curves = {
        rho: _measure(config, rho, 0.0, direction_error, run.rng)
        for rho in run.progress(EXTENSION + JUDGED, "correlations")
    }
    cells = [
        (rho, e, core_nuisance_information(b, rho), curves[rho].needed(e), first_order_sample_size(e, b, rho))
        for rho in JUDGED
        for e in config.targets
    ]
    table = pd.DataFrame(cells, columns=["rho", "eps", "glass", "needed", "formula"])
    run.table("needed", table)
    in_glass = [stats.loglog_slope(part.glass, part.needed).value for _, part in table.groupby("eps")]
    in_eps = [stats.loglog_slope(part.eps, part.needed).value for _, part in table.groupby("rho")]
    run.measure("exponent_in_glass", np.mean(in_glass))
    run.measure("exponent_in_eps", np.mean(in_eps))
    run.measure("formula_error", (table.needed / table.formula - 1).abs().max())

    gap = _measure(config, GAP_CORRELATION, config.gap, lambda theta: gap_error(theta, config.gap), run.rng)
    needed = np.array([gap.needed(e) for e in eps])
    run.table("gap", pd.DataFrame({"eps": eps, "needed": needed}))
    run.measure("exponent_in_eps_without_boundary_mass", stats.loglog_slope(eps, needed).value)

    mixtures = pd.DataFrame(
        [_mixture(config, curves, run.rng) for _ in run.progress(range(config.mixtures), "mixtures")]
    )
    run.table("mixtures", mixtures)
    ranks = {name: spearmanr(mixtures[name], mixtures.needed).statistic for name in ("glass", "loss", "raw")}
    run.measure("glass_rank_correlation", ranks["glass"])
    run.measure("loss_rank_correlation", ranks["loss"])
    run.measure("raw_rank_correlation", ranks["raw"])
    run.measure("glass_minus_loss_rank_correlation", ranks["glass"] - ranks["loss"])
    run.measure("glass_minus_raw_rank_correlation", ranks["glass"] - ranks["raw"])


def _measure(
    config: SampleComplexityConfig,
    rho: float,
    gap: float,
    error: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> _Curve:
    """Grow the sample until the mean error is safely below the smallest target."""
    sizes, errors, size = [], [], float(FEWEST)
    stop = 0.85 * min(config.targets)
    while size <= MOST:
        n = round(size)
        features, labels = sample_core_nuisance(rng, (config.fits, n), config.signal, rho, gap=gap)
        sizes.append(n)
        errors.append(error(fit_logistic(features, labels)))
        if errors[-1].mean() < stop:
            break
        size *= config.growth
    return _Curve(np.array(sizes), np.array(errors))


def _mixture(config: SampleComplexityConfig, curves: dict[float, _Curve], rng: np.random.Generator) -> dict[str, float]:
    """One random mixture: diagnostics from a sample of each environment, and what its tail really needs.

    What an environment needs is interpolated between the measured correlations, each time on resampled fits, so that it
    carries its own Monte-Carlo error. Correlations beyond the largest measured one are set to it.
    """
    b, eps = config.signal, sorted(config.targets)[len(config.targets) // 2]
    shape = rng.uniform(1, 20)
    correlations = np.minimum(rng.beta(shape, 1, size=config.environments), JUDGED[-1])
    samples = [sample_core_nuisance(rng, (config.audit_samples,), b, float(rho)) for rho in correlations]
    features, labels = (np.concatenate(arrays) for arrays in zip(*samples, strict=True))
    theta = fit_logistic(features[None], labels[None], b * CORE)[0]
    fishers = EnvironmentFisher.from_matrices([logistic_fisher(z, expit(z @ theta)) for z, _ in samples])
    losses = np.array([logistic_loss(z @ theta, y).mean() for z, y in samples])
    report = fisher_glass(fishers, CORE, alpha=config.alpha, ridge=0.0, losses=losses)
    raw, _ = cvar(1 / fishers.F[:, 0, 0], None, config.alpha)
    measured = sorted(curves)
    position = -np.log1p(-(np.array(measured) ** 2))
    needed = [
        np.interp(-np.log1p(-(rho**2)), position, np.log([curves[r].needed(eps, rng) for r in measured]))
        for rho in correlations
    ]
    return {
        "beta_shape": shape,
        "glass": report.value,
        "loss": float(report.loss_cvar or 0.0),
        "raw": raw,
        "needed": cvar(np.exp(needed), None, config.alpha)[0],
    }


@paper.figures(sample_complexity)
def sample_complexity_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Samples needed against g, with the first-order formula; and how diagnostics rank mixtures."""
    needed, mixtures = tables["needed"], tables["mixtures"]
    fig, ax = plotting.subplots()
    plotting.mean_curve(
        ax, needed, x="glass", y="needed", by="eps", labels={e: f"eps = {e:g}" for e in needed.eps.unique()}
    )
    for _, part in needed.groupby("eps"):
        line = part.groupby("glass", as_index=False).formula.mean()
        ax.plot(line.glass, line.formula, color="black", linestyle=":", linewidth=1)
    ax.plot([], [], color="black", linestyle=":", label="first-order formula")
    ax.set(xscale="log", yscale="log", xlabel="glass value 1 / I", ylabel="samples needed n(eps)")
    ax.legend()
    ranking, axes = plotting.subplots(1, 3, sharey=True, figsize=(9.6, 3.4))
    names = {"glass": "Fisher-Glass", "loss": "loss CVaR", "raw": "CVaR of 1 / raw information"}
    for panel, (name, label), colour in zip(axes, names.items(), plotting.COLOURS, strict=False):
        panel.scatter(mixtures[name], mixtures.needed, s=14, color=colour)
        panel.set(yscale="log", xlabel=label)
    axes[0].set(xscale="log", ylabel="tail mean of n(eps)")
    axes[0].xaxis.set_major_formatter(ScalarFormatter())
    axes[0].xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_xticks([50, 100, 200, 500])
    return {"sample-complexity": fig, "mixtures": ranking}
