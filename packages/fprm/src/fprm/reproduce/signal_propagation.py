"""E1: what happens to states and gradients when an untrained block is looped (section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting

from ..config import FPRMConfig
from ..model import FPRM
from ..solver import relative_residual
from .declaration import paper

VARIANTS = {
    "scaled": "pre-norm, scaled (0.75, 0.25)",
    "scaled_half": "pre-norm, scaled (0.5, 0.5)",
    "unscaled": "pre-norm, unscaled",
    "post": "post-norm",
}


@dataclass(frozen=True)
class SignalConfig:
    """Looped blocks at random initialisation, without convolution."""

    hidden_size: Count = 48  # channels
    num_heads: Count = 4
    tokens: Count = 16
    samples: Count = 8  # random inputs
    iterations: Count = 200  # loop iterations of the forward pass
    gradient_iterations: Counts = (1, 2, 4, 8, 16, 32, 64)  # depths of the backward pass


def variant(config: SignalConfig, name: str) -> FPRM:
    """An untrained model of one kind."""
    base = FPRMConfig(
        vocab_size=8,
        seq_len=config.tokens,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        ffn_multiple=8,
        conv="none",
    )
    changes = {
        "scaled": {},
        "scaled_half": {"alpha1_init": 0.5, "alpha2_init": 0.5},
        "unscaled": {"residual_scale": "none"},
        "post": {"residual_scale": "none", "norm": "post"},
    }
    return FPRM(replace(base, **changes[name]))


@paper.experiment(
    smoke=SignalConfig(samples=2, gradient_iterations=(4, 64)),
    laptop=SignalConfig(),
    paper=SignalConfig(hidden_size=512, num_heads=8, tokens=81),
    seeds={"smoke": 2, "laptop": 5, "paper": 5},
    minutes={"laptop": 0.3, "paper": 5},
)
def signal_propagation(config: SignalConfig, run: Run) -> None:
    """Loop untrained blocks 200 times and back: size of states, residuals and gradients."""
    forward, backward = [], []
    for name in run.progress(VARIANTS, "variants"):
        torch.manual_seed(run.seed)
        model = variant(config, name).to(run.device)
        x = torch.from_numpy(run.rng.integers(8, size=(config.samples, config.tokens))).to(run.device)
        with torch.no_grad():
            injection = model.inject(x)
            z = start = model.initial_state(injection)
            for iteration in range(1, config.iterations + 1):
                fz = model.body(z, injection)
                residual = relative_residual(z, fz).max().item()
                z = fz
                forward.append((name, iteration, z.square().mean().sqrt().item(), residual))
        cotangent = torch.randn_like(start)
        for depth in config.gradient_iterations:
            leaves = injection.clone().requires_grad_(), start.clone().requires_grad_()
            z = leaves[1]
            for _ in range(depth):
                z = model.body(z, leaves[0])
            of_injection, of_start = torch.autograd.grad(z, leaves, cotangent)
            backward.append((name, depth, of_injection.norm().item(), of_start.norm().item()))

    states = pd.DataFrame(forward, columns=["variant", "iteration", "rms", "residual"])
    gradients = pd.DataFrame(backward, columns=["variant", "iterations", "injection", "start"])
    run.table("states", states)
    run.table("gradients", gradients)

    rms = states.pivot(index="iteration", columns="variant", values="rms")
    residual = states.pivot(index="iteration", columns="variant", values="residual")
    gradient = gradients.pivot(index="iterations", columns="variant", values="injection")
    last = config.iterations
    late = np.arange(25, last + 1)
    exponent = np.polyfit(np.log(late), np.log(rms["unscaled"].loc[late]), 1)[0]
    deepest = config.gradient_iterations[-1]
    growth = gradient.loc[deepest] / gradient.loc[4]
    run.measure("scaled_rms_growth", rms["scaled"][last] / rms["scaled"][10])
    run.measure("scaled_final_residual", residual["scaled"][last])
    run.measure("post_final_residual", residual["post"][last])
    run.measure("unscaled_rms_exponent", exponent)
    run.measure("scaled_gradient_growth", growth["scaled"])
    run.measure("unscaled_gradient_growth", growth["unscaled"])
    run.measure("post_gradient_growth", growth["post"])
    run.measure("scaled_stays_bounded", rms["scaled"][last] <= 2 * rms["scaled"][10])
    run.measure("scaled_converges", residual["scaled"][last] < 1e-3)
    run.measure("unscaled_grows_linearly", 0.7 <= exponent <= 1.3)
    run.measure("scaled_gradient_is_tame", growth["scaled"] < 3)
    run.measure("post_gradient_explodes", growth["post"] > 10)


@paper.figures(signal_propagation)
def signal_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """States, residuals and gradients against the number of iterations."""
    fig, (states, residuals, gradients) = plotting.subplots(1, 3)
    panels = (
        (states, "states", "iteration", "rms", "RMS of the state"),
        (residuals, "states", "iteration", "residual", "relative residual"),
        (gradients, "gradients", "iterations", "injection", "norm of gradient by injection"),
    )
    for ax, table, x, y, label in panels:
        for index, (name, title) in enumerate(VARIANTS.items()):
            # Every seed as a line: on a logarithmic axis a band around the mean would hide how far apart they are.
            chosen = tables[table][tables[table]["variant"] == name]
            for nth, (_, group) in enumerate(chosen.groupby("seed")):
                colour = plotting.COLOURS[index]
                ax.plot(group[x], group[y], color=colour, linewidth=1, label=title if nth == 0 else None)
        ax.set(xlabel="loop iterations", ylabel=label, xscale="log", yscale="log")
    states.legend(fontsize="small")
    return {"signal_propagation": fig}
