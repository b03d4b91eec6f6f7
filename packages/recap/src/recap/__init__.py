"""RECAP: finite-memory control of POMDPs, with bounds on what a finite memory can and cannot do."""

from .baselines import BASELINES, baseline
from .bounds import DecisionBound, UpperBound, decision_bound, upper_bound
from .cassandra import load_policy, load_pomdp
from .closed_loop import refine
from .codebook import RECAP, Codebook
from .controller import Controller, RandomizedController, brute_force, constant_controller
from .converse import (
    LowerBound,
    converse_bound,
    converse_bounds,
    information_bound,
    loss_at,
    partition_bound,
    subset_bound,
)
from .exact import exact_value_iteration
from .information import blahut_arimoto, k_median, rate_distortion
from .merging import merge_nodes, merge_table
from .models import BENCHMARKS, benchmarks
from .pomdp import POMDP
from .solvers import belief_sample, fib, qmdp, solve
from .upper import UpperValue, upper_value
from .value import ValueFunction
from .witness import Witness, decision_witness, jensen_gap

__all__ = [
    "BASELINES",
    "BENCHMARKS",
    "POMDP",
    "RECAP",
    "Codebook",
    "Controller",
    "DecisionBound",
    "LowerBound",
    "RandomizedController",
    "UpperBound",
    "UpperValue",
    "ValueFunction",
    "Witness",
    "baseline",
    "belief_sample",
    "benchmarks",
    "blahut_arimoto",
    "brute_force",
    "constant_controller",
    "converse_bound",
    "converse_bounds",
    "decision_bound",
    "decision_witness",
    "exact_value_iteration",
    "fib",
    "information_bound",
    "jensen_gap",
    "k_median",
    "load_policy",
    "load_pomdp",
    "loss_at",
    "merge_nodes",
    "merge_table",
    "partition_bound",
    "qmdp",
    "rate_distortion",
    "refine",
    "solve",
    "subset_bound",
    "upper_bound",
    "upper_value",
]
