"""Kernels, eigenfeatures, the objective and its solvers."""

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_fdr import BetaBinomialAlternative, CountData, Eigenfeatures, KernelNullPrior
from kernel_fdr.kernels import FiniteKernel, Matern, diffusion, matern_grid, rbf, regularised_laplacian, tree
from kernel_fdr.likelihood import likelihood_ratio
from kernel_fdr.simulate import draw_counts, plane
from kernel_fdr.solver import hessian, objective, pointwise, solve_descent, solve_newton
from scipy.optimize import approx_fprime, minimize
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

RNG = np.random.default_rng(0)
POINTS = RNG.random((30, 2))


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, 3.5, np.inf])
def test_matern_equals_sklearn(nu):
    ours = Matern(0.4, nu, relative=False)
    np.testing.assert_allclose(ours.gram(POINTS), SklearnMatern(0.4, nu=nu)(POINTS), atol=1e-10)
    np.testing.assert_allclose(ours.cross(POINTS[:3], POINTS), ours.gram(POINTS)[:3], atol=1e-10)


def test_rbf_is_the_smooth_limit():
    np.testing.assert_allclose(rbf(0.4, relative=False).gram(POINTS), RBF(0.4)(POINTS), atol=1e-12)


def test_relative_length_scale_ignores_units():
    np.testing.assert_allclose(Matern(0.5).gram(POINTS), Matern(0.5).gram(1000 * POINTS))
    assert len(matern_grid()) == 15


def test_diffusion_equals_the_matrix_exponential():
    graph = nx.karate_club_graph()
    expected = scipy.linalg.expm(-2.0 * nx.normalized_laplacian_matrix(graph).toarray())
    expected /= np.mean(np.diag(expected))
    np.testing.assert_allclose(diffusion(graph, 2.0).matrix, expected, atol=1e-10)


def test_regularised_laplacian_inverts():
    graph = nx.path_graph(6)
    laplacian = nx.normalized_laplacian_matrix(graph).toarray()
    expected = np.linalg.inv(np.eye(6) + 3.0 * laplacian)
    np.testing.assert_allclose(
        regularised_laplacian(graph, 3.0).matrix, expected / np.mean(np.diag(expected)), atol=1e-12
    )


def test_disconnected_graph_has_no_similarity_across():
    graph = nx.disjoint_union(nx.path_graph(3), nx.path_graph(3))
    graph.add_node("alone")
    for kernel in (diffusion(graph), regularised_laplacian(graph)):
        assert np.abs(kernel.matrix[:3, 3:]).max() < 1e-12
        Eigenfeatures.of(kernel, None)


def test_tree_kernel_uses_path_lengths():
    graph = nx.Graph()
    graph.add_weighted_edges_from([("root", "a", 1.0), ("root", "b", 2.0), ("b", "c", 0.0)])
    kernel = tree(graph, scale=2.0)
    place = {label: row for row, label in enumerate(kernel.labels)}
    assert kernel.matrix[place["a"], place["b"]] == pytest.approx(np.exp(-1.5))
    assert kernel.matrix[place["b"], place["c"]] == pytest.approx(1.0)
    assert np.linalg.eigvalsh(tree(nx.balanced_tree(3, 3)).matrix).min() > 0


def test_finite_kernel_selects_by_label():
    kernel = FiniteKernel(np.array([[2.0, 1.0], [1.0, 3.0]]), ["x", "y"])
    assert kernel.gram(np.array(["y", "x"])).tolist() == [[3.0, 1.0], [1.0, 2.0]]
    assert kernel.cross(np.array(["x"]), np.array(["y"])).tolist() == [[1.0]]


def test_full_rank_features_reproduce_the_kernel():
    features = Eigenfeatures.of(Matern(0.3), POINTS, rank=len(POINTS))
    gram = Matern(0.3).gram(POINTS)
    np.testing.assert_allclose(features.values @ features.values.T, gram + 1e-6 * np.eye(30), atol=1e-10)
    np.testing.assert_allclose(features.at(POINTS[:4]), features.values[:4], atol=1e-4)


def test_large_spaces_use_leading_features():
    points = np.random.default_rng(1).random((2100, 1))
    features = Eigenfeatures.of(Matern(0.5, 2.5), points, rank=20)
    exact = np.linalg.eigvalsh(Matern(0.5, 2.5).gram(points))[::-1][:20]
    np.testing.assert_allclose((features.values**2).sum(axis=0), exact + 1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FiniteKernel([[1.0, 0.5], [0.2, 1.0]]), "symmetric"),
        (lambda: FiniteKernel([[1.0, 0.5, 0.1]]), "square"),
        (lambda: FiniteKernel([[np.nan]]), "finite"),
        (lambda: FiniteKernel(np.eye(2), ["a", "a"]), "different labels"),
        (lambda: FiniteKernel(np.eye(2), ["a", "b"]).gram(np.array(["c"])), "no item of the kernel"),
        (lambda: Eigenfeatures.of(FiniteKernel([[1.0, 2.0], [2.0, 1.0]]), None), "positive semi-definite"),
        (lambda: Eigenfeatures.of(Matern(), POINTS, rank=31), "rank must lie in 1..30"),
        (lambda: Matern(-1.0), "positive"),
        (lambda: Matern().gram(None), "coordinates"),
        (lambda: Matern().gram(np.array(["a", "b"])), "coordinates"),
        (lambda: tree(nx.cycle_graph(4)), "need a tree"),
        (lambda: diffusion(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: diffusion(nx.path_graph(3), beta=0.0), "beta"),
    ],
)
def test_bad_kernels(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def problem(count: int = 25, seed: int = 0):
    rng = np.random.default_rng(seed)
    features = Eigenfeatures.of(Matern(0.4), rng.random((count, 2)), rank=count)
    return features.values, rng.gamma(0.5, 2.0, count)


@given(st.integers(0, 1000), st.floats(0.05, 3.0))
@settings(max_examples=25, deadline=None)
def test_gradient_and_hessian_are_derivatives(seed, size):
    features, ratio = problem(8, seed)
    theta = size * np.random.default_rng(seed + 1).standard_normal(8)
    args = (features, ratio, 0.8, 0.3, 50.0)
    value, gradient = objective(theta, *args)
    numeric = approx_fprime(theta, lambda at: objective(at, *args)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3 * max(1, abs(value)))
    curvature = approx_fprime(theta, lambda at: objective(at, *args)[1], 1e-7)
    alpha = 0.8 + features @ theta
    mixture = alpha + (1 - alpha) * ratio
    # The boundary penalty and the floor have kinks in their slope: no second derivative just there.
    if min(np.abs(alpha).min(), np.abs(alpha - 1).min(), np.abs(mixture - 1e-6).min()) > 1e-4 and mixture.min() > 1e-2:
        np.testing.assert_allclose(hessian(theta, *args), curvature, rtol=1e-3, atol=1e-2 * np.abs(curvature).max())


@given(st.integers(0, 1000), st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_objective_is_convex(seed, share):
    features, ratio = problem(10, seed)
    rng = np.random.default_rng(seed)
    one, two = 2 * rng.standard_normal((2, 10))
    args = (features, ratio, 0.8, 0.1, 500.0)
    between = objective(share * one + (1 - share) * two, *args)[0]
    chord = share * objective(one, *args)[0] + (1 - share) * objective(two, *args)[0]
    assert between <= chord + 1e-7 * abs(chord)


def test_pointwise_loss_is_the_mixture_likelihood_and_the_boundary():
    alpha, ratio = np.array([0.3, 1.2, -0.5]), np.array([4.0, 0.5, 2.0])
    loss = pointwise(alpha, ratio, 500.0).loss
    expected = -np.log(alpha + (1 - alpha) * ratio) + 500 * np.array([0, 0.04, 0.25])
    np.testing.assert_allclose(loss, expected)


@pytest.mark.parametrize("lam", [0.01, 1.0, 10.0])
def test_newton_reaches_scipys_optimum(lam):
    features, ratio = problem(40)
    args = (features, ratio, 0.8, lam, 500.0)
    theta = solve_newton(*args)
    peer = minimize(
        objective,
        np.zeros(40),
        args=args,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9},
    )
    assert objective(theta, *args)[0] <= peer.fun + 1e-6 * abs(peer.fun)
    assert np.abs(objective(theta, *args)[1]).max() < 1e-2


def test_natural_gradient_is_the_plain_one_without_the_gram_matrix():
    features, ratio = problem(12)
    gram = features @ features.T
    start = np.full(12, 0.01)
    step = {"alpha0": 0.5, "lam": 2.0, "bound": 500.0, "step_size": 1e-3, "steps": 1, "clip": np.inf, "start": start}
    natural = solve_descent(gram, ratio, natural=True, **step).coefficients - start
    plain = solve_descent(gram, ratio, natural=False, **step).coefficients - start
    np.testing.assert_allclose(np.linalg.solve(gram, plain), natural, rtol=1e-6)
    numeric = approx_fprime(
        start, lambda c: pointwise(0.5 + gram @ c, ratio, 500.0).loss.sum() + 2.0 * c @ gram @ c, 1e-7
    )
    np.testing.assert_allclose(plain, -1e-3 * numeric, rtol=1e-3, atol=1e-7)


def test_natural_gradient_and_newton_agree():
    space = plane(8)
    features = Eigenfeatures.of(Matern(0.3, 2.5, relative=False), space.locations, rank=64)
    data, _ = draw_counts(space, 50, np.random.default_rng(1))
    ratio = likelihood_ratio(data.masked(), BetaBinomialAlternative(0.3, 6.0))
    args = (ratio, 0.9, 5.0, 500.0)
    best = objective(solve_newton(features.values, *args), features.values, *args)[0]
    descent = solve_descent(features.values @ features.values.T, *args, 5e-4, 5000, clip=np.inf)
    start = descent.objectives[0]
    assert best <= descent.objectives.min() + 1e-9
    assert descent.objectives[-1] - best < 1e-3 * (start - best)


def test_clip_bounds_the_step():
    features, ratio = problem(12)
    fit = solve_descent(features @ features.T, 1000 * ratio, 0.5, 1.0, 500.0, 1.0, 1, clip=5.0)
    assert np.linalg.norm(fit.coefficients) <= 5.0 + 1e-9


def test_a_strong_penalty_gives_the_pooled_constant():
    space = plane(10)
    data, _ = draw_counts(space, 30, np.random.default_rng(2))
    prior = KernelNullPrior(space.kernel, lam=1e9).fit(data)
    np.testing.assert_allclose(prior.alpha_, prior.alpha0_, atol=1e-4)
    known = KernelNullPrior(space.kernel, lam=1e9, alternative=BetaBinomialAlternative(0.3, 6.0)).fit(data)
    ratio = likelihood_ratio(data.unmasked(), BetaBinomialAlternative(0.3, 6.0))
    grid = np.linspace(0.01, 0.999, 5000)
    mle = grid[np.argmax([np.log(share + (1 - share) * ratio).sum() for share in grid])]
    assert known.alpha0_ == pytest.approx(mle, abs=1e-3)


def test_a_weak_penalty_without_structure_decides_each_point_alone():
    data = CountData([0, 40, 0, 35, 50], 50)
    prior = KernelNullPrior(
        FiniteKernel(np.eye(5)), lam=1e-6, alpha0=0.5, alternative=BetaBinomialAlternative(0.3, 6.0), rank=5
    ).fit(data)
    assert (prior.alpha_[[0, 2]] < 0.05).all()
    assert (prior.alpha_[[1, 3, 4]] > 0.95).all()
