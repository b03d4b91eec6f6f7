"""The experiments of the paper, one file each; ``claimlab run recap`` runs them."""

from . import ablation, memory_budget, merging, rate_distortion, sandwich, witnesses
from .problems import paper

__all__ = ["ablation", "memory_budget", "merging", "paper", "rate_distortion", "sandwich", "witnesses"]
