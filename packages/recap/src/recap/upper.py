"""A certified upper bound of V* at chosen beliefs: Bellman backups on a belief graph, sawtooth at its frontier."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .pomdp import POMDP
from .solvers import fib
from .value import ValueFunction

_CHUNK = 20_000_000  # entries of the largest temporary array


@dataclass(frozen=True, eq=False)
class UpperValue:
    """V_hi >= V*: the fast informed bound, lowered by the sawtooth of points with known upper values.

    Attributes:
        q: the fast informed bound, shape (S, A).
        corners: upper values at the corners of the simplex, shape (S,).
        beliefs: points, shape (n, S).
        values: upper values at the points, shape (n,).
    """

    q: Float[np.ndarray, "S A"]
    corners: Float[np.ndarray, " S"]
    beliefs: Float[np.ndarray, "n S"]
    values: Float[np.ndarray, " n"]

    def value(self, belief: Float[np.ndarray, "*batch S"]) -> Float[np.ndarray, "*batch"] | float:
        """V_hi at one belief or at many."""
        flat = np.atleast_2d(belief)
        bound = np.minimum((flat @ self.q).max(axis=1), flat @ self.corners)
        depth = np.minimum(self.values - self.beliefs @ self.corners, 0.0)
        useful = np.flatnonzero(depth < -1e-12)
        if useful.size:
            rows = max(1, _CHUNK // (len(useful) * flat.shape[1]))
            for i in range(0, len(flat), rows):
                ratio = _sawtooth_weights(flat[i : i + rows], self.beliefs[useful])
                tooth = flat[i : i + rows] @ self.corners + (ratio * depth[useful]).min(axis=1)
                bound[i : i + rows] = np.minimum(bound[i : i + rows], tooth)
        return bound.reshape(belief.shape[:-1]) if belief.ndim > 1 else float(bound[0])


def _sawtooth_weights(beliefs: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(N, n): the largest c with ``belief - c * point`` still nonnegative."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = beliefs[:, None, :] / points[None]
    ratio[:, points <= 0] = np.inf
    return ratio.min(axis=2)


def upper_value(
    pomdp: POMDP,
    targets: Float[np.ndarray, "M S"],
    lower: ValueFunction,
    max_beliefs: int = 300,
    tol: float = 1e-7,
    batch: int = 32,
) -> UpperValue:
    """Upper bound of V* that is tight at ``targets``, by best-first expansion of the beliefs that follow them.

    Each round follows the actions that the bound itself believes best, expands the ``batch`` beliefs with the largest
    discounted probability times gap to ``lower``, and runs value iteration on the graph with sawtooth values at its
    leaves. Everything only lowers the bound, so it is valid whenever it stops: after ``max_beliefs`` expansions beyond
    targets and corners, or when the gap at every target is below ``tol``. It is exact where few beliefs are reachable.
    """
    graph = _Graph(pomdp, lower)
    corners = [graph.add(corner) for corner in np.eye(pomdp.n_states)]
    roots = [graph.add(target) for target in targets]
    graph.expand(sorted({*corners, *roots}))
    limit = len(graph.expanded) + max_beliefs
    while True:
        graph.improve()
        gaps = graph.upper[roots] - graph.low[roots]
        frontier = graph.frontier([root for root, gap in zip(roots, gaps, strict=True) if gap > tol])
        if not frontier or len(graph.expanded) >= limit:
            return graph.bound(corners)
        graph.expand(frontier[: min(batch, limit - len(graph.expanded))])


class _Graph:
    """Beliefs with an upper and a lower value; the expanded ones know their successors."""

    def __init__(self, pomdp: POMDP, lower: ValueFunction) -> None:
        self.pomdp, self.lower = pomdp, lower
        self.q = fib(pomdp)
        self.beliefs = np.empty((0, pomdp.n_states))
        self.upper, self.low = np.empty(0), np.empty(0)
        self.number: dict[bytes, int] = {}
        self.expanded: dict[int, int] = {}  # belief -> row of the two arrays below
        self.p = np.empty((0, pomdp.n_actions, pomdp.n_observations))
        self.successors = np.empty(self.p.shape, dtype=int)

    def add(self, belief: np.ndarray) -> int:
        return int(self._add_many(belief[None])[0])

    def _add_many(self, beliefs: np.ndarray) -> np.ndarray:
        keys = [row.tobytes() for row in np.round(beliefs, 10) + 0.0]
        fresh: list[int] = []
        for i, key in enumerate(keys):
            if key not in self.number:
                self.number[key] = len(self.number)
                fresh.append(i)
        new = beliefs[fresh]
        self.beliefs = np.vstack([self.beliefs, new])
        self.upper = np.append(self.upper, (new @ self.q).max(axis=1))
        self.low = np.append(self.low, self.lower.value(new))
        return np.array([self.number[key] for key in keys])

    def expand(self, chosen: list[int]) -> None:
        """Compute the successors of these beliefs."""
        steps = [self.pomdp.filter_many(self.beliefs[chosen], a) for a in range(self.pomdp.n_actions)]
        p = np.stack([step[0] for step in steps], axis=1)
        posterior = np.stack([step[1] for step in steps], axis=1)
        successors = np.zeros(p.shape, dtype=int)
        successors[p > 0] = self._add_many(posterior[p > 0])
        for belief in chosen:
            self.expanded[belief] = len(self.expanded)
        self.p = np.concatenate([self.p, p])
        self.successors = np.concatenate([self.successors, successors])

    def improve(self, sweeps: int = 1_000) -> None:
        """Sawtooth values at the leaves, then value iteration on the expanded beliefs."""
        inner = np.array(list(self.expanded))
        leaves = np.setdiff1d(np.arange(len(self.beliefs)), inner)
        if leaves.size:
            bound = UpperValue(self.q, self.upper[: self.pomdp.n_states], self.beliefs[inner], self.upper[inner])
            self.upper[leaves] = np.minimum(self.upper[leaves], bound.value(self.beliefs[leaves]))
        for _ in range(sweeps):
            new = np.minimum(self.upper[inner], self._q(inner).max(axis=1))
            change = float((self.upper[inner] - new).max())
            self.upper[inner] = new
            if change <= 1e-9 * (1 - self.pomdp.gamma):
                break

    def _q(self, inner: np.ndarray) -> np.ndarray:
        reward = self.beliefs[inner] @ self.pomdp.r
        return reward + self.pomdp.gamma * (self.p * self.upper[self.successors]).sum(axis=2)

    def frontier(self, roots: list[int]) -> list[int]:
        """Leaves that the bound's own greedy actions reach from ``roots``, the most important first."""
        inner = np.array(list(self.expanded))
        greedy = dict(zip(inner.tolist(), self._q(inner).argmax(axis=1).tolist(), strict=True))
        queue = [(-1.0, root) for root in roots]
        heapq.heapify(queue)
        done: set[int] = set()
        leaves: list[tuple[float, int]] = []
        while queue:
            reach, belief = heapq.heappop(queue)
            if belief in done:
                continue
            done.add(belief)
            if belief not in self.expanded:
                leaves.append((reach * (self.upper[belief] - self.low[belief]), belief))
                continue
            row, a = self.expanded[belief], greedy[belief]
            for o in np.flatnonzero(self.p[row, a] > 0):
                heapq.heappush(queue, (reach * self.pomdp.gamma * self.p[row, a, o], int(self.successors[row, a, o])))
        return [belief for _, belief in sorted(leaves)]

    def bound(self, corners: list[int]) -> UpperValue:
        inner = np.array(list(self.expanded))
        return UpperValue(self.q, self.upper[corners], self.beliefs[inner], self.upper[inner])
