"""What every experiment starts from: models, their certified optimum and a belief sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from claimlab import Count, Paper
from claimlab.paper import Scale

from ..cassandra import load_policy, load_pomdp
from ..codebook import Sample
from ..controller import constant_controller
from ..exact import MAX_STATES, exact_value_iteration
from ..models import BENCHMARKS, benchmarks
from ..pomdp import POMDP
from ..solvers import belief_sample, solve
from ..upper import upper_value
from ..value import ValueFunction

paper = Paper("recap", package="recap")

NEEDS: dict[Scale, str] = {
    "paper": "your models: --set model_file=PATH (.POMDP), one at a time; without it the 11 built-in models run"
}


@dataclass(frozen=True)
class Models:
    """Which models to run on.

    ``model_file`` (Cassandra's format) replaces the built-in ones; ``discount`` overrides the file's; ``policy_file``
    (.alpha, or SARSOP's .policy) replaces our solver.
    """

    models: tuple[str, ...] = BENCHMARKS
    model_file: str | None = None
    policy_file: str | None = None
    discount: float | None = None
    n_beliefs: Count = 250  # beliefs of the solver, in each of its two rounds
    upper_beliefs: Count = 300  # expansions of the certified upper bound of V*


@dataclass(frozen=True, eq=False)
class Problem:
    """A solved model.

    Attributes:
        vf: vectors that codebooks are made of (point-based, good at reachable beliefs).
        optimum: lower bound of V*(b0); V*(b0) <= optimum + uncertainty.
    """

    name: str
    pomdp: POMDP
    vf: ValueFunction
    settings: Models
    seed: int

    @cached_property
    def whole(self) -> ValueFunction:
        """V* on the whole simplex with a known error where the model is small enough, else ``vf``."""
        return exact_value_iteration(self.pomdp) if self.pomdp.n_states <= MAX_STATES else self.vf

    @cached_property
    def optimum(self) -> float:
        return max(float(self.vf.value(self.pomdp.b0)), float(self.whole.value(self.pomdp.b0)))

    @cached_property
    def uncertainty(self) -> float:
        if np.isfinite(self.whole.error):
            return self.whole.error
        upper = upper_value(self.pomdp, self.pomdp.b0[None], self.vf, self.settings.upper_beliefs)
        return float(upper.value(self.pomdp.b0)) - self.optimum

    @cached_property
    def sample(self) -> Sample:
        return belief_sample(self.pomdp, self.vf, seed=self.seed)

    @cached_property
    def one_state(self) -> float:
        """V_1: what the best constant action earns."""
        return constant_controller(self.pomdp).value(self.pomdp)

    def loss(self, value: float) -> float:
        """V* - value, with V* from above: a controller that equals an under-solved V* has not beaten a bound."""
        return self.optimum + self.uncertainty - value

    def score(self, value: float) -> float:
        """Normalised score (V - V_1) / (V* - V_1)."""
        return (value - self.one_state) / (self.optimum - self.one_state)


def problems(settings: Models, seed: int) -> Iterator[Problem]:
    """Load and solve the models of a configuration, one after the other."""
    if settings.model_file is not None:
        path = Path(settings.model_file)
        pomdp = load_pomdp(path, gamma=settings.discount)
        named = [(path.stem, pomdp)]
    else:
        named = [(name, benchmarks(name)) for name in settings.models]
    for name, pomdp in named:
        if settings.policy_file is not None:
            vf = load_policy(settings.policy_file, pomdp)
        else:
            vf = solve(pomdp, settings.n_beliefs, seed=seed)
        yield Problem(name, pomdp, vf, settings, seed)


def count(settings: Models) -> int:
    """How many models :func:`problems` will give."""
    return 1 if settings.model_file is not None else len(settings.models)
