"""Sudoku of any box size: generator, solver, symmetries, and the Sudoku-Extreme CSV.

Grids are flat integer arrays, 0 for a blank and 1 to `side` for digits, with `side = box * box`.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from .puzzles import PuzzleSet, read_puzzle_csv


def box_size(cells: int) -> int:
    """Box size of a grid of `cells` cells (2 for 16, 3 for 81).

    Raises:
        ValueError: if there is no such grid.
    """
    box = round(cells**0.25)
    if cells < 1 or box**4 != cells:
        raise ValueError(f"a Sudoku grid has 16, 81, 256, … cells, got {cells}")
    return box


@lru_cache
def _units(box: int) -> tuple[tuple[int, int, int], ...]:
    """Row, column and box of every cell."""
    side = box * box
    return tuple((r, c, (r // box) * box + c // box) for r in range(side) for c in range(side))


def solutions(
    grid: Int[np.ndarray, " cells"], limit: int = 2, rng: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Up to `limit` solutions, by backtracking on the blank with the fewest candidates.

    Args:
        grid: the puzzle.
        limit: stop after this many; 2 is enough to tell whether a solution is unique.
        rng: tries the candidates in random order, which makes the first solution of an empty grid random.

    Raises:
        ValueError: for a grid of a wrong size or a digit out of range. Two equal digits in a unit give no solution.
    """
    box = box_size(grid.size)
    side, units = box * box, _units(box)
    if grid.min() < 0 or grid.max() > side:
        raise ValueError(f"digits must lie in 0..{side}, got {int(grid.min())} to {int(grid.max())}")
    cells = [int(digit) for digit in grid]
    rows, columns, boxes = [0] * side, [0] * side, [0] * side
    for cell, digit in enumerate(cells):
        if digit:
            r, c, b = units[cell]
            bit = 1 << digit
            if (rows[r] | columns[c] | boxes[b]) & bit:
                return []
            rows[r], columns[c], boxes[b] = rows[r] | bit, columns[c] | bit, boxes[b] | bit
    found: list[np.ndarray] = []

    def search(blanks: list[int]) -> None:
        if not blanks:
            found.append(np.array(cells))
            return

        taken = [rows[r] | columns[c] | boxes[b] for r, c, b in map(units.__getitem__, blanks)]
        place = max(range(len(blanks)), key=lambda i: taken[i].bit_count())
        cell, rest = blanks[place], blanks[:place] + blanks[place + 1 :]
        r, c, b = units[cell]
        candidates = [digit for digit in range(1, side + 1) if not taken[place] >> digit & 1]
        for digit in candidates if rng is None else rng.permutation(candidates).tolist():
            bit = 1 << digit
            cells[cell] = digit
            rows[r], columns[c], boxes[b] = rows[r] ^ bit, columns[c] ^ bit, boxes[b] ^ bit
            search(rest)
            rows[r], columns[c], boxes[b] = rows[r] ^ bit, columns[c] ^ bit, boxes[b] ^ bit
            cells[cell] = 0
            if len(found) >= limit:
                return

    search([cell for cell, digit in enumerate(cells) if not digit])
    return found


def solve(grid: Int[np.ndarray, " cells"]) -> Int[np.ndarray, " cells"]:
    """The solution.

    Raises:
        ValueError: if there is none, or more than one.
    """
    found = solutions(grid)
    if len(found) != 1:
        raise ValueError(f"the puzzle has {'no solution' if not found else 'more than one solution'}: {grid.tolist()}")
    return found[0]


@lru_cache
def complete_grids(box: int = 2) -> Int[np.ndarray, "grids cells"]:
    """Every complete grid; 288 for 4x4. The array is shared, so it cannot be written to.

    Raises:
        ValueError: for a box size other than 2: there are 6.7e21 grids of 9x9.
    """
    if box != 2:
        raise ValueError(f"only the 4x4 grids (box=2) can be listed, got box={box}")
    rows = np.array(list(itertools.permutations(range(1, 5))))
    grids = rows[np.array(list(itertools.product(range(24), repeat=4)))].reshape(-1, 16)
    grids = grids[is_complete(grids)]
    grids.flags.writeable = False
    return grids


def random_puzzle(blanks: int, rng: np.random.Generator, box: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A random puzzle with a unique solution, and that solution.

    Digits are taken away in random order as long as the solution stays unique; if too few can go, a new grid is tried.

    Args:
        blanks: blank cells of the puzzle.

    Raises:
        ValueError: for a number of blanks that no puzzle has, or if 200 grids did not give one.
    """
    side = box * box
    if not 0 <= blanks < side * side:
        raise ValueError(f"blanks must lie in [0, {side * side}), got {blanks}")
    for _ in range(200):
        answer = solutions(np.zeros(side * side, dtype=np.int64), limit=1, rng=rng)[0]
        puzzle = answer.copy()
        left = blanks
        for cell in rng.permutation(side * side):
            if not left:
                break
            puzzle[cell] = 0
            if len(solutions(puzzle)) == 1:
                left -= 1
            else:
                puzzle[cell] = answer[cell]
        if not left:
            return puzzle, answer
    raise ValueError(f"found no puzzle with {blanks} blanks and a unique solution in 200 grids")


def small_puzzles(
    grids: Int[np.ndarray, "grids 16"], count: int, blanks: tuple[int, int], rng: np.random.Generator
) -> PuzzleSet:
    """Random 4x4 puzzles with unique solutions, made of the given complete grids only.

    Uniqueness is checked against all 288 grids, in one comparison for many puzzles.

    Args:
        grids: complete grids to draw from; split these, not the puzzles, into training and test.
        count: number of puzzles.
        blanks: fewest and most blank cells (at most 12: fewer than four digits never determine a grid).

    Raises:
        ValueError: for a range of blanks outside 1..12.
    """
    low, high = blanks
    if not 1 <= low <= high <= 12:
        raise ValueError(f"blanks must be a range within 1..12, got {blanks}")
    everything = complete_grids()
    # Each number of blanks gets its share, although a random removal of 12 is unique only about once in fifty.
    wanted = np.resize(np.arange(low, high + 1), count)
    inputs, labels = np.empty((count, 16), dtype=np.int64), np.empty((count, 16), dtype=np.int64)
    open_places = np.arange(count)
    while open_places.size:
        answers = grids[rng.integers(len(grids), size=open_places.size)]
        order = rng.random((open_places.size, 16)).argsort(1).argsort(1)
        puzzles = np.where(order < wanted[open_places, None], 0, answers)
        agrees = ((puzzles[:, None] == everything) | (puzzles[:, None] == 0)).all(2)
        unique = agrees.sum(1) == 1
        inputs[open_places[unique]], labels[open_places[unique]] = puzzles[unique], answers[unique]
        open_places = open_places[~unique]
    return puzzle_set(inputs, labels)


def puzzle_set(puzzles: Int[np.ndarray, "puzzles cells"], answers: Int[np.ndarray, "puzzles cells"]) -> PuzzleSet:
    """Tokens 0 (blank) to `side`, classes 0 to `side - 1`, and the number of blanks as difficulty."""
    return PuzzleSet(puzzles, answers - 1, (puzzles == 0).sum(1).astype(float))


def is_complete(grid: Int[np.ndarray, "*batch cells"]) -> Bool[np.ndarray, "*batch"]:
    """Whether every row, column and box holds every digit once."""
    box = box_size(grid.shape[-1])
    side = box * box
    square = grid.reshape(*grid.shape[:-1], side, side)
    boxes = square.reshape(*grid.shape[:-1], box, box, box, box).swapaxes(-3, -2).reshape(square.shape)
    digits = np.arange(1, side + 1)
    return np.all([(np.sort(unit, -1) == digits).all((-2, -1)) for unit in (square, square.swapaxes(-1, -2), boxes)], 0)


def augment(
    puzzles: Int[np.ndarray, "puzzles cells"], labels: Int[np.ndarray, "puzzles cells"], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A random symmetry for every puzzle: digits, bands and their rows, stacks and their columns, transposition.

    Args:
        puzzles: tokens, 0 for a blank.
        labels: classes, one less than the digit.
    """
    count, cells = puzzles.shape
    box = box_size(cells)
    side = math.isqrt(cells)

    def lines() -> np.ndarray:
        bands = rng.random((count, box)).argsort(1)
        inside = rng.random((count, box, box)).argsort(2)
        return (bands[:, :, None] * box + inside).reshape(count, side)

    positions = lines()[:, :, None] * side + lines()[:, None, :]
    turned = rng.random(count) < 0.5
    positions = np.where(turned[:, None, None], positions.swapaxes(1, 2), positions).reshape(count, cells)
    digits = np.concatenate((np.zeros((count, 1), dtype=np.int64), rng.random((count, side)).argsort(1) + 1), axis=1)
    moved_puzzles = np.take_along_axis(puzzles, positions, 1)
    moved_digits = np.take_along_axis(labels, positions, 1) + 1
    return np.take_along_axis(digits, moved_puzzles, 1), np.take_along_axis(digits, moved_digits, 1) - 1


def read_csv(path: str | Path, max_rows: int | None = None, check_unique: bool = False) -> PuzzleSet:
    """Read puzzles in the layout of Sudoku-Extreme: `source,question,answer,rating`, blanks as `.` or `0`.

    Args:
        path: the file.
        max_rows: read at most this many rows.
        check_unique: solve every puzzle and insist on the answer being its only solution (slow for many).

    Returns:
        The puzzles, with their number of blanks as difficulty.

    Raises:
        ValueError: for a malformed file, a question whose digits differ from its answer, an answer that is no
            complete grid, or, if asked for, a puzzle without a unique solution.
    """
    alphabet = {".": 0} | {str(digit): digit for digit in range(10)}
    table = read_puzzle_csv(path, alphabet, max_rows)
    puzzles, answers = np.array(table["question"].tolist()), np.array(table["answer"].tolist())
    bad = np.flatnonzero(~is_complete(answers) | ((puzzles != 0) & (puzzles != answers)).any(1))
    if bad.size:
        raise ValueError(f"{path}, row {bad[0] + 1}: the answer is no complete grid that fits the question")
    if check_unique:
        for row, puzzle in enumerate(puzzles):
            try:
                solve(puzzle)
            except ValueError as error:
                raise ValueError(f"{path}, row {row + 1}: {error}") from None
    return puzzle_set(puzzles, answers)
