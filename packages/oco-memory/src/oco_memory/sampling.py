"""Drawing decisions: from weights on finitely many points, and from a log-concave density by hit-and-run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .sets import DecisionSet


def gibbs(log_weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Probabilities proportional to exp(log_weights), computed relative to the largest."""
    p = np.exp(log_weights - log_weights.max())
    return p / p.sum()


def draw_index(log_weights: Float[np.ndarray, " n"], rng: np.random.Generator) -> int:
    """One index with probability proportional to exp(log_weights), by inverting the distribution function."""
    cdf = np.exp(log_weights - log_weights.max()).cumsum()
    return int(cdf.searchsorted(rng.random() * cdf[-1], side="right").clip(max=len(cdf) - 1))


def hit_and_run(
    log_density: Callable[[np.ndarray], float],
    decision_set: DecisionSet,
    x: Float[np.ndarray, " d"],
    n_steps: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " d"]:
    """`n_steps` hit-and-run moves from x; each leaves the density invariant, so the draw is approximate only in mixing.

    A move picks a uniform direction and a new point of the chord by slice sampling with shrinkage (Neal 2003); for a
    log-concave density the slice is an interval, which makes the step exact.
    """
    level_here = log_density(x)
    for _ in range(n_steps):
        direction = decision_set.random_direction(rng)
        lo, hi = decision_set.chord(x, direction)
        level = level_here - rng.exponential()
        while True:
            step = rng.uniform(lo, hi)
            proposal = x + step * direction
            density = log_density(proposal)
            if density >= level:
                x, level_here = proposal, density
                break
            lo, hi = (step, hi) if step < 0 else (lo, step)
    return x
