"""Three decision problems with memory for Algorithm 1: switching costs, inventory with lead time, threshold caching.

None needs gradients; the last is neither convex nor continuous. The paper's own list of problems is unknown: these are
reconstructions.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from .losses import MemoryLoss, Values, require_memory


class SwitchingExpertLoss(MemoryLoss):
    """Experts with a switching cost s: f(x_{t-1}, x_t) = (l_t(x_t) + s 1[x_t != x_{t-1}]) / (1 + s), memory 2.

    Decisions are indices (`FiniteSet.actions(N)`).

    Args:
        losses: (N,) losses of the experts, in [0, 1].
        switching_cost: s >= 0.

    Raises:
        ValueError: losses outside [0, 1], a negative switching cost.
    """

    memory = 2

    def __init__(self, losses: ArrayLike, switching_cost: float | int) -> None:
        losses = np.asarray(losses, dtype=float)
        if losses.ndim != 1 or not ((losses >= 0) & (losses <= 1)).all():
            raise ValueError("the losses of the experts must be a vector with values in [0, 1]")
        if not 0 <= switching_cost < math.inf:
            raise ValueError(f"switching_cost must be >= 0, got {switching_cost!r}")
        self.losses, self.switching_cost = losses, float(switching_cost)

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        index = z[..., 0].astype(int)
        switched = index[..., 1] != index[..., 0]
        return (self.losses[index[..., 1]] + self.switching_cost * switched) / (1 + self.switching_cost)

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        return self.losses[x[..., 0].astype(int)] / (1 + self.switching_cost)


class InventoryLoss(MemoryLoss):
    """Order-up-to inventory with lead time L: holding and backlog cost of the net stock, memory 2 L + 1.

    Each round the stock position (on hand plus on order) is raised to the level x, but never lowered: levels of earlier
    rounds, minus the demand since, can still exceed it. An order arrives L rounds later, so the net stock of round t is
    the position of round t - L minus the demand of rounds t - L .. t. Levels that reach further back than 2 L rounds
    are taken as sold. Cost (h [net]_+ + b [-net]_+) / loss_range.

    Args:
        demand: (2 L + 1,) demands of the rounds t - 2L .. t, each >= 0.
        holding, backlog: costs h, b >= 0 a unit and round.
        level_range: the levels lie in [0, level_range]; scales the cost into [0, 1].

    Raises:
        ValueError: an even number of demands, negative demand or cost, level_range <= 0.
    """

    def __init__(self, demand: ArrayLike, holding: float | int, backlog: float | int, level_range: float | int) -> None:
        demand = np.asarray(demand, dtype=float)
        if demand.ndim != 1 or len(demand) % 2 == 0 or not (demand >= 0).all():
            raise ValueError("demand must hold the 2 L + 1 latest demands, each >= 0")
        if not (holding >= 0 and backlog >= 0 and holding + backlog > 0):
            raise ValueError(f"holding and backlog must be >= 0 and not both 0, got {holding!r}, {backlog!r}")
        if not 0 < level_range < math.inf:
            raise ValueError(f"level_range must be positive, got {level_range!r}")
        self.memory, self.lead_time = len(demand), len(demand) // 2
        before = demand[: self.lead_time]  # rounds t - 2L .. t - L - 1
        self.sold_since = np.append(np.cumsum(before[::-1])[::-1], 0.0)  # from each round to t - L
        self.lead_demand = float(demand[self.lead_time :].sum())
        worst = max(holding * level_range, backlog * self.lead_demand)
        self.holding, self.backlog, self.worst = float(holding), float(backlog), float(worst)

    @property
    def loss_range(self) -> float:
        """An upper bound of the cost over all levels of the range."""
        return self.worst

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        position = (z[..., : self.lead_time + 1, 0] - self.sold_since).max(axis=-1)
        return self._cost(position)

    def unary(self, x: Float[np.ndarray, "*batch d"]) -> Values:
        return self._cost(x[..., 0])

    def _cost(self, position: np.ndarray | float) -> Values:
        net = position - self.lead_demand
        return self.holding * np.maximum(net, 0.0) + self.backlog * np.maximum(-net, 0.0)


class CachingLoss(MemoryLoss):
    """Threshold caching: 1 for a miss that the last thresholds caused, else 0; neither convex nor continuous.

    A page requested in round s enters the cache if its score is at least the threshold x_s; the cache holds the
    `capacity` distinct pages admitted last. The request of round t misses if no earlier request of that page in the
    window left it in the cache. A page that the window has not seen is nobody's fault: loss 0.

    Args:
        pages: (m,) pages requested in rounds t - m + 1 .. t.
        scores: (m,) their scores.
        capacity: pages the cache holds, >= 1.

    Raises:
        ValueError: lengths that differ, capacity < 1.
    """

    def __init__(self, pages: ArrayLike, scores: ArrayLike, capacity: int) -> None:
        pages, scores = np.asarray(pages), np.asarray(scores, dtype=float)
        if pages.ndim != 1 or pages.shape != scores.shape:
            raise ValueError(f"pages and scores must be vectors of one length, got {pages.shape} and {scores.shape}")
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1, got {capacity!r}")
        self.memory, self.capacity = require_memory(len(pages)), int(capacity)
        self.pages, self.scores = pages, scores

    def value(self, z: Float[np.ndarray, "*batch m d"]) -> Values:
        shape = z.shape[:-2]
        wanted = self.pages[-1]
        if wanted not in self.pages[:-1]:
            return np.zeros(shape)[()]
        admitted = self.scores >= z[..., 0]
        hit = np.zeros(shape, dtype=bool)
        others = np.zeros(shape, dtype=int)  # distinct other pages admitted after the lag looked at
        counted: dict[int, np.ndarray] = {}
        for back in range(self.memory - 2, -1, -1):
            page, enters = self.pages[back], admitted[..., back]
            if page == wanted:
                hit = hit | (enters & (others < self.capacity))
                continue
            known = counted.get(int(page), np.zeros(shape, dtype=bool))
            others = others + (enters & ~known)
            counted[int(page)] = known | enters
        return (~hit).astype(float)[()]


def experts_losses(
    horizon: int, n: int, switching_cost: float, rng: np.random.Generator, *, best_loss: float = 0.0
) -> list[MemoryLoss | None]:
    """0/1 losses of n experts; expert i errs with probability uniform in [0.2, 0.8], a hidden one with `best_loss`."""
    rates = rng.uniform(0.2, 0.8, size=n)
    rates[rng.integers(n)] = best_loss
    table = (rng.random((horizon, n)) < rates).astype(float)
    return [SwitchingExpertLoss(row, switching_cost) for row in table]


def inventory_losses(
    demand: Float[np.ndarray, " t"], lead_time: int, holding: float, backlog: float, level_range: float
) -> tuple[list[MemoryLoss | None], float]:
    """(losses, loss_range) of an order-up-to policy on a demand series; the first 2 L rounds have no loss.

    Raises:
        ValueError: lead_time < 0, and what `InventoryLoss` raises.
    """
    if lead_time < 0:
        raise ValueError(f"lead_time must be >= 0, got {lead_time}")
    reach = 2 * lead_time
    charged = [
        InventoryLoss(demand[t - reach : t + 1], holding, backlog, level_range) for t in range(reach, len(demand))
    ]
    losses: list[MemoryLoss | None] = [None] * reach
    return losses + charged, max(loss.loss_range for loss in charged)


def caching_losses(
    horizon: int, memory: int, capacity: int, rng: np.random.Generator, *, confusion: float = 0.0
) -> list[MemoryLoss | None]:
    """Requests of `capacity` popular pages mixed half and half with pages that come once (a scan, which pollutes).

    Popular pages score in [0.55, 0.75], the others in [0, 0.5]; with probability `confusion` a request's score is
    uniform in [0, 1] instead. Popular requests go round in order, so a threshold near 0.52 with no confusion only
    misses what the window has forgotten.
    """
    popular = rng.random(horizon) < 0.5
    turn = np.cumsum(popular) % capacity
    fresh = capacity + np.arange(horizon)
    pages = np.where(popular, turn, fresh)
    scores = np.where(popular, rng.uniform(0.55, 0.75, horizon), rng.uniform(0.0, 0.5, horizon))
    confused = rng.random(horizon) < confusion
    scores = np.where(confused, rng.random(horizon), scores)
    losses: list[MemoryLoss | None] = [None] * (memory - 1)
    for t in range(memory - 1, horizon):
        losses.append(CachingLoss(pages[t - memory + 1 : t + 1], scores[t - memory + 1 : t + 1], capacity))
    return losses
