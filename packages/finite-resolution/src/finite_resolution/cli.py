"""`finite-resolution`: plan measurements from CSV files, then decide from their readings."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from finite_resolution.design import Design, Iteration, optimal_design
from finite_resolution.errors import SolverError
from finite_resolution.storage import load_design, save_design
from finite_resolution.tables import read_problem

app = typer.Typer(
    help="The cheapest measurements that suffice for decisions with bounded regret.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


@app.command()
def plan(
    costs: Annotated[Path, typer.Argument(help="CSV: a row a scenario (name first), a column a cost component.")],
    queries: Annotated[
        Path, typer.Argument(help="CSV: a row a query (name first), columns of components, `price` and `error`.")
    ],
    eps: Annotated[float, typer.Option(help="Regret that is tolerated, in the unit of the costs.")],
    decisions: Annotated[
        Path | None,
        typer.Option(help="CSV: a row a decision (name first), a column a component; mixtures are allowed."),
    ] = None,
    indivisible: Annotated[bool, typer.Option(help="Exactly one of the decisions is taken, no mixtures.")] = False,
    constraints: Annotated[
        Path | None, typer.Option(help="CSV: a row a constraint, columns of components, `sense` (<=, >=, =) and `rhs`.")
    ] = None,
    lower: Annotated[float, typer.Option(help="Lower bound of every component (with --constraints).")] = 0.0,
    upper: Annotated[float | None, typer.Option(help="Upper bound of every component (with --constraints).")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan and its decision rule to this JSON file.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the best known plan and the bound.")] = None,
    master: Annotated[Literal["highs", "cpsat", "pysat", "greedy"], typer.Option(help="Set-cover solver.")] = "highs",
    verify: Annotated[Literal["fibers", "milp"], typer.Option(help="Verification engine.")] = "fibers",
) -> None:
    """Which queries to buy, at what price, with the proof of how good that is. Exit status 1 when nothing suffices."""
    with _one_line_errors():
        problem = read_problem(costs, queries, eps, decisions, indivisible, constraints, lower, upper)
        with Console(stderr=True).status("verifying the full library") as status:  # nothing where stderr is no terminal

            def show(step: Iteration) -> None:
                status.update(f"lower bound {step.lower_bound:g}, worst regret {step.worst_gap:.4g}")

            design = optimal_design(problem, verify, master, time_limit=time_limit, on_iteration=show)
        if save is not None:
            save_design(design, save)
    _print_plan(design)
    if save is not None:
        console.print(f"saved to {save}", soft_wrap=True)
    if design.selected is None:
        raise typer.Exit(1)


@app.command()
def decide(
    plan: Annotated[Path, typer.Argument(help="JSON file written by `plan --save`.")],
    readings: Annotated[Path, typer.Argument(help="CSV with the columns `query` and `reading`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """The decision after the readings, and the regret that it cannot exceed."""
    with _one_line_errors():
        design = load_design(plan)
        decision = design.decide(_reading_vector(design, readings))
    problem = design.problem
    possible = [problem.scenarios[i] for i in decision.fiber]
    x = dict(zip(problem.components, (float(v) for v in decision.x), strict=True))
    if as_json:
        print(json.dumps({"decision": x, "worst_regret": decision.worst_regret, "scenarios": possible}))
        return
    table = Table("component", "decision")
    for name, value in x.items():
        if abs(value) > 1e-9:
            table.add_row(name, f"{value:.6g}")
    console.print(table)
    console.print(f"worst regret: {decision.worst_regret:.6g} (tolerated: {problem.eps:g})")
    console.print(f"possible scenarios: {len(possible)} of {len(problem.costs)}: {_listed(possible)}")


def _print_plan(design: Design) -> None:
    q = design.problem.queries
    if design.selected:
        table = Table("query", "price", "error")
        for j in design.selected:
            table.add_row(q.names[j], f"{q.price[j]:g}", f"{q.delta[j]:g}")
        console.print(table)
    elif design.selected is not None:
        console.print("nothing to buy: one decision is good enough for every scenario")
    console.print(f"status: {design.status}")
    if design.certificate is not None:
        names = [design.problem.scenarios[i] for i in design.certificate]
        console.print(f"no query tells these scenarios apart, and no decision serves them all: {_listed(names)}")
    elif design.selected is None:
        console.print("no sufficient design is known yet: give more time")
    else:
        console.print(f"price: {design.price:g}")
    console.print(f"lower bound: {design.lower_bound:g}")
    console.print(f"rounds: {len(design.iterations)}, hard tuples learned: {len(design.tuples)}")


def _reading_vector(design: Design, path: Path) -> list[float]:
    table = pd.read_csv(path)
    missing = [column for column in ("query", "reading") if column not in table.columns]
    if missing:
        raise ValueError(f"{path} needs the column {missing[0]!r}, got {', '.join(map(str, table.columns))}")
    if table["query"].duplicated().any():
        raise ValueError(f"{path} reads query {table['query'][table['query'].duplicated()].iloc[0]!r} more than once")
    given = dict(zip(table["query"].astype(str), table["reading"], strict=True))
    for name in design.names:
        if name not in given:
            raise ValueError(f"{path} has no reading for query {name!r}, which the plan buys")
    extra = [name for name in given if name not in design.names]
    if extra:
        raise ValueError(f"{path} reads query {extra[0]!r}, which the plan does not buy")
    return [float(given[name]) for name in design.names]


def _listed(names: list[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, OSError, SolverError) as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(2) from None
