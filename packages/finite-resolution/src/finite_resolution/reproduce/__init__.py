"""The experiments, a file each, in the order of the claims."""

from finite_resolution.reproduce import certificate, delayed, equivalence, greedy, structure, tradeoff
from finite_resolution.reproduce.declaration import paper

__all__ = ["certificate", "delayed", "equivalence", "greedy", "paper", "structure", "tradeoff"]
