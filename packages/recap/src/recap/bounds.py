"""Upper bounds on the optimality gap of any codebook or controller (reconstruction on published lemmas)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from .closed_loop import node_beliefs
from .codebook import RECAP, Codebook
from .controller import Controller
from .pomdp import POMDP
from .reach import advance
from .value import ValueFunction


@dataclass(frozen=True)
class UpperBound:
    """V*(b0) - V(b0) <= value, from properties of the code alone.

    Attributes:
        value: sum_t gamma^t (eps_dec + 2 L e_t), L = range(r) / (2 (1 - gamma)).
        eps_dec: largest distortion of a representative under its own vector.
        eta: largest L1 distance of a filtered representative to the one it is encoded as.
        kappa: contraction of the expected filter, max_a (1 - delta(T_a)) (2 - delta(Z_a)).
        start: L1 distance of b0 to its representative.
        trivial: range(r) / (1 - gamma), what holds for any controller.
        vacuous: whether the bound says no more than the trivial one.
    """

    value: float
    eps_dec: float
    eta: float
    kappa: float
    start: float
    trivial: float
    vacuous: bool


class Nodes(NamedTuple):
    """A controller with the belief and the vector that stand for each of its nodes."""

    controller: Controller
    beliefs: Float[np.ndarray, "K S"]
    alphas: Float[np.ndarray, "K S"]


def nodes_of(pomdp: POMDP, code: RECAP | Codebook | Controller) -> Nodes:
    """Representatives and vectors: a codebook's own; of a controller, its occupancy means and exact value vectors.

    Nodes that a controller never visits get a belief of zeros and are ignored by the bounds.
    """
    if isinstance(code, RECAP):
        code = code.controller_
    if isinstance(code, Codebook):
        return Nodes(code.controller(pomdp), code.beliefs, code.alphas)
    return Nodes(code, node_beliefs(pomdp, code)[0], code.evaluate(pomdp))


def upper_bound(
    pomdp: POMDP, code: RECAP | Codebook | Controller, vf: ValueFunction, tolerance: float = 1e-12
) -> UpperBound:
    """A priori bound (UB2) from the filter-stability lemma of McDonald and Yuksel, Kara and Yuksel.

    The expected L1 error of the stored belief obeys e_{t+1} <= min(2, kappa e_t + eta), whatever happens; each unit
    costs at most 2 L. Valid when each vector is dominated by a policy that starts with its node's action, which holds
    for vectors of :func:`solve` and for a controller's own values. ``vf`` should be within a small error of V*.
    """
    controller, beliefs, alphas = nodes_of(pomdp, code)
    used = np.flatnonzero(beliefs.sum(axis=1) > 0.5)
    eps_dec = float((vf.value(beliefs[used]) - np.einsum("ks,ks->k", beliefs[used], alphas[used])).max())
    eta = 0.0
    for k in used:
        p, posterior = pomdp.filter_many(beliefs[k][None], int(controller.actions[k]))
        follows = p[0] > tolerance
        target = beliefs[controller.next[k]]
        eta = max(eta, float(np.abs(posterior[0] - target)[follows].sum(axis=1).max()))
    start = float(np.abs(pomdp.b0 - beliefs[controller.m0]).sum())
    kappa = contraction(pomdp)
    trivial = pomdp.reward_range / (1 - pomdp.gamma)
    value, error, weight = 0.0, min(2.0, start), 1.0
    while weight > 1e-12:  # the tail is bounded by the saturated error
        value += weight * (max(eps_dec, 0.0) + trivial * error)
        error = min(2.0, kappa * error + eta)
        weight *= pomdp.gamma
    value += weight / (1 - pomdp.gamma) * (max(eps_dec, 0.0) + 2 * trivial)
    return UpperBound(value, eps_dec, eta, kappa, start, trivial, value >= trivial)


def contraction(pomdp: POMDP) -> float:
    """kappa = max_a (1 - delta(T_a)) (2 - delta(Z_a)) with Dobrushin's coefficient delta."""
    return max((1 - dobrushin(pomdp.T[a])) * (2 - dobrushin(pomdp.Z[a])) for a in range(pomdp.n_actions))


def dobrushin(kernel: Float[np.ndarray, "n m"] | sparse.csr_array) -> float:
    """delta(P) = min over pairs of rows of the mass that they share."""
    kernel = kernel.toarray() if sparse.issparse(kernel) else kernel
    return float(min(np.minimum(row, kernel).sum(axis=1).min() for row in kernel))


class DecisionBound(NamedTuple):
    """UB1 by exact expansion of the law of (belief, memory)."""

    regret: float
    """sum_{t<H} gamma^t E[V*(B_t) - Q*(B_t, a_t)] + tail: an identity as H grows."""
    distortion: float
    """sum_{t<H} gamma^t E[d(B_t, alpha_{M_t})] + tail: what RECAP's objective samples."""
    horizon: int
    tail: float
    """gamma^H range(r) / (1 - gamma)"""


def decision_bound(
    pomdp: POMDP,
    code: RECAP | Codebook | Controller,
    vf: ValueFunction,
    horizon: int = 60,
    max_support: int = 2_000,
) -> DecisionBound:
    """Bounds of the gap by the decisions on the way (UB1), expanded until ``horizon`` or ``max_support`` beliefs.

    Both use ``vf`` for V*, so they bound V_vf(b0) - V(b0); ``distortion`` is at least ``regret`` where ``vf`` holds
    V* at the beliefs met.
    """
    controller, _, alphas = nodes_of(pomdp, code)
    beliefs, law, memory = pomdp.b0[None], np.ones(1), np.array([controller.m0])
    regret = distortion = 0.0
    t = 0
    while t < horizon and len(law) <= max_support:
        actions = controller.actions[memory]
        best = np.asarray(vf.value(beliefs))
        served = np.einsum("ns,ns->n", beliefs, alphas[memory])
        weight = pomdp.gamma**t
        regret += weight * float(law @ (best - action_values(pomdp, vf, beliefs, actions)))
        distortion += weight * float(law @ (best - served))
        beliefs, law, memory = advance(pomdp, beliefs, law, actions, controller.next[memory])
        t += 1
    tail = pomdp.gamma**t * pomdp.reward_range / (1 - pomdp.gamma)
    return DecisionBound(regret + tail, distortion + tail, t, tail)


def action_values(pomdp: POMDP, vf: ValueFunction, beliefs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Q(b_i, a_i) = <r_a, b> + gamma sum_o max_alpha <alpha, joint(b, a, o)>."""
    values = np.einsum("ns,sn->n", beliefs, pomdp.r[:, actions])
    for a in np.unique(actions):
        rows = np.flatnonzero(actions == a)
        predicted = beliefs[rows] @ pomdp.T[a]
        for o in range(pomdp.n_observations):
            values[rows] += pomdp.gamma * ((predicted * pomdp.Z[a, :, o]) @ vf.alphas.T).max(axis=1)
    return values
