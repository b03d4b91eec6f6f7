"""A problem from CSV files: costs, queries, and decisions or constraints, matched by column name."""

from pathlib import Path

import numpy as np
import pandas as pd

from finite_resolution.feasible import FeasibleSet, FiniteDecisions, Polytope, VertexHull
from finite_resolution.problem import Problem

SENSES = ("<=", ">=", "=")


def read_problem(
    costs: str | Path,
    queries: str | Path,
    eps: float,
    decisions: str | Path | None = None,
    indivisible: bool = False,
    constraints: str | Path | None = None,
    lower: float = 0.0,
    upper: float | None = None,
) -> Problem:
    """The design problem that CSV files state.

    Args:
        costs: a row a scenario, its name in the first column, then a column a cost component.
        queries: a row a query, its name in the first column, then components (those left out weigh 0), and the
            columns `price` (1 when
            left out) and `error` (0 when left out).
        eps: regret tolerance, in the unit of the costs.
        decisions: a row a decision, its name in the first column, then a column for every component.
        indivisible: exactly one decision is taken; otherwise mixtures are allowed.
        constraints: instead of decisions: a row a linear constraint, columns of components (0 when left out), `sense`
            and `rhs`.
        lower, upper: bounds of every component, with constraints.

    Raises:
        OSError: a file cannot be read.
        ValueError: a column is missing or unknown, an entry is no number, or both or neither of decisions and
            constraints are given.
    """
    if (decisions is None) == (constraints is None):
        raise ValueError("give either decisions or constraints: one of them states the feasible set")
    cost_table = _read(costs)
    components = list(cost_table.columns)
    if decisions is not None:
        X: FeasibleSet = _decision_set(Path(decisions), components, indivisible)
    else:
        X = _constraint_set(Path(constraints or ""), components, lower, upper)
    query_table = _read(queries)
    prices, errors = (
        query_table.pop(column) if column in query_table.columns else default
        for column, default in (("price", 1.0), ("error", 0.0))
    )
    return Problem.from_frames(X, cost_table, query_table.fillna(0.0), prices, errors, eps)


def _read(path: str | Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, index_col=0)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV table: {error}") from error
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            raise ValueError(f"{path}: column {column!r} must hold numbers, got {table[column].iloc[0]!r}")
    return table


def _decision_set(path: Path, components: list[str], indivisible: bool) -> FeasibleSet:
    table = _read(path)
    _check_columns(path, table, components)
    missing = [c for c in components if c not in table.columns]
    if missing:
        raise ValueError(f"{path} needs the column {missing[0]!r}, a component of the costs")
    V = table[components].to_numpy()
    return FiniteDecisions(V) if indivisible else VertexHull(V)


def _constraint_set(path: Path, components: list[str], lower: float, upper: float | None) -> Polytope:
    try:
        table = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV table: {error}") from error
    for column in ("sense", "rhs"):
        if column not in table.columns:
            raise ValueError(f"{path} needs the column {column!r}")
    sense, rhs = table.pop("sense").astype(str).str.strip(), table.pop("rhs")
    wrong = sense[~sense.isin(SENSES)]
    if len(wrong):
        raise ValueError(f"{path}: sense must be one of {', '.join(SENSES)}, got {wrong.iloc[0]!r}")
    _check_columns(path, table, components)
    A = table.reindex(columns=components, fill_value=0.0).fillna(0.0).to_numpy(dtype=float)
    flip = np.where(sense == ">=", -1.0, 1.0)
    equal = (sense == "=").to_numpy()
    A_ub, b_ub = A * flip[:, None], rhs.to_numpy(dtype=float) * flip
    d = len(components)
    return Polytope(
        A_ub[~equal],
        b_ub[~equal],
        A[equal],
        rhs.to_numpy(dtype=float)[equal],
        np.full(d, lower),
        np.full(d, np.inf if upper is None else upper),
    )


def _check_columns(path: Path, table: pd.DataFrame, components: list[str]) -> None:
    unknown = [str(c) for c in table.columns if c not in components]
    if unknown:
        raise ValueError(f"{path} has a column {unknown[0]!r} that the costs do not have")
