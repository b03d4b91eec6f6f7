"""FDR control with uncertain p-values in kernel-structured hypothesis spaces."""

from kernel_fdr import baselines, kernels, simulate
from kernel_fdr.allocation import allocate
from kernel_fdr.counts import CountData, MaskedCounts
from kernel_fdr.estimator import FixedNullPrior, KernelNullPrior
from kernel_fdr.kernels import Eigenfeatures
from kernel_fdr.likelihood import BetaBinomialAlternative, ProbitAlternative, fit_pooled
from kernel_fdr.rules import Decision, KernelFDR, count_mirror, count_seqstep, selective_seqstep
from kernel_fdr.tables import analyse_table

__all__ = [
    "BetaBinomialAlternative",
    "CountData",
    "Decision",
    "Eigenfeatures",
    "FixedNullPrior",
    "KernelFDR",
    "KernelNullPrior",
    "MaskedCounts",
    "ProbitAlternative",
    "allocate",
    "analyse_table",
    "baselines",
    "count_mirror",
    "count_seqstep",
    "fit_pooled",
    "kernels",
    "selective_seqstep",
    "simulate",
]
