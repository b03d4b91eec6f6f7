"""Greedy's guarantee, and the family on which it is as bad as the hardness result allows to expect."""

from dataclasses import dataclass

import pandas as pd

from claimlab import Count, Counts, Run, plotting
from finite_resolution.certificate import all_minimal_hard_tuples, cover_set
from finite_resolution.covering import harmonic, set_cover
from finite_resolution.datasets import random_problem, sheared_simplex
from finite_resolution.design import greedy_design, optimal_design
from finite_resolution.reproduce.declaration import paper
from finite_resolution.set_systems import greedy_trap, problem_from_set_cover, random_sets


@dataclass(frozen=True)
class GreedyConfig:
    """Greedy against the optimum."""

    problems: Count = 10
    """Random design problems a seed; infeasible ones are drawn again."""
    costs: Count = 9
    queries: Count = 8
    systems: Count = 20
    """Random set systems a seed, as design problems."""
    elements: Count = 20
    sets: Count = 14
    traps: Counts = (2, 3, 4, 5, 6)
    """Orders k of the adversarial family."""


@paper.experiment(
    smoke=GreedyConfig(problems=2, costs=7, queries=6, systems=3, elements=10, sets=8, traps=(2, 3)),
    laptop=GreedyConfig(),
    paper=GreedyConfig(problems=100, costs=12, queries=12, systems=200, elements=40, sets=25),
    minutes={"laptop": 0.7, "paper": 20},
)
def greedy(config: GreedyConfig, run: Run) -> None:
    """Price of greedy over the optimal price, divided by H(g); the adversarial family; the reduction's size and
    optimum.
    """
    rows = []
    while len(rows) < config.problems:
        make = (random_problem, sheared_simplex)[len(rows) % 2]
        problem = make(run.rng, int(run.rng.integers(2, 5)), config.costs, config.queries)
        covers = [cover_set(problem, t) for t in all_minimal_hard_tuples(problem)]
        if all(covers):
            prices = problem.queries.price
            best, g = optimal_design(problem).price, _most_covered(covers, len(prices))
            for rule, price in (
                ("all tuples", set_cover(covers, prices, "greedy").value),
                ("generated tuples", greedy_design(problem).price),
            ):
                rows_of = {
                    "instance": make.__name__,
                    "rule": rule,
                    "ratio": price / best if best else 1.0,
                    "guarantee": harmonic(g),
                }
                rows.append(rows_of | {"problem": len(rows)})
    for i in run.progress(range(config.systems), "set systems"):
        prices = run.rng.integers(1, 6, config.sets).astype(float)
        problem = problem_from_set_cover(
            random_sets(run.rng, config.elements, config.sets, 0.25), config.elements, prices
        )
        covers = _pair_covers(problem, config.elements)
        ratio = set_cover(covers, prices, "greedy").value / set_cover(covers, prices).value
        rows.append(
            {
                "instance": "set system",
                "rule": "all tuples",
                "ratio": ratio,
                "guarantee": harmonic(_most_covered(covers, config.sets)),
                "problem": i,
            }
        )
    table = pd.DataFrame(rows)

    traps = []
    for k in config.traps:
        sets, n = greedy_trap(k)
        problem = problem_from_set_cover(sets, n)
        covers = _pair_covers(problem, n)
        prices = problem.queries.price
        taken, best = set_cover(covers, prices, "greedy").value, set_cover(covers, prices).value
        traps.append(
            {
                "k": k,
                "elements": n,
                "ratio": taken / best,
                "guarantee": harmonic(_most_covered(covers, len(sets))),
                "optimum": best,
            }
        )
    trap = pd.DataFrame(traps)
    largest = trap.iloc[-1]

    used = pd.concat([table["ratio"] / table["guarantee"], trap["ratio"] / trap["guarantee"]])
    run.measure("ratios_above_guarantee", (used > 1 + 1e-12).sum())
    run.measure("largest_ratio_over_guarantee", used.max())
    run.measure("mean_ratio", table["ratio"].mean())
    run.measure("trap_ratio_error", (trap["ratio"] - trap["k"] / 2).abs().max())
    run.measure("largest_trap_ratio", largest["ratio"])
    run.measure("trap_optima_right", bool((trap["optimum"] == 2).all()))
    run.table("ratios", table)
    run.table("traps", trap)


def _pair_covers(problem, n: int) -> list[frozenset[int]]:
    """Cover sets of the pairs {+e_u, -e_u}, the reduction's only minimal hard tuples."""
    return [cover_set(problem, (u, n + u)) for u in range(n)]


def _most_covered(covers: list[frozenset[int]], m: int) -> int:
    return max((sum(j in c for c in covers) for j in range(m)), default=0) or 1


@paper.figures(greedy)
def greedy_figures(tables: dict[str, pd.DataFrame]):
    trap = tables["traps"].drop_duplicates("k")
    ratios = tables["ratios"]["ratio"]
    fig, ax = plotting.subplots()
    ax.plot(trap["elements"], trap["guarantee"], color="black", linestyle="--", label="guarantee H(g)")
    ax.plot(trap["elements"], trap["ratio"], color=plotting.COLOURS[1], marker="s", label="adversarial family (k/2)")
    ax.axhspan(ratios.min(), ratios.max(), color=plotting.COLOURS[0], alpha=0.15, label="random problems: range")
    ax.axhline(ratios.mean(), color=plotting.COLOURS[0], label="random problems: mean")
    ax.set(xlabel="elements to cover", ylabel="price of greedy / optimal price", xscale="log", xticks=trap["elements"])
    ax.set_xticks(trap["elements"], [str(n) for n in trap["elements"]])
    ax.minorticks_off()
    ax.legend()
    return {"greedy_ratio": fig}
