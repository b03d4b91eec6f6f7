"""The paper's record that every experiment registers on."""

from claimlab import Paper

paper = Paper("kernel-fdr", package="kernel_fdr")
