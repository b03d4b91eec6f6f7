"""One figure style for all papers."""

from __future__ import annotations

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from claimlab import stats

# Okabe and Ito's palette: told apart with every common form of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 120,
    "font.size": 10,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "svg.hashsalt": "claimlab",  # the same figure gives the same bytes
}


def subplots(*args: Any, **kwargs: Any) -> tuple[Figure, Any]:
    """`plt.subplots` in the common style; 6.4 x 4 inches a panel unless `figsize` is given."""
    with matplotlib.rc_context(STYLE):
        if "figsize" not in kwargs:
            rows = kwargs.get("nrows", args[0] if args else 1)
            columns = kwargs.get("ncols", args[1] if len(args) > 1 else 1)
            kwargs["figsize"] = (6.4 if columns == 1 else 4.2 * columns, 4.0 if rows == 1 else 3.2 * rows)
        return plt.subplots(*args, **kwargs)


def mean_curve(
    ax: Axes,
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str | None = None,
    labels: dict[Any, str] | None = None,
    markers: bool = True,
) -> None:
    """Mean of `y` at each `x` over seeds, with its 95 % t band; one colour for each value of `by`."""
    groups = [(None, table)] if by is None else list(table.groupby(by, sort=False))
    for index, (key, group) in enumerate(groups):
        rows = [(at, *stats.mean(values[y].dropna())) for at, values in group.groupby(x) if values[y].notna().any()]
        curve = pd.DataFrame(rows, columns=["x", "mean", "low", "high"])
        colour = COLOURS[index % len(COLOURS)]
        label = None if key is None else (labels or {}).get(key, str(key))
        marker = MARKERS[index % len(MARKERS)] if markers else ""
        ax.plot(curve["x"], curve["mean"], color=colour, marker=marker, label=label)
        ax.fill_between(curve["x"], curve["low"], curve["high"], color=colour, alpha=0.18, linewidth=0)
