"""The experiments behind claims.toml, one file each."""

from kernel_fdr.reproduce import (
    allocation,
    control,
    misspecification,
    real,
    solver,
    structures,
)
from kernel_fdr.reproduce.registry import paper

__all__ = ["allocation", "control", "misspecification", "paper", "real", "solver", "structures"]
