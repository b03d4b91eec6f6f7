"""A design as a JSON file: enough to decide from it later, on another machine, without the tables it was made from."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from finite_resolution.design import Design
from finite_resolution.feasible import Box, FeasibleSet, FiniteDecisions, Polytope, VertexHull
from finite_resolution.problem import Problem, Queries

FORMAT = "finite-resolution design 1"
_STATEMENT: dict[type, tuple[str, ...]] = {
    Polytope: ("A_ub", "b_ub", "A_eq", "b_eq", "lb", "ub"),
    VertexHull: ("V",),
    FiniteDecisions: ("V",),
    Box: ("lb", "ub"),
}


def save_design(design: Design, path: str | Path) -> None:
    """Write the design and its decision rule.

    Raises:
        TypeError: a feasible set of another kind than `Polytope`, `VertexHull`, `FiniteDecisions` and `Box`.
    """
    problem, X = design.problem, design.problem.X
    if type(X) not in _STATEMENT:
        raise TypeError(
            f"cannot save a {type(X).__name__}: expected one of {', '.join(t.__name__ for t in _STATEMENT)}"
        )
    q = problem.queries
    content = {
        "format": FORMAT,
        "status": design.status,
        "selected": None if design.selected is None else list(design.selected),
        "price": _finite(design.price),
        "lower_bound": _finite(design.lower_bound),
        "certificate": None if design.certificate is None else list(design.certificate),
        "eps": problem.eps,
        "tol": problem.tol,
        "feasible": {"kind": type(X).__name__} | {key: _plain(getattr(X, key)) for key in _STATEMENT[type(X)]},
        "scenarios": list(problem.scenarios),
        "components": list(problem.components),
        "costs": problem.costs.tolist(),
        "queries": {"Q": q.Q.tolist(), "delta": q.delta.tolist(), "price": q.price.tolist(), "names": list(q.names)},
    }
    Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_design(path: str | Path) -> Design:
    """The design in a file written by `save_design`; it decides as the original does.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not such a design.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        content: dict[str, Any] = json.loads(text)
        if content.get("format") != FORMAT:
            raise ValueError(f"format is {content.get('format')!r}, expected {FORMAT!r}")
        q = content["queries"]
        queries = Queries(_matrix(q["Q"], len(content["costs"][0])), q["delta"], q["price"], tuple(q["names"]))
        problem = Problem(
            _feasible(content["feasible"]),
            content["costs"],
            queries,
            content["eps"],
            content["tol"],
            content["scenarios"],
            content["components"],
        )
        selected, certificate = content["selected"], content["certificate"]
        return Design(
            problem,
            None if selected is None else tuple(problem.design(selected)),
            math.inf if content["price"] is None else content["price"],
            math.inf if content["lower_bound"] is None else content["lower_bound"],
            content["status"],
            certificate=None if certificate is None else tuple(problem.members(certificate)),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a saved design: {error}") from error


def _feasible(content: dict[str, Any]) -> FeasibleSet:
    kinds = {kind.__name__: kind for kind in _STATEMENT}
    kind = kinds[content["kind"]]
    arrays = {key: content[key] for key in _STATEMENT[kind]}
    if kind is Polytope:
        d = len(arrays["lb"])
        for key in ("A_ub", "A_eq"):
            arrays[key] = _matrix(arrays[key], d)
        arrays["lb"] = [-math.inf if b is None else b for b in arrays["lb"]]
        arrays["ub"] = [math.inf if b is None else b for b in arrays["ub"]]
    return kind(**arrays)


def _matrix(rows: list[list[float]], width: int) -> np.ndarray:
    return np.array(rows, dtype=float).reshape(len(rows), width)


def _plain(array) -> list:
    return [_plain(part) if hasattr(part, "__len__") else _finite(float(part)) for part in array]


def _finite(number: float) -> float | None:
    """JSON has no infinity: null stands for an open bound or a missing price."""
    return number if math.isfinite(number) else None
