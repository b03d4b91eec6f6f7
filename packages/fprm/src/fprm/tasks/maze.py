"""Mazes on a grid of characters: generator, shortest path, and the Maze-Hard CSV.

Cells are tokens: 0 wall `#`, 1 open ` `, 2 start `S`, 3 goal `G`, 4 path `o`.
"""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path

import numpy as np
from jaxtyping import Int

from .puzzles import PuzzleSet, read_puzzle_csv

CHARACTERS = "# SGo"
WALL, OPEN, START, GOAL, PATH = range(5)
_STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def distances(maze: Int[np.ndarray, "rows columns"], source: tuple[int, int]) -> Int[np.ndarray, "rows columns"]:
    """Steps from `source` to every cell, by breadth-first search; -1 where there is no way.

    Raises:
        ValueError: if the source is a wall or lies outside.
    """
    rows, columns = maze.shape
    if not (0 <= source[0] < rows and 0 <= source[1] < columns) or maze[source] == WALL:
        raise ValueError(f"the source {source} is no open cell of the maze")
    found = np.full(maze.shape, -1, dtype=np.int64)
    found[source] = 0
    queue = deque([source])
    while queue:
        row, column = queue.popleft()
        for down, right in _STEPS:
            cell = (row + down, column + right)
            inside = 0 <= cell[0] < rows and 0 <= cell[1] < columns
            if inside and maze[cell] != WALL and found[cell] < 0:
                found[cell] = found[row, column] + 1
                queue.append(cell)
    return found


def shortest_path(maze: Int[np.ndarray, "rows columns"]) -> list[tuple[int, int]]:
    """The shortest way from start to goal, both included.

    Raises:
        ValueError: without exactly one start and one goal, without a way, or with several shortest ways.
    """
    starts, goals = np.argwhere(maze == START).tolist(), np.argwhere(maze == GOAL).tolist()
    if len(starts) != 1 or len(goals) != 1:
        raise ValueError(f"a maze needs one start and one goal, got {len(starts)} and {len(goals)}")
    start, goal = (starts[0][0], starts[0][1]), (goals[0][0], goals[0][1])
    from_start, from_goal = distances(maze, start), distances(maze, goal)
    length = from_start[goal]
    if length < 0:
        raise ValueError("there is no way from start to goal")
    on_path = np.argwhere((from_start >= 0) & (from_start + from_goal == length))
    if len(on_path) != length + 1:
        raise ValueError("the shortest way is not unique")
    return sorted(((int(r), int(c)) for r, c in on_path), key=lambda cell: int(from_start[cell]))


def random_maze(side: int, openings: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A maze and the same maze with its shortest path, which is unique.

    A perfect maze is carved by depth-first search; then `openings` further walls are opened, which makes loops;
    start and goal are drawn until the shortest way between them is unique.

    Args:
        side: cells of an edge, walls included: odd, at least 5.
        openings: walls to open beyond the perfect maze.

    Raises:
        ValueError: for an even or too small side, or negative openings.
    """
    if side < 5 or side % 2 == 0:
        raise ValueError(f"side must be odd and at least 5, got {side}")
    if openings < 0:
        raise ValueError(f"openings must not be negative, got {openings}")
    maze = np.full((side, side), WALL, dtype=np.int64)
    maze[1, 1] = OPEN
    stack = [(1, 1)]
    while stack:
        row, column = stack[-1]
        neighbours = [(row + 2 * down, column + 2 * right) for down, right in _STEPS]
        closed = [n for n in neighbours if 0 < n[0] < side and 0 < n[1] < side and maze[n] == WALL]
        if not closed:
            stack.pop()
            continue
        chosen = closed[rng.integers(len(closed))]
        maze[chosen] = maze[(row + chosen[0]) // 2, (column + chosen[1]) // 2] = OPEN
        stack.append(chosen)
    inner = np.zeros_like(maze, dtype=bool)
    inner[1:-1, 1:-1] = (np.add.outer(np.arange(1, side - 1), np.arange(1, side - 1)) % 2) == 1
    walls = np.argwhere(inner & (maze == WALL))
    for row, column in rng.permutation(walls)[:openings]:
        maze[row, column] = OPEN
    cells = np.argwhere(maze == OPEN)
    while True:
        start, goal = cells[rng.choice(len(cells), size=2, replace=False)]
        question = maze.copy()
        question[tuple(start)], question[tuple(goal)] = START, GOAL
        try:
            path = shortest_path(question)
        except ValueError:
            continue
        answer = question.copy()
        for cell in path[1:-1]:
            answer[cell] = PATH
        return question, answer


def random_mazes(count: int, side: int, openings: int, rng: np.random.Generator) -> PuzzleSet:
    """`count` random mazes, with the length of the shortest path as difficulty. Errors as `random_maze`."""
    pairs = [random_maze(side, openings, rng) for _ in range(count)]
    return _puzzle_set(np.array([q.ravel() for q, _ in pairs]), np.array([a.ravel() for _, a in pairs]))


def _puzzle_set(questions: np.ndarray, answers: np.ndarray) -> PuzzleSet:
    return PuzzleSet(questions, answers, (answers == PATH).sum(1) + 1.0)


def draw(maze: Int[np.ndarray, "rows columns"]) -> str:
    """The maze as text."""
    return "\n".join("".join(CHARACTERS[cell] for cell in row) for row in maze)


def read_csv(path: str | Path, max_rows: int | None = None) -> PuzzleSet:
    """Read mazes in the layout of Maze-Hard: `source,question,answer,rating`, characters `# SGo`.

    Mazes are not augmented: with the eight symmetries of the square, training on Maze-Hard is reported to collapse.

    Raises:
        ValueError: for a malformed file, a maze that is not square, or an answer that does not differ from its
            question in path cells only.
    """
    table = read_puzzle_csv(path, {character: token for token, character in enumerate(CHARACTERS)}, max_rows)
    questions, answers = np.array(table["question"].tolist()), np.array(table["answer"].tolist())
    cells = questions.shape[1]
    if math.isqrt(cells) ** 2 != cells:
        raise ValueError(f"{path}: mazes must be square, got {cells} cells")
    bad = np.flatnonzero(((questions != answers) & ~((questions == OPEN) & (answers == PATH))).any(1))
    if bad.size:
        raise ValueError(f"{path}, row {bad[0] + 1}: the answer changes cells that are not open")
    return _puzzle_set(questions, answers)
