"""Simulated spaces, and what the experiments compute."""

import numpy as np
import pandas as pd
import pytest
from kernel_fdr.reproduce.allocation import uniform_budget
from kernel_fdr.reproduce.control import ENUMERATED, exact_fdr
from kernel_fdr.reproduce.real import mean_difference_draws, read_expression
from kernel_fdr.reproduce.structures import StructuresConfig, make_space
from kernel_fdr.simulate import (
    GRAPHS,
    clustered_space,
    draw_truth,
    fdp_and_power,
    graph_space,
    plane,
    real_points,
    swapped_rows,
    tree_space,
)
from scipy.stats import kstest


def test_the_plane_has_about_110_signals():
    space = plane()
    assert len(space) == 625
    assert (1 - space.alpha).sum() == pytest.approx(110, abs=8)
    assert space.alpha.min() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_spaces_fit_their_kernels(name):
    space = graph_space(name)
    assert len(space) == len(space.kernel.labels)
    assert set(space.alpha) == {0.2, 0.97}
    with pytest.raises(ValueError, match="graph must be one of"):
        graph_space("ring")


def test_tree_space_has_a_third_of_signals():
    space = tree_space()
    assert len(space) == 364
    assert (space.alpha == 0.4).sum() == 121


def test_clusters_are_disjoint_and_equal():
    space = clustered_space(real_points("wine"), np.random.default_rng(0), 90)
    assert len(np.unique(space.locations, axis=0)) == 90
    assert (space.alpha == 0.2).sum() == 30
    assert (space.alpha == 0.8).sum() == 60
    with pytest.raises(ValueError, match="data set must be one of"):
        real_points("iris2")


def test_truth_follows_alpha():
    rng = np.random.default_rng(1)
    signal, p = draw_truth(np.full(20_000, 0.7), rng)
    assert signal.mean() == pytest.approx(0.3, abs=0.015)
    assert kstest(p[~signal], "uniform").pvalue > 1e-3
    assert p[signal].mean() == pytest.approx(0.3 / 6.3, abs=0.005)


def test_fdp_and_power():
    rejected, signal = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert fdp_and_power(rejected, signal) == (0.5, 0.5)
    assert fdp_and_power(np.zeros(4, dtype=bool), signal) == (0.0, 0.0)
    assert fdp_and_power(rejected, np.zeros(4, dtype=bool)) == (1.0, 0.0)


def test_swapping_reverses_the_order_of_alpha():
    alpha = np.array([0.9, 0.1, 0.5, 0.7])
    rows = swapped_rows(alpha)
    assert alpha[rows].tolist() == [0.1, 0.9, 0.7, 0.5]


def test_enumerated_cases_stay_below_their_level():
    assert all(exact_fdr(*case) <= case[2] for case in ENUMERATED)
    assert exact_fdr(4, 3, 0.5, 0) == pytest.approx(0.25)


def test_uniform_budget_interpolates_and_saturates():
    power = np.array([[0.1, 0.3, 0.5], [0.1, 0.1, 0.5]])
    assert uniform_budget((10, 20, 30), power, 0.35) == pytest.approx(25)
    assert uniform_budget((10, 20, 30), power, 0.9) == 30


def test_permutation_draws_are_exchangeable_with_the_observation():
    rng = np.random.default_rng(2)
    ranks = []
    for _ in range(60):
        first, second = rng.normal(size=(5, 20)), rng.normal(size=(7, 20))
        observed, null = mean_difference_draws(first, second, 19, rng)
        assert observed == pytest.approx(np.abs(first.mean(axis=0) - second.mean(axis=0)), abs=1e-8)
        ranks.extend((null > observed[:, None]).sum(axis=1))
    counts = np.bincount(ranks, minlength=20)
    assert np.mean(ranks) == pytest.approx(9.5, abs=1.0)
    assert counts.min() > 25


def test_constant_columns_are_ties():
    observed, null = mean_difference_draws(np.full((3, 1), 0.1), np.full((4, 1), 0.1), 9, np.random.default_rng(0))
    assert (null == observed[:, None]).all()


def test_expression_file(tmp_path):
    rng = np.random.default_rng(3)
    tissues = ["liver"] * 6 + ["kidney"] * 5 + ["colon"] * 8
    module = rng.normal(size=(19, 1))
    genes = pd.DataFrame(np.hstack([module + 0.1 * rng.normal(size=(19, 3)), rng.normal(size=(19, 2))]))
    genes.columns = [f"g{i}" for i in range(5)]
    path = tmp_path / "expression.csv"
    genes.assign(tissue=tissues).to_csv(path, index=False)
    liver, kidney, kernel = read_expression(path, ("liver", "kidney"))
    assert liver.shape == (6, 5)
    assert kidney.shape == (5, 5)
    expected = np.corrcoef(genes.to_numpy()[11:].T) ** 2
    np.testing.assert_allclose(kernel.matrix, expected, atol=1e-12)
    assert kernel.matrix[0, 1] > 0.8
    with pytest.raises(ValueError, match="0 samples of heart"):
        read_expression(path, ("heart", "kidney"))
    genes.to_csv(path, index=False)
    with pytest.raises(ValueError, match="lacks the column 'tissue'"):
        read_expression(path, ("liver", "kidney"))


def test_adbench_is_one_more_geometry(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, X=np.random.default_rng(0).normal(size=(120, 6)), y=np.zeros(120))
    config = StructuresConfig(size=60, adbench_file=path)
    space, beta = make_space("adbench", config, np.random.default_rng(0))
    assert len(space) == 60
    assert beta == (0.05, 5.0)
