"""Coupled coefficients against worked values, and the bound that they are made for."""

import pytest
import torch
from fprm import coupled_betas, iterate_bound
from fprm.scaling import ResidualScaling
from hypothesis import given
from hypothesis import strategies as st

unit = st.floats(0.01, 0.99)


def test_worked_values():
    beta1, beta2 = coupled_betas(0.75, 0.25, 2, eps=0.0)
    assert beta2 == pytest.approx(0.9208984375, abs=1e-15)
    assert beta1 == pytest.approx(0.9208984375 * 0.25 / 0.68359375, abs=1e-15)
    assert beta1 == pytest.approx(0.3367857142857143, abs=1e-12)
    beta1, beta2 = coupled_betas(0.5, 0.5, 1, eps=0.0)
    assert (beta1, beta2) == (pytest.approx(0.5833333333333334), pytest.approx(0.875))


def test_limits():
    assert coupled_betas(0.7, 0.0, 2, eps=0.0)[1] == 1.0
    assert coupled_betas(0.0, 0.4, 2, eps=0.0) == (1.0, 1.0)


@given(unit, unit, st.integers(1, 5), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_the_bound_is_the_fixed_point_of_the_worst_case(alpha1, alpha2, layers, injection, size):
    """With every sub-layer output of norm `size` along the injection, u0 settles at exactly the bound."""
    beta1, beta2 = coupled_betas(alpha1, alpha2, layers, eps=0.0)
    u0 = iterate_bound(injection, alpha2, size)
    u = u0
    for _ in range(2 * layers):
        u = alpha1 * u + beta1 * size
    assert alpha2 * u + beta2 * injection == pytest.approx(u0, rel=1e-9, abs=1e-12)


def test_tensors_agree_with_floats():
    alpha1, alpha2 = torch.tensor([0.75, 0.5], dtype=torch.float64), torch.tensor([0.25, 0.5], dtype=torch.float64)
    beta1, beta2 = coupled_betas(alpha1, alpha2, 2)
    for i in range(2):
        expected = coupled_betas(float(alpha1[i]), float(alpha2[i]), 2)
        assert (float(beta1[i]), float(beta2[i])) == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["channel", "fixed", "input"])
def test_every_mode_starts_at_the_configured_coefficients(tiny, mode):
    scaling = ResidualScaling(tiny(residual_scale=mode, num_layers=2))
    coefficients = scaling(torch.randn(2, 3, 16))
    expected = (0.75, 0.25, *coupled_betas(0.75, 0.25, 2))
    for got, wanted in zip(coefficients, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(got).double().mean().item(), wanted, rtol=1e-5, atol=0)


def test_unscaled_and_outer_only(tiny):
    assert tuple(ResidualScaling(tiny(residual_scale="none"))(torch.zeros(1, 1, 16))) == (1.0, 1.0, 1.0, 1.0)
    outer = ResidualScaling(tiny(residual_scale="fixed", outer_only=True))(torch.zeros(1, 1, 16))
    assert tuple(outer) == (1.0, 0.25, 1.0, 0.75)


@pytest.mark.parametrize(("alpha1", "alpha2"), [(1.0, 0.5), (-0.1, 0.5), (0.5, 1.0), (float("nan"), 0.5)])
def test_coefficients_out_of_range(alpha1, alpha2):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\)"):
        coupled_betas(alpha1, alpha2, 2)


def test_bad_layers_and_norms():
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        coupled_betas(0.5, 0.5, 0)
    with pytest.raises(ValueError, match="norms must not be negative"):
        iterate_bound(-1.0, 0.5, 1.0)
