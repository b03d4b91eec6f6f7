"""Closed-loop refinement: improve a controller on the beliefs it really has; keep only what raises its exact value."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .controller import Controller
from .pomdp import POMDP
from .value import ValueFunction, backup

_GAIN = 1e-9  # least rise of V(b0) that counts


def refine(
    pomdp: POMDP,
    controller: Controller,
    vf: ValueFunction,
    sample: tuple[Float[np.ndarray, "N S"], Float[np.ndarray, " N"]],
    max_rounds: int = 20,
) -> tuple[Controller, list[float]]:
    """Rounds of: occupancy means as node beliefs, best one-step plan of each node, exact evaluation.

    Nodes that are never visited are first moved to the sampled beliefs where the controller loses the most. Stops at
    the first round that does not raise V(b0).

    Returns:
        the refined controller and V(b0) after every accepted round (rising; the first entry is the start).
    """
    controller = controller.best_start(pomdp)
    values = [controller.value(pomdp)]
    for _ in range(max_rounds):
        moved, beliefs = _move_idle_nodes(pomdp, controller, vf, sample)
        new = improve(pomdp, moved, moved.evaluate(pomdp), beliefs)
        value = new.value(pomdp)
        if not value > values[-1] + _GAIN:
            break
        controller = new
        values.append(value)
    return controller, values


def improve(
    pomdp: POMDP, controller: Controller, F: Float[np.ndarray, "K S"], beliefs: Float[np.ndarray, "K S"]
) -> Controller:
    """Every node takes the action and successors that are best at its belief when ``F`` continues them.

    An observation that cannot follow a node's belief keeps the successor it had.
    """
    plan = backup(pomdp, F, beliefs)
    possible = observation_law(pomdp, beliefs, plan.actions) > 0
    following = np.where(possible, plan.successors, controller.next)
    return Controller(plan.actions, following, controller.m0).best_start(pomdp)


def observation_law(pomdp: POMDP, beliefs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """p(o | b_i, a_i), shape (N, O)."""
    p = np.empty((len(beliefs), pomdp.n_observations))
    for a in np.unique(actions):
        rows = actions == a
        p[rows] = (beliefs[rows] @ pomdp.T[a]) @ pomdp.Z[a]
    return p


def node_beliefs(pomdp: POMDP, controller: Controller) -> tuple[Float[np.ndarray, "K S"], Float[np.ndarray, " K"]]:
    """Mean belief of every node under the controller's discounted occupancy (zeros if never visited), and its mass."""
    occupancy = controller.occupancy(pomdp)
    occupancy[occupancy < 1e-14] = 0.0
    mass = occupancy.sum(axis=1)
    return np.divide(occupancy, mass[:, None], out=np.zeros_like(occupancy), where=mass[:, None] > 0), mass


def _move_idle_nodes(
    pomdp: POMDP, controller: Controller, vf: ValueFunction, sample: tuple[np.ndarray, np.ndarray]
) -> tuple[Controller, np.ndarray]:
    """Node beliefs, with idle nodes re-planned (nothing points to them, so V(b0) stays) at the costliest beliefs."""
    beliefs, mass = node_beliefs(pomdp, controller)
    idle = np.flatnonzero(mass <= 1e-12)
    if not idle.size:
        return controller, beliefs
    points, weights = sample
    F = controller.evaluate(pomdp)
    cost = weights * (vf.value(points) - (points @ F.T).max(axis=1))
    order = np.argsort(-cost, kind="stable")
    beliefs[idle] = points[order[np.arange(len(idle)) % len(points)]]
    planned = improve(pomdp, controller, F, beliefs)
    actions, following = controller.actions.copy(), controller.next.copy()
    actions[idle], following[idle] = planned.actions[idle], planned.next[idle]
    return Controller(actions, following, controller.m0), beliefs
