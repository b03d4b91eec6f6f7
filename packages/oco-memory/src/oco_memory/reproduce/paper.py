"""The paper that the experiments register with."""

from claimlab import Paper

paper = Paper("oco-memory", package="oco_memory")
