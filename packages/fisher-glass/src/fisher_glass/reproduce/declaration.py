"""The paper, on which the experiments register themselves."""

from claimlab import Paper

paper = Paper("fisher-glass", package="fisher_glass")
