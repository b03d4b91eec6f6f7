"""Checks at the public boundary: arrays of numbers with the right shape, named in the error when they are not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Numbers = ArrayLike | Sequence[Any] | float | int
"""A number, an array of numbers, or anything that becomes one; `number_array` decides."""


def number_array(name: str, value: Numbers, shape: tuple[int | None, ...], *, infinite: bool = False) -> np.ndarray:
    """`value` as a float array of `shape` (None: any length).

    Raises:
        ValueError: not numbers, another shape, NaN, or (unless `infinite`) an infinite entry.
    """
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {value!r:.80}") from error
    fits = array.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = "x".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"{name} must have shape {wanted}, got {'x'.join(map(str, array.shape)) or 'a scalar'}")
    if np.isnan(array).any():
        raise ValueError(f"{name} contains NaN at index {tuple(int(i) for i in np.argwhere(np.isnan(array))[0])}")
    if not infinite and np.isinf(array).any():
        raise ValueError(
            f"{name} contains an infinite value at index {tuple(int(i) for i in np.argwhere(np.isinf(array))[0])}"
        )
    return array


def nonnegative(name: str, value: float) -> float:
    """`value` as a finite float >= 0.

    Raises:
        ValueError: it is not.
    """
    number = float(number_array(name, value, ()))
    if number < 0:
        raise ValueError(f"{name} must be >= 0, got {number:g}")
    return number
