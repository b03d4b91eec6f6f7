"""First-order regret for online convex optimization with memory, and online nonstochastic control."""

from .batch import FiniteRuns, play_finite, unary_table
from .control import (
    GPC,
    AnytimeGPC,
    Controller,
    ControlResult,
    DisturbanceActionPolicy,
    FirstOrderGPC,
    LazyEWController,
    LinearFeedback,
    OnlineController,
    rollout,
    simulate,
)
from .exponential import LazyExponentialWeights, MeanExponentialWeights, RedrawExponentialWeights
from .game import GameResult, best_fixed, play, policy_regret
from .gradient import AnytimeOGD, FirstOrderOGD, MemoryOGD
from .hindsight import best_dac, exact_features
from .learner import Learner
from .losses import (
    AbsMemoryLoss,
    CallableLoss,
    HuberMemoryLoss,
    LinearSignLoss,
    MemoryLoss,
    QuadraticMemoryLoss,
    SoftplusMemoryLoss,
    sum_losses,
)
from .problems import CachingLoss, InventoryLoss, SwitchingExpertLoss
from .sets import Ball, Box, DecisionSet, FiniteSet, Simplex
from .surrogate import SurrogateLoss, SurrogateMap, surrogate_features, surrogate_losses
from .system import ControlCost, L1Cost, LinearSystem, QuadraticCost, truncation_length
from .theory import (
    lazy_ew_bound,
    lazy_ew_convex_bound,
    lazy_ew_doubling_bound,
    memory_ogd_eta,
    self_confident_bound,
    smooth_ogd_bound,
    tuned_eta_lazy,
    tuned_eta_smooth,
)

__all__ = [
    "GPC",
    "AbsMemoryLoss",
    "AnytimeGPC",
    "AnytimeOGD",
    "Ball",
    "Box",
    "CachingLoss",
    "CallableLoss",
    "ControlCost",
    "ControlResult",
    "Controller",
    "DecisionSet",
    "DisturbanceActionPolicy",
    "FiniteRuns",
    "FiniteSet",
    "FirstOrderGPC",
    "FirstOrderOGD",
    "GameResult",
    "HuberMemoryLoss",
    "InventoryLoss",
    "L1Cost",
    "LazyEWController",
    "LazyExponentialWeights",
    "Learner",
    "LinearFeedback",
    "LinearSignLoss",
    "LinearSystem",
    "MeanExponentialWeights",
    "MemoryLoss",
    "MemoryOGD",
    "OnlineController",
    "QuadraticCost",
    "QuadraticMemoryLoss",
    "RedrawExponentialWeights",
    "Simplex",
    "SoftplusMemoryLoss",
    "SurrogateLoss",
    "SurrogateMap",
    "SwitchingExpertLoss",
    "best_dac",
    "best_fixed",
    "exact_features",
    "lazy_ew_bound",
    "lazy_ew_convex_bound",
    "lazy_ew_doubling_bound",
    "memory_ogd_eta",
    "play",
    "play_finite",
    "policy_regret",
    "rollout",
    "self_confident_bound",
    "simulate",
    "smooth_ogd_bound",
    "sum_losses",
    "surrogate_features",
    "surrogate_losses",
    "truncation_length",
    "tuned_eta_lazy",
    "tuned_eta_smooth",
    "unary_table",
]
