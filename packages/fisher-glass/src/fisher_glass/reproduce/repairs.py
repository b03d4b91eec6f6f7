"""Reserves and portfolios: repairs whose effect is known in closed form (specification E4a, E4b)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import expit

from claimlab import Count, Run, plotting, stats
from fisher_glass.fisher import EnvironmentFisher, logistic_fisher
from fisher_glass.portfolio import ball_tail, portfolio_weights
from fisher_glass.projection import inverse_projected_information, task_frame
from fisher_glass.reproduce.declaration import paper
from fisher_glass.reproduce.separation import CORE
from fisher_glass.reserve import allocate_reserve, with_reserve
from fisher_glass.risk import cvar, environment_glass, fisher_glass
from fisher_glass.synthetic import core_nuisance_fisher, sample_core_nuisance, sigmoid_moments

TINY_RIDGE = 1e-12
VIEWS = (1, 2, 3, 4)


@dataclass(frozen=True)
class ReservesConfig:
    """Reserves lift Fisher-null tails (reconstructed statement)."""

    signal: float = 2.0  # b, log-odds per unit of the core
    shares: Count = 40  # reserve shares between 1e-3 and 0.5, log-spaced
    environments: Count = 12  # sampled environments, two of them exactly null
    samples: Count = 5000  # samples of every sampled environment and of the reserve
    budget: float = 0.02  # mean reserve share to allocate
    alpha: float = 0.25  # tail share


@paper.experiment(
    smoke=ReservesConfig(samples=1000),
    laptop=ReservesConfig(),
    paper=ReservesConfig(environments=100, samples=50_000),
    minutes={"laptop": 0.05, "paper": 0.5},
)
def reserves(config: ReservesConfig, run: Run) -> None:
    """A null environment (nuisance = core) with a growing share of randomised data; and how to spend a budget over
    environments."""
    b, rng = config.signal, run.rng
    null = EnvironmentFisher.from_matrices([core_nuisance_fisher(b, 1.0)])
    randomised = core_nuisance_fisher(b, 0.0)
    shares = np.geomspace(1e-3, 0.5, config.shares)
    glass = np.array([fisher_glass(with_reserve(null, randomised, r), CORE, ridge=TINY_RIDGE).value for r in shares])
    bound = 1 / (shares * randomised[0, 0])
    run.table("null", pd.DataFrame({"share": shares, "glass": glass, "bound": bound}))
    small = shares <= 0.05
    run.measure("reserve_exponent", stats.loglog_slope(shares[small], glass[small]).value)
    run.measure("unridged_infinite_without_reserve", np.isinf(fisher_glass(null, CORE, ridge=0.0).value))
    ridges = np.geomspace(1e-8, 1e-4, 9)
    without = [fisher_glass(null, CORE, ridge=lam).value for lam in ridges]
    run.measure("ridge_exponent_without_reserve", stats.loglog_slope(ridges, without).value)

    sampled = _sampled_environments(config, rng)
    features, _ = sample_core_nuisance(rng, (config.samples,), b, 0.0)
    reserve = logistic_fisher(features, expit(b * features[:, 0]))
    information = 1 / inverse_projected_information(reserve, CORE)[0, 0]
    frame = task_frame(CORE, None, 2)
    below = [
        (
            environment_glass(with_reserve(sampled, reserve, r), frame, TINY_RIDGE) <= (1 + 1e-9) / (r * information)
        ).all()
        for r in shares
    ]
    run.measure("bound_holds", bool((glass <= bound * (1 + 1e-9)).all() and all(below)))
    ridge = sampled.default_ridge(1e-4)
    allocation = allocate_reserve(sampled, reserve, config.budget, CORE, alpha=config.alpha, ridge=ridge)
    run.measure("optimised_over_uniform", allocation.value / allocation.uniform_value)
    before = environment_glass(sampled, frame, ridge)
    run.table("allocation", pd.DataFrame({"glass_before": before, "share": allocation.shares}))


def _sampled_environments(config: ReservesConfig, rng: np.random.Generator) -> EnvironmentFisher:
    """Environments of growing correlation, the last two exactly null, Fisher information from samples at the true
    head."""
    correlations = np.append(np.linspace(0.3, 0.99, config.environments - 2), [1.0, 1.0])
    matrices = []
    for rho in correlations:
        z, _ = sample_core_nuisance(rng, (config.samples,), config.signal, float(rho))
        matrices.append(logistic_fisher(z, expit(config.signal * z[:, 0])))
    return EnvironmentFisher.from_matrices(matrices)


@paper.figures(reserves)
def reserves_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Fisher-Glass of the null environment against the reserve share, under its bound; and an optimised allocation."""
    null, allocation = tables["null"], tables["allocation"]
    fig, (left, right) = plotting.subplots(1, 2)
    line = null.groupby("share", as_index=False)[["glass", "bound"]].mean()
    left.plot(line.share, line.glass, label="null environment")
    left.plot(line.share, line.bound, color="black", linestyle=":", label="bound 1 / (r I_R)")
    left.set(xscale="log", yscale="log", xlabel="reserve share r", ylabel="FG of a null environment")
    left.legend()
    right.scatter(allocation.glass_before, allocation.share, s=16, color=plotting.COLOURS[1])
    right.set(xscale="log", xlabel="glass value before", ylabel="share given (mean: the budget)")
    return {"reserves": fig}


@dataclass(frozen=True)
class PortfoliosConfig:
    """Portfolios raise the collapse codimension (reconstructed statement)."""

    signal: float = 2.0  # b, log-odds per unit of the core, of the sensors with exact Fisher information
    environments: Count = 100_000  # and ten times as many
    replicates: Count = 60  # populations of environments, for the medians
    alpha: float = 0.01  # tail share
    view_environments: Count = 1000  # environments of the weighting problem


@paper.experiment(
    smoke=PortfoliosConfig(environments=20_000, replicates=9),
    laptop=PortfoliosConfig(),
    paper=PortfoliosConfig(environments=1_000_000, replicates=50),
    seeds={"laptop": 5},
    minutes={"laptop": 0.5, "paper": 8},
)
def portfolios(config: PortfoliosConfig, run: Run) -> None:
    """Views that are blind at random places: tail of the joint information, and of the CVaR of its inverse."""
    rng = run.rng
    rows = []
    for m in run.progress(VIEWS, "views"):
        for size in (config.environments, 10 * config.environments):
            for replicate in range(config.replicates):
                information = _joint_information(rng, m, size)
                worst = np.partition(information, round(config.alpha * size))[: round(config.alpha * size)]
                rows.append((m, size, replicate, np.mean(1 / worst)))
    growth = pd.DataFrame(rows, columns=["views", "environments", "replicate", "cvar"])
    medians = growth.groupby(["views", "environments"]).cvar.median().unstack()
    run.table("growth", growth.groupby(["views", "environments"], as_index=False)[["cvar"]].median())
    ratio = medians[10 * config.environments] / medians[config.environments]
    for m, name in zip(VIEWS, ("one_view", "two_views", "three_views", "four_views"), strict=True):
        run.measure(f"growth_{name}", ratio[m])

    tails = pd.concat([_tail(config, m, rng) for m in VIEWS])
    run.table("tails", tails)
    parts = {m: tails[tails.views == m] for m in (1, 2, 3)}
    run.measure("exponent_error", max(abs(_exponent(p.t, p.share) / (m / 2) - 1) for m, p in parts.items()))
    run.measure(
        "sensor_exponent_error", max(abs(_exponent(p.sensor_t, p.share) / (m / 2) - 1) for m, p in parts.items())
    )
    run.measure("exact_tail_error", (tails.share / tails.exact - 1).abs().max())

    quality = np.array([[1.0], [0.5], [0.25]])
    infos = quality * rng.uniform(-1, 1, size=(3, config.view_environments)) ** 2
    _, best = portfolio_weights(infos, None, config.alpha)
    equal, _ = cvar(1 / infos.mean(axis=0), None, config.alpha)
    run.measure("optimised_over_equal", best / equal)


def _joint_information(rng: np.random.Generator, m: int, size: int) -> np.ndarray:
    """``mean_j delta_j^2`` with delta uniform on (-1, 1)^m."""
    information = np.zeros(size)
    for _ in range(m):
        information += rng.uniform(-1, 1, size=size) ** 2
    return information / m


def _tail(config: PortfoliosConfig, m: int, rng: np.random.Generator) -> pd.DataFrame:
    """Quantiles of the joint information: of the distances themselves, and of m sensors that copy a nuisance.

    Sensor j sees the core with a nuisance of correlation ``sqrt(1 - delta_j^2)``; its exact projected information is
    ``1 / (1/ll + (1 - delta^2) / (delta^2 lp))``.
    """
    shares = np.geomspace(1e-3, 0.05, 12)
    delta = rng.uniform(-1, 1, size=(m, 10 * config.environments)) ** 2
    lp, ll = sigmoid_moments(config.signal)
    sensors = delta / (delta / ll + (1 - delta) / lp)
    t = np.quantile(delta.mean(axis=0), shares)
    exact = [ball_tail(m, float(x)) if m * x <= 1 else np.nan for x in t]
    sensor_t = np.quantile(sensors.mean(axis=0), shares)
    return pd.DataFrame({"views": m, "share": shares, "t": t, "exact": exact, "sensor_t": sensor_t})


def _exponent(t: pd.Series, share: pd.Series) -> float:
    return stats.loglog_slope(t, share).value


@paper.figures(portfolios)
def portfolios_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Probability of little information, for one to four views."""
    tails = tables["tails"]
    fig, ax = plotting.subplots()
    for colour, m in zip(plotting.COLOURS, VIEWS, strict=False):
        line = tails[tails.views == m].groupby("share", as_index=False)[["t", "exact"]].mean()
        ax.plot(line.t, line.share, "o", color=colour, label=f"{m} view{'s' if m > 1 else ''}")
        ax.plot(line.t, line.exact, color=colour, linewidth=1)
    ax.plot([], [], color="black", linewidth=1, label="exact t^(m/2) law")
    ax.set(xscale="log", yscale="log", xlabel="joint information t", ylabel="P(I <= t)")
    ax.legend()
    return {"portfolios": fig}
