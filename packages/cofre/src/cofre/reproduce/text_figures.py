"""Figures of the text experiment."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from claimlab import plotting

from ..dynamics import STATES
from .declaration import paper
from .text import text

SHOWN = {
    ("mdlm_control", "none"): "MDLM, 12 blocks",
    ("mdlm_sdtt", "none"): "MDLM + SDTT",
    ("fp", "none"): "FP-MDLM",
    ("control", "three_state"): "FP-MDLM, as many extra steps, 3SR",
    ("consistency", "none"): "FP-MDLM + consistency",
    ("consistency", "three_state"): "CoFRe (consistency, 3SR)",
}
RULE_LABELS = {"none": "from h_pre", "full": "full reuse", "three_state": "three-state reuse"}
ARM_LABELS = {
    "control": "extra steps only",
    "consistency": "consistency",
    "consistency_long": "consistency, 4x as long",
}


@paper.figures(text)
def text_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Quality against budget, the trade with entropy, what the solver does, schedules, conversion."""
    return {
        "budgets": _budgets(tables["quality"], tables["data"]),
        "tradeoff": _tradeoff(tables["tradeoff"], tables["data"]),
        "solver": _solver(tables["residuals"], tables["movement"]),
        "schedules": _schedules(tables["schedules"]),
        "conversion": _conversion(tables["adaptation"], tables["cka"]),
    }


def _budgets(quality: pd.DataFrame, data: pd.DataFrame) -> Figure:
    fig, (perplexity, entropy) = plotting.subplots(1, 2, figsize=(9.5, 4.4))
    arms = quality.assign(key=pd.Series(list(zip(quality["arm"], quality["reuse"], strict=True)), index=quality.index))
    arms = arms[arms["key"].isin(list(SHOWN))]
    arms = arms.assign(label=arms["key"].map(SHOWN))
    arms = arms.sort_values("label", key=lambda c: c.map({v: i for i, v in enumerate(SHOWN.values())}), kind="stable")
    for ax, column in ((perplexity, "gen_ppl"), (entropy, "entropy")):
        _lines_and_seeds(ax, arms, "budget", column, "label")
        ax.axhline(data[column].mean(), color="grey", linestyle=":", label="data")
        budgets = sorted(quality["budget"].unique())
        ax.set(xscale="log", xlabel="budget (block passes a sample)", xticks=budgets)
        ax.set_xticklabels([str(b) for b in budgets])
        ax.minorticks_off()
    degenerate = arms[arms["degenerate"]]
    entropy.plot(
        degenerate["budget"], degenerate["entropy"], "x", color="black", label="degenerate" if len(degenerate) else None
    )
    perplexity.set(yscale="log", ylabel="GenPPL under the true chain")
    entropy.set(ylabel="unigram entropy of a sample (nats)")
    fig.legend(*perplexity.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    return fig


def _lines_and_seeds(
    ax: Axes, table: pd.DataFrame, x: str, y: str, by: str, labels: dict[str, str] | None = None
) -> None:
    """Geometric mean over seeds as a line, each seed as a dot: few seeds make too wide a band for a log axis."""
    for index, (name, rows) in enumerate(table.groupby(by, sort=False)):
        colour, marker = plotting.COLOURS[index], plotting.MARKERS[index]
        means = rows.groupby(x)[y].apply(lambda values: np.exp(np.log(values).mean()))
        ax.plot(
            means.index, means.to_numpy(), marker=marker, color=colour, label=(labels or {}).get(str(name), str(name))
        )
        ax.plot(rows[x], rows[y], ".", color=colour, alpha=0.4, markersize=4)


def _tradeoff(curve: pd.DataFrame, data: pd.DataFrame) -> Figure:
    fig, ax = plotting.subplots()
    means = curve.groupby(["arm", "temperature"], sort=False)[["gen_ppl", "entropy", "degenerate"]].mean().reset_index()
    for index, (arm, label) in enumerate(ARM_LABELS.items()):
        rows = means[means["arm"] == arm].sort_values("temperature")
        colour = plotting.COLOURS[index]
        ax.plot(rows["entropy"], rows["gen_ppl"], marker="o", color=colour, label=label)
        bad = rows[rows["degenerate"] > 0]
        ax.plot(bad["entropy"], bad["gen_ppl"], "x", color="black", markersize=10)
        for row in rows.itertuples():
            if index == 0:
                ax.annotate(
                    f"T = {row.temperature:g}",
                    (row.entropy, row.gen_ppl),
                    (4, -10),
                    textcoords="offset points",
                    fontsize=8,
                )  # pyright: ignore
    ax.plot(
        data["entropy"].mean(),
        data["gen_ppl"].mean(),
        marker="*",
        markersize=12,
        color="black",
        linestyle="none",
        label="data",
    )
    ax.plot([], [], "x", color="black", markersize=8, label="degenerate (entropy < 85 % of the data's)")
    ax.set(yscale="log", xlabel="unigram entropy of a sample (nats)", ylabel="GenPPL under the true chain")
    ax.legend(fontsize="small")
    return fig


def _solver(residuals: pd.DataFrame, movement: pd.DataFrame) -> Figure:
    fig, (left, right) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    _lines_and_seeds(left, residuals, "iteration", "residual", "reuse", RULE_LABELS)
    left.set(yscale="log", xlabel="solver iteration", ylabel="relative residual before it", xticks=range(4))
    left.legend(fontsize="small")
    ordered = movement.sort_values("state", key=lambda c: c.map({s: i for i, s in enumerate(STATES)}), kind="stable")
    _lines_and_seeds(right, ordered, "step", "movement", "state")
    right.set(yscale="log", xlabel="refinement step", ylabel="relative movement of a token's solution")
    right.legend(fontsize="small")
    return fig


def _schedules(table: pd.DataFrame) -> Figure:
    fig, ax = plotting.subplots()
    kinds = list(table["schedule"].unique())
    offsets = np.linspace(-0.25, 0.25, len(RULE_LABELS))
    for index, (rule, label) in enumerate(RULE_LABELS.items()):
        rows = table[table["reuse"] == rule].assign(log=lambda t: np.log(t["gen_ppl"]))
        means = rows.groupby(["seed", "schedule"])["log"].mean().map(np.exp).reset_index(name="gen_ppl")
        for place, kind in enumerate(kinds):
            values = means.loc[means["schedule"] == kind, "gen_ppl"]
            ax.plot(
                [place + offsets[index]] * len(values),
                values,
                "o",
                color=plotting.COLOURS[index],
                alpha=0.7,
                label=label if place == 0 else None,
            )
    ax.set(xticks=range(len(kinds)), ylabel="GenPPL (geometric mean over budgets)", xlabel="schedule of the iterations")
    ax.set_xticklabels([k.replace("_", " ") for k in kinds])
    ax.legend(fontsize="small", title="a dot a seed")
    return fig


def _conversion(adaptation: pd.DataFrame, cka: pd.DataFrame) -> Figure:
    fig, (left, right) = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    labels = {
        "converted": "converted",
        "converted_uninitialised": "converted, projections new",
        "scratch": "from scratch",
    }
    _lines_and_seeds(left, adaptation, "step", "nelbo", "arm", labels)
    left.set(xlabel="training steps", ylabel="NELBO (nats per token)")
    left.legend(fontsize="small")
    _similarity(right, cka)
    return fig


def _similarity(ax: Axes, cka: pd.DataFrame) -> None:
    grid = cka.astype({"other": int}).groupby(["layer", "other"])["cka"].mean().unstack()
    image = ax.imshow(grid, vmin=0, vmax=1, cmap="viridis", origin="lower")
    ticks = range(0, len(grid), max(1, len(grid) // 6))
    ax.set(xlabel="layer", ylabel="layer", xticks=ticks, yticks=ticks)
    ax.set_xticklabels([str(t + 1) for t in ticks])
    ax.set_yticklabels([str(t + 1) for t in ticks])
    ax.grid(False)
    ax.figure.colorbar(image, ax=ax, label="linear CKA")
