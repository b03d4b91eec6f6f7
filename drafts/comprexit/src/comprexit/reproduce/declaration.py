"""The paper on which every experiment registers."""

from claimlab import Paper

paper = Paper("comprexit")
