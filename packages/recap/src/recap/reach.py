"""Which beliefs can occur: the layered graph of all of them, and their law under a policy or a controller."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .controller import Controller
from .pomdp import POMDP, merge_beliefs
from .value import ValueFunction

DECIMALS = 9  # beliefs that agree to so many decimals are one


@dataclass(frozen=True, eq=False)
class Layer:
    """Beliefs reachable at one time, and where every action and observation leads in the next layer."""

    beliefs: Float[np.ndarray, "N S"]
    probabilities: Float[np.ndarray, "N A O"] | None
    """p(o | b, a); None in the last layer."""
    successors: Int[np.ndarray, "N A O"] | None
    """Row in the next layer (0 where the observation has no probability)."""


def check_time(t: int) -> None:
    """Raise ValueError unless t, a number of steps, is at least 0."""
    if t < 0:
        raise ValueError(f"a time must be at least 0, got {t}")


def belief_layers(pomdp: POMDP, depth: int, max_beliefs: int = 20_000) -> list[Layer]:
    """All beliefs reachable from b0 within ``depth`` steps under any actions, layer by layer.

    The list is shorter than ``depth + 1`` where a layer would exceed ``max_beliefs``.
    """
    check_time(depth)
    layers: list[Layer] = []
    beliefs = pomdp.b0[None]
    A, n_obs = pomdp.n_actions, pomdp.n_observations
    for _ in range(depth):
        if len(beliefs) * A * n_obs > 50 * max_beliefs:  # successors, before equal ones are merged
            break
        steps = [pomdp.filter_many(beliefs, a) for a in range(A)]
        p = np.stack([step[0] for step in steps], axis=1)
        posterior = np.stack([step[1] for step in steps], axis=1)
        happens = p > 0
        following, _, inverse = merge_beliefs(posterior[happens], p[happens], DECIMALS)
        if len(following) > max_beliefs:
            break
        successors = np.zeros(p.shape, dtype=int)
        successors[happens] = inverse
        layers.append(Layer(beliefs, p, successors))
        beliefs = following
    layers.append(Layer(beliefs, None, None))
    return layers


def greedy_law(pomdp: POMDP, vf: ValueFunction, t: int) -> tuple[Float[np.ndarray, "N S"], Float[np.ndarray, " N"]]:
    """Beliefs at time ``t`` under the greedy policy of ``vf``, with their exact probabilities."""
    check_time(t)
    beliefs, law = pomdp.b0[None], np.ones(1)
    for _ in range(t):
        beliefs, law, _ = advance(pomdp, beliefs, law, np.asarray(vf.action(beliefs)), None)
    return beliefs, law


def controller_law(
    pomdp: POMDP, controller: Controller, t: int
) -> tuple[Float[np.ndarray, "N S"], Float[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Joint law of (B_t, M_t) under a controller: beliefs, probabilities and memory states."""
    check_time(t)
    beliefs, law, memory = pomdp.b0[None], np.ones(1), np.array([controller.m0])
    for _ in range(t):
        beliefs, law, memory = advance(pomdp, beliefs, law, controller.actions[memory], controller.next[memory])
    return beliefs, law, memory


def advance(
    pomdp: POMDP, beliefs: np.ndarray, law: np.ndarray, actions: np.ndarray, moves: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step of a law over (belief, memory); memory is constant where ``moves`` (N, O) is None."""
    found, mass, memory = [], [], []
    for a in np.unique(actions):
        rows = np.flatnonzero(actions == a)
        p, posterior = pomdp.filter_many(beliefs[rows], a)
        i, o = np.nonzero(p > 0)
        found.append(posterior[i, o])
        mass.append(law[rows[i]] * p[i, o])
        memory.append(np.zeros(len(i), dtype=int) if moves is None else moves[rows[i], o])
    joint = np.column_stack([np.vstack(found), np.concatenate(memory)])
    merged, weights, _ = merge_beliefs(joint, np.concatenate(mass), DECIMALS)
    return merged[:, :-1], weights, merged[:, -1].round().astype(int)
