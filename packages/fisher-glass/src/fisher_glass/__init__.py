"""Fisher-Glass: CVaR over environments of inverse nuisance-projected task information, with certificates and data
repairs."""

from fisher_glass.audit import Audit, FisherGlass, Standardiser
from fisher_glass.certificate import Certificate, certificate_from_radii, ridge_certificate
from fisher_glass.fisher import (
    EnvironmentFisher,
    Fisher,
    environment_fishers,
    logistic_fisher,
    logistic_rows,
    score_fisher,
    softmax_fisher,
    softmax_rows,
)
from fisher_glass.influence import glass_decrease, select_repairs, tail_transverse_influence
from fisher_glass.module import module_scores, penultimate_features
from fisher_glass.portfolio import portfolio_weights
from fisher_glass.projection import (
    TaskFrame,
    efficient_direction,
    inverse_projected_information,
    projected_information,
    softmax_task,
    task_direction,
    task_frame,
)
from fisher_glass.reserve import ReserveAllocation, allocate_reserve, with_reserve
from fisher_glass.risk import FisherGlassReport, cvar, fisher_glass, ridge_sweep

__all__ = [
    "Audit",
    "Certificate",
    "EnvironmentFisher",
    "Fisher",
    "FisherGlass",
    "FisherGlassReport",
    "ReserveAllocation",
    "Standardiser",
    "TaskFrame",
    "allocate_reserve",
    "certificate_from_radii",
    "cvar",
    "efficient_direction",
    "environment_fishers",
    "fisher_glass",
    "glass_decrease",
    "inverse_projected_information",
    "logistic_fisher",
    "logistic_rows",
    "module_scores",
    "penultimate_features",
    "portfolio_weights",
    "projected_information",
    "ridge_certificate",
    "ridge_sweep",
    "score_fisher",
    "select_repairs",
    "softmax_fisher",
    "softmax_rows",
    "softmax_task",
    "tail_transverse_influence",
    "task_direction",
    "task_frame",
    "with_reserve",
]
