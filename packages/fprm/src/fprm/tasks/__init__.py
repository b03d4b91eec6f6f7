"""Puzzles: Sudoku, mazes, state tracking over finite groups, and loaders of the public file formats."""

from .puzzles import PuzzleSet, read_puzzle_csv

__all__ = ["PuzzleSet", "read_puzzle_csv"]
