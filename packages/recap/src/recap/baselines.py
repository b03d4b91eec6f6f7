"""Finite-memory representations that RECAP is compared with, all at the same K and with exact evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from sklearn.cluster import KMeans, kmeans_plusplus

from .closed_loop import refine
from .codebook import Sample, filter_controller, nearness
from .controller import Controller, check_memory
from .pomdp import POMDP
from .value import ValueFunction, first_max

Encoder = Callable[[np.ndarray], np.ndarray]

_ENTROPY_BINS = (1, 2, 3, 5)
_SYSTEM_LIMIT = 5_000  # largest K * S for which the window policy is searched


def baseline(name: str, pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, seed: int = 0) -> Controller:
    """The controller with at most K memory states of one baseline (a name in :data:`BASELINES`).

    Belief codes get the better of two policies: the optimal one of the quantised belief MDP, or the greedy action of
    ``vf`` at each representative.

    Raises:
        ValueError: there is no such baseline, or K is below 1.
    """
    check_memory(K)
    if name not in _METHODS:
        raise ValueError(f"unknown baseline {name!r}; expected one of {', '.join(_METHODS)}")
    return _METHODS[name](pomdp, K, vf, sample, np.random.default_rng([seed, K]))


def kmeans(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """Weighted k-means of beliefs (Euclid, k-means++ start), nearest representative."""
    beliefs, weights = sample
    seed = int(rng.integers(2**31))
    model = KMeans(min(K, len(beliefs)), n_init=1, random_state=seed)  # pyright: ignore[reportArgumentType]
    return _nearest(pomdp, model.fit(beliefs, sample_weight=weights).cluster_centers_, vf)


def kmeans_cl(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """k-means start, then RECAP's closed-loop refinement."""
    return refine(pomdp, kmeans(pomdp, K, vf, sample, rng).padded(K), vf, sample)[0]


def kl(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """Bregman hard clustering with KL(b || c) (Banerjee et al., 2005); cells and encoder by KL."""
    beliefs, weights = sample
    start, _ = kmeans_plusplus(
        beliefs, min(K, len(beliefs)), sample_weight=weights, random_state=int(rng.integers(2**31))
    )
    encode = lambda centres: lambda b: first_max(b @ np.log(np.maximum(centres, 1e-9)).T)  # noqa: E731
    centres, cell = start, None
    for _ in range(100):
        new = encode(centres)(beliefs)
        if cell is not None and (new == cell).all():
            break
        cell = new
        centres = _cell_means(beliefs, weights, cell, centres)
    return _better_policy(pomdp, centres, encode(centres), vf)


def grid(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """The K heaviest points of a regular simplex grid (Lovejoy, 1991); the best of several resolutions."""
    beliefs, weights = sample
    found = []
    for resolution in (1, 2, 3, 4, 6, 8, 12, 16):
        points, cell = np.unique(_grid_points(beliefs, resolution), axis=0, return_inverse=True)
        mass = np.bincount(cell.ravel(), weights=weights)
        heaviest = np.argsort(-mass, kind="stable")[:K]
        found.append(_nearest(pomdp, points[np.sort(heaviest)] / resolution, vf))
    return _best(pomdp, found)


def amdp(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """Augmented MDP (Roy and Thrun, 1999): most likely state and entropy bin, the K most visited cells.

    A belief in a cell that was trimmed goes to the nearest representative. The best of several numbers of bins.
    """
    beliefs, weights = sample
    found = []
    for bins in _ENTROPY_BINS:
        labels = lambda b, bins=bins: _mode_and_entropy(b, bins)  # noqa: E731
        cells, index = np.unique(labels(beliefs), return_inverse=True)
        mass = np.bincount(index, weights=weights)
        kept = np.sort(np.argsort(-mass, kind="stable")[:K])
        number = np.full(pomdp.n_states * bins, -1)
        number[cells[kept]] = np.arange(len(kept))
        inside = number[cells[index]] >= 0
        centres = _cell_means(
            beliefs[inside], weights[inside], number[cells[index]][inside], np.zeros((len(kept), pomdp.n_states))
        )

        def encode(b: np.ndarray, number=number, centres=centres, labels=labels) -> np.ndarray:
            cell = number[labels(b)]
            return np.where(cell >= 0, cell, first_max(nearness(b, centres)))

        found.append(_better_policy(pomdp, centres, encode, vf))
    return _best(pomdp, found)


def random(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """K sampled beliefs drawn by weight, with RECAP's decision-aware encoder."""
    beliefs, weights = sample
    n = min(K, int((weights > 0).sum()))
    centres = beliefs[rng.choice(len(beliefs), size=n, replace=False, p=weights)]
    alphas = vf.alphas[vf.best(centres)]
    return _better_policy(pomdp, centres, lambda b: first_max(b @ alphas.T), vf)


def window(pomdp: POMDP, K: int, vf: ValueFunction, sample: Sample, rng: np.random.Generator) -> Controller:
    """The last N observations, with the largest N such that |O|^N + 1 <= K, and the best policy found on them.

    Until N observations have come the first is repeated. Where not even N = 1 fits, the K - 1 most frequent
    observations are told apart and the others share a state. Actions by exact coordinate ascent from 20 random starts.

    Raises:
        ValueError: the linear system of K |S| unknowns is too large to search on.
    """
    if K * pomdp.n_states > _SYSTEM_LIMIT:
        raise ValueError(f"the window baseline needs K |S| <= {_SYSTEM_LIMIT}, got {K * pomdp.n_states}")
    n_obs = pomdp.n_observations
    if K == 1:
        following = np.zeros((1, n_obs), dtype=int)
    elif n_obs + 1 > K:
        beliefs, weights = sample
        frequency = sum(weights @ (beliefs @ pomdp.T[a]) @ pomdp.Z[a] for a in range(pomdp.n_actions))
        kind = np.full(n_obs, K - 1)
        kind[np.argsort(-np.asarray(frequency), kind="stable")[: K - 1]] = np.arange(K - 1)
        following = np.tile(kind, (K, 1))
    else:
        following = window_moves(n_obs, K)
    return coordinate_ascent(pomdp, following, rng)


def window_moves(n_obs: int, K: int) -> Int[np.ndarray, "M O"]:
    """Memory moves of the longest observation window that fits in K states: state 0 is the start, M = O^N + 1."""
    N = 1
    while n_obs > 1 and n_obs ** (N + 1) + 1 <= K:
        N += 1
    codes = np.arange(n_obs**N)
    first = np.array([sum(o * n_obs**i for i in range(N)) for o in range(n_obs)])
    shifted = (codes[:, None] * n_obs + np.arange(n_obs)) % n_obs**N
    return 1 + np.vstack([first, shifted])


def coordinate_ascent(
    pomdp: POMDP, following: Int[np.ndarray, "K O"], rng: np.random.Generator, restarts: int = 20
) -> Controller:
    """Best actions for given memory moves: change one node's action at a time while the exact value rises.

    Changing a node replaces S rows of the linear system, so its effect comes from a solve of size S (Woodbury).
    """
    K, S, A = len(following), pomdp.n_states, pomdp.n_actions
    move = np.eye(K)[following]
    dense = pomdp.dense_transitions()
    # rows[m][a]: the block row (S, K S) of I - gamma M when node m takes action a
    rows = np.zeros((K, A, S, K * S))
    for m in range(K):
        for a in range(A):
            block = np.einsum("st,tn->snt", -pomdp.gamma * dense[a], pomdp.Z[a] @ move[m]).reshape(S, K * S)
            block[:, m * S : (m + 1) * S] += np.eye(S)
            rows[m, a] = block
    best: Controller | None = None
    best_value = -np.inf
    for _ in range(restarts):
        actions = rng.integers(A, size=K)
        inverse = np.linalg.inv(np.vstack([rows[m, actions[m]] for m in range(K)]))
        F = inverse @ pomdp.r.T[actions].ravel()
        value = float((F.reshape(K, S) @ pomdp.b0).max())
        improved = True
        while improved:
            improved = False
            for m in rng.permutation(K):
                column = inverse[:, m * S : (m + 1) * S]
                for a in range(A):
                    if a == actions[m]:
                        continue
                    change = rows[m, a] - rows[m, actions[m]]
                    small = np.linalg.inv(np.eye(S) + change @ column)
                    step = small @ (pomdp.r[:, a] - pomdp.r[:, actions[m]] - change @ F)
                    candidate = F + column @ step
                    new = float((candidate.reshape(K, S) @ pomdp.b0).max())
                    if new > value + 1e-9:
                        inverse = inverse - column @ (small @ (change @ inverse))
                        column = inverse[:, m * S : (m + 1) * S]
                        actions[m], F, value, improved = a, candidate, new, True
        if value > best_value:
            best, best_value = Controller(actions, following, 0).best_start(pomdp), value
    assert best is not None
    return best


def _nearest(pomdp: POMDP, centres: np.ndarray, vf: ValueFunction) -> Controller:
    return _better_policy(pomdp, centres, lambda b: first_max(nearness(b, centres)), vf)


def _better_policy(pomdp: POMDP, centres: np.ndarray, encode: Encoder, vf: ValueFunction) -> Controller:
    greedy = np.asarray(vf.action(centres))
    planned = quantised_policy(pomdp, centres, encode)
    return _best(pomdp, [filter_controller(pomdp, centres, actions, encode) for actions in (planned, greedy)])


def _best(pomdp: POMDP, controllers: list[Controller]) -> Controller:
    return max(controllers, key=lambda controller: controller.value(pomdp))


def quantised_policy(pomdp: POMDP, centres: Float[np.ndarray, "K S"], encode: Encoder) -> Int[np.ndarray, " K"]:
    """Optimal actions of the belief MDP whose states are the representatives (Howard's policy iteration)."""
    K, A, n_obs = len(centres), pomdp.n_actions, pomdp.n_observations
    move = np.zeros((K, A, K))
    for a in range(A):
        p, posterior = pomdp.filter_many(centres, a)
        target = encode(posterior.reshape(K * n_obs, -1)).reshape(K, n_obs)
        for o in range(n_obs):
            move[np.arange(K), a, target[:, o]] += p[:, o]  # one target a row, so nothing is lost
    reward = centres @ pomdp.r
    actions = reward.argmax(axis=1)
    here = np.arange(K)
    while True:
        v = np.linalg.solve(np.eye(K) - pomdp.gamma * move[here, actions], reward[here, actions])
        q = reward + pomdp.gamma * move @ v
        better = q.max(axis=1) > q[here, actions] + 1e-9
        if not better.any():
            return actions
        actions = np.where(better, first_max(q), actions)


def _cell_means(beliefs: np.ndarray, weights: np.ndarray, cell: np.ndarray, default: np.ndarray) -> np.ndarray:
    member = (cell[:, None] == np.arange(len(default))) * weights[:, None]
    mass = member.sum(axis=0)[:, None]
    return np.divide(member.T @ beliefs, mass, out=default.copy(), where=mass > 0)


def _grid_points(beliefs: np.ndarray, resolution: int) -> np.ndarray:
    """Nearest point with integer coordinates that sum to ``resolution``, for each scaled belief."""
    scaled = beliefs / beliefs.sum(axis=1, keepdims=True) * resolution
    floor = np.floor(scaled + 1e-9)
    missing = np.rint(resolution - floor.sum(axis=1)).astype(int)
    rank = np.argsort(np.argsort(-(scaled - floor), axis=1, kind="stable"), axis=1, kind="stable")
    return floor + (rank < missing[:, None])


def _mode_and_entropy(beliefs: np.ndarray, bins: int) -> np.ndarray:
    """Cell number: most likely state times ``bins`` plus the bin of the normalised entropy."""
    n = beliefs.shape[-1]
    entropy = -(beliefs * np.log(np.where(beliefs > 0, beliefs, 1.0))).sum(axis=-1) / np.log(n)
    return first_max(beliefs) * bins + np.minimum((entropy * bins).astype(int), bins - 1)


_METHODS: dict[str, Callable[..., Controller]] = {
    "kmeans": kmeans, "kl": kl, "grid": grid, "amdp": amdp, "window": window, "random": random,
    "kmeans+cl": kmeans_cl,
}  # fmt: skip

BASELINES: tuple[str, ...] = tuple(_METHODS)
"""Names that :func:`baseline` knows."""

STOCHASTIC = ("kmeans", "kl", "window", "random", "kmeans+cl")
"""Those that depend on the seed."""
