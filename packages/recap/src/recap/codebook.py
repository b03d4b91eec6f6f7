"""RECAP: K representative beliefs chosen by the value that confusing them costs (reconstruction of the method)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from sklearn.cluster import KMeans

from .closed_loop import node_beliefs, refine
from .controller import Controller, check_memory, constant_controller
from .pomdp import POMDP
from .solvers import belief_sample, solve
from .value import ValueFunction, first_max
from .witness import gap_matrix

Sample = tuple[Float[np.ndarray, "N S"], Float[np.ndarray, " N"]]

_WITNESSES = 100  # heaviest sampled beliefs among which witness pairs are counted
_LLOYD_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Codebook:
    """K memory states as beliefs c_k with vectors alpha_k and actions a_k.

    Attributes:
        beliefs: representative beliefs, shape (K, S).
        alphas: vector of each, shape (K, S).
        actions: first action of each vector's policy, shape (K,).
        encoder: ``decision`` sends b to argmax_k <alpha_k, b>; ``l2`` to the nearest c_k.
    """

    beliefs: Float[np.ndarray, "K S"]
    alphas: Float[np.ndarray, "K S"]
    actions: Int[np.ndarray, " K"]
    encoder: Literal["decision", "l2"] = "decision"

    def encode(self, belief: Float[np.ndarray, "*batch S"]) -> Int[np.ndarray, "*batch"]:
        """Memory state of one belief or of many; the smallest index on ties."""
        scores = belief @ self.alphas.T if self.encoder == "decision" else nearness(belief, self.beliefs)
        return first_max(scores)

    def controller(self, pomdp: POMDP) -> Controller:
        """m' = q(tau(c_m, a_m, o)), started in the memory state that is best at b0.

        Where o cannot follow c_m, memory stays.
        """
        return filter_controller(pomdp, self.beliefs, self.actions, self.encode)


def filter_controller(pomdp: POMDP, beliefs: np.ndarray, actions: np.ndarray, encode) -> Controller:
    """Controller that filters each representative belief one step and encodes the result."""
    K = len(beliefs)
    following = np.tile(np.arange(K)[:, None], (1, pomdp.n_observations))
    for a in np.unique(actions):
        rows = np.flatnonzero(actions == a)
        p, posterior = pomdp.filter_many(beliefs[rows], int(a))
        following[rows] = np.where(p > 0, encode(posterior), following[rows])
    return Controller(actions, following, 0).best_start(pomdp)


def nearness(belief: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Minus the squared Euclidean distance, up to a constant of the belief."""
    return 2 * belief @ points.T - (points**2).sum(axis=1)


def code_of_vectors(
    vf: ValueFunction,
    chosen: Int[np.ndarray, " K"],
    sample: Sample,
    encoder: Literal["decision", "l2"] = "decision",
) -> Codebook:
    """The codebook of some vectors of ``vf``: each representative is the weighted mean of the beliefs it serves best.

    A vector that serves no sampled belief best is represented by the one where it loses the least.
    """
    beliefs, weights = sample
    alphas = vf.alphas[chosen]
    scores = beliefs @ alphas.T
    member = (first_max(scores)[:, None] == np.arange(len(chosen))) * weights[:, None]
    mass = member.sum(axis=0)[:, None]
    nearest = beliefs[(np.asarray(vf.value(beliefs))[:, None] - scores).argmin(axis=0)]
    mean = np.divide(member.T @ beliefs, mass, out=nearest.copy(), where=mass > 0)
    return Codebook(mean, alphas, vf.actions[chosen], encoder)


class RECAP:
    """Design a controller with at most K memory states.

    The codebook minimises J = mu * distortion + lam * closure + nu * witness. Distortion is sum_i w_i min_k
    d(b_i, alpha_k), which the converse cannot avoid; closure is the distortion after one filter step from the
    representatives (a term of the upper bound); witness adds the Jensen gaps of witness pairs that share a cell.
    Greedy start, Lloyd and swap search lower J; the closed loop then raises the exact value.

    Args:
        K: memory states.
        lam, nu, mu: weights of the closure, witness and distortion terms.
        closed_loop: refine the controller on its own occupancy (variant recap-cl; False is recap-open).
        restarts: perturbed weightings of the sample; the best exact value is kept.
        nested: also consider the best controllers of every smaller K, so that the value never falls with K.
        start: ``decision`` (facility location on value), ``kmeans`` or ``random`` representatives.
        encoder: ``decision`` or ``l2``.
        lloyd: run Lloyd's iteration and the swap search.
        seed: of the sample, the solver and the restarts.

    Attributes (after ``fit``):
        controller_: the controller; ``value_``: its exact V(b0).
        nodes_, beliefs_, alphas_: visited memory states (K',), their mean beliefs (K', S) under the controller, and
            their exact value vectors (K', S).
        codebook_: the codebook with the least J before the closed loop; ``objective_``: its terms of J.
        path_: best controller for every memory size 1..K (only K where ``nested`` is False).
        history_: one dict a restart: ``K``, ``restart``, ``J`` after each accepted step, ``lloyd`` (pairs of
            distortion before and after each Lloyd step, accepted or not) and ``value`` after each closed-loop round.

    Raises:
        TypeError, ValueError: K is no int of at least 1, or an option has an unknown value.
    """

    def __init__(
        self, K: int, lam: float = 1.0, nu: float = 0.0, mu: float = 1.0, closed_loop: bool = True, restarts: int = 4,
        nested: bool = True, start: Literal["decision", "kmeans", "random"] = "decision",
        encoder: Literal["decision", "l2"] = "decision", lloyd: bool = True, seed: int = 0,
    ) -> None:  # fmt: skip
        check_memory(K)
        if restarts < 1:
            raise ValueError(f"restarts must be at least 1, got {restarts}")
        if not (lam >= 0 and nu >= 0 and mu >= 0):
            raise ValueError(f"lam, nu and mu must not be negative, got {lam}, {nu} and {mu}")
        for name, value, known in (
            ("start", start, ("decision", "kmeans", "random")), ("encoder", encoder, ("decision", "l2")),
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        self.K, self.lam, self.nu, self.mu, self.closed_loop = int(K), lam, nu, mu, closed_loop
        self.restarts, self.nested = restarts, nested
        self.start, self.lloyd, self.seed = start, lloyd, seed
        self.encoder: Literal["decision", "l2"] = encoder

    def fit(self, pomdp: POMDP, vf: ValueFunction | None = None, sample: Sample | None = None) -> RECAP:
        """Solve (unless ``vf`` is given), sample beliefs (unless ``sample`` is given) and design the controller.

        Warns:
            UserWarning: the solution has fewer vectors than K, so the codebook has fewer nodes.
        """
        vf = solve(pomdp, seed=self.seed) if vf is None else vf
        sample = belief_sample(pomdp, vf, seed=self.seed) if sample is None else sample
        if len(vf.alphas) < self.K:
            warnings.warn(f"the solution has {len(vf.alphas)} vectors, fewer than K={self.K}", stacklevel=2)
        self.history_: list[dict] = []
        self.path_: dict[int, Controller] = {}
        best, best_value = constant_controller(pomdp), -np.inf
        best_value = best.value(pomdp)
        self.path_[1] = best
        for K in range(2, self.K + 1) if self.nested else (self.K,):
            for candidate in self._candidates(pomdp, vf, sample, K, best if self.nested else None):
                value = candidate.value(pomdp)
                if value > best_value + 1e-12 or (not self.nested and best.size != K):
                    best, best_value = candidate, value
            self.path_[K] = best
        if not self.nested and self.K > 1:
            del self.path_[1]
        self.controller_, self.value_ = best, best_value
        self._describe(pomdp, vf, sample)
        return self

    def encode(self, belief: Float[np.ndarray, "*batch S"]) -> Int[np.ndarray, "*batch"]:
        """Memory state of ``controller_`` whose policy loses the least at ``belief``."""
        return np.asarray(self.nodes_[first_max(belief @ self.alphas_.T)])

    def _candidates(self, pomdp: POMDP, vf: ValueFunction, sample: Sample, K: int, smaller: Controller | None):
        for restart in range(self.restarts):
            designer = Designer(pomdp, vf, sample, self)
            code, objectives, lloyd = designer.design(K, restart)
            controller = code.controller(pomdp)
            values = [controller.value(pomdp)]
            if self.closed_loop:
                controller, values = refine(pomdp, controller, vf, sample)
            self.history_.append({"K": K, "restart": restart, "J": objectives, "lloyd": lloyd, "value": values})
            yield controller
        if smaller is not None and self.closed_loop:
            grown, _ = refine(pomdp, smaller.padded(K), vf, sample)
            yield grown

    def _describe(self, pomdp: POMDP, vf: ValueFunction, sample: Sample) -> None:
        designer = Designer(pomdp, vf, sample, self)
        self.codebook_, _, _ = designer.design(self.K, 0)
        self.objective_ = designer.objective(self.codebook_)
        means, mass = node_beliefs(pomdp, self.controller_)
        self.nodes_ = np.flatnonzero(mass > 0)
        self.beliefs_, self.alphas_ = means[self.nodes_], self.controller_.evaluate(pomdp)[self.nodes_]


class Designer:
    """Steps 1-3 on one sample: codes are lists of vectors of the solution."""

    def __init__(self, pomdp: POMDP, vf: ValueFunction, sample: Sample, options: RECAP) -> None:
        self.pomdp, self.vf, self.options = pomdp, vf, options
        self.beliefs, self.weights = sample
        self.distortion = vf.distortion(self.beliefs)
        heavy = np.argsort(-self.weights, kind="stable")[:_WITNESSES]
        self.heavy = heavy
        self.gaps = gap_matrix(vf, self.beliefs[heavy]) if options.nu > 0 else None

    def design(self, K: int, restart: int) -> tuple[Codebook, list[float], list[tuple[float, float]]]:
        """A code of at most K vectors, J after each accepted step, and the distortion around each Lloyd step."""
        rng = np.random.default_rng([self.options.seed, K, restart])
        weights = self.weights
        if restart > 0:
            weights = weights * rng.exponential(size=len(weights))
            weights /= weights.sum()
        chosen = self._start(min(K, len(self.vf.alphas)), weights, rng)
        code = self.code(chosen)
        terms = self.objective(code)
        objectives, lloyd = [terms["J"]], []
        if self.options.lloyd:
            for _ in range(_LLOYD_ROUNDS):
                proposal = self._complete(np.unique(self.vf.best(code.beliefs)), len(chosen), weights)
                candidate = self.code(proposal)
                new = self.objective(candidate)
                lloyd.append((terms["distortion"], new["distortion"]))
                if not new["J"] < objectives[-1] - 1e-12:
                    break
                code, chosen, terms = candidate, proposal, new
                objectives.append(new["J"])
            code = self._swap(code, chosen, objectives)
        return code, objectives, lloyd

    def _start(self, K: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.options.start == "decision":
            return self._complete(np.empty(0, dtype=int), K, weights)
        if self.options.start == "kmeans":
            n = min(K, len(self.beliefs))
            seed = int(rng.integers(2**31))
            model = KMeans(n, n_init=1, random_state=seed)  # pyright: ignore[reportArgumentType]
            means = model.fit(self.beliefs, sample_weight=weights).cluster_centers_
        else:
            n = min(K, int((weights > 0).sum()))
            means = self.beliefs[rng.choice(len(weights), size=n, replace=False, p=weights)]
        return np.unique(self.vf.best(means))

    def _complete(self, chosen: np.ndarray, K: int, weights: np.ndarray) -> np.ndarray:
        """Greedy facility location from ``chosen`` up to K vectors: each lowers the mean distortion the most."""
        picked = [int(j) for j in chosen]
        current = self.distortion[:, picked].min(axis=1) if picked else np.full(len(weights), np.inf)
        while len(picked) < K:
            cost = weights @ np.minimum(current[:, None], self.distortion)
            cost[picked] = np.inf
            picked.append(int(cost.argmin()))
            current = np.minimum(current, self.distortion[:, picked[-1]])
        return np.array(picked)

    def code(self, chosen: np.ndarray) -> Codebook:
        return code_of_vectors(self.vf, chosen, (self.beliefs, self.weights), self.options.encoder)

    def objective(self, code: Codebook) -> dict[str, float]:
        """J and its terms (on the true weights, whatever the restart)."""
        scores = self.beliefs @ code.alphas.T
        cell = code.encode(self.beliefs)
        lost = self.vf.value(self.beliefs) - scores[np.arange(len(cell)), cell]
        distortion = float(self.weights @ lost)
        mass = np.bincount(cell, weights=self.weights, minlength=len(code.actions))
        closure = 0.0
        for a in np.unique(code.actions):
            rows = np.flatnonzero(code.actions == a)
            p, posterior = self.pomdp.filter_many(code.beliefs[rows], int(a))
            after = self.vf.value(posterior) - (posterior @ code.alphas.T).max(axis=2)
            closure += float(mass[rows] @ (p * after).sum(axis=1))
        witness = 0.0
        if self.gaps is not None:
            w, shared = self.weights[self.heavy], cell[self.heavy]
            pairs = np.triu(np.minimum(w[:, None], w) * self.gaps * (shared[:, None] == shared), 1)
            witness = float(pairs.sum())
        return {
            "distortion": distortion, "closure": closure, "witness": witness,
            "J": self.options.mu * distortion + self.options.lam * closure + self.options.nu * witness,
        }  # fmt: skip

    def _swap(self, code: Codebook, chosen: np.ndarray, objectives: list[float]) -> Codebook:
        """Replace a node by the best vector of the costliest belief while that lowers J; at most 2K tries."""
        tries, K = 0, len(chosen)
        while tries < 2 * K:
            cost = self.weights * self.distortion[:, chosen].min(axis=1)
            new = int(self.distortion[int(cost.argmax())].argmin())
            accepted = False
            if new in chosen:
                break
            for k in range(K):
                if tries >= 2 * K:
                    break
                tries += 1
                trial = chosen.copy()
                trial[k] = new
                candidate = self.code(trial)
                value = self.objective(candidate)["J"]
                if value < objectives[-1] - 1e-12:
                    code, chosen, accepted = candidate, trial, True
                    objectives.append(value)
                    break
            if not accepted:
                break
        return code
