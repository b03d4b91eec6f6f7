"""Solved models and a random POMDP, shared by the tests."""

from functools import cache

import numpy as np
import pytest
from recap import POMDP, ValueFunction, benchmarks, exact_value_iteration, solve


@cache
def _solved(name: str) -> tuple[POMDP, ValueFunction]:
    pomdp = benchmarks(name)
    return pomdp, solve(pomdp)


@cache
def _exact(name: str) -> tuple[POMDP, ValueFunction]:
    pomdp = benchmarks(name)
    return pomdp, exact_value_iteration(pomdp)


@pytest.fixture(scope="session")
def solved():
    """name -> (model, point-based solution); each is solved once."""
    return _solved


@pytest.fixture(scope="session")
def exact():
    """name -> (model, V* on the whole simplex)."""
    return _exact


@pytest.fixture(scope="session")
def random_pomdp():
    """seed, sizes -> a model with Dirichlet rows."""

    def make(seed: int, S: int = 4, A: int = 3, O: int = 3, gamma: float = 0.9) -> POMDP:  # noqa: E741
        rng = np.random.default_rng(seed)
        return POMDP(
            rng.dirichlet(np.full(S, 0.7), (A, S)), rng.dirichlet(np.full(O, 0.7), (A, S)), rng.normal(size=(S, A)),
            gamma, rng.dirichlet(np.ones(S)),
        )  # fmt: skip

    return make
