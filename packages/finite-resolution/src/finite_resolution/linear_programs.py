"""Linear and mixed-integer programs through HiGHS, with every answer checked before it is used.

A solver's "optimal" is a claim. For a linear program it comes with a proof (the row multipliers), and checking that
proof costs one
product: the point must satisfy the rows and bounds, and the Lagrangian bound of the multipliers must meet the point's
    value. For a
mixed-integer program no short proof exists; there the point is rounded, put back into the rows and bounds, and the
reported bound must
meet its value.
"""

from dataclasses import dataclass

import highspy
import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from finite_resolution.errors import InfeasibleSetError, SolverError, TimeLimitError, UnboundedSetError

FEASIBILITY_TOLERANCE = 1e-9
"""Asked of HiGHS (its default 1e-7 is as coarse as the tolerance that decides what is hard)."""
CHECK_TOLERANCE = 1e-7
"""Allowed in the re-check, relative to the size of the numbers."""
INTEGRALITY_TOLERANCE = 1e-6


@dataclass(frozen=True)
class LinearSystem:
    """`row_lower <= A z <= row_upper`, `lower <= z <= upper`, with infinite entries where a side is open."""

    A: sparse.csr_array
    row_lower: Float[np.ndarray, " rows"]
    row_upper: Float[np.ndarray, " rows"]
    lower: Float[np.ndarray, " columns"]
    upper: Float[np.ndarray, " columns"]

    @property
    def columns(self) -> int:
        return self.A.shape[1]

    def violation(self, z: Float[np.ndarray, " columns"]) -> float:
        """Largest violated row or bound, relative to `max(1, |side|)`; 0 for a feasible point."""
        activity = np.concatenate([self.A @ z, z])
        low = np.concatenate([self.row_lower, self.lower])
        high = np.concatenate([self.row_upper, self.upper])
        excess = np.concatenate([_relative(low - activity, low), _relative(activity - high, high)])
        return float(max(0.0, excess.max(initial=0.0)))

    def lagrangian_bound(self, cost: Float[np.ndarray, " columns"], multipliers: Float[np.ndarray, " rows"]) -> float:
        """A lower bound on `min cost z` that holds whatever the multipliers are (weak duality). Needs finite bounds
        on z.
        """
        lower_open, upper_open = np.isinf(self.row_lower), np.isinf(self.row_upper)
        multipliers = np.where((multipliers > 0) & lower_open, 0.0, multipliers)
        multipliers = np.where((multipliers < 0) & upper_open, 0.0, multipliers)
        side = np.where(
            multipliers > 0, np.where(lower_open, 0.0, self.row_lower), np.where(upper_open, 0.0, self.row_upper)
        )
        reduced = cost - self.A.T @ multipliers
        return float(multipliers @ side + np.minimum(reduced * self.lower, reduced * self.upper).sum())


def _relative(excess: np.ndarray, side: np.ndarray) -> np.ndarray:
    finite = np.isfinite(side)
    return excess[finite] / np.maximum(1.0, np.abs(side[finite]))


@dataclass(frozen=True)
class LinearSolution:
    """A checked optimum: the point, its value, the row multipliers (>= 0 on a binding lower side, <= 0 on an upper
    one).
    """

    z: Float[np.ndarray, " columns"]
    value: float
    multipliers: Float[np.ndarray, " rows"]


class LinearProgram:
    """A minimisation that keeps its basis between solves, for many costs or many choices of active rows."""

    def __init__(self, system: LinearSystem, cost: Float[np.ndarray, " columns"]) -> None:
        self.system = system
        self.cost = cost
        self._solver = _highs(system, cost)

    def set_cost(self, cost: Float[np.ndarray, " columns"]) -> None:
        self.cost = cost
        self._solver.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    def set_row_upper(self, row_upper: Float[np.ndarray, " rows"]) -> None:
        """Replace the upper sides of all rows; `inf` switches a row off."""
        changed = np.flatnonzero(row_upper != self.system.row_upper).astype(np.int32)
        change = self._solver.changeRowsBounds  # pyright: ignore[reportAttributeAccessIssue]  (missing in highspy's stubs)
        change(len(changed), changed, self.system.row_lower[changed], row_upper[changed])
        old = self.system
        self.system = LinearSystem(old.A, old.row_lower, row_upper, old.lower, old.upper)

    def solve(self) -> LinearSolution:
        """The checked optimum.

        Raises:
            InfeasibleSetError, UnboundedSetError: as the solver says, from a cold start.
            SolverError: no optimum, or one that fails the check twice (from the kept basis and from a cold start).
        """
        try:
            return self._attempt()
        except (InfeasibleSetError, UnboundedSetError, SolverError):
            self._solver.clearSolver()  # a stale basis can mislead; a cold start decides
            return self._attempt()

    def _attempt(self) -> LinearSolution:
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            raise InfeasibleSetError("the constraints contradict each other: no point satisfies all of them")
        if status in (highspy.HighsModelStatus.kUnbounded, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            raise UnboundedSetError("the constraints leave the set unbounded in the direction of a cost")
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(
                f"HiGHS ended with status {self._solver.modelStatusToString(status)!r}, expected 'Optimal'"
            )
        answer = self._solver.getSolution()
        return check_linear_point(self.system, self.cost, np.array(answer.col_value), np.array(answer.row_dual))


def check_linear_point(
    system: LinearSystem,
    cost: Float[np.ndarray, " columns"],
    z: Float[np.ndarray, " columns"],
    multipliers: Float[np.ndarray, " rows"],
) -> LinearSolution:
    """Accept a reported optimum only if it is feasible and its multipliers prove its value (where all bounds are
    finite).

    Raises:
        SolverError: it is not, or they do not.
    """
    violation = system.violation(z)
    if not violation <= CHECK_TOLERANCE:
        raise SolverError(f"the solver reports an optimum, but its point violates a constraint by {violation:.2g}")
    value = float(cost @ z)
    if np.all(np.isfinite(system.lower)) and np.all(np.isfinite(system.upper)):
        bound = system.lagrangian_bound(cost, multipliers)
        if not value - bound <= CHECK_TOLERANCE * max(1.0, abs(value), float(np.abs(cost).max(initial=0.0))):
            raise SolverError(
                f"the solver reports an optimum of {value:.9g}, but its multipliers only prove {bound:.9g}"
            )
    return LinearSolution(z, value, multipliers)


@dataclass(frozen=True)
class IntegerSolution:
    """A checked optimum of a mixed-integer program; integer entries are exact integers."""

    z: Float[np.ndarray, " columns"]
    value: float
    bound: float


def solve_integer_program(
    system: LinearSystem,
    cost: Float[np.ndarray, " columns"],
    integer: Bool[np.ndarray, " columns"],
    time_limit: float | None = None,
) -> IntegerSolution:
    """Minimise `cost z` with `z[integer]` integer, to an optimality gap of zero.

    Raises:
        InfeasibleSetError: no feasible point.
        TimeLimitError: `time_limit` seconds passed before the optimum was proved.
        SolverError: the solver failed, or its point is not integral, not feasible or not of the value it reports.
    """
    solver = _highs(system, cost)
    columns = np.flatnonzero(integer).astype(np.int32)
    solver.changeColsIntegrality(
        len(columns), columns, np.full(len(columns), int(highspy.HighsVarType.kInteger.value), np.uint8)
    )
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.0)
    solver.setOptionValue("mip_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    if time_limit is not None:
        solver.setOptionValue("time_limit", max(0.0, time_limit))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kTimeLimit:
        raise TimeLimitError(f"no proved optimum within {time_limit:.3g} s")
    if status == highspy.HighsModelStatus.kInfeasible:
        raise InfeasibleSetError("no integer point satisfies the constraints")
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS ended with status {solver.modelStatusToString(status)!r}, expected 'Optimal'")
    z = np.array(solver.getSolution().col_value)
    return check_integer_point(system, cost, integer, z, float(solver.getInfo().mip_dual_bound))


def check_integer_point(
    system: LinearSystem,
    cost: Float[np.ndarray, " columns"],
    integer: Bool[np.ndarray, " columns"],
    z: Float[np.ndarray, " columns"],
    bound: float,
) -> IntegerSolution:
    """Accept a reported optimum only if it is integral, feasible after rounding, and of the reported bound's value.

    Raises:
        SolverError: it is not.
    """
    rounded = np.where(integer, np.round(z), z)
    fraction = float(np.abs(rounded - z).max(initial=0.0))
    if not fraction <= INTEGRALITY_TOLERANCE:
        raise SolverError(
            f"the solver reports an integer optimum, but an integer variable is {fraction:.2g} away from an integer"
        )
    violation = system.violation(rounded)
    if violation > INTEGRALITY_TOLERANCE:
        raise SolverError(
            f"the solver reports an optimum, but its integer point violates a constraint by {violation:.2g}"
        )
    value = float(cost @ rounded)
    if not abs(value - bound) <= INTEGRALITY_TOLERANCE * max(1.0, abs(value)):
        raise SolverError(f"the solver reports an optimum with bound {bound:.9g}, but its point is worth {value:.9g}")
    return IntegerSolution(rounded, value, bound)


class _QuietHighs(highspy.Highs):
    def __init__(self) -> None:
        # highspy's own constructor registers callbacks (unused here) before anyone can switch its banner on stdout off
        super(highspy.Highs, self).__init__()
        self.setOptionValue("output_flag", False)


def _highs(system: LinearSystem, cost: Float[np.ndarray, " columns"]) -> highspy.Highs:
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = system.A.shape
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = system.lower, system.upper
    model.row_lower_, model.row_upper_ = system.row_lower, system.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_row_, model.a_matrix_.num_col_ = system.A.shape
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = (
        system.A.indptr.astype(np.int32),
        system.A.indices.astype(np.int32),
        system.A.data.astype(float),
    )
    solver = _QuietHighs()
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("primal_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    solver.setOptionValue("dual_feasibility_tolerance", FEASIBILITY_TOLERANCE)
    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise SolverError("HiGHS did not accept the model")
    return solver
