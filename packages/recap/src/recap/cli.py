"""``recap MODEL.POMDP``: a small controller for your own model, with what bounds it from both sides."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from .cassandra import load_policy, load_pomdp
from .codebook import RECAP
from .converse import converse_bounds
from .exact import MAX_STATES, exact_value_iteration
from .pomdp import ROW_TOLERANCE
from .solvers import belief_sample, solve
from .upper import upper_value

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def design(
    model: Annotated[Path, typer.Argument(help="Model in Cassandra's .POMDP format.")],
    memory: Annotated[int, typer.Option(help="Largest number of memory states.", min=1)] = 6,
    gamma: Annotated[float | None, typer.Option(help="Discount to use instead of the file's.")] = None,
    policy: Annotated[Path | None, typer.Option(help="Alpha-vectors (.alpha, or SARSOP's .policy) to use.")] = None,
    beliefs: Annotated[int, typer.Option(help="Beliefs that the solver collects in each round.", min=1)] = 250,
    row_tolerance: Annotated[
        float, typer.Option(help="Rescale rows that miss a sum of 1 by no more than this.")
    ] = ROW_TOLERANCE,
    seed: Annotated[int, typer.Option(help="Seed of the solver and the design.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Write the controller here: .json or .dot.")] = None,
) -> None:
    """Design controllers with 1 to MEMORY states and print their exact values and limits."""
    if output is not None and output.suffix not in (".json", ".dot"):
        _fail(f"--output must end in .json or .dot, got {output.name}")
    try:
        pomdp = load_pomdp(model, gamma=gamma, tolerance=row_tolerance)
        vf = solve(pomdp, beliefs, seed=seed) if policy is None else load_policy(policy, pomdp)
    except (ValueError, OSError) as error:
        _fail(str(error))
    typer.echo(f"{model.name}: {pomdp.n_states} states, {pomdp.n_actions} actions, {pomdp.n_observations} observations")
    low = float(vf.value(pomdp.b0))
    high = float(upper_value(pomdp, pomdp.b0[None], vf).value(pomdp.b0))
    typer.echo(f"optimal value with unlimited memory: {low:.6g} to {high:.6g}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        recap = RECAP(memory, seed=seed).fit(pomdp, vf, belief_sample(pomdp, vf, seed=seed))
    whole = exact_value_iteration(pomdp) if 2 <= pomdp.n_states <= MAX_STATES else vf
    limits = converse_bounds(pomdp, whole, recap.path_)
    typer.echo(f"{'memory':>6}  {'value':>12}  {'loss at most':>12}  {'loss of any controller at least':>31}")
    for K, controller in recap.path_.items():
        value = controller.value(pomdp)
        typer.echo(f"{K:>6}  {value:>12.6g}  {high - value:>12.4g}  {limits[K].value:>31.4g}")
    if output is not None:
        controller = recap.controller_
        content = controller.to_dot(pomdp)
        if output.suffix == ".json":
            content = json.dumps(
                {
                    "actions": [pomdp.actions[a] for a in controller.actions],
                    "start": controller.m0,
                    "next": [
                        {pomdp.observations[o]: int(m) for o, m in enumerate(row)} for row in controller.next
                    ],
                    "value": recap.value_,
                },
                indent=2,
            )  # fmt: skip
        output.write_text(content + "\n", encoding="utf-8")
        typer.echo(f"wrote {output}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)
