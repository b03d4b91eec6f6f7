"""Loader of the public ARC layout: `{"train": [{"input": [[..]], "output": [[..]]}], "test": [..]}`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

COLOURS = 10
LARGEST_SIDE = 30


@dataclass(frozen=True)
class ArcPair:
    """An input grid and its output, colours 0 to 9; the output is `None` where a test hides it."""

    input: Int[np.ndarray, "rows columns"]
    output: Int[np.ndarray, "out_rows out_columns"] | None


@dataclass(frozen=True)
class ArcTask:
    """One task: demonstrations and tests."""

    name: str
    train: tuple[ArcPair, ...]
    test: tuple[ArcPair, ...]


def load_task(path: str | Path) -> ArcTask:
    """Read one task; its name is the file's.

    Raises:
        ValueError: for a file that is not of this layout; says where.
        FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, dict) or not {"train", "test"} <= content.keys():
        raise ValueError(f"{path}: expected the keys 'train' and 'test'")
    pairs = {
        part: tuple(_pair(entry, part == "train", f"{path}, {part} {i}") for i, entry in enumerate(content[part]))
        for part in ("train", "test")
    }
    return ArcTask(path.stem, pairs["train"], pairs["test"])


def load_folder(path: str | Path) -> list[ArcTask]:
    """Read every `*.json` of a folder, by name.

    Raises:
        ValueError: if there is none, or one is malformed.
    """
    files = sorted(Path(path).glob("*.json"))
    if not files:
        raise ValueError(f"{path}: no *.json files")
    return [load_task(file) for file in files]


def _pair(entry: Any, needs_output: bool, where: str) -> ArcPair:
    if not isinstance(entry, dict) or "input" not in entry or (needs_output and "output" not in entry):
        raise ValueError(f"{where}: expected 'input' and 'output'")
    output = _grid(entry["output"], f"{where} output") if entry.get("output") is not None else None
    return ArcPair(_grid(entry["input"], f"{where} input"), output)


def _grid(rows: Any, where: str) -> np.ndarray:
    try:
        grid = np.array(rows, dtype=np.int64)
    except (ValueError, TypeError):
        raise ValueError(f"{where}: rows must be lists of whole numbers of equal length") from None
    if grid.ndim != 2 or not 1 <= grid.shape[0] <= LARGEST_SIDE or not 1 <= grid.shape[1] <= LARGEST_SIDE:
        raise ValueError(f"{where}: expected a grid of 1 to {LARGEST_SIDE} rows and columns, got shape {grid.shape}")
    if grid.min() < 0 or grid.max() >= COLOURS:
        raise ValueError(f"{where}: colours must lie in 0..9, got {int(grid.min())} to {int(grid.max())}")
    return grid
