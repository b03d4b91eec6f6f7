"""The theorems on cases worked by hand, and each check seen to fail when its theorem is broken."""

import numpy as np
import pytest
from fprm import coupled_betas, critical_damping, iterate_bound, theory


def constant(vector):
    return [lambda u: vector] * 4


def test_worked_bound():
    """a1 = 0.75, a2 = 0.25, L = 2, injection of norm 2, parallel outputs of norm 3: u0 settles at 2.75."""
    direction = np.array([0.6, 0.8])
    norm = theory.limit_norm(2 * direction, constant(3 * direction), 0.75, 0.25)
    assert norm == pytest.approx(2.75, abs=1e-12)
    assert norm == pytest.approx(iterate_bound(2.0, 0.25, 3.0))


def test_the_bound_needs_the_coupled_coefficients(monkeypatch):
    """A wrong exponent, or beta_1 without its denominator, moves the aligned limit off the bound."""
    direction = np.array([1.0, 0.0])
    for wrong in (
        lambda a1, a2, n, eps: coupled_betas(a1, a2, 2 * n, eps),
        lambda a1, a2, n, eps: (coupled_betas(a1, a2, n, eps)[1] * (1 - a1), coupled_betas(a1, a2, n, eps)[1]),
    ):
        monkeypatch.setattr(theory, "coupled_betas", wrong)
        norm = theory.limit_norm(2 * direction, constant(3 * direction), 0.75, 0.25)
        assert abs(norm / 2.75 - 1) > 0.01


def test_opposed_sublayers_stay_far_below_the_bound():
    direction = np.array([1.0, 0.0])
    assert theory.limit_norm(2 * direction, constant(-3 * direction), 0.75, 0.25) == pytest.approx(1.25)


def test_linear_rate_of_a_known_map():
    matrix = np.diag([0.5, 0.2])
    norms = theory.residuals(lambda z: matrix @ z, np.array([1.0, 1.0]), 30)
    assert norms[0] == pytest.approx(np.hypot(0.5, 0.8))
    assert theory.log_slope(norms[10:]) == pytest.approx(np.log(0.5), abs=1e-4)
    assert theory.convergence_bound(2.0, 0.5, 0.8, 3) == pytest.approx(2.0 * 0.4**3)


@pytest.mark.parametrize("value", [1.1j, -1.0 + 0j, -0.6 + 1.04j, 0.2 + 1.2j])
def test_measured_critical_damping(value):
    matrix = theory.rotation_scaling(value)
    assert sorted(np.linalg.eigvals(matrix), key=np.imag) == pytest.approx(
        sorted([value, value.conjugate()], key=np.imag)
    )
    predicted = critical_damping([value, value.conjugate()])
    assert theory.measured_critical_damping(matrix) == pytest.approx(predicted, rel=2e-3)


def test_truncation_of_a_diagonal_matrix():
    """(I - J)^-1 minus k terms is J^k (I - J)^-1."""
    values = np.array([0.5, -0.3])
    for terms in (0, 1, 5):
        expected = np.linalg.norm(values**terms / (1 - values))
        assert theory.truncation_error(np.diag(values), terms) == pytest.approx(expected)
        assert expected <= theory.truncation_bound(0.5, terms, 2)
    assert theory.truncation_bound(0.5, 2, 4) == pytest.approx(2 * 0.25 / 0.5)


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="two sub-layers a block, got 3"):
        theory.scaled_pass(np.zeros(2), np.zeros(2), [np.tanh] * 3, 0.5, 0.5)
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1.2"):
        theory.convergence_bound(1.0, 0.5, 2.4, 1)
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1.0"):
        theory.truncation_bound(1.0, 2, 4)
    with pytest.raises(ValueError, match="terms must not be negative"):
        theory.truncation_error(np.zeros((2, 2)), -1)
    with pytest.raises(ValueError, match="two positive values"):
        theory.log_slope(np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="does not converge at any step size"):
        theory.measured_critical_damping(2 * np.eye(2))
