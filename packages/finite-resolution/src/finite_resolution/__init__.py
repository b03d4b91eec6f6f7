"""The cheapest measurements that suffice for decisions with bounded regret."""

from finite_resolution.certificate import (
    all_minimal_hard_tuples,
    common_decision,
    cover_set,
    gap,
    indistinguishable,
    is_hard,
    jensen_gap,
    minimal_hard_tuple,
)
from finite_resolution.continuous import certified_tolerance, net_inflation
from finite_resolution.covering import CoverResult, set_cover
from finite_resolution.design import Decision, Design, Iteration, greedy_design, optimal_design
from finite_resolution.errors import (
    InconsistentReadingError,
    InfeasibleSetError,
    SolverError,
    TimeLimitError,
    UnboundedSetError,
    UncoverableError,
)
from finite_resolution.feasible import (
    Box,
    FeasibleSet,
    FiniteDecisions,
    Polytope,
    ProductSet,
    VertexHull,
    projected_cost_dimension,
)
from finite_resolution.problem import Problem, Queries
from finite_resolution.regret_program import CommonDecision
from finite_resolution.set_systems import problem_from_set_cover
from finite_resolution.storage import load_design, save_design
from finite_resolution.structured import (
    SeparableDesign,
    consecutive_cover,
    has_consecutive_ones,
    interval_cover,
    interval_stabbing,
    nested_cover,
    nested_design,
    separable_design,
)
from finite_resolution.verify import Fiber, Verification, verify_design

__all__ = [
    "Box",
    "CommonDecision",
    "CoverResult",
    "Decision",
    "Design",
    "FeasibleSet",
    "Fiber",
    "FiniteDecisions",
    "InconsistentReadingError",
    "InfeasibleSetError",
    "Iteration",
    "Polytope",
    "Problem",
    "ProductSet",
    "Queries",
    "SeparableDesign",
    "SolverError",
    "TimeLimitError",
    "UnboundedSetError",
    "UncoverableError",
    "Verification",
    "VertexHull",
    "all_minimal_hard_tuples",
    "certified_tolerance",
    "common_decision",
    "consecutive_cover",
    "cover_set",
    "gap",
    "greedy_design",
    "has_consecutive_ones",
    "indistinguishable",
    "interval_cover",
    "interval_stabbing",
    "is_hard",
    "jensen_gap",
    "load_design",
    "minimal_hard_tuple",
    "nested_cover",
    "nested_design",
    "net_inflation",
    "optimal_design",
    "problem_from_set_cover",
    "projected_cost_dimension",
    "save_design",
    "separable_design",
    "set_cover",
    "verify_design",
]
