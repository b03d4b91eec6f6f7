"""Delayed constraints against full enumeration of the hard tuples."""

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd

from claimlab import Count, Run, plotting
from finite_resolution.certificate import all_minimal_hard_tuples, cover_set
from finite_resolution.covering import minimal_covers, set_cover
from finite_resolution.datasets import random_problem, sheared_simplex
from finite_resolution.design import Design, optimal_design
from finite_resolution.problem import Problem
from finite_resolution.reproduce.declaration import paper


@dataclass(frozen=True)
class DelayedConfig:
    """Random problems solved with generated and with all constraints."""

    problems: Count = 8
    costs: Count = 14
    queries: Count = 10
    dimension: Count = 4


@paper.experiment(
    smoke=DelayedConfig(problems=2, costs=9, queries=7, dimension=3),
    laptop=DelayedConfig(),
    paper=DelayedConfig(problems=60, costs=18, queries=14, dimension=5),
    seeds={"smoke": 2, "laptop": 4, "paper": 5},
    minutes={"laptop": 1.0, "paper": 60},
)
def delayed_constraints(config: DelayedConfig, run: Run) -> None:
    """The generated set cover reaches the enumerated optimum from a share of its cover sets."""
    rows, bounds, seconds_full, seconds_delayed = [], [], 0.0, 0.0
    monotone = True
    for i in run.progress(range(config.problems), "problems"):
        make = (random_problem, sheared_simplex)[i % 2]
        problem = make(run.rng, config.dimension, config.costs, config.queries)
        start = time.perf_counter()
        every = {cover_set(problem, t) for t in all_minimal_hard_tuples(problem)}
        truth = np.inf if frozenset() in every else set_cover(sorted(every, key=sorted), problem.queries.price).value
        seconds_full += time.perf_counter() - start
        single = optimal_design(problem, multi_cut=1)
        start = time.perf_counter()
        multi = optimal_design(_fresh(problem))
        seconds_delayed += time.perf_counter() - start
        monotone &= all(
            np.diff([it.lower_bound for it in design.iterations]).min(initial=0.0) >= 0 for design in (single, multi)
        )
        right = single.price == multi.price == truth
        if truth == np.inf:  # nothing is generated for an infeasible library; it must be recognised all the same
            right &= single.status == multi.status == "infeasible"
        rows.append(
            {
                "family": make.__name__,
                "right": right,
                "feasible": truth < np.inf,
                "generated": _generated(problem, single),
                "generated_multi_cut": _generated(problem, multi),
                "cover_sets": len(every),
                "undominated": len(minimal_covers(sorted(every, key=sorted))),
            }
        )
        if truth < np.inf and truth > 0:
            steps = [{"iteration": k, "bound": it.lower_bound / truth} for k, it in enumerate(single.iterations)]
            bounds += [step | {"problem": len(rows) - 1} for step in steps]

    table = pd.DataFrame(rows)
    solved = table[table["feasible"] & (table["cover_sets"] > 0)]
    run.measure("optima_disagreeing", (~table["right"]).sum())
    run.measure("lower_bounds_never_fall", monotone)
    shares = solved["generated"] / solved["cover_sets"]
    # a sheared simplex often has one distinct cover set, of which no method can generate less than all
    run.measure("median_generated_share", shares[solved["family"] == "random_problem"].median())
    run.measure("median_generated_share_both_families", shares.median())
    multi_cut = solved["generated_multi_cut"] / solved["cover_sets"]
    run.measure("median_generated_share_multi_cut", multi_cut[solved["family"] == "random_problem"].median())
    run.measure("speedup_over_enumeration", seconds_full / seconds_delayed, timing=True)
    run.table("problems", table)
    run.table("bounds", pd.DataFrame(bounds, columns=["iteration", "bound", "problem"]))


def _fresh(problem: Problem) -> Problem:
    """The same problem with cold solvers, so that timing it after another method is fair."""
    return Problem(problem.X, problem.costs, problem.queries, problem.eps)


def _generated(problem: Problem, design: Design) -> int:
    return len({cover_set(problem, t) for t in design.tuples})


@paper.figures(delayed_constraints)
def delayed_figures(tables: dict[str, pd.DataFrame]):
    fig, (left, right) = plotting.subplots(1, 2, figsize=(9.6, 4.0))
    for _, steps in tables["bounds"].groupby(["seed", "problem"]):
        left.plot(steps["iteration"], steps["bound"], color=plotting.COLOURS[0], alpha=0.35, linewidth=1.0)
    left.axhline(1.0, color="black", linestyle="--", linewidth=1.0, label="optimum")
    left.set(xlabel="round (one hard tuple learned in each)", ylabel="lower bound / optimal price")
    left.legend(loc="lower right")
    solved = tables["problems"].query("feasible and cover_sets > 0")
    for k, (family, group) in enumerate(solved.groupby("family")):
        label = {"random_problem": "normal costs", "sheared_simplex": "sheared simplex"}[str(family)]
        right.scatter(
            group["cover_sets"], group["generated"], color=plotting.COLOURS[k], marker=plotting.MARKERS[k], label=label
        )
    reach = np.array([1.0, solved["cover_sets"].max()])
    right.plot(reach, reach, color="black", linestyle="--", linewidth=1.0, label="all of them")
    right.plot(reach, reach / 2, color="black", linestyle=":", linewidth=1.0, label="half")
    right.set(
        xlabel="distinct cover sets of minimal hard tuples", ylabel="cover sets generated", xscale="log", yscale="log"
    )
    right.legend(loc="upper left")
    return {"delayed_constraints": fig}
