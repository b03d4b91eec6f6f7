"""Solvers of V*: point-based value iteration and two upper bounds from the underlying MDP."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .controller import Controller
from .pomdp import POMDP, merge_beliefs
from .value import ValueFunction, backup, evaluate_plans

_EXPLORE = 0.3  # how often a roll-out that collects beliefs for the solver takes a random action
_DISTANCE = 1e-3  # L1 distance that makes two collected beliefs different
_SWEEPS = 30  # cheap evaluation sweeps between two backups (modified policy iteration)
_EXACT = 300  # unknowns up to which the plans are evaluated exactly instead


def qmdp(pomdp: POMDP, tol: float = 1e-9) -> Float[np.ndarray, "S A"]:
    """Q-values of the fully observed MDP; max_a <Q_a, b> is an upper bound of V* (Littman et al., 1995)."""
    gamma = pomdp.gamma
    q = np.full((pomdp.n_states, pomdp.n_actions), pomdp.r.max() / (1 - gamma))
    while True:
        v = q.max(axis=1)
        new = pomdp.r + gamma * np.stack([pomdp.T[a] @ v for a in range(pomdp.n_actions)], axis=1)
        if np.abs(new - q).max() <= tol * (1 - gamma):
            return new
        q = new


def fib(pomdp: POMDP, tol: float = 1e-9) -> Float[np.ndarray, "S A"]:
    """Fast informed bound (Hauskrecht, 2000): V*(b) <= max_a <Q_a, b>, never looser than QMDP.

    The iteration starts above the fixed point and falls, so every iterate is an upper bound.
    """
    gamma, q = pomdp.gamma, qmdp(pomdp)
    while True:
        new = pomdp.r.copy()
        for a in range(pomdp.n_actions):
            for o in range(pomdp.n_observations):
                new[:, a] += gamma * (pomdp.T[a] @ (pomdp.Z[a, :, o, None] * q)).max(axis=1)
        if np.abs(new - q).max() <= tol * (1 - gamma):
            return new
        q = new


def solve(
    pomdp: POMDP,
    n_beliefs: int = 250,
    rounds: int = 2,
    tol: float = 1e-6,
    seed: int = 0,
    extra: Float[np.ndarray, "M S"] | None = None,
) -> ValueFunction:
    """Point-based value iteration (Pineau et al., 2003) on beliefs reached by exploring roll-outs.

    The vectors start from those of the constant actions (blind policies, Hauskrecht, 1997), so each is always a lower
    bound of the value of a policy that begins with its action, and none is worse at b0 than a constant action.
    Round 1 collects beliefs with the QMDP policy, later rounds with the greedy policy of the last.

    Args:
        n_beliefs: beliefs collected in each round.
        rounds: how often beliefs are collected and solved on.
        tol: stop when no belief's value rises by more than this (relative to the size of the values above 1).
        extra: more beliefs to solve on, shape (M, S).

    Raises:
        ValueError: ``n_beliefs`` or ``rounds`` is below 1.
    """
    if n_beliefs < 1 or rounds < 1:
        raise ValueError(f"n_beliefs and rounds must be at least 1, got {n_beliefs} and {rounds}")
    rng = np.random.default_rng(seed)
    q = qmdp(pomdp)
    beliefs = pomdp.b0[None] if extra is None else np.vstack([pomdp.b0[None], extra])
    solution: ValueFunction | None = None
    for _ in range(rounds):
        policy = (lambda b: (b @ q).argmax(axis=1)) if solution is None else solution.action
        found = explore(pomdp, policy, rng, n_beliefs)
        beliefs = np.vstack([beliefs, _new_only(found, beliefs)])
        solution = iterate(pomdp, beliefs, tol, start=solution)
    assert solution is not None
    return solution


def iterate(
    pomdp: POMDP, beliefs: np.ndarray, tol: float, start: ValueFunction | None = None, max_iterations: int = 2_000
) -> ValueFunction:
    """Full backups on fixed beliefs until their values stand still, then only the vectors in use are kept.

    A belief keeps its old vector where the new one is no better there, so values at the beliefs never fall.
    """
    if start is None:
        actions = np.arange(pomdp.n_actions)
        stay = np.zeros((1, pomdp.n_observations), dtype=int)
        alphas = np.vstack([Controller(actions[[a]], stay).evaluate(pomdp) for a in actions])
    else:
        alphas, actions = start.alphas, start.actions
    best = (beliefs @ alphas.T).argmax(axis=1)
    alphas, actions = alphas[best], actions[best]
    values = np.einsum("ns,ns->n", beliefs, alphas)
    for _ in range(max_iterations):
        distinct, kept = np.unique(alphas, axis=0, return_index=True)
        plan = backup(pomdp, distinct, beliefs)
        # The plans read as a policy graph over the beliefs, and evaluating that is far cheaper than more backups.
        if len(beliefs) * pomdp.n_states <= _EXACT:
            vectors = Controller(plan.actions, kept[plan.successors]).evaluate(pomdp)
        else:
            vectors = plan.vectors
            for _ in range(_SWEEPS):
                vectors = evaluate_plans(pomdp, vectors, plan.actions, kept[plan.successors])
        candidates = np.vstack([alphas, plan.vectors, vectors])
        labels = np.concatenate([actions, plan.actions, plan.actions])
        candidates, first = np.unique(candidates, axis=0, return_index=True)
        scores = beliefs @ candidates.T
        best = scores.argmax(axis=1)
        new_values = scores[np.arange(len(beliefs)), best]
        alphas, actions = candidates[best], labels[first][best]
        gain = float((new_values - values).max())
        values = new_values
        if gain <= tol * (1 - pomdp.gamma) * max(1.0, float(np.abs(values).max())):
            break
    scores = beliefs @ alphas.T
    used = np.unique((scores >= scores.max(axis=1, keepdims=True) - 1e-10).argmax(axis=1))
    return ValueFunction(alphas[used], actions[used], beliefs)


def explore(pomdp: POMDP, policy, rng: np.random.Generator, count: int, horizon: int = 60) -> np.ndarray:
    """Up to ``count`` different beliefs met by roll-outs of ``policy`` (beliefs (N, S) -> actions (N,))."""
    found, episodes = pomdp.b0[None], 32
    while len(found) <= count:
        met = np.vstack([b for b, _ in _rollouts(pomdp, policy, rng, episodes, horizon, _EXPLORE)])
        met, _, _ = merge_beliefs(met, np.ones(len(met)), decimals=6)
        new = _new_only(rng.permutation(met)[: 4 * count], found)
        found = np.vstack([found, new])
        if len(new) < 0.02 * count:  # few beliefs are reachable, and most are found
            break
    return found[: count + 1]


def belief_sample(
    pomdp: POMDP, vf: ValueFunction, episodes: int = 150, horizon: int = 60, explore: float = 0.1, seed: int = 0
) -> tuple[Float[np.ndarray, "N S"], Float[np.ndarray, " N"]]:
    """Beliefs met by the greedy policy of ``vf`` with exploration, and their discounted visit frequencies.

    Beliefs are merged at six decimals; weights sum to one and the order does not depend on chance.
    """
    rng = np.random.default_rng(seed)
    beliefs, weights = [], []
    for t, (b, _) in enumerate(_rollouts(pomdp, vf.action, rng, episodes, horizon, explore)):
        beliefs.append(b)
        weights.append(np.full(episodes, pomdp.gamma**t))
    merged, mass, _ = merge_beliefs(np.vstack(beliefs), np.concatenate(weights), decimals=6)
    return merged, mass / mass.sum()


def _rollouts(pomdp: POMDP, policy, rng: np.random.Generator, episodes: int, horizon: int, explore: float):
    """Yield (beliefs, states) of parallel episodes, step by step."""
    beliefs = np.tile(pomdp.b0, (episodes, 1))
    states = rng.choice(pomdp.n_states, size=episodes, p=pomdp.b0 / pomdp.b0.sum())
    for _ in range(horizon):
        yield beliefs, states
        actions = np.asarray(policy(beliefs)).copy()
        random = rng.random(episodes) < explore
        actions[random] = rng.integers(pomdp.n_actions, size=int(random.sum()))
        states, seen = pomdp.step_many(rng, states, actions)
        following = np.empty_like(beliefs)
        for a in np.unique(actions):
            rows = actions == a
            joint = (beliefs[rows] @ pomdp.T[a]) * pomdp.Z[a].T[seen[rows]]
            following[rows] = joint / joint.sum(axis=1, keepdims=True)
        beliefs = following


def _new_only(candidates: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Those candidates whose L1 distance to every known and earlier kept belief exceeds the threshold."""
    keep: list[np.ndarray] = []
    reference = np.empty((len(known) + len(candidates), known.shape[1]))
    reference[: len(known)] = known
    n = len(known)
    for candidate in candidates:
        if np.abs(reference[:n] - candidate).sum(axis=1).min() > _DISTANCE:
            reference[n] = candidate
            n += 1
            keep.append(candidate)
    return np.array(keep).reshape(-1, known.shape[1])
