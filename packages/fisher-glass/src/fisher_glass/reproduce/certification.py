"""Ridge certificates: coverage, width, and what happens without a ridge (specification E3)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import expit

from claimlab import Count, Counts, Run, plotting
from fisher_glass.certificate import bernstein_radius, bootstrap_radius, certificate_from_radii
from fisher_glass.fisher import EnvironmentFisher, logistic_rows
from fisher_glass.projection import TaskFrame, task_frame
from fisher_glass.reproduce.declaration import paper
from fisher_glass.risk import environment_glass, fisher_glass
from fisher_glass.synthetic import gaussian_logistic_fisher


@dataclass(frozen=True)
class CertificatesConfig:
    """Stable ridge certificates (reconstructed statement)."""

    dimension: Count = 8  # features, all parameters
    environments: Count = 10
    sample_sizes: Counts = (200, 800, 3200, 12_800)  # samples of every environment
    ridge_factors: tuple[float, ...] = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)  # ridge over the mean eigenvalue
    repetitions: Count = 200
    level: float = 0.9  # 1 - delta
    draws: Count = 200  # bootstrap draws
    alpha: float = 0.1  # tail share


@paper.experiment(
    smoke=CertificatesConfig(sample_sizes=(800, 3200), repetitions=8),
    laptop=CertificatesConfig(),
    paper=CertificatesConfig(sample_sizes=(200, 632, 2000, 6325, 20_000), repetitions=1000, draws=1000),
    minutes={"laptop": 1.0, "paper": 20},
)
def certificates(config: CertificatesConfig, run: Run) -> None:
    """Intervals for the population Fisher-Glass: do they cover, do they shrink, and is the unridged value unstable?"""
    d, E, rng = config.dimension, config.environments, run.rng
    theta = rng.standard_normal(d)
    theta *= 2 / np.linalg.norm(theta)
    covariances = [_random_covariance(d, rng) for _ in range(E)]
    truth = EnvironmentFisher.from_matrices([gaussian_logistic_fisher(S, theta) for S in covariances])
    roots = [np.linalg.cholesky(S) for S in covariances]
    frame = task_frame(theta, None, d)
    ridges = {factor: truth.default_ridge(factor) for factor in config.ridge_factors}
    true_value = {f: fisher_glass(truth, frame, alpha=config.alpha, ridge=lam).value for f, lam in ridges.items()}
    confidence = 1 - (1 - config.level) / E
    rows = []
    for repetition in run.progress(range(config.repetitions), "repetitions"):
        for n in config.sample_sizes:
            samples = [_fisher_rows(root, theta, n, rng) for root in roots]
            radii = np.array([bootstrap_radius(s, confidence, config.draws, rng) for s in samples])
            bernstein = np.array([bernstein_radius(s, confidence) for s in samples])
            estimate = EnvironmentFisher.from_matrices([s.T @ s / n for s in samples])
            for factor, lam in ridges.items():
                glass = environment_glass(estimate, frame, lam)
                c = certificate_from_radii(glass, radii, None, config.alpha, lam, config.level)
                covered = c.lower <= true_value[factor] <= c.upper
                width = (c.upper - c.lower) / true_value[factor]
                ratio = float(np.median(bernstein / radii))
                informative = c.upper < (1 - 1e-9) / lam
                rows.append((repetition, n, factor, covered, width, c.eps / lam, informative, ratio))
    columns = [
        "repetition",
        "n",
        "factor",
        "covered",
        "width",
        "eps_over_ridge",
        "informative",
        "bernstein_over_bootstrap",
    ]
    table = pd.DataFrame(rows, columns=columns)
    cells = table.groupby(["n", "factor"]).agg(
        coverage=("covered", "mean"),
        width=("width", "median"),
        eps_over_ridge=("eps_over_ridge", "median"),
        informative=("informative", "mean"),
        bernstein_over_bootstrap=("bernstein_over_bootstrap", "median"),
    )
    run.table("cells", cells.reset_index())
    run.measure("coverage", cells.coverage.min())
    run.measure("informative_share", table.informative.mean())
    run.measure("bernstein_over_bootstrap_radius", cells.bernstein_over_bootstrap.median())
    run.measure("width_exponent", _width_exponent(cells[cells.eps_over_ridge <= 0.25].reset_index()))
    errors = _plug_in_errors(config, truth, roots, theta, frame, rng)
    run.table("plug_in", errors)
    tails = errors.groupby("n")[["unridged", "ridged"]].quantile(0.9)
    ratio = tails.unridged / tails.ridged
    run.measure("instability_ratio", ratio[round(1.5 * d)])
    run.measure("instability_ratio_at_n_equal_d", ratio[d])
    run.measure("unridged_infinite", np.isinf(errors[errors.n < d].unridged).all())


def _random_covariance(d: int, rng: np.random.Generator) -> np.ndarray:
    """Unit-variance features with random correlations, from nearly none to strong."""
    axes, _ = np.linalg.qr(rng.standard_normal((d, d)))
    S = (axes * np.exp(rng.uniform(-2.5, 0, size=d))) @ axes.T
    scale = np.sqrt(np.diag(S))
    return S / np.outer(scale, scale)


def _fisher_rows(root: np.ndarray, theta: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    z = rng.standard_normal((n, len(root))) @ root.T
    return logistic_rows(z, expit(z @ theta))


def _width_exponent(cells: pd.DataFrame) -> float:
    """Exponent of the width in n, one level for each ridge (least squares within ridges); NaN without two sizes."""
    logs = pd.DataFrame({"x": np.log(cells["n"]), "y": np.log(cells["width"]), "factor": cells["factor"]})
    means = logs.groupby("factor")[["x", "y"]].transform("mean")
    x, y = (logs.x - means.x).to_numpy(), (logs.y - means.y).to_numpy()
    return float(x @ y / (x @ x)) if (x @ x) > 0 else float("nan")


def _plug_in_errors(
    config: CertificatesConfig,
    truth: EnvironmentFisher,
    roots: list[np.ndarray],
    theta: np.ndarray,
    frame: TaskFrame,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Relative errors of the plug-in Fisher-Glass with few samples, without ridge and with 1e-2 of the mean
    eigenvalue."""
    d = config.dimension
    ridges = {"unridged": 0.0, "ridged": truth.default_ridge(1e-2)}
    exact = {name: fisher_glass(truth, frame, alpha=config.alpha, ridge=lam).value for name, lam in ridges.items()}
    rows = []
    for n in (d - 2, d, round(1.5 * d), 3 * d, 10 * d, 100 * d):
        for _ in range(config.repetitions):
            samples = [_fisher_rows(root, theta, n, rng) for root in roots]
            fishers = EnvironmentFisher.from_matrices([s.T @ s / n for s in samples])
            values = {k: fisher_glass(fishers, frame, alpha=config.alpha, ridge=lam).value for k, lam in ridges.items()}
            rows.append({"n": n, **{name: abs(values[name] / exact[name] - 1) for name in ridges}})
    return pd.DataFrame(rows)


@paper.figures(certificates)
def certificates_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Relative width against n for each ridge; errors of the plug-in value with and without ridge."""
    cells, plug_in = tables["cells"], tables["plug_in"]
    fig, (left, right) = plotting.subplots(1, 2)
    labels = {f: f"{f:g}" for f in cells.factor.unique()}
    plotting.mean_curve(left, cells, x="n", y="width", by="factor", labels=labels)
    left.set(xscale="log", yscale="log", xlabel="samples per environment", ylabel="certificate width / FG")
    left.set_ylim(bottom=cells.width.min() / 30)
    left.legend(title="ridge over mean eigenvalue", fontsize=8, ncols=3, loc="lower left")
    quantiles = (
        plug_in[np.isfinite(plug_in.unridged)]
        .groupby(["seed", "n"])[["unridged", "ridged"]]
        .quantile(0.9)
        .reset_index()
    )
    long = quantiles.melt(["seed", "n"], ["unridged", "ridged"], "estimate")
    plotting.mean_curve(
        right, long, x="n", y="value", by="estimate", labels={"unridged": "no ridge", "ridged": "ridge 0.01"}
    )
    right.axvline(8, color="grey", linestyle=":", linewidth=1)
    right.set(xscale="log", yscale="log", xlabel="samples (d = 8)", ylabel="90 % quantile of relative error")
    right.legend()
    return {"certificates": fig}
