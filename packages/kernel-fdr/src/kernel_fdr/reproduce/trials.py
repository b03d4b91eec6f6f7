"""What the experiments do with repeated trials: FDR against its level, and paired power."""

from __future__ import annotations

import numpy as np
import pandas as pd

from claimlab import Run, stats


def record_fdr(run: Run, trials: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Judge mean FDP against ``q`` in every cell of ``by``; keep the verdict, the worst z-score and the table.

    ``trials`` has columns ``q``, ``fdp``, ``power`` and those of ``by``. A cell passes if mean FDP <= q + 3 standard
    errors; a cell whose FDP never varies passes if it is at most q.
    """
    rows = []
    for key, cell in trials.groupby(by, sort=False):
        level = float(cell["q"].iloc[0])
        fdr, power = stats.mean(cell["fdp"]), stats.mean(cell["power"])
        error = float(cell["fdp"].std(ddof=1) / np.sqrt(len(cell))) if len(cell) > 1 else 0.0
        # One discovery in all these trials is the finest step of an estimate: no smaller error is believed.
        error = max(error, 1e-3)
        rows.append(
            (
                *key,
                len(cell),
                fdr.value,
                fdr.low,
                fdr.high,
                power.value,
                power.low,
                power.high,
                (fdr.value - level) / error,
            )
        )
    frame = pd.DataFrame(
        rows, columns=[*by, "trials", "fdr", "fdr_low", "fdr_high", "power", "power_low", "power_high", "z"]
    )
    worst = float(frame["z"].max())
    run.measure("fdr_controlled", worst <= 3.0)
    # The largest of many standard scores: its own spread is that of one of them, at most.
    run.measure("worst_fdr_z", worst, low=worst - 2.0, high=worst + 2.0)
    return frame


def column(trials: pd.DataFrame, value: str, **where: object) -> np.ndarray:
    """One value per replication, in their order, of the trials that match."""
    match = np.logical_and.reduce([(trials[name] == wanted).to_numpy() for name, wanted in where.items()])
    chosen = trials[match].sort_values("replication", kind="stable")
    return chosen[value].to_numpy(dtype=float)
