"""The paper's experiments, one file each, judged by `claims.toml`."""

from . import exact_checks, real_text, recall, speed
from .declaration import paper

__all__ = ["exact_checks", "paper", "real_text", "recall", "speed"]
