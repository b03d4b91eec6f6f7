"""The converse: what no controller with K memory states can reach (reconstruction).

At any time t such a controller continues in one of K ways. Give it full memory at every other time: the best value
U_K(t) of that relaxation still bounds every K-state controller, so its loss is at least V*(b0) - U_K(t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Float

from .controller import Controller, RandomizedController, check_memory
from .information import rate_distortion
from .pomdp import POMDP, merge_beliefs
from .reach import Layer, belief_layers, controller_law
from .upper import upper_value
from .value import ValueFunction

MAX_CELLS = 10  # most distinct posteriors for which all partitions are searched (3^n steps)


@dataclass(frozen=True)
class LowerBound:
    """Every K-state controller loses at least ``value`` against V*(b0).

    Attributes:
        value: the bound, never negative (0 says nothing).
        t: time of the memory bottleneck that gives it; 0 for the trivial bound.
        certified: the number needs no trust in the completeness of a set of vectors.
        eps: error of the value function that was allowed for (inf where the bound did without one).
    """

    value: float
    t: int
    certified: bool
    eps: float


def converse_bound(
    pomdp: POMDP,
    vf: ValueFunction,
    K: int,
    t_max: int = 6,
    max_subsets: int = 5_000,
    max_beliefs: int = 300,
    certified_only: bool = True,
) -> LowerBound:
    """Lower bound on the loss V*(b0) - V(b0) of every controller with K memory states, deterministic or randomized.

    Two forms. With a value function whose ``error`` is known on the whole simplex (:func:`exact_value_iteration`) all
    subsets of K vectors are tried for t = 1..t_max (:func:`subset_bound`). Otherwise t = 1 is bounded by partitions of
    the posteriors, valued with an upper bound of V* (:func:`partition_bound`). Both are certified.

    ``certified_only=False`` also tries the subsets of a value function without a known error, which is *no* lower
    bound unless ``vf`` holds the best vector at every mixture of reachable beliefs (see :func:`subset_bound`).

    Args:
        t_max: latest time of the memory bottleneck in the subset form.
        max_subsets: the subset form is left out where there are more subsets than this.
        max_beliefs: expansions of the upper bound of V* in the partition form.

    Raises:
        ValueError, TypeError: K is no int of at least 1, or t_max is below 1.
    """
    return converse_bounds(pomdp, vf, (K,), t_max, max_subsets, max_beliefs, certified_only)[K]


def converse_bounds(
    pomdp: POMDP,
    vf: ValueFunction,
    sizes: Iterable[int],
    t_max: int = 6,
    max_subsets: int = 5_000,
    max_beliefs: int = 300,
    certified_only: bool = True,
) -> dict[int, LowerBound]:
    """:func:`converse_bound` for several memory sizes, sharing the reachable beliefs and the upper bound of V*."""
    sizes = list(sizes)
    for K in sizes:
        check_memory(K)
    if t_max < 1:
        raise ValueError(f"t_max must be at least 1, got {t_max}")
    known = bool(np.isfinite(vf.error))
    optimum = float(vf.value(pomdp.b0))
    layers = belief_layers(pomdp, t_max) if known or not certified_only else []
    upper = _certified_upper(pomdp, vf, max_beliefs)
    bounds = {}
    for K in sizes:
        best = LowerBound(0.0, 0, True, vf.error)
        # More than MAX_CELLS posteriors cannot be partitioned exhaustively; one cell needs no partition.
        if K == 1 or all(len(_posteriors(pomdp, a)[0]) <= max(K, MAX_CELLS) for a in range(pomdp.n_actions)):
            loss = optimum - partition_bound(pomdp, K, upper)
            if loss > 0:
                best = LowerBound(loss, 1, True, vf.error)
        if comb(len(vf.alphas), min(K, len(vf.alphas))) <= max_subsets:
            for t in range(1, len(layers)):
                allowed = pomdp.gamma**t * vf.error if known else 0.0
                loss = optimum - subset_bound(pomdp, vf, K, t, layers) - allowed
                if loss > best.value:
                    best = LowerBound(loss, t, known, vf.error)
        bounds[K] = best
    return bounds


def _certified_upper(pomdp: POMDP, vf: ValueFunction, max_beliefs: int) -> Callable[[np.ndarray], np.ndarray]:
    """V_hi >= V* that is good at the means which a partition after one step can have."""
    if np.isfinite(vf.error):
        return lambda b: np.asarray(vf.value(b)) + vf.error
    targets = first_step_mixtures(pomdp)
    upper = upper_value(pomdp, targets, vf, max_beliefs)
    return lambda b: np.asarray(upper.value(b))


def subset_bound(pomdp: POMDP, vf: ValueFunction, K: int, t: int, layers: list[Layer] | None = None) -> float:
    """U_K(t): best value when only K vectors of ``vf`` may be followed from time t on, and memory is full before.

    Bounds the K-state controllers only if ``vf`` is optimal at every *mixture* of the beliefs reachable at time t. A
    set pruned to reachable beliefs is not: on ``1d`` with K = 3 it turns V*(b0) - U into a false lower bound.
    """
    check_memory(K)
    layers = belief_layers(pomdp, t) if layers is None else layers
    if len(layers) <= t:
        raise ValueError(f"the beliefs of time {t} are too many to list")
    n = len(vf.alphas)
    subsets = np.array(list(combinations(range(n), min(K, n))))
    scores = layers[t].beliefs @ vf.alphas.T
    widest = max(layer.beliefs.shape[0] for layer in layers[: t + 1])
    chunk = max(1, 4_000_000 // (widest * pomdp.n_actions * pomdp.n_observations))
    best = -np.inf
    for i in range(0, len(subsets), chunk):
        value = scores[:, subsets[i : i + chunk]].max(axis=2)  # (beliefs, subsets)
        for layer in reversed(layers[:t]):
            assert layer.probabilities is not None and layer.successors is not None
            reward = layer.beliefs @ pomdp.r
            following = np.einsum("nao,naoj->naj", layer.probabilities, value[layer.successors])
            value = (reward[:, :, None] + pomdp.gamma * following).max(axis=1)
        best = max(best, float(value[0].max()))
    return best


def partition_bound(
    pomdp: POMDP, K: int, upper: Callable[[Float[np.ndarray, "N S"]], Float[np.ndarray, " N"]]
) -> float:
    """Upper bound of U_K(1) from an upper bound of V*: best first action and partition of its posteriors into K cells.

    Raises:
        ValueError: an action has more than ten different posteriors and K > 1.
    """
    check_memory(K)
    best = -np.inf
    for a in range(pomdp.n_actions):
        p, posterior = _posteriors(pomdp, a)
        if K == 1:
            worth = float(upper((p @ posterior)[None])[0])
        elif len(p) <= K:
            worth = float(p @ upper(posterior))
        elif len(p) > MAX_CELLS:
            raise ValueError(f"action {a} has {len(p)} different posteriors; at most {MAX_CELLS} can be partitioned")
        else:
            weight, mean = _cells(p, posterior)
            worth = _best_partition(weight * upper(mean), len(p), K)
        best = max(best, float(pomdp.b0 @ pomdp.r[:, a]) + pomdp.gamma * worth)
    return best


def first_step_mixtures(pomdp: POMDP) -> Float[np.ndarray, "M S"]:
    """Means of all cells that a partition after one step can have (only the overall mean where there are too many)."""
    found = []
    for a in range(pomdp.n_actions):
        p, posterior = _posteriors(pomdp, a)
        found.append(_cells(p, posterior)[1] if len(p) <= MAX_CELLS else np.vstack([p @ posterior, posterior]))
    means = np.vstack(found)
    return merge_beliefs(means, np.ones(len(means)), 10)[0]


def _posteriors(pomdp: POMDP, action: int) -> tuple[np.ndarray, np.ndarray]:
    p, posterior = pomdp.filter(pomdp.b0, action)
    merged, mass, _ = merge_beliefs(posterior[p > 0], p[p > 0], 10)
    return mass, merged


def _cells(p: np.ndarray, posterior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability and mean belief of every nonempty set of posteriors; set number ``mask`` stands in row mask - 1."""
    member = (np.arange(1, 2 ** len(p))[:, None] >> np.arange(len(p)) & 1).astype(float)
    joint = member @ (p[:, None] * posterior)
    weight = member @ p
    return weight, joint / weight[:, None]


def _best_partition(worth: np.ndarray, n: int, K: int) -> float:
    """max over partitions of n items into at most K sets of the summed ``worth`` (row mask - 1 for set mask)."""
    full = 2**n - 1
    best = np.concatenate([[0.0], worth])  # one set
    for _ in range(K - 1):
        new = best.copy()
        for mask in range(1, full + 1):
            low, rest = mask & -mask, mask & (mask - 1)
            part = rest
            while True:  # every subset of the rest joins the lowest item in one set; what remains is already solved
                new[mask] = max(new[mask], worth[(part | low) - 1] + best[mask ^ (part | low)])
                if part == 0:
                    break
                part = (part - 1) & rest
        best = new
    return float(best[full])


def loss_at(pomdp: POMDP, vf: ValueFunction, controller: Controller, t: int) -> float:
    """gamma^t E[d(B_t, sigma(M_t))]: what the loss of one controller owes to its memory at time t."""
    beliefs, law, memory = controller_law(pomdp, controller, t)
    followed = np.einsum("ns,ns->n", beliefs, controller.evaluate(pomdp)[memory])
    return float(pomdp.gamma**t * (law @ (vf.value(beliefs) - followed)))


def information_bound(pomdp: POMDP, vf: ValueFunction, controller: Controller, t: int) -> float:
    """gamma^t D_t(log K): the information form of the converse for the controller's own law of B_t.

    D_t is the distortion-rate function of B_t with the vectors of ``vf`` as alphabet; it bounds the controller's loss
    from below when ``vf`` is optimal at every mixture of those beliefs.
    """
    beliefs, law, _ = controller_law(pomdp, controller, t)
    merged, mass, _ = merge_beliefs(beliefs, law, 9)
    return float(pomdp.gamma**t * rate_distortion(mass, vf.distortion(merged), np.log(controller.size)))


def value_of(pomdp: POMDP, controller: Controller | RandomizedController) -> float:
    """Exact value at b0 from the best memory state."""
    return float((controller.evaluate(pomdp) @ pomdp.b0).max())
