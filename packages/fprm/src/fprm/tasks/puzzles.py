"""A set of puzzles in memory, and the CSV layout of Sudoku-Extreme and Maze-Hard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from ..training import Batch

Augmentation = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class PuzzleSet:
    """Puzzles with their answers.

    Attributes:
        inputs: token ids `(puzzles, tokens)`.
        labels: classes `(puzzles, tokens)`; -100 where none is asked for.
        difficulty: a measure that no model has a part in (blank cells, path length, sequence length, rating).

    Raises:
        ValueError: if the shapes do not fit together.
    """

    inputs: Int[np.ndarray, "puzzles tokens"]
    labels: Int[np.ndarray, "puzzles tokens"]
    difficulty: Float[np.ndarray, " puzzles"]

    def __post_init__(self) -> None:
        if self.inputs.shape != self.labels.shape or len(self.difficulty) != len(self.inputs):
            raise ValueError(
                f"inputs {self.inputs.shape}, labels {self.labels.shape} and difficulty {self.difficulty.shape} "
                "do not fit together"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, index: np.ndarray) -> PuzzleSet:
        """Some of the puzzles."""
        return PuzzleSet(self.inputs[index], self.labels[index], self.difficulty[index])

    def sampler(self, rng: np.random.Generator, augment: Augmentation | None = None) -> Callable[[int], Batch]:
        """A source for the trainer: goes through the puzzles in random order, again and again.

        Args:
            rng: source of the order and of the augmentation.
            augment: maps the inputs and labels of a batch to equivalent ones.

        Raises:
            ValueError: for an empty set.
        """
        if not len(self):
            raise ValueError("cannot sample from an empty puzzle set")

        def order() -> Iterator[int]:
            while True:
                yield from rng.permutation(len(self))

        indices = order()

        def source(count: int) -> Batch:
            chosen = np.fromiter((next(indices) for _ in range(count)), dtype=np.int64, count=count)
            inputs, labels = self.inputs[chosen], self.labels[chosen]
            if augment is not None:
                inputs, labels = augment(inputs, labels, rng)
            return Batch(torch.from_numpy(inputs), torch.from_numpy(labels))

        return source


def read_puzzle_csv(path: str | Path, alphabet: dict[str, int], max_rows: int | None = None) -> pd.DataFrame:
    """Read a CSV with the columns `source,question,answer,rating` (one character a cell).

    Args:
        path: the file; may be compressed.
        alphabet: token id of each character.
        max_rows: read at most this many rows.

    Returns:
        The table, with `question` and `answer` as lists of token ids.

    Raises:
        ValueError: for a missing column, an unknown character or rows of different length; names the row.
        FileNotFoundError: if there is no such file.
    """
    table = pd.read_csv(path, dtype={"question": str, "answer": str}, nrows=max_rows, keep_default_na=False)
    missing = [name for name in ("source", "question", "answer", "rating") if name not in table.columns]
    if missing:
        raise ValueError(f"{path}: missing columns {missing}; expected source,question,answer,rating")
    if not len(table):
        raise ValueError(f"{path}: no puzzles")
    cells = len(table["question"].iloc[0])
    for column in ("question", "answer"):
        encoded = []
        for row, text in enumerate(table[column]):
            if len(text) != cells:
                raise ValueError(f"{path}, row {row + 1}: {column} has {len(text)} cells, expected {cells}")
            try:
                encoded.append([alphabet[character] for character in text])
            except KeyError as error:
                raise ValueError(f"{path}, row {row + 1}: unknown character {error.args[0]!r} in {column}") from None
        table[column] = encoded
    table["rating"] = pd.to_numeric(table["rating"])
    return table
