"""`kernel-fdr`: discoveries from a table of counts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from kernel_fdr.tables import analyse_table

app = typer.Typer(add_completion=False)


@app.command()
def analyse(
    counts: Annotated[
        Path,
        typer.Argument(help="CSV with id, k, n (or id, p, n) and optional coordinates", exists=True, dir_okay=False),
    ],
    out: Annotated[Path, typer.Option(help="where the table goes")] = Path("discoveries.csv"),
    coordinates: Annotated[
        Path | None, typer.Option(help="CSV with id and coordinates", exists=True, dir_okay=False)
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="CSV edge list: two ids, optional weight", exists=True, dir_okay=False)
    ] = None,
    tree: Annotated[Path | None, typer.Option(help="Newick tree", exists=True, dir_okay=False)] = None,
    q: Annotated[float, typer.Option(help="FDR level")] = 0.1,
    rule: Annotated[str, typer.Option(help="mirror or seqstep")] = "mirror",
    stretch: Annotated[int, typer.Option(help="relaxed mirror: large counts paired with a small one")] = 1,
    length_scale: Annotated[
        float | None, typer.Option(help="Matern length in median distances; chosen by cross-validation if left out")
    ] = None,
    beta: Annotated[float, typer.Option(help="diffusion time on a graph")] = 2.0,
    scale: Annotated[float | None, typer.Option(help="tree kernel's length; three mean branches if left out")] = None,
    seed: Annotated[int, typer.Option(help="seed of folds and ties")] = 0,
) -> None:
    """Control the false discovery rate over structured hypotheses with few null draws each; write a table."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            result = analyse_table(
                counts, coordinates, edges, tree, q, rule, stretch, length_scale, beta, scale, random_state=seed
            )
    except ValueError as error:
        typer.echo(f"kernel-fdr: {error}", err=True)
        raise typer.Exit(2) from None
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            typer.echo(f"kernel-fdr: {warning.message}", err=True)
    try:
        result.to_csv(out, index=False)
    except OSError as error:
        typer.echo(f"kernel-fdr: cannot write {out}: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{int(result['discovery'].sum())} discoveries among {len(result)} hypotheses at FDR {q:g}; wrote {out}")
