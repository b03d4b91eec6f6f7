"""The structured cases: equal to the general method, and how their time grows."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from claimlab import Count, Counts, Run, plotting, stats
from finite_resolution.covering import set_cover
from finite_resolution.datasets import random_problem
from finite_resolution.design import optimal_design
from finite_resolution.errors import UncoverableError
from finite_resolution.problem import Problem, Queries
from finite_resolution.reproduce.declaration import paper
from finite_resolution.structured import (
    consecutive_cover,
    interval_cover,
    nested_cover,
    nested_design,
    product_problem,
    separable_design,
)
from finite_resolution.verify import verify_design


def _best_seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """The fastest of a few tries: what the work takes when the machine is left alone."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class SeparableConfig:
    """Independent blocks of three costs and three unit-price queries in the plane."""

    problems: Count = 4
    """Random products a seed, solved in both ways."""
    product_blocks: Counts = (1, 2, 3, 4)
    """Numbers of blocks for the explicit product, which has 3^blocks costs."""
    products: Count = 6
    """Random products timed for each number of blocks."""
    many_blocks: Counts = (4, 8, 16, 32)
    """Numbers of blocks for the block-wise method."""


@paper.experiment(
    smoke=SeparableConfig(problems=1, product_blocks=(1, 2), products=1, many_blocks=(1, 2, 4)),
    laptop=SeparableConfig(),
    paper=SeparableConfig(problems=20, product_blocks=(1, 2, 3, 4, 5), many_blocks=(8, 16, 32, 64, 128, 256)),
    minutes={"laptop": 0.7, "paper": 20},
)
def separable(config: SeparableConfig, run: Run) -> None:
    """Block-wise designs against the explicit product, for one total tolerance and for a tolerance a block."""
    disagreements, regret_difference = 0, 0.0
    for _ in run.progress(range(config.problems), "products"):
        blocks = [_block(run.rng) for _ in range(2)]
        total = _total(run.rng, blocks)
        product = product_problem(blocks, total)
        found, truth = separable_design(blocks, total), optimal_design(product)
        disagreements += found.price != truth.price
        if found.selected is not None:
            flat = [j + 3 * b for b, s in enumerate(found.selected) for j in s]
            regret_difference = max(regret_difference, abs(_worst_gap(product, flat) - sum(found.worst_regrets)))
        each = separable_design(blocks)
        disagreements += each.price != sum(optimal_design(b).price for b in blocks)
    times = []
    for b in run.progress(config.product_blocks, "explicit products"):
        seconds = 0.0
        for _ in range(config.products):  # random products differ much in how hard they are
            blocks = [_block(run.rng) for _ in range(b)]
            product = product_problem(blocks, _total(run.rng, blocks))
            seconds += _best_seconds(functools.partial(optimal_design, product), 1)
        times.append({"blocks": b, "method": "explicit product", "seconds": seconds / config.products})
    for b in run.progress(config.many_blocks, "many blocks"):
        blocks = [_block(run.rng) for _ in range(b)]
        total = _total(run.rng, blocks)
        times.append(
            {
                "blocks": b,
                "method": "block by block",
                "seconds": _best_seconds(functools.partial(separable_design, blocks, total), 1),
            }
        )
    table = pd.DataFrame(times)
    product = table[table["method"] == "explicit product"]
    blockwise = table[table["method"] == "block by block"]
    growth = np.polyfit(product["blocks"], np.log(product["seconds"]), 1)[0]
    run.measure("optima_disagreeing", disagreements)
    run.measure("regret_sum_difference", regret_difference)
    run.measure("product_growth_per_block", float(np.exp(growth)), timing=True)
    run.measure("blockwise_slope", stats.loglog_slope(blockwise["blocks"], blockwise["seconds"]).value, timing=True)
    run.table("times", table)


def _block(rng: np.random.Generator) -> Problem:
    problem = random_problem(rng, 2, 3, 3)
    q = problem.queries
    return problem.replace(queries=Queries(q.Q, q.delta))


def _total(rng: np.random.Generator, blocks: list[Problem]) -> float:
    """A total tolerance between all and nothing: a share of the regret without any reading."""
    return rng.uniform(0.1, 0.9) * sum(_worst_gap(block, []) for block in blocks)


def _worst_gap(problem: Problem, design: list[int]) -> float:
    return verify_design(problem, design).worst_gap


@dataclass(frozen=True)
class NestedConfig:
    """Error levels of one direction, and of several that see different tuples."""

    problems: Count = 30
    """Random covers a seed, against the integer program."""
    lines: Count = 6
    """Random one-direction design problems a seed, against the general method."""
    sizes: Counts = (3_000, 10_000, 30_000, 100_000, 300_000)
    """Numbers of hard tuples (and of queries) in the timing."""


@paper.experiment(
    smoke=NestedConfig(problems=5, lines=2, sizes=(1_000, 3_000, 10_000)),
    laptop=NestedConfig(),
    paper=NestedConfig(problems=300, lines=60, sizes=(10_000, 100_000, 1_000_000, 10_000_000)),
    minutes={"laptop": 0.3, "paper": 5},
)
def nested(config: NestedConfig, run: Run) -> None:
    """Nested coverage against the integer program and against delayed constraints; time up to 3e5 tuples."""
    disagreements = 0
    for _ in run.progress(range(config.problems), "covers"):
        instance = _nested_instance(run.rng, directions=3, queries=15, tuples=12)
        of_query, reach, prices, of_tuple, width = instance
        covers = [np.flatnonzero((of_query == d) & (reach < w)).tolist() for d, w in zip(of_tuple, width, strict=True)]
        try:
            found = nested_cover(*instance).value
        except UncoverableError:
            found = np.inf
        truth = set_cover(covers, prices).value if all(covers) else np.inf
        disagreements += found != truth
    for _ in run.progress(range(config.lines), "design problems"):
        problem = random_problem(run.rng, int(run.rng.integers(2, 5)), 9, 1)
        scales = run.rng.uniform(0.5, 2.0, 6) * run.rng.choice([-1.0, 1.0], 6)
        spread = float(np.ptp(problem.readings))
        queries = Queries(
            scales[:, None] * problem.queries.Q, run.rng.uniform(0, 0.4, 6) * spread, run.rng.uniform(1, 5, 6)
        )
        line = problem.replace(queries=queries)
        disagreements += (
            abs(nested_design(line).price - optimal_design(line).price) > 1e-12
            if _feasible(line)
            else nested_design(line).status != "infeasible"
        )
    times = []
    for n in run.progress(config.sizes, "sizes"):
        instance = _nested_instance(run.rng, directions=20, queries=n, tuples=n, solvable=True)
        times.append({"size": n, "seconds": _best_seconds(functools.partial(nested_cover, *instance))})
    table = pd.DataFrame(times)
    run.measure("optima_disagreeing", disagreements)
    run.measure("slope", stats.loglog_slope(table["size"], table["seconds"]).value, timing=True)
    run.table("times", table)


def _feasible(problem: Problem) -> bool:
    return optimal_design(problem).selected is not None


def _nested_instance(rng: np.random.Generator, directions: int, queries: int, tuples: int, solvable: bool = False):
    of_query, of_tuple = rng.integers(directions, size=queries), rng.integers(directions, size=tuples)
    reach, width = rng.uniform(0, 1, queries), rng.uniform(1.0 if solvable else 0.3, 2, tuples)
    return of_query, reach, rng.integers(1, 10, queries).astype(float), of_tuple, width


@dataclass(frozen=True)
class IntervalsConfig:
    """Cover sets that are intervals."""

    problems: Count = 30
    """Random interval systems a seed, against linear and integer programs."""
    tuples: Count = 20
    queries: Count = 15
    cycles: Counts = (3, 5, 7, 9)
    """Odd cycles, whose incidence is not consecutive."""
    sizes: Counts = (3_000, 10_000, 30_000, 100_000)


@paper.experiment(
    smoke=IntervalsConfig(problems=5, cycles=(3, 5), sizes=(1_000, 3_000, 10_000)),
    laptop=IntervalsConfig(),
    paper=IntervalsConfig(problems=300, tuples=60, queries=40, sizes=(10_000, 100_000, 1_000_000)),
    minutes={"laptop": 0.4, "paper": 5},
)
def intervals(config: IntervalsConfig, run: Run) -> None:
    """Dynamic programs against the linear relaxation and the integer program; odd cycles as the counter-example."""
    difference, fraction = 0.0, 0.0
    for i in run.progress(range(config.problems), "interval systems"):
        prices = run.rng.integers(1, 10, config.queries).astype(float)
        rows = _interval_rows(run.rng, config.tuples, config.queries)
        if i % 2:  # the tuples of each query stand together, instead of the queries of each tuple
            rows = _interval_rows(run.rng, config.queries, config.tuples).T
            rows[~rows.any(axis=1), 0] = True
            rows[: rows[:, 0].nonzero()[0].max(initial=0) + 1, 0] = True
        covers = [np.flatnonzero(row).tolist() for row in rows]
        relaxed, vertex = _relaxation(rows, prices)
        values = [consecutive_cover(covers, prices).value, relaxed, set_cover(covers, prices).value]
        difference = max(difference, float(np.ptp(values)))
        fraction = max(fraction, float(np.abs(vertex - np.round(vertex)).max()))
    gaps = []
    for n in config.cycles:
        rows = np.eye(n, dtype=bool) | np.roll(np.eye(n, dtype=bool), 1, axis=1)
        integer = set_cover([np.flatnonzero(row).tolist() for row in rows], np.ones(n)).value
        gaps.append(integer - _relaxation(rows, np.ones(n))[0])
    times = []
    for n in run.progress(config.sizes, "sizes"):
        start = run.rng.integers(0, n, n)
        spans = np.vstack([np.column_stack([start, np.minimum(start + run.rng.integers(1, 50, n), n)]), [[0, n]]])
        prices = np.r_[run.rng.uniform(1, 5, n), 1e6]
        times.append({"size": n, "seconds": _best_seconds(functools.partial(interval_cover, spans, prices, n))})
    table = pd.DataFrame(times)
    run.measure("largest_difference", difference)
    run.measure("largest_fraction_of_the_relaxation", fraction)
    run.measure("odd_cycle_smallest_integrality_gap", min(gaps))
    run.measure("slope", stats.loglog_slope(table["size"], table["seconds"]).value, timing=True)
    run.table("times", table)


def _interval_rows(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    start = rng.integers(0, length, count)
    stop = start + rng.integers(1, 8, count)
    return (np.arange(length) >= start[:, None]) & (np.arange(length) < stop[:, None])


def _relaxation(rows: np.ndarray, prices: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and vertex of the linear relaxation, by the simplex method."""
    answer = linprog(prices, A_ub=-rows.astype(float), b_ub=-np.ones(len(rows)), bounds=(0, 1), method="highs-ds")
    if answer.status != 0 or answer.fun is None or answer.x is None:
        raise RuntimeError(f"linprog ended with status {answer.status}: {answer.message}")
    return answer.fun, answer.x


def _scaling_figure(table: pd.DataFrame, x: str, label: str, by: str | None = None):
    fig, ax = plotting.subplots()
    plotting.mean_curve(ax, table, x=x, y="seconds", by=by)
    reach = np.array([table[x].min(), table[x].max()], dtype=float)
    level = table.loc[table[x] == reach[1], "seconds"].mean()
    ax.plot(reach, level * reach / reach[1], color="black", linestyle="--", linewidth=1.0, label="linear growth")
    ax.set(xlabel=label, ylabel="seconds", xscale="log", yscale="log")
    ax.legend()
    return fig


@paper.figures(separable)
def separable_figures(tables: dict[str, pd.DataFrame]):
    return {"separable_time": _scaling_figure(tables["times"], "blocks", "blocks", by="method")}


@paper.figures(nested)
def nested_figures(tables: dict[str, pd.DataFrame]):
    return {"nested_time": _scaling_figure(tables["times"], "size", "hard tuples and queries")}


@paper.figures(intervals)
def interval_figures(tables: dict[str, pd.DataFrame]):
    return {"interval_time": _scaling_figure(tables["times"], "size", "intervals and points")}
