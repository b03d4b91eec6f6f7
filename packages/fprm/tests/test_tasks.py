"""Puzzles against independent solvers, groups against sympy, loaders on files in the real layouts."""

import itertools
import json

import dlxsudoku
import numpy as np
import pytest
import torch
from fprm.tasks import PuzzleSet, arc, maze, read_puzzle_csv, state_tracking, sudoku
from scipy.sparse import lil_array
from scipy.sparse.csgraph import shortest_path
from sympy.combinatorics import Permutation, SymmetricGroup

# A published puzzle and its solution (Project Euler, problem 96, grid 01).
PUZZLE = "003020600900305001001806400008102900700000008006708200002609500800203009005010300"
SOLUTION = "483921657967345821251876493548132976729564138136798245372689514814253769695417382"


def digits(text):
    return np.array([int(character) for character in text])


def write_csv(path, rows):
    lines = ["source,question,answer,rating", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


# Sudoku


def test_there_are_288_grids_of_4x4():
    grids = sudoku.complete_grids()
    assert grids.shape == (288, 16)
    assert len(np.unique(grids, axis=0)) == 288
    assert sudoku.is_complete(grids).all()


def test_solver_on_a_published_puzzle():
    assert np.array_equal(sudoku.solve(digits(PUZZLE)), digits(SOLUTION))


def test_random_9x9_puzzles_against_another_solver():
    rng = np.random.default_rng(0)
    for blanks in (10, 40):
        puzzle, answer = sudoku.random_puzzle(blanks, rng)
        assert (puzzle == 0).sum() == blanks
        other = dlxsudoku.Sudoku("".join(map(str, puzzle)))
        other.solve()
        assert "".join(other.to_oneliner().split()) == "".join(map(str, answer))


def test_small_puzzles_have_one_solution_and_come_from_the_given_grids():
    rng = np.random.default_rng(0)
    grids = sudoku.complete_grids()[:50]
    puzzles = sudoku.small_puzzles(grids, 66, (2, 12), rng)
    assert {tuple(row) for row in puzzles.labels + 1} <= {tuple(row) for row in grids}
    assert sorted(set(puzzles.difficulty)) == list(range(2, 13))
    for puzzle, label in zip(puzzles.inputs, puzzles.labels, strict=True):
        assert np.array_equal(sudoku.solve(puzzle), label + 1)


@pytest.mark.parametrize("cells", [16, 81])
def test_symmetries_keep_a_puzzle_valid_and_unique(cells):
    rng = np.random.default_rng(1)
    if cells == 16:
        chosen = sudoku.small_puzzles(sudoku.complete_grids(), 20, (6, 10), rng)
        puzzles, labels = chosen.inputs, chosen.labels
    else:
        puzzles, labels = np.tile(digits(PUZZLE), (8, 1)), np.tile(digits(SOLUTION) - 1, (8, 1))
    moved, moved_labels = sudoku.augment(puzzles, labels, rng)
    assert not np.array_equal(moved, puzzles)
    assert sudoku.is_complete(moved_labels + 1).all()
    assert np.array_equal((moved == 0).sum(1), (puzzles == 0).sum(1))
    for puzzle, label in zip(moved, moved_labels, strict=True):
        assert np.array_equal(sudoku.solve(puzzle), label + 1)


def test_all_small_symmetries_are_reached():
    """The symmetries act on one grid as a group: from it every grid of its class, 96 or 192 of the 288, is reached."""
    rng = np.random.default_rng(0)
    grid = np.tile(sudoku.complete_grids()[0], (4000, 1))
    _, labels = sudoku.augment(grid, grid - 1, rng)
    assert len(np.unique(labels, axis=0)) in (96, 192)


def test_sudoku_csv(tmp_path):
    path = write_csv(tmp_path / "s.csv", [("a", PUZZLE.replace("0", "."), SOLUTION, 3)])
    puzzles = sudoku.read_csv(path, check_unique=True)
    assert np.array_equal(puzzles.inputs[0], digits(PUZZLE))
    assert np.array_equal(puzzles.labels[0], digits(SOLUTION) - 1)
    assert puzzles.difficulty.tolist() == [PUZZLE.count("0")]


def test_puzzles_without_one_solution_are_refused(tmp_path):
    with pytest.raises(ValueError, match="more than one solution"):
        sudoku.solve(np.zeros(16, dtype=np.int64))
    impossible = np.zeros(16, dtype=np.int64)
    impossible[:2] = 1
    with pytest.raises(ValueError, match="no solution"):
        sudoku.solve(impossible)
    path = write_csv(tmp_path / "s.csv", [("a", "." * 81, SOLUTION, 0)])
    with pytest.raises(ValueError, match="row 1: the puzzle has more than one solution"):
        sudoku.read_csv(path, check_unique=True)


def test_bad_sudoku(tmp_path):
    with pytest.raises(ValueError, match="16, 81, 256, … cells, got 17"):
        sudoku.solve(np.zeros(17, dtype=np.int64))
    with pytest.raises(ValueError, match=r"digits must lie in 0..4, got 0 to 5"):
        sudoku.solve(np.array([5] + [0] * 15))
    with pytest.raises(ValueError, match="got box=3"):
        sudoku.complete_grids(3)
    with pytest.raises(ValueError, match=r"within 1..12, got \(2, 13\)"):
        sudoku.small_puzzles(sudoku.complete_grids(), 1, (2, 13), np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"blanks must lie in \[0, 16\), got 16"):
        sudoku.random_puzzle(16, np.random.default_rng(0), box=2)
    wrong = SOLUTION[1] + SOLUTION[0] + SOLUTION[2:]
    with pytest.raises(ValueError, match="row 2: the answer is no complete grid"):
        sudoku.read_csv(write_csv(tmp_path / "w.csv", [("a", PUZZLE, SOLUTION, 0), ("a", PUZZLE, wrong, 0)]))


def test_bad_csv(tmp_path):
    alphabet = {"0": 0, "1": 1}
    missing = tmp_path / "m.csv"
    missing.write_text("source,question\na,0\n")
    with pytest.raises(ValueError, match=r"missing columns \['answer', 'rating'\]"):
        read_puzzle_csv(missing, alphabet)
    with pytest.raises(ValueError, match="no puzzles"):
        read_puzzle_csv(write_csv(tmp_path / "e.csv", []), alphabet)
    with pytest.raises(ValueError, match="row 2: question has 1 cells, expected 2"):
        read_puzzle_csv(write_csv(tmp_path / "l.csv", [("a", "01", "01", 0), ("a", "0", "01", 0)]), alphabet)
    with pytest.raises(ValueError, match="row 1: unknown character '7' in answer"):
        read_puzzle_csv(write_csv(tmp_path / "c.csv", [("a", "01", "07", 0)]), alphabet)
    with pytest.raises(FileNotFoundError):
        read_puzzle_csv(tmp_path / "none.csv", alphabet)


def test_the_sampler_visits_every_puzzle_before_it_repeats(unchecked):
    puzzles = PuzzleSet(np.arange(10)[:, None], np.arange(10)[:, None], np.zeros(10))
    source = puzzles.sampler(np.random.default_rng(0))
    seen = torch.cat([source(n).inputs.flatten() for n in (3, 4, 3)])
    assert sorted(seen.tolist()) == list(range(10))
    with pytest.raises(ValueError, match="empty puzzle set"):
        puzzles.take(np.array([], dtype=np.int64)).sampler(np.random.default_rng(0))
    with pytest.raises(ValueError, match="do not fit together"):
        PuzzleSet(np.zeros((2, 3), dtype=np.int64), np.zeros((2, 4), dtype=np.int64), np.zeros(2))


# Mazes


def test_mazes_have_one_shortest_path_of_the_right_length():
    rng = np.random.default_rng(0)
    for openings in (0, 3):
        question, answer = maze.random_maze(9, openings, rng)
        cells = [tuple(cell) for cell in np.argwhere(question != maze.WALL)]
        graph = lil_array((len(cells), len(cells)))
        for i, j in itertools.combinations(range(len(cells)), 2):
            if abs(cells[i][0] - cells[j][0]) + abs(cells[i][1] - cells[j][1]) == 1:
                graph[i, j] = 1
        ends = [cells.index(tuple(np.argwhere(question == token)[0])) for token in (maze.START, maze.GOAL)]
        steps = shortest_path(graph.tocsr(), directed=False, unweighted=True)
        path = maze.shortest_path(question)
        assert len(path) - 1 == steps[ends[0], ends[1]]
        assert [answer[cell] for cell in path[1:-1]] == [maze.PATH] * (len(path) - 2)
        assert (answer == maze.PATH).sum() == len(path) - 2
        assert graph.sum() >= len(cells) - 1 + openings  # a perfect maze is a tree


def test_distances_on_a_small_maze():
    grid = np.array([[2, 1, 0], [0, 1, 3]])
    assert maze.distances(grid, (0, 0)).tolist() == [[0, 1, -1], [-1, 2, 3]]
    assert maze.shortest_path(grid) == [(0, 0), (0, 1), (1, 1), (1, 2)]
    assert maze.draw(grid) == "S #\n# G"


def test_maze_csv(tmp_path):
    question, answer = maze.random_maze(7, 1, np.random.default_rng(0))
    flat = [maze.draw(grid).replace("\n", "") for grid in (question, answer)]
    mazes = maze.read_csv(write_csv(tmp_path / "m.csv", [("a", *flat, 1)]))
    assert np.array_equal(mazes.inputs[0], question.ravel())
    assert np.array_equal(mazes.labels[0], answer.ravel())
    with pytest.raises(ValueError, match="row 1: the answer changes cells that are not open"):
        maze.read_csv(write_csv(tmp_path / "w.csv", [("a", flat[0], flat[0].replace("#", "o"), 1)]))
    with pytest.raises(ValueError, match="must be square, got 3 cells"):
        maze.read_csv(write_csv(tmp_path / "q.csv", [("a", "S G", "SoG", 1)]))


def test_bad_mazes():
    with pytest.raises(ValueError, match="odd and at least 5, got 8"):
        maze.random_maze(8, 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="openings must not be negative, got -1"):
        maze.random_maze(9, -1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="one start and one goal, got 0 and 0"):
        maze.shortest_path(np.ones((3, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="no way"):
        maze.shortest_path(np.array([[2, 0, 3]]))
    with pytest.raises(ValueError, match="not unique"):
        maze.shortest_path(np.array([[2, 1], [1, 3]]))
    with pytest.raises(ValueError, match="no open cell"):
        maze.distances(np.array([[0, 1]]), (0, 0))


# State tracking


@pytest.mark.parametrize(("name", "order"), [("S3", 6), ("A5", 60), ("S5", 120), ("Z7", 7)])
def test_group_tables(name, order):
    table = state_tracking.group_table(name)
    elements = np.arange(order)
    assert table.shape == (order, order)
    assert np.array_equal(table[0], elements)
    assert np.array_equal(table[:, 0], elements)
    assert (np.sort(table, 0) == elements[:, None]).all()
    assert (np.sort(table, 1) == elements).all()
    assert np.array_equal(table[table], table[:, table])  # (a b) c = a (b c) for all triples


def test_running_products_are_sympys():
    table = state_tracking.group_table("S5")
    elements = sorted(p.array_form for p in SymmetricGroup(5).generate())
    sequences = np.random.default_rng(0).integers(120, size=(3, 12))
    states = state_tracking.running_products(table, sequences)
    for sequence, state in zip(sequences, states, strict=True):
        product = Permutation(size=5)
        for element, found in zip(sequence, state, strict=True):
            product = product * Permutation(elements[element])
            assert elements[found] == product.array_form


def test_batches_and_bad_groups():
    batch = state_tracking.make_batch(state_tracking.group_table("Z3"), 4, 6, np.random.default_rng(0))
    assert torch.equal(batch.labels, batch.inputs.cumsum(1) % 3)
    for name in ("D4", "S0", "S", "s3"):
        with pytest.raises(ValueError, match="unknown group"):
            state_tracking.group_table(name)
    with pytest.raises(ValueError, match="degrees go up to 5"):
        state_tracking.group_table("S6")
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        state_tracking.make_batch(state_tracking.group_table("Z3"), 4, 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"elements must lie in \[0, 3\), got 0 to 3"):
        state_tracking.running_products(state_tracking.group_table("Z3"), np.array([[0, 3]]))


# ARC


def test_arc_tasks(tmp_path):
    content = {"train": [{"input": [[0, 1]], "output": [[9], [2]]}], "test": [{"input": [[3]]}]}
    (tmp_path / "t1.json").write_text(json.dumps(content))
    (task,) = arc.load_folder(tmp_path)
    assert task.name == "t1"
    assert task.train[0].output.tolist() == [[9], [2]]
    assert task.test[0].output is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected the keys"),
        ('{"train": [{"input": [[1]]}], "test": []}', "train 0: expected 'input' and 'output'"),
        ('{"train": [], "test": [{"input": [[1], [1, 2]]}]}', "rows must be lists of whole numbers of equal length"),
        ('{"train": [], "test": [{"input": [[10]]}]}', r"colours must lie in 0..9, got 10 to 10"),
        ('{"train": [], "test": [{"input": []}]}', "expected a grid of 1 to 30 rows"),
    ],
)
def test_bad_arc_files(tmp_path, content, message):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        arc.load_task(tmp_path / "t.json")


def test_an_empty_arc_folder(tmp_path):
    with pytest.raises(ValueError, match=r"no \*.json files"):
        arc.load_folder(tmp_path)
