"""`fisher-glass`: audit a CSV of features, labels and environments; rank a CSV of candidates."""

from pathlib import Path
from typing import Annotated, cast

import pandas as pd
import typer
from pandas.api.types import is_numeric_dtype

from fisher_glass.audit import FisherGlass
from fisher_glass.influence import Policy

app = typer.Typer(add_completion=False)


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="CSV: one row a sample; feature columns, label, environment.")],
    label: Annotated[str, typer.Option(help="Column of the class.")],
    environment: Annotated[str, typer.Option(help="Column of the environment.")],
    attribute: Annotated[
        str | None, typer.Option(help="Column within whose values classes are compared (default: the environment).")
    ] = None,
    probability: Annotated[
        str | None, typer.Option(help="Column with your model's p(second class); default: a logistic head is trained.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Feature columns, separated by commas (default: all other columns).")
    ] = None,
    pool: Annotated[Path | None, typer.Option(help="CSV of candidates to rank, same columns; label optional.")] = None,
    budget: Annotated[
        int | None, typer.Option(help="Choose that many candidates greedily (default: rank all).")
    ] = None,
    policy: Annotated[str, typer.Option(help="tti, direction, loss or random.")] = "tti",
    alpha: Annotated[float, typer.Option(help="Tail share of the CVaR.")] = 0.1,
    ridge: Annotated[str, typer.Option(help="'auto' or a positive number.")] = "auto",
    table: Annotated[Path | None, typer.Option(help="Write the table to this CSV.")] = None,
    ranking: Annotated[Path | None, typer.Option(help="Write the ranked candidates to this CSV.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this file.")] = None,
) -> None:
    """Print the audit by environment: accuracy, loss, raw and projected information, glass value with certificate."""
    try:
        frame = _read(data)
        named = [label, environment, *(c for c in (attribute, probability) if c)]
        _require(frame, named, data)
        columns = features.split(",") if features else [c for c in frame.columns if c not in named]
        _require(frame, columns, data, numeric=True)
        model = FisherGlass(alpha=alpha, ridge="auto" if ridge == "auto" else _number(ridge))
        model.fit(
            frame[columns].to_numpy(float),
            frame[label].to_numpy(),
            frame[environment].to_numpy(),
            None if attribute is None else frame[attribute].to_numpy(),
            None if probability is None else frame[probability].to_numpy(float),
        )
        print(model.audit_)
        if table is not None:
            model.table_.to_csv(table)
        if figure is not None:
            model.audit_.figure().savefig(figure)
        if pool is not None:
            candidates = _read(pool)
            _require(candidates, [environment, *([probability] if probability else [])], pool)
            _require(candidates, columns, pool, numeric=True)
            ranked = model.rank_repairs(
                candidates[columns].to_numpy(float),
                candidates[environment].to_numpy(),
                candidates[label].to_numpy() if label in candidates else None,
                None if probability is None else candidates[probability].to_numpy(float),
                policy=cast(Policy, policy),
                budget=budget,
            )
            print(f"\nbest candidates of {pool} (row numbers from 0):\n{ranked.head(20).to_string()}")
            if ranking is not None:
                ranked.to_csv(ranking)
    except (ValueError, OSError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no CSV: {error}") from None


def _require(frame: pd.DataFrame, columns: list[str], path: Path, numeric: bool = False) -> None:
    missing = [name for name in columns if name not in frame.columns]
    if missing or not columns:
        wanted = ", ".join(missing) or "features"
        raise ValueError(f"{path} has no column {wanted}; it has {', '.join(map(str, frame.columns))}")
    words = [name for name in columns if numeric and not is_numeric_dtype(frame[name])]
    if words:
        raise ValueError(
            f"features must be numbers, but column {words[0]} of {path} is not; name others with --features"
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"ridge must be 'auto' or a positive number, got {text!r}") from None
