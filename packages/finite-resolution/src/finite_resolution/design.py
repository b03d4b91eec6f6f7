"""The cheapest sufficient design: set cover over hard tuples, generated only as they are needed (delayed constraints).

A design suffices exactly when it meets the cover set of every hard tuple (reconstruction). The loop buys the cheapest
queries for the
tuples known so far, verifies them, and learns the tuples that they leave together. The restricted optimum is a lower
bound at every step.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from finite_resolution.certificate import cover_set
from finite_resolution.covering import Solver, minimal_covers, set_cover
from finite_resolution.errors import InconsistentReadingError, SolverError, TimeLimitError
from finite_resolution.problem import Problem
from finite_resolution.validation import Numbers, number_array
from finite_resolution.verify import Engine, verify_design

Status = Literal["optimal", "approximate", "infeasible", "time_limit"]


@dataclass(frozen=True, eq=False)
class Decision:
    """What to do after a reading.

    Attributes:
        x: the decision, shape (d,).
        worst_regret: its largest regret over every cost that the reading leaves possible: a guarantee.
        fiber: the indices of those costs.
    """

    x: Float[np.ndarray, " d"]
    worst_regret: float
    fiber: tuple[int, ...]


@dataclass(frozen=True)
class Iteration:
    """One round: the restricted master's selection and bound, the worst gap that verification found, the cover sets
    known after it.
    """

    selected: tuple[int, ...]
    lower_bound: float
    worst_gap: float
    cover_sets: int


@dataclass(frozen=True, eq=False)
class Design:
    """Which queries to buy, how good the answer is, and the decision rule.

    Attributes:
        problem: what was solved.
        selected: sorted indices of the queries to buy; None when no sufficient design is known.
        price: their total price; infinite when `selected` is None.
        lower_bound: no sufficient design costs less; infinite when infeasible.
        status: `optimal` (proved cheapest), `approximate` (greedy), `infeasible` (buying everything does not
            suffice), `time_limit`
            (`selected` is the best sufficient design known, not proved cheapest).
        iterations: the rounds, in order.
        tuples: the hard tuples that were generated.
        certificate: the hard tuple that no query tells apart, when infeasible; else None.
    """

    problem: Problem
    selected: tuple[int, ...] | None
    price: float
    lower_bound: float
    status: Status
    iterations: tuple[Iteration, ...] = ()
    tuples: tuple[tuple[int, ...], ...] = ()
    certificate: tuple[int, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the queries to buy, in the order in which `decide` takes their readings."""
        return tuple(self.problem.queries.names[j] for j in self.selected or ())

    def decide(self, y: Numbers) -> Decision:
        """The decision after the readings y, shape (len(selected),), in the order of `names`.

        Raises:
            ValueError: wrong shape, not finite, or there is no sufficient design to read.
            InconsistentReadingError: no cost of the library explains the readings within the error bounds.
        """
        if self.selected is None:
            raise ValueError(f"there is no sufficient design to decide with: status is {self.status!r}")
        return decide(self.problem, self.selected, y)


def decide(problem: Problem, selected: tuple[int, ...], y: Numbers) -> Decision:
    """`Design.decide` for any set of queries: the guarantee is <= eps for every reading exactly when the design
    suffices.
    """
    y = number_array("y", y, (len(selected),))
    chosen = list(selected)
    # half the pairwise tolerance, so that a fiber is always a clique of the indistinguishability graph
    allowed = problem.queries.delta[chosen] + problem.reading_tol / 2
    off = np.abs(problem.readings[:, chosen] - y) - allowed
    fiber = np.flatnonzero((off <= 0).all(axis=1)).tolist()
    if not fiber:
        nearest = int(np.argmin(off.max(axis=1)))
        j = int(np.argmax(off[nearest]))
        raise InconsistentReadingError(
            f"no cost explains the readings: the nearest, {problem.scenarios[nearest]!r}, is"
            f" {off[nearest, j] + allowed[j]:.6g} away"
            f" at query {problem.queries.names[chosen[j]]!r}, allowed {problem.queries.delta[chosen[j]]:.6g}"
        )
    answer = problem.program.solve(fiber)
    return Decision(answer.x, answer.worst_regret, tuple(fiber))


def optimal_design(
    problem: Problem,
    verify: Engine = "fibers",
    master: Solver = "highs",
    multi_cut: int = 50,
    time_limit: float | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Design:
    """The cheapest sufficient design, by delayed constraints (reconstruction).

    Args:
        verify: engine of `verify_design`.
        master: solver of the restricted set cover; exact ones give status `optimal`, `greedy` gives `approximate`.
        multi_cut: at most this many hard tuples are learned a round, one a violated fiber; 1 is the single-cut method.
        time_limit: seconds; when they run out the best sufficient design known is returned with the bound proved so
            far.
        on_iteration: called after each round.

    Raises:
        ValueError: an unknown engine or solver, multi_cut < 1, or prices that the master cannot treat exactly.
        SolverError: a solver failed, or its answer did not survive the check.
    """
    if multi_cut < 1:
        raise ValueError(f"multi_cut must be >= 1, got {multi_cut}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be > 0 seconds, got {time_limit}")
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    prices = problem.queries.price
    everything = tuple(range(len(problem.queries)))
    covers: list[frozenset[int]] = []
    tuples: list[tuple[int, ...]] = []
    iterations: list[Iteration] = []
    best: tuple[int, ...] | None = None
    bound = 0.0

    def remaining() -> float | None:
        if time_limit is None:
            return None
        if time.monotonic() > deadline:
            raise TimeLimitError("the time ran out between two steps")
        return deadline - time.monotonic()

    def design(selected: tuple[int, ...] | None, status: Status, certificate: tuple[int, ...] | None = None) -> Design:
        price = math.inf if selected is None else float(prices[list(selected)].sum())
        lower = math.inf if status == "infeasible" else min(bound, price)
        return Design(problem, selected, price, lower, status, tuple(iterations), tuple(tuples), certificate)

    try:
        full = verify_design(problem, everything, verify, time_limit=remaining())
        if not full.sufficient:
            return design(None, "infeasible", full.hard_tuples[0])
        best = everything
        while True:
            cover = set_cover(covers, prices, master, remaining())
            bound = max(bound, cover.lower_bound)
            check = verify_design(problem, cover.selected, verify, multi_cut, time_limit=remaining())
            if not check.sufficient:
                new = [cover_set(problem, members) for members in check.hard_tuples]
                if any(c & set(cover.selected) or not c for c in new):
                    raise SolverError(
                        f"verification returned a tuple that {cover.selected} tells apart, or that nothing does"
                    )
                tuples.extend(check.hard_tuples)
                covers = minimal_covers([*covers, *new])
            iterations.append(Iteration(cover.selected, bound, check.worst_gap, len(covers)))
            if on_iteration is not None:
                on_iteration(iterations[-1])
            if check.sufficient:
                return design(cover.selected, "optimal" if master != "greedy" else "approximate")
    except TimeLimitError:
        return design(best, "time_limit")


def greedy_design(problem: Problem, verify: Engine = "fibers", multi_cut: int = 50) -> Design:
    """A sufficient design whose price is at most `H(g)` times the smallest (reconstruction: Chvatal's bound through
    the set cover).

    Hard tuples are generated as needed: greedy is within `H(g)` of the cheapest cover of the known tuples, and that
        is no dearer than the
    cheapest cover of all, so the guarantee carries over without listing them.
    """
    return optimal_design(problem, verify, "greedy", multi_cut)
