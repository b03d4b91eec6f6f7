"""A paper with known answers, and switches that make it misbehave."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from claimlab import Count, Counts, Paper, Run, plotting, stats

paper = Paper("toy")


@dataclass(frozen=True)
class DrawsConfig:
    """Settings of the draws."""

    n: int = 400
    centre: float = 5.0
    sizes: Counts = (1, 2)
    data_file: Path | None = None

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise ValueError(f"expected n > 0, got {self.n}")


@paper.experiment(
    smoke=DrawsConfig(n=100),
    laptop=DrawsConfig(),
    paper=DrawsConfig(n=10_000),
    seeds={"smoke": 3},
    minutes={"paper": 2},
    needs={"paper": "a large machine"},
)
def draws(config: DrawsConfig, run: Run) -> None:
    """Normal draws around a known centre."""
    if os.environ.get("TOY_LOG"):
        with open(os.environ["TOY_LOG"], "a") as log:
            log.write(f"{run.seed}\n")
    if os.environ.get("TOY_HANG") == str(run.seed):
        time.sleep(600)
    if os.environ.get("TOY_DIE") == str(run.seed):
        os._exit(3)
    x = config.centre + run.rng.standard_normal(config.n)
    for _ in run.progress(range(3), "drawing"):
        pass
    run.measure("mean", x.mean())
    run.measure("positive", bool((x > 0).any()))
    run.measure("seconds", float(os.environ.get("TOY_SECONDS", "1")), timing=True)
    run.table("running", pd.DataFrame({"n": np.arange(1, 11), "mean": x[:10].cumsum() / np.arange(1, 11)}))


@paper.figures(draws)
def draws_figures(tables):
    fig, ax = plotting.subplots()
    plotting.mean_curve(ax, tables["running"], x="n", y="mean")
    return {"running": fig}


@dataclass(frozen=True)
class LineConfig:
    """Settings of the line."""

    points: Count = 5


@paper.experiment(smoke=LineConfig(), laptop=LineConfig(), paper=LineConfig(), deterministic=True)
def line(config: LineConfig, run: Run) -> None:
    """A straight line."""
    if os.environ.get("TOY_FAIL"):
        raise RuntimeError("the line broke")
    x = np.arange(config.points)
    run.measure("slope", np.polyfit(x, 2 * x + 1, 1)[0])
    run.table("interval", pd.DataFrame([stats.wilson(3, 4)]))
