"""Tail-transverse influence: which candidate sample repairs the tail (specification 3.6.3, reconstruction).

Adding ``s s^T`` to ``F_e`` lowers the glass value of that environment by exactly ``D = (a_e^T s)^2 / (1 + s^T M_e s)``
with ``M_e = (F_e + ridge)^{-1}`` and ``a_e = M_e t``, the efficient direction, transverse to the nuisance in the Fisher
metric. A candidate's influence is ``(q_e D)^p * leverage^r``: tail weight and direction, times how badly the present
model does on it.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from fisher_glass.fisher import EnvironmentFisher, require_finite
from fisher_glass.projection import TaskFrame, task_frame
from fisher_glass.risk import cvar, require_alpha, resolve_ridge

Policy = Literal["tti", "direction", "loss", "random"]
# (p, r): exponents of direction and of leverage.
EXPONENTS: dict[str, tuple[float, float]] = {"tti": (1.0, 1.0), "direction": (1.0, 0.0), "loss": (0.0, 1.0)}


class RepairState:
    """What is needed to score every candidate, kept up to date by rank-one updates.

    Per candidate the products ``a_e^T s`` and ``s^T M_e s`` are kept. Adding one candidate costs one product ``S M s``
    over the candidates of its environment, O(candidates * d), and one rank-one update of M_e, O(d^2): never a new
    factorisation, never O(candidates * d^2).

    Attributes:
        glass: g_e (E,), current.
        inverse: M_e (E, q, q), current.
    """

    def __init__(
        self,
        environment_fisher: EnvironmentFisher,
        frame: TaskFrame,
        ridge: float,
        rows: Float[np.ndarray, "n d"],
        environment_index: np.ndarray,
    ) -> None:
        task = frame.local_task[:, 0]
        identity = np.eye(len(task))
        self.inverse = np.stack(
            [fisher.restrict(frame.basis).ridge_solve(identity, ridge) for fisher in environment_fisher.fishers]
        )
        self.rows = frame.coordinates(rows)
        self.environment = environment_index
        self.members = [np.flatnonzero(environment_index == e) for e in range(len(self.inverse))]
        # Contiguous rows for each environment, so that a step gathers nothing.
        self.grouped = [self.rows[members] for members in self.members]
        efficient = self.inverse @ task
        self.glass = efficient @ task
        self.along = np.empty(len(rows))
        self.spread = np.empty(len(rows))
        for members, s, inverse, a in zip(self.members, self.grouped, self.inverse, efficient, strict=True):
            self.along[members] = s @ a
            self.spread[members] = np.einsum("nd,nd->n", s @ inverse, s)

    def gains(self) -> Float[np.ndarray, " n"]:
        """D of every candidate: exact decrease of its environment's glass value."""
        return self.along**2 / (1 + self.spread)

    def add(self, candidate: int) -> None:
        """Add one candidate to its environment (Sherman-Morrison)."""
        e = self.environment[candidate]
        members = self.members[e]
        direction = self.inverse[e] @ self.rows[candidate]
        along, denominator = self.along[candidate], 1 + self.spread[candidate]
        self.glass[e] -= along**2 / denominator
        cross = self.grouped[e] @ direction
        self.along[members] -= cross * (along / denominator)
        self.spread[members] -= cross**2 / denominator
        self.inverse[e] -= np.outer(direction, direction / denominator)


@dataclass(frozen=True)
class _Problem:
    state: RepairState
    weights: np.ndarray
    alpha: float
    leverage: np.ndarray

    def scores(self, p: float, r: float) -> np.ndarray:
        _, tail = cvar(self.state.glass, self.weights, self.alpha)
        return (tail[self.state.environment] * self.state.gains()) ** p * self.leverage**r


def _problem(
    environment_fisher: EnvironmentFisher,
    rows: np.ndarray,
    candidate_environments: np.ndarray,
    losses: np.ndarray | None,
    task: np.ndarray | TaskFrame,
    nuisance: np.ndarray | None,
    alpha: float,
    ridge: float | int | Literal["auto"],
) -> _Problem:
    require_alpha(alpha)
    lam = resolve_ridge(environment_fisher, ridge)
    if lam == 0:
        raise ValueError("tail-transverse influence needs a positive ridge, got 0")
    frame = task if isinstance(task, TaskFrame) else task_frame(task, nuisance, environment_fisher.dimension)
    if frame.task.shape[1] != 1:
        raise ValueError(f"tail-transverse influence takes one task direction, got {frame.task.shape[1]}")
    s, env = np.asarray(rows, dtype=float), np.asarray(candidate_environments)
    if s.ndim != 2 or s.shape[1] != environment_fisher.dimension or not len(s):
        raise ValueError(f"candidate rows must be (n >= 1, {environment_fisher.dimension}), got {s.shape}")
    if env.shape != (len(s),):
        raise ValueError(f"expected {len(s)} candidate environments, got shape {env.shape}")
    require_finite("candidate rows", s)
    position = {label: index for index, label in enumerate(environment_fisher.labels)}
    unknown = sorted({str(label) for label in env.tolist() if label not in position})
    if unknown:
        raise ValueError(f"candidates name environments that were not audited: {', '.join(unknown)}")
    index = np.array([position[label] for label in env.tolist()])
    if losses is None:
        leverage = np.ones(len(s))
    else:
        loss = np.asarray(losses, dtype=float)
        if loss.shape != (len(s),):
            raise ValueError(f"expected {len(s)} candidate losses, got shape {loss.shape}")
        require_finite("candidate losses", loss)
        if (loss < 0).any():
            raise ValueError(f"candidate losses must be non-negative, got {loss.min():.6g}")
        median = float(np.median(loss))
        leverage = loss / median if median > 0 else loss
    return _Problem(RepairState(environment_fisher, frame, lam, s, index), environment_fisher.weights, alpha, leverage)


def tail_transverse_influence(
    environment_fisher: EnvironmentFisher,
    rows: Float[np.ndarray, "n d"],
    candidate_environments: np.ndarray,
    losses: Float[np.ndarray, " n"] | None,
    task: Float[np.ndarray, " d"] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    *,
    alpha: float = 0.1,
    ridge: float | int | Literal["auto"] = "auto",
    direction_power: float = 1.0,
    leverage_power: float = 1.0,
) -> Float[np.ndarray, " n"]:
    """Influence ``(q_e D)^p * leverage^r`` of every candidate, before any is added.

    Args:
        environment_fisher: what is known now; with "pooled" normalisation one more sample adds ``s s^T / N``, so scale
            ``rows`` by ``1 / sqrt(N)``.
        rows: what a candidate adds to its environment is ``row row^T`` (``logistic_rows(...) / sqrt(N)``).
        candidate_environments: label of the environment each candidate belongs to.
        losses: present loss of every candidate (leverage after division by the median), or ``None`` for 1.
        task, nuisance, alpha, ridge: as :func:`fisher_glass.fisher_glass`; one task direction, positive ridge.
        direction_power, leverage_power: p and r.

    Raises:
        ValueError: bad shapes, NaN, negative losses, an environment that was not audited, ridge 0, several task
            directions.
    """
    problem = _problem(environment_fisher, rows, candidate_environments, losses, task, nuisance, alpha, ridge)
    return problem.scores(direction_power, leverage_power)


def glass_decrease(
    environment_fisher: EnvironmentFisher,
    rows: Float[np.ndarray, "n d"],
    candidate_environments: np.ndarray,
    task: Float[np.ndarray, " d"] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    *,
    ridge: float | int | Literal["auto"] = "auto",
) -> Float[np.ndarray, " n"]:
    """Exact decrease D of its environment's glass value, if this one candidate is added.

    Arguments and errors as :func:`tail_transverse_influence`.
    """
    return _problem(environment_fisher, rows, candidate_environments, None, task, nuisance, 1.0, ridge).state.gains()


def select_repairs(
    environment_fisher: EnvironmentFisher,
    rows: Float[np.ndarray, "n d"],
    candidate_environments: np.ndarray,
    losses: Float[np.ndarray, " n"] | None,
    task: Float[np.ndarray, " d"] | TaskFrame,
    nuisance: Float[np.ndarray, "d ..."] | None = None,
    *,
    budget: int,
    policy: Policy = "tti",
    greedy: bool = True,
    alpha: float = 0.1,
    ridge: float | int | Literal["auto"] = "auto",
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, Float[np.ndarray, " path"]]:
    """Choose ``budget`` candidates to add.

    Args:
        policy: "tti" (direction and leverage), "direction", "loss", or "random".
        greedy: re-score after every choice with rank-one updates; ``False``: the best ``budget`` by first score, which
            tends to pick near-duplicates.
        rng: for "random"; a fixed seed unless given.
        Other arguments: as :func:`tail_transverse_influence`.

    Returns:
        Chosen candidates in order (budget,), and the FG before and after every choice (budget + 1,).

    Raises:
        ValueError: as :func:`tail_transverse_influence`; an unknown policy; a budget below 1 or above the number of
            candidates; policy "loss" without losses.
    """
    if policy not in get_args(Policy):
        raise ValueError(f"policy must be one of {', '.join(get_args(Policy))}, got {policy!r}")
    if not 1 <= budget <= len(rows):
        raise ValueError(f"budget must lie in 1..{len(rows)} (number of candidates), got {budget}")
    if policy == "loss" and losses is None:
        raise ValueError("policy 'loss' needs the candidates' losses")
    problem = _problem(environment_fisher, rows, candidate_environments, losses, task, nuisance, alpha, ridge)
    state = problem.state
    if policy == "random":
        order = (np.random.default_rng(0) if rng is None else rng).permutation(len(rows))[:budget]
    elif greedy and policy != "loss":
        order = None
    else:
        order = np.argsort(-problem.scores(*EXPONENTS[policy]), kind="stable")[:budget]
    chosen, path = [], [cvar(state.glass, problem.weights, alpha)[0]]
    taken = np.zeros(len(rows), dtype=bool)
    for step in range(budget):
        if order is None:
            scores = problem.scores(*EXPONENTS[policy])
            scores[taken] = -1.0
            candidate = int(np.argmax(scores))
        else:
            candidate = int(order[step])
        taken[candidate] = True
        chosen.append(candidate)
        state.add(candidate)
        path.append(cvar(state.glass, problem.weights, alpha)[0])
    return np.array(chosen), np.array(path)
