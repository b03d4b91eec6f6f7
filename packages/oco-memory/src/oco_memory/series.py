"""Real series that come with statsmodels, as disturbances and demand; and a user's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

SERIES = ("sunspots", "elnino", "co2")


def load_series(name: str) -> Float[np.ndarray, " t"]:
    """A standardised real series, clipped to [-1, 1].

    "sunspots" (309 yearly counts), "elnino" (732 monthly sea surface temperatures), "co2" (2283 weekly changes of the
    concentration; gaps interpolated). Two standard deviations map to 1, so that only tails are clipped.

    Raises:
        ValueError: another name.
    """
    from statsmodels.datasets import co2, elnino, sunspots

    if name == "sunspots":
        values = _frame(sunspots)["SUNACTIVITY"].to_numpy(dtype=float)
    elif name == "elnino":
        values = _frame(elnino).drop(columns="YEAR").to_numpy(dtype=float).ravel()
    elif name == "co2":
        values = np.diff(_frame(co2)["co2"].interpolate().to_numpy(dtype=float))
    else:
        raise ValueError(f"series must be one of {', '.join(SERIES)}, got {name!r}")
    return standardise(values)


def _frame(dataset: Any) -> pd.DataFrame:
    return dataset.load_pandas().data


def standardise(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """(values - mean) / (2 standard deviations) of each column, clipped to [-1, 1]. ValueError if one is constant."""
    spread = values.std(axis=0)
    if not (spread > 0).all():
        raise ValueError("a series must vary to be standardised")
    return np.clip((values - values.mean(axis=0)) / (2 * spread), -1.0, 1.0)


def read_disturbances(path: str | Path, dx: int) -> Float[np.ndarray, "t dx"]:
    """Disturbances from a file of numbers: `.npy`, or text with one row a round (commas or blanks), dx columns.

    Raises:
        ValueError: another number of columns, values that are not finite.
    """
    path = Path(path)
    if path.suffix == ".npy":
        w = np.load(path, allow_pickle=False)
    else:
        w = np.loadtxt([line.replace(",", " ") for line in path.read_text(encoding="utf-8").splitlines()], ndmin=2)
    w = np.asarray(w, dtype=float)
    if w.ndim != 2 or w.shape[1] != dx or not np.isfinite(w).all():
        raise ValueError(f"{path} must hold finite numbers in {dx} columns, got shape {w.shape}")
    return w
