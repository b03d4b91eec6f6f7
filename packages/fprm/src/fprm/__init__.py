"""Fixed-Point Reasoning Model: looped transformers that stop when their state stops changing."""

from .baselines import HRM, TRM, FixedDepthTransformer
from .config import FPRMConfig, SolverConfig
from .evaluation import Evaluation, accuracy_by_iteration, evaluate
from .model import FPRM, FPRMOutput, LoopBlock, LoopedModel
from .recipes import Recipe, train
from .scaling import coupled_betas, iterate_bound
from .solver import (
    ActHalting,
    FixedPointResult,
    FixedPointSolver,
    SolverState,
    critical_damping,
    relative_residual,
)
from .training import Batch, DeepSupervisionTrainer, stablemax_cross_entropy

__all__ = [
    "FPRM",
    "HRM",
    "TRM",
    "ActHalting",
    "Batch",
    "DeepSupervisionTrainer",
    "Evaluation",
    "FPRMConfig",
    "FPRMOutput",
    "FixedDepthTransformer",
    "FixedPointResult",
    "FixedPointSolver",
    "LoopBlock",
    "LoopedModel",
    "Recipe",
    "SolverConfig",
    "SolverState",
    "accuracy_by_iteration",
    "coupled_betas",
    "critical_damping",
    "evaluate",
    "iterate_bound",
    "relative_residual",
    "stablemax_cross_entropy",
    "train",
]
