"""What it costs to forget one distinction: merge two nodes of a controller and re-plan the merged one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from .closed_loop import node_beliefs
from .controller import Controller
from .pomdp import POMDP
from .value import ValueFunction, backup
from .witness import jensen_gap


def merge_nodes(pomdp: POMDP, controller: Controller, i: int, j: int) -> Controller:
    """The controller with nodes i and j replaced by one.

    The merged node takes the best action and successors for the occupancy-weighted mean belief of the two.

    Raises:
        ValueError: i and j are the same, no nodes, or both never visited.
    """
    if i == j or not (0 <= i < controller.size and 0 <= j < controller.size):
        raise ValueError(f"expected two different nodes of 0..{controller.size - 1}, got {i} and {j}")
    i, j = min(i, j), max(i, j)
    beliefs, mass = node_beliefs(pomdp, controller)
    if mass[i] + mass[j] <= 0:
        raise ValueError(f"nodes {i} and {j} are never visited")
    mean = (mass[i] * beliefs[i] + mass[j] * beliefs[j]) / (mass[i] + mass[j])
    plan = backup(pomdp, controller.evaluate(pomdp), mean[None])
    actions, following = controller.actions.copy(), controller.next.copy()
    actions[i], following[i] = plan.actions[0], plan.successors[0]
    kept = np.delete(np.arange(controller.size), j)
    renumber = np.empty(controller.size, dtype=int)
    renumber[kept] = np.arange(len(kept))
    renumber[j] = renumber[i]
    return Controller(actions[kept], renumber[following[kept]], int(renumber[controller.m0])).best_start(pomdp)


def merge_table(pomdp: POMDP, controller: Controller, vf: ValueFunction) -> pd.DataFrame:
    """One row for each pair of visited nodes.

    Columns: ``i``, ``j``; ``gap``, the occupancy-weighted Jensen gap; ``distance``, L2 between the two beliefs;
    ``weighted_distance``, the same times the smaller occupancy; ``loss``, the exact fall of V(b0) when they are merged.
    """
    beliefs, mass = node_beliefs(pomdp, controller)
    before = controller.value(pomdp)
    rows = []
    for i, j in combinations(np.flatnonzero(mass > 1e-12), 2):
        distance = float(np.linalg.norm(beliefs[i] - beliefs[j]))
        rows.append(
            {
                "i": int(i),
                "j": int(j),
                "gap": jensen_gap(vf, beliefs[i], beliefs[j], float(mass[i]), float(mass[j])),
                "distance": distance,
                "weighted_distance": distance * float(min(mass[i], mass[j])),
                "loss": before - merge_nodes(pomdp, controller, int(i), int(j)).value(pomdp),
            }
        )
    return pd.DataFrame(rows)
