"""Does a design suffice? Two exact engines that share no step: maximal fibers with one linear program each, and one
integer program.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from finite_resolution.certificate import shrink
from finite_resolution.errors import SolverError, TimeLimitError
from finite_resolution.problem import Problem
from finite_resolution.separation import most_violated_tuple

Engine = Literal["fibers", "milp"]


@dataclass(frozen=True, eq=False)
class Fiber:
    """A maximal set of costs that one reading cannot tell apart, and the decision that serves it best."""

    members: tuple[int, ...]
    x: Float[np.ndarray, " d"]
    worst_regret: float


@dataclass(frozen=True, eq=False)
class Verification:
    """Whether a design suffices, with the proof of the answer.

    Attributes:
        sufficient: every fiber has a decision with regret <= eps.
        worst_gap: the largest worst regret over the fibers, each with its best decision.
        hard_tuples: inclusion-minimal hard tuples that the design cannot tell apart, worst fiber first; empty when
            sufficient.
        fibers: all maximal fibers, worst first; empty from the `milp` engine, which does not list them.
        engine: the engine that answered.
    """

    sufficient: bool
    worst_gap: float
    hard_tuples: tuple[tuple[int, ...], ...]
    fibers: tuple[Fiber, ...]
    engine: Engine


def verify_design(
    problem: Problem,
    design: Sequence[int],
    engine: Engine = "fibers",
    max_tuples: int = 1,
    *,
    max_fibers: int = 100_000,
    time_limit: float | None = None,
) -> Verification:
    """Decide exactly whether the queries `design` suffice for regret <= eps (reconstruction).

    Args:
        design: indices of queries.
        engine: `fibers` lists the maximal fibers (cliques of the indistinguishability graph) and solves a linear
            program for each; `milp`
            solves one mixed-integer program.
        max_tuples: at most this many different hard tuples are returned, one a violated fiber (`milp` returns one).
        max_fibers: beyond this number of fibers the engine changes to `milp`, with a warning.
        time_limit: seconds.

    Raises:
        ValueError: bad indices, engine or max_tuples.
        TimeLimitError: the time ran out.
        SolverError: an answer of the solver does not survive its check; never read as "sufficient".
    """
    if engine not in ("fibers", "milp"):
        raise ValueError(f"engine must be 'fibers' or 'milp', got {engine!r}")
    if max_tuples < 1:
        raise ValueError(f"max_tuples must be >= 1, got {max_tuples}")
    deadline = None if time_limit is None else time.monotonic() + time_limit
    graph = problem.joined(design)
    if engine == "fibers":
        cliques = list(islice(maximal_cliques(graph), max_fibers + 1))
        if len(cliques) <= max_fibers:
            return _by_fibers(problem, cliques, max_tuples, deadline)
        warnings.warn(f"more than {max_fibers} maximal fibers: changing to the milp engine", stacklevel=2)
    remaining = None if deadline is None else deadline - time.monotonic()
    worst_gap, members = most_violated_tuple(problem, graph, remaining)
    if worst_gap <= problem.hard_above:
        return Verification(True, worst_gap, (), (), "milp")
    return Verification(False, worst_gap, (_checked_tuple(problem, members),), (), "milp")


def maximal_cliques(graph: Bool[np.ndarray, "n n"]) -> Iterator[list[int]]:
    """Maximal cliques of a reflexive, symmetric graph. Complete components (all of them for exact readings) are read
    off directly.
    """
    count, label = connected_components(csr_array(graph), directed=False)
    for component in range(count):
        nodes = np.flatnonzero(label == component)
        inside = graph[np.ix_(nodes, nodes)]
        if inside.all():
            yield nodes.tolist()
        else:
            np.fill_diagonal(inside, False)
            for clique in nx.find_cliques(nx.from_numpy_array(inside)):
                yield sorted(nodes[clique].tolist())


def _by_fibers(problem: Problem, cliques: list[list[int]], max_tuples: int, deadline: float | None) -> Verification:
    solved = []
    for clique in cliques:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeLimitError(f"the time ran out with {len(solved)} of {len(cliques)} fibers solved")
        solved.append((problem.program.solve(clique), clique))
    solved.sort(key=lambda item: (-item[0].worst_regret, item[1]))
    fibers = tuple(Fiber(tuple(clique), answer.x, answer.worst_regret) for answer, clique in solved)
    tuples: dict[tuple[int, ...], None] = {}  # an ordered set
    for answer, clique in solved:
        if answer.worst_regret <= problem.hard_above or len(tuples) >= max_tuples:
            break
        tuples[_within_bound(problem, shrink(problem, clique, answer))] = None
    return Verification(not tuples, fibers[0].worst_regret, tuple(tuples), fibers, "fibers")


def _checked_tuple(problem: Problem, members: list[int]) -> tuple[int, ...]:
    return _within_bound(problem, shrink(problem, members, problem.program.solve(members)))


def _within_bound(problem: Problem, members: tuple[int, ...]) -> tuple[int, ...]:
    if len(members) > problem.tuple_size_bound:
        raise SolverError(
            f"minimal hard tuple {members} is larger than the bound {problem.tuple_size_bound}: numerical trouble"
        )
    return members
