"""`Run`: what an experiment is handed, and what it leaves behind."""

from __future__ import annotations

import io
import json
import os
import random
import re
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab.stats import Interval

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Recorded:
    """One measured number of one seed."""

    interval: Interval
    timing: bool


class Run:
    """One seed of one experiment.

    Attributes:
        seed: the seed; the same seed gives the same measures on the same machine.
        rng: numpy generator made from the seed and the experiment's name.
        scratch: folder that outlives an interrupted try, for checkpoints of long training.
    """

    def __init__(
        self, experiment: str, seed: int, *, scratch: Path | None = None, progress_file: Path | None = None
    ) -> None:
        self.experiment = experiment
        self.seed = seed
        self.rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(experiment.encode())]))
        self.measures: dict[str, Recorded] = {}
        self.tables: dict[str, pd.DataFrame] = {}
        self.figures: dict[str, dict[str, bytes]] = {}
        self._scratch = scratch
        self._progress_file = progress_file

    @cached_property
    def scratch(self) -> Path:
        if self._scratch is None:
            raise RuntimeError("this run keeps nothing on disk: it has no scratch folder")
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch

    @cached_property
    def device(self) -> torch.device:
        """CUDA where there is one, else the CPU; `CLAIMLAB_DEVICE` overrides."""
        import torch

        return torch.device(os.environ.get("CLAIMLAB_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))

    def measure(
        self, name: str, value: Any, *, low: float | None = None, high: float | None = None, timing: bool = False
    ) -> None:
        """Keep a number (or bool) under `name`.

        Arguments:
            name: snake_case, unique in the experiment.
            value: a number, or an `Interval`; anything with `float(value)`.
            low, high: bounds of an interval that the experiment made itself (binomial, bootstrap over problems).
            timing: a duration or a ratio of durations: reported, never failed by the regression check.

        Raises:
            ValueError: the name is not snake_case or is taken, one bound is missing, or low > high.
        """
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ValueError(f"expected a snake_case name of a measure, got {name!r}")
        if name in self.measures:
            raise ValueError(f"measure {name!r} was already taken in {self.experiment}")
        if isinstance(value, Interval):
            value, low, high = value
        if (low is None) != (high is None):
            raise ValueError(f"measure {name!r} needs both bounds or none, got low={low}, high={high}")
        bounds = (np.nan, np.nan) if low is None or high is None else (float(low), float(high))
        if bounds[0] > bounds[1]:
            raise ValueError(f"measure {name!r} needs low <= high, got {bounds}")
        self.measures[name] = Recorded(Interval(float(value), *bounds), timing)

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """Keep a table; written as CSV, and handed to the experiment's figures with a `seed` column."""
        self._check_new(name, self.tables)
        self.tables[name] = frame

    def figure(self, name: str, figure: Figure) -> None:
        """Keep a figure of this seed as PNG and SVG, and close it."""
        self._check_new(name, self.figures)
        self.figures[name] = render(figure)

    def progress(self, iterable: Iterable[T], description: str = "", total: int | None = None) -> Iterator[T]:
        """Iterate and show how far it is."""
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        shown = 0.0
        for done, item in enumerate(iterable):
            if self._progress_file is not None and time.monotonic() - shown > 0.3:
                shown = time.monotonic()
                self._show_progress({"description": description, "done": done, "total": total})
            yield item

    def _show_progress(self, state: dict[str, Any]) -> None:
        assert self._progress_file is not None
        try:
            part = self._progress_file.with_suffix(".part")
            part.write_text(json.dumps(state), encoding="utf-8")
            part.replace(self._progress_file)
        except OSError:  # a worker on another machine: no bar, but the work goes on
            self._progress_file = None

    def _check_new(self, name: str, taken: dict[str, Any]) -> None:
        if not re.fullmatch(r"[\w-]+", name):
            raise ValueError(f"expected a name of letters, digits, '_' and '-', got {name!r}")
        if name in taken:
            raise ValueError(f"{name!r} was already kept in {self.experiment}")


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as `{"png": …, "svg": …}`; closes it."""
    out = {}
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
        out[kind] = buffer.getvalue()
    plt.close(figure)
    return out


def seed_everything(seed: int) -> None:
    """Seed the global generators, which libraries use behind our back (`nn.Module` initialisation, for one)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
