"""Fixed-point masked generative models: one shared block, cross-step consistency, three-state reuse, conversion."""

from .convert import cka_profile, convert_mdlm, linear_cka
from .diffusion import LogLinearSchedule, mask_tokens, mdlm_loss, nelbo, nested_masks
from .fixed_point import SJFB, DenoiserOutput, FixedPointModel, denoise
from .markov import MarkovText
from .maskgit import MaskGITSampler, halton_order
from .metrics import frechet_distance, generative_perplexity, inception_score, is_degenerate, unigram_entropy
from .models import (
    DiTBlock,
    FixedPointDenoiser,
    MaskedDenoiser,
    count_block_passes,
    fp_maskgit,
    fp_mdlm_small,
    maskgit_large,
    mdlm_small,
)
from .objectives import (
    AdaptationObjective,
    Batch,
    ConsistencyConfig,
    ConsistencyObjective,
    MaskedObjective,
    MaskGITObjective,
    SDTTObjective,
    consistency_loss,
)
from .reuse import ReuseRule, reuse_coefficients, warm_start
from .sampling import AncestralSampler, SampleResult, sample
from .schedules import allocate, iteration_schedule
from .training import Recipe, Trainer, train

__all__ = [
    "SJFB",
    "AdaptationObjective",
    "AncestralSampler",
    "Batch",
    "ConsistencyConfig",
    "ConsistencyObjective",
    "DenoiserOutput",
    "DiTBlock",
    "FixedPointDenoiser",
    "FixedPointModel",
    "LogLinearSchedule",
    "MarkovText",
    "MaskGITObjective",
    "MaskGITSampler",
    "MaskedDenoiser",
    "MaskedObjective",
    "Recipe",
    "ReuseRule",
    "SDTTObjective",
    "SampleResult",
    "Trainer",
    "allocate",
    "cka_profile",
    "consistency_loss",
    "convert_mdlm",
    "count_block_passes",
    "denoise",
    "fp_maskgit",
    "fp_mdlm_small",
    "frechet_distance",
    "generative_perplexity",
    "halton_order",
    "inception_score",
    "is_degenerate",
    "iteration_schedule",
    "linear_cka",
    "mask_tokens",
    "maskgit_large",
    "mdlm_loss",
    "mdlm_small",
    "nelbo",
    "nested_masks",
    "reuse_coefficients",
    "sample",
    "train",
    "unigram_entropy",
    "warm_start",
]
