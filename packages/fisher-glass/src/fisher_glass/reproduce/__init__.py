"""The experiments, one file a theme; each is a short function that reads like the experiment section it stands for."""

from fisher_glass.reproduce import certification, groups, repairs, separation, sample_complexity  # noqa: F401, I001
from fisher_glass.reproduce.declaration import paper

__all__ = ["paper"]
