"""A solver that lies: wrong points, wrong values and wrong statuses must raise, never pass as an answer."""

import highspy
import numpy as np
import pytest
from finite_resolution import Problem, Queries, SolverError, VertexHull, gap, optimal_design, verify_design
from finite_resolution import linear_programs as lp
from finite_resolution.datasets import simplex_problem
from scipy import sparse

UNIT = lp.LinearSystem(
    sparse.csr_array(np.ones((1, 2))), np.array([1.0]), np.array([np.inf]), np.zeros(2), np.ones(2)
)  # x + y >= 1 in the unit square
COST = np.array([1.0, 3.0])


def test_linear_optimum_needs_a_feasible_point_and_a_proof():
    assert lp.LinearProgram(UNIT, COST).solve().value == pytest.approx(1.0)
    assert lp.check_linear_point(UNIT, COST, np.array([1.0, 0.0]), np.array([1.0])).value == 1.0
    with pytest.raises(SolverError, match="violates"):
        lp.check_linear_point(UNIT, COST, np.array([0.4, 0.4]), np.array([1.0]))
    with pytest.raises(SolverError, match="only prove 1"):
        lp.check_linear_point(UNIT, COST, np.array([0.0, 1.0]), np.array([1.0]))
    with pytest.raises(SolverError, match="only prove"):
        lp.check_linear_point(UNIT, COST, np.array([1.0, 0.0]), np.array([-5.0]))  # wrong sign on an open side
    with pytest.raises(SolverError):
        lp.check_linear_point(UNIT, COST, np.array([np.nan, 1.0]), np.array([1.0]))


def test_integer_optimum_needs_an_integral_feasible_point_of_its_value():
    integer = np.ones(2, dtype=bool)
    assert lp.solve_integer_program(UNIT, COST, integer).z.tolist() == [1.0, 0.0]
    with pytest.raises(SolverError, match="away from an integer"):
        lp.check_integer_point(UNIT, COST, integer, np.array([0.5, 0.5]), 2.0)
    with pytest.raises(SolverError, match="violates"):
        lp.check_integer_point(UNIT, COST, integer, np.array([1e-9, 0.0]), 0.0)
    with pytest.raises(SolverError, match="worth 3"):
        lp.check_integer_point(UNIT, COST, integer, np.array([0.0, 1.0]), 1.0)
    with pytest.raises(SolverError):
        lp.check_integer_point(UNIT, COST, integer, np.array([1.0, 0.0]), float("nan"))


@pytest.mark.parametrize("status", [highspy.HighsModelStatus.kSolveError, highspy.HighsModelStatus.kUnknown])
def test_a_failed_solve_is_never_sufficient(monkeypatch, status):
    problem = simplex_problem(3, 0.2)
    _ = problem.program
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda self: status)
    for engine in ("fibers", "milp"):
        with pytest.raises(SolverError, match="expected 'Optimal'"):
            verify_design(problem, [], engine)
    with pytest.raises(SolverError):
        gap(problem, [0, 1, 2])
    with pytest.raises(SolverError):
        optimal_design(problem)


def test_a_wrong_point_is_never_sufficient(monkeypatch):
    problem = simplex_problem(3, 0.2)
    _ = problem.program

    class Flattering:
        def __init__(self, true):
            self.col_value = [*true.col_value[:-1], 0.0]  # claims that nobody regrets anything
            self.row_dual = true.row_dual

    honest = highspy.Highs.getSolution
    monkeypatch.setattr(highspy.Highs, "getSolution", lambda self: Flattering(honest(self)))
    with pytest.raises(SolverError, match="violates"):
        verify_design(problem, [])


def test_a_wrong_separation_is_caught(monkeypatch):
    problem = simplex_problem(3, 0.2)
    from finite_resolution import separation

    honest = separation.solve_integer_program

    def optimist(*arguments):
        answer = honest(*arguments)
        return lp.IntegerSolution(answer.z, answer.value / 2, answer.bound)

    monkeypatch.setattr(separation, "solve_integer_program", optimist)
    with pytest.raises(SolverError, match="claims a gap"):
        verify_design(problem, [], "milp")


def test_a_wrong_master_is_caught(monkeypatch):
    from finite_resolution import covering

    monkeypatch.setitem(covering._SOLVERS, "highs", lambda matrix, prices, limit: ([], 0.0))
    with pytest.raises(SolverError, match="not covered"):
        optimal_design(simplex_problem(3, 0.2))


def test_lagrangian_bound_holds_for_any_multipliers():
    rng = np.random.default_rng(0)
    A = sparse.csr_array(rng.normal(size=(3, 4)))
    system = lp.LinearSystem(A, np.array([-np.inf, -1.0, -0.5]), np.array([1.0, np.inf, 0.5]), -np.ones(4), np.ones(4))
    cost = rng.normal(size=4)
    optimum = lp.LinearProgram(system, cost).solve().value
    assert all(system.lagrangian_bound(cost, rng.normal(size=3)) <= optimum + 1e-12 for _ in range(100))


def test_scale_of_the_costs_does_not_matter():
    rng = np.random.default_rng(1)
    V, C = rng.normal(size=(9, 3)), rng.normal(size=(6, 3))
    one = gap(Problem(VertexHull(V), C, Queries(np.eye(3)), 0.0), range(6))
    for scale in (1e-4, 1e6):
        assert gap(Problem(VertexHull(V), scale * C, Queries(np.eye(3)), 0.0), range(6)) == pytest.approx(
            scale * one, rel=1e-6
        )
