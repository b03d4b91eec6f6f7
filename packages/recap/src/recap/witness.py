"""Decision witnesses: reachable beliefs that no single policy serves well (reconstruction)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .controller import check_memory
from .information import fano_bound
from .pomdp import POMDP
from .reach import greedy_law
from .value import ValueFunction


def jensen_gap(
    vf: ValueFunction,
    b: Float[np.ndarray, "*batch S"],
    c: Float[np.ndarray, "*batch S"],
    w: Float[np.ndarray, "*batch"] | float = 0.5,
    v: Float[np.ndarray, "*batch"] | float = 0.5,
) -> Float[np.ndarray, "*batch"] | float:
    """w V(b) + v V(c) - (w + v) V((w b + v c) / (w + v)) >= 0.

    Zero iff one policy is optimal at both beliefs. With the default weights, a gap of at least delta certifies that no
    policy comes within delta of the optimum at both.
    """
    w, v = np.asarray(w), np.asarray(v)
    mixture = (w[..., None] * b + v[..., None] * c) / (w + v)[..., None]
    gap = np.maximum(w * vf.value(b) + v * vf.value(c) - (w + v) * vf.value(mixture), 0.0)
    return gap if np.ndim(gap) else float(gap)


def gap_matrix(vf: ValueFunction, beliefs: Float[np.ndarray, "N S"]) -> Float[np.ndarray, "N N"]:
    """Jensen gaps of all pairs."""
    values = np.asarray(vf.value(beliefs))
    scores = beliefs @ vf.alphas.T
    gaps = np.empty((len(beliefs), len(beliefs)))
    for i, row in enumerate(scores):  # V at a midpoint needs only the two rows of scores
        gaps[i] = 0.5 * (values[i] + values) - 0.5 * (row + scores).max(axis=1)
    gaps = np.maximum(0.5 * (gaps + gaps.T), 0.0)
    np.fill_diagonal(gaps, 0.0)
    return gaps


@dataclass(frozen=True, eq=False)
class Witness:
    """Beliefs of one time whose pairwise Jensen gaps all reach ``margin``.

    Attributes:
        beliefs: shape (n, S).
        probs: probability of each at time ``t``, shape (n,), the largest first.
        margin: delta, in units of value.
        t: time.
        discount: gamma^t.
    """

    beliefs: Float[np.ndarray, "n S"]
    probs: Float[np.ndarray, " n"]
    margin: float
    t: int
    discount: float

    def bound(self, K: int, form: str = "counting") -> float:
        """Loss of every K-state controller that meets these beliefs with these probabilities.

        ``counting``: each policy is within the margin at one belief at most, so K of them leave the rest.
        ``fano``: the same by information, I <= log K, on the largest part of the witness made equally likely.
        """
        check_memory(K)
        if form == "counting":
            return self.discount * self.margin * float(self.probs[K:].sum())
        if form == "fano":
            return self.discount * self._fano(np.log(K), of_cells=True)
        raise ValueError(f"form must be 'counting' or 'fano', got {form!r}")

    def distortion_bound(self, rate: float) -> float:
        """Fano form for *any* code of ``rate`` nats (undiscounted): at most D(rate) of the law of B_t.

        A code of K words carries at most log K nats about the witness whatever its mass; a code of rate log K may spend
        rate / mass on it. Hence this is weaker than ``bound(K, "fano")``.
        """
        return self._fano(rate, of_cells=False)

    def _fano(self, information: float, of_cells: bool) -> float:
        best = 0.0
        for n in range(2, len(self.probs) + 1):
            mass = n * float(self.probs[n - 1])  # thinned to n equal probabilities
            best = max(best, fano_bound(mass, self.margin, n, information * mass if of_cells else information))
        return best


def decision_witness(
    pomdp: POMDP, vf: ValueFunction, K: int = 1, t_max: int = 4, quantiles: int = 20, max_beliefs: int = 400
) -> Witness:
    """The witness with the largest counting bound for K memory states, under the greedy policy of ``vf``.

    For each t <= t_max and each delta on a grid of quantiles of the positive gaps, a clique of pairwise gaps >= delta
    is grown greedily, the most probable belief first. Where nothing is lost the witness is one belief of margin 0.
    """
    check_memory(K)
    best = Witness(pomdp.b0[None], np.ones(1), 0.0, 0, 1.0)
    for t in range(1, t_max + 1):
        beliefs, law = greedy_law(pomdp, vf, t)
        order = np.argsort(-law, kind="stable")[:max_beliefs]
        found = best_clique(vf, beliefs[order], law[order], K, t, pomdp.gamma**t, quantiles)
        if found is not None and found.bound(K) > best.bound(K):
            best = found
    return best


def best_clique(
    vf: ValueFunction, beliefs: np.ndarray, law: np.ndarray, K: int, t: int, discount: float, quantiles: int = 20
) -> Witness | None:
    """Best witness among ``beliefs`` (sorted by falling probability) for one time; None without a positive gap."""
    gaps = gap_matrix(vf, beliefs)
    positive = gaps[gaps > 1e-9]
    if not positive.size:
        return None
    best: Witness | None = None
    for margin in np.unique(np.quantile(positive, np.linspace(0, 1, quantiles), method="lower")):
        clique: list[int] = []
        for i in range(len(beliefs)):
            if (gaps[i, clique] >= margin).all():
                clique.append(i)
        found = Witness(beliefs[clique], law[clique], float(margin), t, discount)
        if best is None or found.bound(K) > best.bound(K):
            best = found
    return best
