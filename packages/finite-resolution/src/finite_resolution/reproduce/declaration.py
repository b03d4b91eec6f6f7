"""The paper that the experiments of this folder register on."""

from claimlab import Paper

paper = Paper("finite-resolution", package="finite_resolution")
