"""E2: the theorems, on maps whose constants are known (section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting

from .. import theory
from ..config import SolverConfig
from ..scaling import coupled_betas, iterate_bound
from ..solver import FixedPointSolver, critical_damping
from .declaration import paper


@dataclass(frozen=True)
class TheoryConfig:
    """Random maps for each theorem."""

    bounds: Count = 300  # configurations for theorem 1
    maps: Count = 100  # linear maps for theorem 2, and again for proposition 1
    rotations: Count = 100  # oscillating maps for theorem 3
    dim: Count = 8  # state dimension


@paper.experiment(
    smoke=TheoryConfig(bounds=200, maps=10, rotations=10),
    laptop=TheoryConfig(),
    paper=TheoryConfig(bounds=5000, maps=2000, rotations=2000, dim=32),
    minutes={"laptop": 0.5, "paper": 20},
)
def theory_checks(config: TheoryConfig, run: Run) -> None:
    """Bounded iterates, linear convergence, damping and gradient truncation, against their theorems."""
    _boundedness(config, run)
    _linear_rate(config, run)
    _damping(config, run)
    _truncation(config, run)


def _boundedness(config: TheoryConfig, run: Run) -> None:
    """Theorem 1: sub-layers of norm exactly `c_f`, in any direction or all along the injection."""
    rng, rows = run.rng, []
    for i in run.progress(range(config.bounds), "theorem 1"):
        alpha1, alpha2 = rng.uniform(0.05, 0.95, size=2)
        layers = int(rng.integers(1, 5))
        size = rng.uniform(0.1, 5.0)
        injection = rng.standard_normal(config.dim) * rng.uniform(0.0, 3.0)
        aligned = i % 3 == 0
        if aligned:
            direction = injection / np.linalg.norm(injection)
            sublayers = [lambda u, d=direction, c=size: c * d] * (2 * layers)
        else:
            matrices = rng.standard_normal((2 * layers, config.dim, config.dim))

            def along(u: np.ndarray, matrix: np.ndarray, c: float = size) -> np.ndarray:
                image = matrix @ u + 1e-3
                return c * image / np.linalg.norm(image)

            sublayers = [lambda u, m=matrix: along(u, m) for matrix in matrices]
        limit = theory.limit_norm(injection, sublayers, alpha1, alpha2, start=10 * rng.standard_normal(config.dim))
        bound = iterate_bound(float(np.linalg.norm(injection)), alpha2, size)
        rows.append(("aligned" if aligned else "random", alpha1, alpha2, layers, limit / bound))
    table = pd.DataFrame(rows, columns=["directions", "alpha1", "alpha2", "layers", "limit_over_bound"])
    run.table("bounds", table)
    run.measure("bound_excess", table["limit_over_bound"].max() - 1)
    run.measure("aligned_reach", table.query("directions == 'aligned'")["limit_over_bound"].min())


def _linear_rate(config: TheoryConfig, run: Run) -> None:
    """Theorem 2: linear sub-layers, so that the pass's Lipschitz constant is a matrix norm."""
    rng, rows = run.rng, []
    for i in run.progress(range(config.maps), "theorem 2"):
        symmetric = i % 2 == 0
        alpha1, alpha2 = rng.uniform(0.2, 0.8, size=2)
        # Symmetric maps have their fixed point at 0, so that residuals stay exact far down, where only the
        # largest eigenvalue is left.
        injection = np.zeros(config.dim) if symmetric else rng.standard_normal(config.dim)
        matrix = _with_spectrum(config.dim, rng) if symmetric else rng.standard_normal((config.dim, config.dim))
        matrix *= rng.uniform(0.3, 0.95) / np.linalg.norm(matrix, 2)

        def f(z: np.ndarray, m: np.ndarray = matrix, a1: float = alpha1, a2: float = alpha2, e=injection) -> np.ndarray:
            return theory.scaled_pass(z, e, [lambda u: m @ u] * 4, a1, a2)[1]

        beta1, _ = coupled_betas(alpha1, alpha2, 2, eps=0.0)
        inner = np.linalg.matrix_power(alpha1 * np.eye(config.dim) + beta1 * matrix, 4)
        rate = alpha2 * float(np.linalg.norm(inner, 2))
        residuals = theory.residuals(f, 10 * rng.standard_normal(config.dim), 400)
        floor = (1e-250 if symmetric else 1e-9) * residuals[0]
        clean = residuals[: int(np.argmax(residuals < floor)) or len(residuals)]
        slope = theory.log_slope(clean[len(clean) // 2 :] if symmetric else clean)
        bound = [theory.convergence_bound(residuals[0], 1.0, rate, step) for step in range(len(clean))]
        rows.append((symmetric, slope, np.log(rate), (clean <= 1.000001 * np.array(bound)).all()))
    table = pd.DataFrame(rows, columns=["symmetric", "slope", "log_rate", "within_bound"])
    run.table("rates", table)
    run.measure("rate_excess", (table["slope"] - table["log_rate"]).max())
    of_symmetric = table.query("symmetric")
    run.measure("symmetric_rate_error", (of_symmetric["slope"] / of_symmetric["log_rate"] - 1).abs().max())
    run.measure("rate_bound_holds", table["within_bound"].all())


def _with_spectrum(dim: int, rng: np.random.Generator) -> np.ndarray:
    """A symmetric matrix whose largest eigenvalue, 1, stands clear of the others."""
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return (basis * np.append(rng.uniform(-0.3, 0.6, size=dim - 1), 1.0)) @ basis.T


def _damping(config: TheoryConfig, run: Run) -> None:
    """Theorem 3: rotations that grow, so that the plain iteration spirals outwards."""
    rng = run.rng
    modulus = rng.uniform(1.0, 1.3, size=config.rotations)
    angle = rng.uniform(np.pi * 5 / 12, np.pi, size=config.rotations)
    eigenvalues = modulus * np.exp(1j * angle)
    jacobians = np.stack([theory.rotation_scaling(value) for value in eigenvalues])
    fixed_points = rng.uniform(0.5, 2.0, size=(config.rotations, 2))
    matrices, centres = torch.from_numpy(jacobians), torch.from_numpy(fixed_points)
    start = centres + torch.from_numpy(rng.standard_normal((config.rotations, 2)))

    def f(z: torch.Tensor, matrix: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        return centre + torch.einsum("bij,bj->bi", matrix, z - centre)

    plain = FixedPointSolver(SolverConfig.fixed(200)).solve(f, start, context=(matrices, centres))
    settings = SolverConfig(tau=1e-6, gamma_eval=0.9, max_iter=5000)
    damped = FixedPointSolver(settings).solve(f, start, context=(matrices, centres))
    measured = np.array([theory.measured_critical_damping(matrix) for matrix in jacobians])
    predicted = np.array([critical_damping([value, value.conjugate()]) for value in eigenvalues])
    table = pd.DataFrame(
        {
            "modulus": modulus,
            "angle": angle,
            "plain_distance": (plain.z - centres).norm(dim=1) / (start - centres).norm(dim=1),
            "damped_distance": (damped.z - centres).norm(dim=1) / centres.norm(dim=1),
            "converged": damped.converged,
            "iterations": damped.iterations,
            "step_size": damped.step_size,
            "predicted": predicted,
            "measured": measured,
        }
    )
    run.table("damping", table)
    run.measure("plain_never_converges", (table["plain_distance"] > 0.999).all())
    run.measure("damped_converged", table["converged"].mean())
    run.measure("damped_distance", table["damped_distance"].max())
    run.measure("critical_damping_error", (table["measured"] / table["predicted"] - 1).abs().max())


def _truncation(config: TheoryConfig, run: Run) -> None:
    """Proposition 1: gradients through `k` unrolled steps."""
    rng, rows = run.rng, []
    for i in run.progress(range(config.maps), "proposition 1"):
        symmetric = i % 2 == 0
        sigma = rng.uniform(0.3, 0.9)
        matrix = _with_spectrum(config.dim, rng) if symmetric else rng.standard_normal((config.dim, config.dim))
        jacobian = matrix * sigma / np.linalg.norm(matrix, 2)
        for terms in range(1, 21):
            bound = theory.truncation_bound(sigma, terms, config.dim)
            rows.append((i, symmetric, sigma, terms, theory.truncation_error(jacobian, terms), bound))
    table = pd.DataFrame(rows, columns=["map", "symmetric", "sigma", "terms", "error", "bound"])
    run.table("truncation", table)
    slopes = [
        theory.log_slope(group["error"].to_numpy()[9:]) / np.log(group["sigma"].iloc[0]) - 1
        for _, group in table.query("symmetric").groupby("map")
    ]
    run.measure("truncation_over_bound", (table["error"] / table["bound"]).max())
    run.measure("truncation_slope_error", np.abs(slopes).max())


@paper.figures(theory_checks)
def theory_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Each theorem's bound beside what was measured."""
    fig, (bound, rate, damping, truncation) = plotting.subplots(1, 4, figsize=(13, 3.4))
    for index, (name, group) in enumerate(tables["bounds"].groupby("directions")):
        bound.hist(
            group["limit_over_bound"], bins=30, range=(0, 1.02), label=name, color=plotting.COLOURS[index], alpha=0.8
        )
    bound.set(title="theorem 1", xlabel="limit of the state / bound", ylabel="configurations")
    bound.legend()
    for index, (symmetric, group) in enumerate(tables["rates"].groupby("symmetric", sort=False)):
        kind = "symmetric" if symmetric else "general"
        rate.plot(group["log_rate"], group["slope"], "o", label=kind, color=plotting.COLOURS[index])
    rate.axline((-1, -1), slope=1, color="black", linewidth=1)
    rate.set(title="theorem 2", xlabel="log of the theorem's rate", ylabel="fitted slope of log residual")
    rate.legend()
    damping.plot(tables["damping"]["predicted"], tables["damping"]["measured"], "o", markersize=3)
    damping.axline((0.5, 0.5), slope=1, color="black", linewidth=1)
    damping.set(title="theorem 3", xlabel="predicted critical step size", ylabel="measured")
    first = tables["truncation"].query("seed == seed.min() and map in (0, 1, 2)")
    for index, (_, group) in enumerate(first.groupby("map")):
        colour = plotting.COLOURS[index]
        truncation.plot(
            group["terms"], group["error"], "o", color=colour, label=f"sigma = {group['sigma'].iloc[0]:.2f}"
        )
        truncation.plot(group["terms"], group["bound"], "--", color=colour)
    truncation.set(title="proposition 1", xlabel="unrolled steps", ylabel="error (points), bound (lines)", yscale="log")
    truncation.legend()
    return {"theory": fig}
