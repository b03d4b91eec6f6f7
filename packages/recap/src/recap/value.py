"""Value functions: max of alpha-vectors, and the point-based Bellman backup that everything else uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .pomdp import POMDP

TIE = 1e-12
"""Scores closer than this (relative to their size above 1) are ties; the smallest index wins."""


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """V(b) = max_i <alpha_i, b>, a lower bound of the optimal value V*.

    Attributes:
        alphas: shape (n, S); each is dominated by the value of a policy that starts with its action.
        actions: shape (n,).
        beliefs: the beliefs it was solved on, shape (N, S).
        error: certified sup-norm distance to V* over the *whole* simplex (inf where none was computed).
    """

    alphas: Float[np.ndarray, "n S"]
    actions: Int[np.ndarray, " n"]
    beliefs: Float[np.ndarray, "N S"]
    error: float = field(default=float("inf"))

    def value(self, belief: Float[np.ndarray, "*batch S"]) -> Float[np.ndarray, "*batch"] | float:
        """V at one belief (S,) or at many (..., S)."""
        return (belief @ self.alphas.T).max(axis=-1)

    def best(self, belief: Float[np.ndarray, "*batch S"]) -> Int[np.ndarray, "*batch"]:
        """Index of the maximising alpha-vector (smallest index on ties)."""
        return first_max(belief @ self.alphas.T)

    def action(self, belief: Float[np.ndarray, "*batch S"]) -> Int[np.ndarray, "*batch"]:
        """Greedy action at one belief or at many."""
        return np.asarray(self.actions[self.best(belief)])

    def distortion(self, belief: Float[np.ndarray, "*batch S"]) -> Float[np.ndarray, "*batch n"]:
        """Decision distortion d(b, alpha_i) = V(b) - <alpha_i, b> >= 0 of serving a belief with each policy."""
        scores = belief @ self.alphas.T
        return scores.max(axis=-1, keepdims=True) - scores


def first_max(scores: np.ndarray) -> np.ndarray:
    """argmax over the last axis; the smallest index among ties (an array without axes for one row)."""
    top = scores.max(axis=-1, keepdims=True)
    return np.asarray(np.argmax(scores >= top - TIE * np.maximum(1.0, np.abs(top)), axis=-1))


class Backup(NamedTuple):
    """One Bellman backup at N beliefs."""

    vectors: np.ndarray
    """(N, S) alpha-vector of each belief's best one-step plan."""
    actions: np.ndarray
    """(N,)"""
    successors: np.ndarray
    """(N, O) index of the alpha-vector that continues the plan after each observation."""
    values: np.ndarray
    """(N,) value of the plan at its belief."""


def backup(pomdp: POMDP, alphas: Float[np.ndarray, "n S"], beliefs: Float[np.ndarray, "N S"]) -> Backup:
    """max_a { <r_a, b> + gamma sum_o max_i <alpha_i, joint(b, a, o)> } with its vector, for every belief.

    O(A N (S^2 + O S n)) with dense transitions.
    """
    N, n_obs = len(beliefs), pomdp.n_observations
    best = Backup(np.empty_like(beliefs), np.zeros(N, dtype=int), np.zeros((N, n_obs), dtype=int), np.full(N, -np.inf))
    for a in range(pomdp.n_actions):
        predicted = beliefs @ pomdp.T[a]
        value = beliefs @ pomdp.r[:, a]
        chosen = np.empty((N, n_obs), dtype=int)
        for o in range(n_obs):
            scores = (predicted * pomdp.Z[a, :, o]) @ alphas.T
            chosen[:, o] = first_max(scores)
            value += pomdp.gamma * scores[np.arange(N), chosen[:, o]]
        better = np.flatnonzero(value > best.values + TIE * np.maximum(1.0, np.abs(value)))
        best.actions[better] = a
        best.successors[better] = chosen[better]
        best.values[better] = value[better]
    evaluate_plans(pomdp, alphas, best.actions, best.successors, out=best.vectors)
    return best


def evaluate_plans(
    pomdp: POMDP, alphas: np.ndarray, actions: np.ndarray, successors: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """Vectors (N, S) of the one-step plans "do ``actions[i]``, then follow ``alphas[successors[i, o]]``"."""
    out = np.empty((len(actions), pomdp.n_states)) if out is None else out
    for a in np.unique(actions):
        rows = np.flatnonzero(actions == a)
        following = np.zeros((len(rows), pomdp.n_states))
        for o in range(pomdp.n_observations):
            following += pomdp.Z[a, :, o] * alphas[successors[rows, o]]
        out[rows] = pomdp.r[:, a] + pomdp.gamma * (pomdp.T[a] @ following.T).T
    return out
