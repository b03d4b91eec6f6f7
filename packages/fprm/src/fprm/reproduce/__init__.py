"""The paper's experiments, one file each, judged by `claims.toml`."""

from . import ablations, maze, signal_propagation, state_tracking, sudoku, theory_checks
from .declaration import paper

__all__ = ["ablations", "maze", "paper", "signal_propagation", "state_tracking", "sudoku", "theory_checks"]
