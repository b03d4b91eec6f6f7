"""State tracking: the running product of a sequence of group elements (section 5.3)."""

from __future__ import annotations

import re
from typing import cast

import numpy as np
import torch
from jaxtyping import Int

from ..training import Batch


def group_table(name: str) -> Int[np.ndarray, "elements elements"]:
    """Multiplication table of a finite group; `table[i, j]` is element `i` followed by element `j`, 0 the identity.

    Args:
        name: "S3", "S5", "A5", … (symmetric and alternating groups, up to degree 5), or "Z7" (cyclic, any order).

    Raises:
        ValueError: for an unknown name.
    """
    match = re.fullmatch(r"([SAZ])([1-9]\d*)", name)
    if match is None:
        raise ValueError(f"unknown group {name!r}; expected S<n>, A<n> or Z<n>, such as 'S3', 'A5', 'Z6'")
    family, degree = match[1], int(match[2])
    if family == "Z":
        return np.add.outer(np.arange(degree), np.arange(degree)) % degree
    if degree > 5:
        raise ValueError(f"the table of {name} is too large; degrees go up to 5")
    # Only here: importing sympy takes a second, and the cyclic groups need none of it.
    from sympy.combinatorics import AlternatingGroup, Permutation, SymmetricGroup

    group = SymmetricGroup(degree) if family == "S" else AlternatingGroup(degree)
    permutations = np.array(
        sorted(cast(Permutation, element).array_form for element in group.generate()), dtype=np.int64
    )
    # sympy's product p * q first applies p, then q: (p q)(k) = q(p(k)). Sorting puts the identity first.
    products = permutations[:, permutations].swapaxes(0, 1)
    weights = degree ** np.arange(degree)
    codes = permutations @ weights
    return np.argsort(codes)[np.searchsorted(np.sort(codes), products @ weights)]


def running_products(
    table: Int[np.ndarray, "elements elements"], sequences: Int[np.ndarray, "batch length"]
) -> Int[np.ndarray, "batch length"]:
    """State after each element, from the identity: `state <- table[state, element]`.

    Raises:
        ValueError: for an element that the group does not have.
    """
    if sequences.size and (sequences.min() < 0 or sequences.max() >= len(table)):
        raise ValueError(
            f"elements must lie in [0, {len(table)}), got {int(sequences.min())} to {int(sequences.max())}"
        )
    states = np.empty_like(sequences)
    state = np.zeros(len(sequences), dtype=sequences.dtype)
    for position in range(sequences.shape[1]):
        state = table[state, sequences[:, position]]
        states[:, position] = state
    return states


def make_batch(table: Int[np.ndarray, "elements elements"], count: int, length: int, rng: np.random.Generator) -> Batch:
    """`count` uniform random sequences with the running product as label of every position.

    Raises:
        ValueError: for a length below one.
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    sequences = rng.integers(len(table), size=(count, length))
    return Batch(torch.from_numpy(sequences), torch.from_numpy(running_products(table, sequences)))
