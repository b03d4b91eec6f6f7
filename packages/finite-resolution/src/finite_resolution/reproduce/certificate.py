"""Hard tuples: how large they are, and whether they decide sufficiency."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from claimlab import Count, Counts, Run, plotting
from finite_resolution.brute_force import BruteForce
from finite_resolution.certificate import all_minimal_hard_tuples, gap
from finite_resolution.datasets import add_invisible, random_problem, sheared_simplex, simplex_problem
from finite_resolution.feasible import projected_cost_dimension
from finite_resolution.problem import Problem
from finite_resolution.reproduce.declaration import paper
from finite_resolution.verify import verify_design


@dataclass(frozen=True)
class TupleSizesConfig:
    """Sizes of inclusion-minimal hard tuples over random problems."""

    problems: Count = 16
    """Random problems a seed; half with normal costs, half sheared simplices."""
    dimensions: Counts = (2, 3, 4, 5)
    costs: tuple[Count, Count] = (6, 10)
    """Smallest and largest cost library."""
    simplices: Counts = (2, 3, 4, 5, 6)
    """Sizes n of the simplex family, whose only hard tuple has n costs."""


@paper.experiment(
    smoke=TupleSizesConfig(problems=2, dimensions=(3,), costs=(6, 7), simplices=(2, 3, 4)),
    laptop=TupleSizesConfig(),
    paper=TupleSizesConfig(problems=160),
    minutes={"laptop": 0.5, "paper": 8},
)
def tuple_sizes(config: TupleSizesConfig, run: Run) -> None:
    """All minimal hard tuples up to size a + 2, against the bound a + 1; invisible directions; the simplex family."""
    rows, dimensions, moved = [], [], 0.0
    for i in run.progress(range(config.problems), "problems"):
        d = config.dimensions[i // 2 % len(config.dimensions)]
        n = int(run.rng.integers(config.costs[0], config.costs[1] + 1))
        family = "normal costs" if i % 2 == 0 else "sheared simplex"
        problem = random_problem(run.rng, d, n, 1) if i % 2 == 0 else sheared_simplex(run.rng, d, n, 1)
        a = projected_cost_dimension(problem.X, problem.costs)
        linear = projected_cost_dimension(problem.X, problem.costs, linear=True)
        dimensions.append({"family": family, "problem": i, "affine": a, "linear": linear, "costs": n})
        tuples = all_minimal_hard_tuples(problem, max_size=a + 2)
        rows += [{"family": family, "problem": i, "size": len(t), "bound": a + 1} for t in tuples]
        lifted = add_invisible(run.rng, problem)
        same = projected_cost_dimension(lifted.X, lifted.costs) == a
        groups = [*tuples, *combinations(range(n), 2)]
        moved = max(moved, *(abs(gap(lifted, t) - gap(problem, t)) for t in groups), 0.0 if same else np.inf)

    exact = True
    for n in config.simplices:
        whole = tuple(range(n))
        problem = simplex_problem(n, eps=0.9 / n)
        exact &= all_minimal_hard_tuples(problem, max_size=n) == [whole] and abs(gap(problem, whole) - 1 / n) < 1e-9
        exact &= problem.tuple_size_bound == n
        rows.append({"family": "simplex", "problem": n, "size": n, "bound": n})

    table = pd.DataFrame(rows)
    random = table[table["family"] != "simplex"]
    run.measure("tuples_above_bound", (table["size"] > table["bound"]).sum())
    run.measure("some_random_tuple_above_a", (random["size"] > random["bound"] - 1).any())
    run.measure("simplex_attains_bound", exact)
    run.measure("invisible_gap_change", moved)
    run.measure("random_tuples", len(random))
    run.table("sizes", table)
    run.table("dimensions", pd.DataFrame(dimensions))


@paper.figures(tuple_sizes)
def tuple_sizes_figures(tables: dict[str, pd.DataFrame]):
    sizes = tables["sizes"].assign(room=lambda t: t["size"] - t["bound"])
    fig, ax = plotting.subplots()
    rooms = np.arange(sizes["room"].min(), 2)
    for k, (family, group) in enumerate(sizes.groupby("family", sort=False)):
        counts = [(group["room"] == room).sum() for room in rooms]
        ax.bar(rooms + 0.27 * (k - 1), counts, width=0.25, color=plotting.COLOURS[k], label=family)
    ax.axvline(0.5, color="black", linestyle="--", linewidth=1.2)
    ax.text(0.55, 0.9, "forbidden by\nthe theorem", transform=ax.get_xaxis_transform(), va="top")
    ax.set(
        xlabel="size of a minimal hard tuple minus the bound a + 1",
        ylabel="tuples found",
        yscale="symlog",
        xticks=rooms,
    )
    ax.set_xlim(rooms[0] - 0.6, 1.6)
    ax.set_ylim(0, 20 * sizes.groupby(["family", "room"]).size().max())
    ax.legend(loc="upper left")
    return {"tuple_sizes": fig}


@dataclass(frozen=True)
class VerificationConfig:
    """Both engines and brute force on random problems and random designs."""

    problems: Count = 24
    """Random problems a seed: hull, polytope, finite list and sheared simplex in turn."""
    queries: Count = 5
    costs: Count = 8
    designs: Count = 4
    """Random designs a problem."""


@paper.experiment(
    smoke=VerificationConfig(problems=4, costs=6, designs=2),
    laptop=VerificationConfig(),
    paper=VerificationConfig(problems=250, designs=8),
    minutes={"laptop": 0.8, "paper": 15},
)
def verification(config: VerificationConfig, run: Run) -> None:
    """Fiber engine, integer-program engine and brute force over all reading cells, on random designs."""
    rows = []
    for i in run.progress(range(config.problems), "problems"):
        d = int(run.rng.integers(2, 6))
        kind = ("hull", "polytope", "list", "sheared simplex")[i % 4]
        if kind == "sheared simplex":
            problem = sheared_simplex(run.rng, d, config.costs, config.queries)
        else:
            problem = random_problem(run.rng, d, config.costs, config.queries, kind)
        brute = BruteForce(problem)
        for _ in range(config.designs):
            design = np.flatnonzero(run.rng.random(config.queries) < run.rng.random()).tolist()
            fibers = verify_design(problem, design, "fibers", max_tuples=50)
            milp = verify_design(problem, design, "milp")
            truth = brute.worst_gap(design)
            certificates = [*fibers.hard_tuples, *milp.hard_tuples]
            served = all(problem.regret(f.x)[list(f.members)].max() <= f.worst_regret + 1e-9 for f in fibers.fibers)
            rows.append(
                {
                    "kind": kind,
                    "sufficient": brute.sufficient(design),
                    "fibers_agree": fibers.sufficient == brute.sufficient(design) and served,
                    "milp_agrees": milp.sufficient == brute.sufficient(design),
                    "same_fibers": {frozenset(f.members) for f in fibers.fibers} == brute.fibers(design),
                    "gap_difference": max(abs(fibers.worst_gap - truth), abs(milp.worst_gap - truth)),
                    "certificates": len(certificates),
                    "bad_certificates": sum(not _is_certificate(problem, brute, design, t) for t in certificates),
                    "missing_certificate": not brute.sufficient(design)
                    and not (fibers.hard_tuples and milp.hard_tuples),
                }
            )
    table = pd.DataFrame(rows)
    run.measure("fiber_disagreements", (~table["fibers_agree"] | ~table["same_fibers"]).sum())
    run.measure("milp_disagreements", (~table["milp_agrees"]).sum())
    run.measure("largest_gap_difference", table["gap_difference"].max())
    run.measure("bad_certificates", table["bad_certificates"].sum() + table["missing_certificate"].sum())
    run.measure("certificates", table["certificates"].sum())
    run.measure("both_answers_occur", table["sufficient"].nunique() == 2)
    run.table("designs", table)


def _is_certificate(problem: Problem, brute: BruteForce, design: list[int], members: tuple[int, ...]) -> bool:
    """Hard, inclusion-minimal and within one fiber, each by brute force."""
    together = any(set(members) <= fiber for fiber in brute.fibers(design))
    hard = brute.gap(members) > problem.eps
    minimal = all(brute.gap(part) <= problem.hard_above + 1e-8 for part in combinations(members, len(members) - 1))
    return together and hard and minimal
