"""Finite-memory controllers, evaluated exactly: every value is the solution of a linear system, never a roll-out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.linalg import splu

from .pomdp import POMDP

_DENSE_LIMIT = 2_000  # systems up to this size (K times S) are solved densely


@dataclass(frozen=True, eq=False)
class Controller:
    """A deterministic controller with K memory states.

    Attributes:
        actions: action of each memory state, shape (K,).
        next: memory after each observation, shape (K, O).
        m0: initial memory state.

    Raises:
        ValueError: shapes do not fit or an index points nowhere.
    """

    actions: Int[np.ndarray, " K"]
    next: Int[np.ndarray, "K O"]
    m0: int = 0

    def __post_init__(self) -> None:
        actions, following = np.asarray(self.actions, dtype=int), np.asarray(self.next, dtype=int)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "next", following)
        object.__setattr__(self, "m0", int(self.m0))
        K = len(actions)
        if actions.ndim != 1 or K == 0 or following.ndim != 2 or len(following) != K:
            raise ValueError(f"expected actions (K,) and next (K, O), K >= 1, got {actions.shape}, {following.shape}")
        if following.min() < 0 or following.max() >= K:
            raise ValueError(f"next must hold memory states 0..{K - 1}, got {following.min()}..{following.max()}")
        if actions.min() < 0 or not 0 <= self.m0 < K:
            raise ValueError(f"actions must be >= 0 and m0 in 0..{K - 1}, got {actions.min()} and {self.m0}")

    @property
    def size(self) -> int:
        return len(self.actions)

    def evaluate(self, pomdp: POMDP) -> Float[np.ndarray, "K S"]:
        """F[m, s]: exact discounted value of starting in memory m and state s.

        Raises:
            ValueError: the model has other observations, or fewer actions.
        """
        self._check_model(pomdp)
        reward = pomdp.r.T[self.actions].ravel()
        if self.size * pomdp.n_states <= _DENSE_LIMIT and not isinstance(pomdp.T, tuple):
            F = np.linalg.solve(self._dense_system(pomdp), reward)
        else:
            F = splu(self._sparse_system(pomdp)).solve(reward)
        return F.reshape(self.size, pomdp.n_states)

    def value(self, pomdp: POMDP) -> float:
        """Exact V(b0) from the memory state ``m0``."""
        return float(self.evaluate(pomdp)[self.m0] @ pomdp.b0)

    def best_start(self, pomdp: POMDP) -> Controller:
        """The same controller started in the memory state that is best at b0 (m0 is part of the design)."""
        return Controller(self.actions, self.next, int((self.evaluate(pomdp) @ pomdp.b0).argmax()))

    def padded(self, K: int) -> Controller:
        """The same controller with idle nodes, which stay where they are, up to K."""
        extra = max(K - self.size, 0)
        actions = np.append(self.actions, np.full(extra, self.actions[self.m0]))
        loops = np.tile(np.arange(self.size, self.size + extra)[:, None], (1, self.next.shape[1]))
        return Controller(actions, np.vstack([self.next, loops]), self.m0)

    def occupancy(self, pomdp: POMDP) -> Float[np.ndarray, "K S"]:
        """Discounted occupancy x[m, s] of memory and state; sums to 1 / (1 - gamma)."""
        self._check_model(pomdp)
        start = np.zeros((self.size, pomdp.n_states))
        start[self.m0] = pomdp.b0
        if start.size <= _DENSE_LIMIT and not isinstance(pomdp.T, tuple):
            x = np.linalg.solve(self._dense_system(pomdp).T, start.ravel())
        else:
            x = splu(sparse.csc_array(self._sparse_system(pomdp).T)).solve(start.ravel())
        return x.reshape(start.shape)

    def _check_model(self, pomdp: POMDP) -> None:
        if self.next.shape[1] != pomdp.n_observations or self.actions.max() >= pomdp.n_actions:
            raise ValueError(
                f"a controller for {self.next.shape[1]} observations with actions up to {self.actions.max()} does not "
                f"fit a model with {pomdp.n_observations} observations and {pomdp.n_actions} actions"
            )

    def _dense_system(self, pomdp: POMDP) -> np.ndarray:
        K, S = self.size, pomdp.n_states
        seen = self._observed(pomdp)  # (K, S, K)
        system = np.einsum("mst,mtn->msnt", -pomdp.gamma * pomdp.dense_transitions()[self.actions], seen).reshape(
            K * S, K * S
        )
        system[np.diag_indices(K * S)] += 1.0
        return system

    def _sparse_system(self, pomdp: POMDP) -> sparse.csc_array:
        K, S = self.size, pomdp.n_states
        rows = []
        for m, a in enumerate(self.actions):
            row = []
            for target in range(K):
                seen = pomdp.Z[a][:, self.next[m] == target].sum(axis=1)
                row.append(-pomdp.gamma * sparse.csr_array(pomdp.T[a]) @ sparse.diags_array(seen))
            rows.append(row)
        return sparse.csc_array(sparse.eye_array(K * S) + sparse.block_array(rows))

    def _observed(self, pomdp: POMDP) -> np.ndarray:
        """Probability (K, S', K') that memory m moves to m' when the state arrived in is s'."""
        move = np.eye(self.size)[self.next]  # (K, O, K')
        return np.einsum("mto,mon->mtn", pomdp.Z[self.actions], move)

    def simulate(
        self, pomdp: POMDP, episodes: int, horizon: int, rng: np.random.Generator
    ) -> Float[np.ndarray, " episodes"]:
        """Discounted returns of roll-outs (a check of the exact value; nothing in this package reports them)."""
        states = rng.choice(pomdp.n_states, size=episodes, p=pomdp.b0)
        memory = np.full(episodes, self.m0)
        returns = np.zeros(episodes)
        for t in range(horizon):
            actions = self.actions[memory]
            returns += pomdp.gamma**t * pomdp.r[states, actions]
            states, seen = pomdp.step_many(rng, states, actions)
            memory = self.next[memory, seen]
        return returns

    def to_dot(self, pomdp: POMDP) -> str:
        """The controller as a Graphviz graph, edges labelled with observations."""
        lines = ["digraph controller {", "  rankdir=LR;"]
        for m, a in enumerate(self.actions):
            shape = "doublecircle" if m == self.m0 else "circle"
            lines.append(f'  {m} [label="{m}: {pomdp.actions[a]}", shape={shape}];')
        for m, row in enumerate(self.next):
            for target in np.unique(row):
                label = ", ".join(pomdp.observations[o] for o in np.flatnonzero(row == target))
                lines.append(f'  {m} -> {target} [label="{label}"];')
        return "\n".join([*lines, "}"])


@dataclass(frozen=True, eq=False)
class RandomizedController:
    """A controller that draws its action and its next memory state.

    Attributes:
        policy: pi(a | m), shape (K, A).
        update: probability of memory m' after (m, a, o), shape (K, A, O, K).
        m0: initial memory state.
    """

    policy: Float[np.ndarray, "K A"]
    update: Float[np.ndarray, "K A O K"]
    m0: int = 0

    @classmethod
    def draw(cls, pomdp: POMDP, K: int, rng: np.random.Generator) -> RandomizedController:
        """A random controller (sparse Dirichlet rows, so that some are nearly deterministic)."""
        A, n_obs = pomdp.n_actions, pomdp.n_observations
        return cls(rng.dirichlet(np.full(A, 0.3), K), rng.dirichlet(np.full(K, 0.3), (K, A, n_obs)))

    def evaluate(self, pomdp: POMDP) -> Float[np.ndarray, "K S"]:
        """F[m, s], exact."""
        K, S = len(self.policy), pomdp.n_states
        moved = np.einsum("ma,ato,maon->matn", self.policy, pomdp.Z, self.update)
        system = np.eye(K * S).reshape(K, S, K, S)
        for a, T in enumerate(pomdp.dense_transitions()):
            system -= pomdp.gamma * np.einsum("st,mtn->msnt", T, moved[:, a])
        reward = (self.policy @ pomdp.r.T).ravel()
        return np.linalg.solve(system.reshape(K * S, K * S), reward).reshape(K, S)


def constant_controller(pomdp: POMDP) -> Controller:
    """The best controller with one memory state: one action for ever."""
    stay = np.zeros((1, pomdp.n_observations), dtype=int)
    candidates = [Controller(np.array([a]), stay) for a in range(pomdp.n_actions)]
    return max(candidates, key=lambda c: c.value(pomdp))


def evaluate_many(
    pomdp: POMDP, actions: Int[np.ndarray, "n K"], following: Int[np.ndarray, "n K O"]
) -> Float[np.ndarray, "n K S"]:
    """F of n deterministic controllers at once (dense batched solve)."""
    n, K = actions.shape
    S = pomdp.n_states
    if isinstance(pomdp.T, tuple):
        return np.stack([Controller(a, f).evaluate(pomdp) for a, f in zip(actions, following, strict=True)])
    system = np.zeros((n, K, S, K, S))
    index = np.arange(n)
    joint = pomdp.gamma * np.einsum("ast,ato->aost", pomdp.dense_transitions(), pomdp.Z)
    for m in range(K):
        for o in range(pomdp.n_observations):
            system[index, m, :, following[:, m, o], :] -= joint[actions[:, m], o]
    system = system.reshape(n, K * S, K * S)
    system[:, np.arange(K * S), np.arange(K * S)] += 1.0
    reward = pomdp.r.T[actions].reshape(n, K * S, 1)
    return np.linalg.solve(system, reward).reshape(n, K, S)


def brute_force(pomdp: POMDP, K: int, limit: int = 60_000) -> Controller:
    """The best deterministic K-state controller by exhaustion, started in its best memory state.

    Raises:
        ValueError: K is below 1 or there are more than ``limit`` controllers.
    """
    check_memory(K)
    n_obs = pomdp.n_observations
    total = pomdp.n_actions**K * K ** (K * n_obs)
    if total > limit:
        raise ValueError(f"{total} controllers with K={K} exceed the limit of {limit}")
    best, best_value = None, -np.inf
    for actions, following in _all_controllers(pomdp.n_actions, n_obs, K):
        values = evaluate_many(pomdp, actions, following) @ pomdp.b0
        i, m = np.unravel_index(values.argmax(), values.shape)
        if values[i, m] > best_value:
            best, best_value = Controller(actions[i], following[i], int(m)), values[i, m]
    assert best is not None
    return best


def _all_controllers(A: int, n_obs: int, K: int, chunk: int = 4_096) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for actions in product(range(A), repeat=K):
        # Relabelling memory states changes nothing (any may be the start), so sorted action lists are enough.
        if list(actions) != sorted(actions):
            continue
        moves = K ** (K * n_obs)
        for start in range(0, moves, chunk):
            codes = np.arange(start, min(start + chunk, moves))
            following = codes[:, None] // K ** np.arange(K * n_obs) % K
            yield np.tile(actions, (len(codes), 1)), following.reshape(len(codes), K, n_obs)


def check_memory(K: int) -> None:
    """Raise unless K is an int of at least 1."""
    if isinstance(K, bool) or not isinstance(K, int | np.integer):
        raise TypeError(f"K must be an int, got {K!r}")
    if K < 1:
        raise ValueError(f"K must be at least 1, got {K}")
