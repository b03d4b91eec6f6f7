"""The model: a finite discounted POMDP with its Bayes filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

ROW_TOLERANCE = 1e-6
"""How far a row of probabilities may be from summing to one."""


@dataclass(frozen=True, eq=False)
class POMDP:
    """A finite POMDP (S, A, O, T, Z, r, gamma, b0).

    Attributes:
        T: transition probabilities ``T[a, s, s']``, shape (A, S, S); or a tuple of A sparse (S, S) arrays.
        Z: observation probabilities ``Z[a, s', o]`` of the state arrived in, shape (A, S, O).
        r: expected immediate reward ``r[s, a]``, shape (S, A).
        gamma: discount factor in (0, 1).
        b0: initial belief, shape (S,).
        states, actions, observations: names; numbers as text where none are given.

    Raises:
        ValueError: a shape does not fit, an entry is negative or not finite, a row does not sum to one within
            1e-6, or ``gamma`` is outside (0, 1). The message names the index and the value.
    """

    T: np.ndarray | tuple[sparse.csr_array, ...]
    Z: np.ndarray
    r: np.ndarray
    gamma: float
    b0: np.ndarray
    states: tuple[str, ...] = field(default=())
    actions: tuple[str, ...] = field(default=())
    observations: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if isinstance(self.T, tuple | list) and self.T and all(sparse.issparse(matrix) for matrix in self.T):
            transitions = tuple(sparse.csr_array(matrix).astype(float) for matrix in self.T)
        else:
            transitions = np.asarray(self.T, dtype=float)
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731  (the dataclass is frozen)
        put("T", transitions)
        for name in ("Z", "r", "b0"):
            put(name, np.array(getattr(self, name), dtype=float))
        put("gamma", float(self.gamma))
        self._check_shapes()
        A, S, n_obs = self.Z.shape
        if not 0.0 < self.gamma < 1.0:
            raise ValueError(f"gamma must lie strictly between 0 and 1, got {self.gamma}")
        for a in range(A):
            check_rows(self.T[a], f"T[{a}]")
            check_rows(self.Z[a], f"Z[{a}]")
        check_rows(self.b0[None], "b0")
        if not np.isfinite(self.r).all():
            s, a = np.argwhere(~np.isfinite(self.r))[0]
            raise ValueError(f"r[{s}, {a}] must be finite, got {self.r[s, a]}")
        for name, count in (("states", S), ("actions", A), ("observations", n_obs)):
            given = tuple(getattr(self, name)) or tuple(str(i) for i in range(count))
            if len(given) != count:
                raise ValueError(f"{name} must have {count} names, got {len(given)}")
            put(name, given)
        for name in ("Z", "r", "b0"):
            getattr(self, name).setflags(write=False)

    def _check_shapes(self) -> None:
        if self.Z.ndim != 3:
            raise ValueError(f"Z must have shape (A, S, O), got {self.Z.shape}")
        A, S, _ = self.Z.shape
        if isinstance(self.T, tuple):
            shape = (len(self.T), *self.T[0].shape)
            for a, matrix in enumerate(self.T):
                if matrix.shape != (S, S):
                    raise ValueError(f"T[{a}] must have shape {(S, S)}, got {matrix.shape}")
        else:
            shape = self.T.shape
        if shape != (A, S, S):
            raise ValueError(f"T must have shape (A, S, S) = {(A, S, S)} to fit Z {self.Z.shape}, got {shape}")
        if self.r.shape != (S, A):
            raise ValueError(f"r must have shape (S, A) = {(S, A)}, got {self.r.shape}")
        if self.b0.shape != (S,):
            raise ValueError(f"b0 must have shape (S,) = {(S,)}, got {self.b0.shape}")

    @property
    def n_states(self) -> int:
        return self.Z.shape[1]

    @property
    def n_actions(self) -> int:
        return self.Z.shape[0]

    @property
    def n_observations(self) -> int:
        return self.Z.shape[2]

    @property
    def reward_range(self) -> float:
        """max r - min r (the paper's R-bar)."""
        return float(self.r.max() - self.r.min())

    def dense_transitions(self) -> np.ndarray:
        """T as one (A, S, S) array, also where it is kept sparse."""
        return self.T if isinstance(self.T, np.ndarray) else np.stack([matrix.toarray() for matrix in self.T])

    def filter(self, belief: np.ndarray, action: int | np.integer) -> tuple[np.ndarray, np.ndarray]:
        """One step of the Bayes filter for every observation at once.

        Returns:
            p: probability of each observation, shape (O,).
            posterior: next belief after each observation, shape (O, S); a row of zeros where p is zero.

        Raises:
            ValueError: the belief is no distribution over the states, or there is no such action.
        """
        belief = as_belief(belief, self.n_states)
        if not 0 <= action < self.n_actions:
            raise ValueError(f"action must be in 0..{self.n_actions - 1}, got {action}")
        p, posterior = self.filter_many(belief[None], action)
        return p[0], posterior[0]

    def filter_many(self, beliefs: np.ndarray, action: int | np.integer) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`filter` for N beliefs, unchecked: p (N, O) and posteriors (N, O, S)."""
        predicted = beliefs @ self.T[action]
        joint = predicted[:, None, :] * self.Z[action].T
        p = joint.sum(axis=2)
        posterior = np.divide(joint, p[:, :, None], out=np.zeros_like(joint), where=p[:, :, None] > 0)
        return p, posterior

    def step_many(
        self, rng: np.random.Generator, states: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample next states and observations, one for each of N (state, action) pairs."""
        n = len(states)
        following, seen = np.empty(n, dtype=int), np.empty(n, dtype=int)
        for a in np.unique(actions):
            rows = actions == a
            law = self.T[a][states[rows]]
            following[rows] = _draw(rng, law if isinstance(law, np.ndarray) else law.toarray())
            seen[rows] = _draw(rng, self.Z[a][following[rows]])
        return following, seen


def _draw(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """One index from each row of unnormalised probabilities."""
    cumulative = rows.cumsum(axis=1)
    u = rng.random(len(rows)) * cumulative[:, -1]
    return (u[:, None] >= cumulative).sum(axis=1).clip(max=rows.shape[1] - 1)


def as_belief(belief: np.ndarray, n_states: int) -> np.ndarray:
    """``belief`` as a float array of shape (S,), or a ValueError that says what is wrong with it."""
    belief = np.asarray(belief, dtype=float)
    if belief.shape != (n_states,):
        raise ValueError(f"a belief must have shape ({n_states},), got {belief.shape}")
    check_rows(belief[None], "belief")
    return belief


def check_rows(matrix: np.ndarray | sparse.csr_array, name: str, tolerance: float = ROW_TOLERANCE) -> None:
    """Raise a ValueError unless every row is a distribution."""
    entries = matrix.data if sparse.issparse(matrix) else matrix
    if not np.isfinite(entries).all():
        raise ValueError(f"{name} has an entry that is not finite{_first(matrix, lambda x: ~np.isfinite(x))}")
    if (entries < 0).any():
        raise ValueError(f"{name} has a negative entry{_first(matrix, lambda x: x < 0)}")
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    # A little slack on the tolerance itself: three times 0.333333 is 1e-6 short of one, give or take rounding.
    wrong = np.flatnonzero(np.abs(sums - 1.0) > tolerance * (1 + 1e-6))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"{name} row {row} must sum to 1, got {sums[row]:.9g}")


def _first(matrix: np.ndarray | sparse.csr_array, wrong) -> str:
    if sparse.issparse(matrix):
        coo = matrix.tocoo()
        k = int(np.flatnonzero(wrong(coo.data))[0])
        return f" at row {coo.row[k]}, column {coo.col[k]}: {coo.data[k]}"
    i, j = np.argwhere(wrong(matrix))[0]
    return f" at row {i}, column {j}: {matrix[i, j]}"


def merge_beliefs(
    beliefs: np.ndarray, weights: Sequence[float] | np.ndarray, decimals: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge beliefs that agree to ``decimals``; weights add up.

    Returns the distinct beliefs (first representative of each, not the rounded one), their weights, and the index of
    the merged belief for every input row. The order is that of the rounded values, so it does not depend on the
    order of the input.
    """
    _, first, inverse = np.unique(np.round(beliefs, decimals) + 0.0, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.ravel()
    return beliefs[first], np.bincount(inverse, weights=np.asarray(weights), minlength=len(first)), inverse
