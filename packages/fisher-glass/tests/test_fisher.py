"""Fisher matrices of heads, against autograd, a peer library and each other."""

from inspect import unwrap

import numpy as np
import pytest
import torch
from fisher_glass import (
    EnvironmentFisher,
    Fisher,
    environment_fishers,
    logistic_fisher,
    logistic_rows,
    module_scores,
    penultimate_features,
    score_fisher,
    softmax_fisher,
    softmax_rows,
)
from torch import nn


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_logistic_fisher_is_the_hessian_of_the_expected_loss(rng):
    z, theta = torch.tensor(rng.standard_normal((40, 3))), torch.tensor(rng.standard_normal(3))
    p = torch.sigmoid(z @ theta)

    def expected_loss(t):
        q = torch.sigmoid(z @ t)
        return -(p * q.log() + (1 - p) * (1 - q).log()).mean()

    hessian = torch.func.hessian(expected_loss)(theta).numpy()
    np.testing.assert_allclose(logistic_fisher(z.numpy(), p.numpy()), hessian, atol=1e-12)


def test_softmax_fisher_is_the_hessian_of_the_expected_loss(rng):
    z, theta = torch.tensor(rng.standard_normal((30, 3))), torch.tensor(rng.standard_normal((3, 3)))

    def logits(t):
        return torch.cat([z @ t.reshape(3, 3).T, torch.zeros(len(z), 1)], dim=1)

    p = torch.softmax(logits(theta), dim=1)
    hessian = torch.func.hessian(lambda t: -(p * torch.log_softmax(logits(t), dim=1)).sum(dim=1).mean())(
        theta.reshape(-1)
    ).numpy()
    np.testing.assert_allclose(softmax_fisher(z.numpy(), p.numpy()), hessian, atol=1e-12)


def test_softmax_of_two_classes_is_logistic(rng):
    z, p = rng.standard_normal((20, 3)), rng.random(20)
    np.testing.assert_allclose(softmax_fisher(z, np.stack([p, 1 - p], axis=1)), logistic_fisher(z, p), atol=1e-14)


def test_head_fisher_agrees_with_the_ggn_of_curvlinops(rng):
    curvlinops = pytest.importorskip("curvlinops")
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    x = torch.tensor(rng.standard_normal((25, 4)))
    y = torch.tensor(rng.integers(3, size=25))
    ggn = curvlinops.GGNLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), [(x, y)])
    peer = (ggn @ torch.eye(15, dtype=torch.float64)).numpy()
    # The peer's parameters are (class, feature) weights, then biases; ours stack (features, constant) by class, and
    # fix the last class. Restricting the over-parametrised matrix to the first two classes gives the same numbers.
    order = [*range(0, 4), 12, *range(4, 8), 13]
    ours = softmax_fisher(np.hstack([x.numpy(), np.ones((25, 1))]), torch.softmax(model(x), dim=1).detach().numpy())
    np.testing.assert_allclose(ours, peer[np.ix_(order, order)], atol=1e-10)


def test_module_scores_average_to_the_true_fisher(rng):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double().eval()
    x = torch.tensor(rng.standard_normal((50, 3)))
    generator = torch.Generator().manual_seed(0)
    scores = module_scores(model, x, ["2.weight", "2.bias"], samples=4000, generator=generator)
    z, p = penultimate_features(model, "2", x)
    exact = logistic_fisher(np.hstack([z, np.ones((50, 1))]), p)
    assert scores.shape == (50 * 4000, 3)
    np.testing.assert_allclose(score_fisher(scores), exact, atol=0.01)


def test_module_scores_of_a_softmax_module_are_autograd_gradients(rng):
    torch.manual_seed(1)
    model = nn.Linear(2, 3).double().eval()
    x = torch.tensor(rng.standard_normal((1, 2)))
    row = module_scores(model, x, samples=1, generator=torch.Generator().manual_seed(3))[0]
    candidates = []
    for label in range(3):
        model.zero_grad()
        torch.log_softmax(model(x), dim=1)[0, label].backward()
        candidates.append(torch.cat([model.weight.grad.reshape(-1), model.bias.grad]).numpy())
    assert min(np.abs(row - c).max() for c in candidates) < 1e-12


def test_pooled_is_per_environment_times_share(rng):
    z, p, env = rng.standard_normal((60, 3)), rng.random(60), np.repeat(["a", "b", "b"], 20)
    per_env, pooled = environment_fishers(z, p, env), environment_fishers(z, p, env, "pooled")
    np.testing.assert_allclose(pooled.F, per_env.F * np.array([1 / 3, 2 / 3])[:, None, None])
    np.testing.assert_allclose(per_env.pooled().F, pooled.F)
    np.testing.assert_allclose(pooled.F.sum(axis=0), logistic_fisher(z, p))
    assert per_env.labels == ("a", "b") and per_env.counts.tolist() == [20, 40]


def test_empirical_fisher_uses_observed_labels(rng):
    z, p, y = rng.standard_normal((30, 2)), rng.random(30), rng.integers(2, size=30)
    empirical = environment_fishers(z, p, np.zeros(30), observed=y)
    np.testing.assert_allclose(empirical.F[0], score_fisher((y - p)[:, None] * z))
    P = np.stack([p, 1 - p], axis=1)
    np.testing.assert_allclose(environment_fishers(z, P, np.zeros(30), observed=1 - y).F, empirical.F)


@pytest.mark.parametrize("d", [5, 40])
def test_factored_and_dense_give_the_same_solution(rng, d):
    rows, rhs = rng.standard_normal((12, d)), rng.standard_normal((d, 2))
    dense, factored = Fisher(rows.T @ rows), Fisher(rows, factored=True)
    expected = np.linalg.solve(rows.T @ rows + 0.3 * np.eye(d), rhs)
    np.testing.assert_allclose(dense.ridge_solve(rhs, 0.3), expected, atol=1e-10)
    np.testing.assert_allclose(factored.ridge_solve(rhs, 0.3), expected, atol=1e-10)
    np.testing.assert_allclose(factored.quadratic(rhs), dense.quadratic(rhs))
    np.testing.assert_allclose(factored.scaled(3.0).dense(), dense.scaled(3.0).dense())
    assert factored.trace == pytest.approx(dense.trace)


def test_few_samples_are_held_as_a_factor(rng):
    fisher = environment_fishers(rng.standard_normal((9, 5)), rng.random(9), np.repeat([0, 1], [3, 6]))
    assert [f.factored for f in fisher.fishers] == [True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: logistic_rows(np.ones((3, 2)), np.array([0.1, 0.2, 1.2])), r"lie in \[0, 1\], got 1.2"),
        (lambda: logistic_rows(np.full((3, 2), np.nan), np.full(3, 0.5)), "features must be finite, got nan"),
        (lambda: logistic_fisher(np.ones((3, 2)), np.full(3, 0.5), -np.ones(3)), "non-negative"),
        (lambda: softmax_rows(np.ones((2, 2)), np.full((2, 3), 0.5)), "sum to 1"),
        (lambda: EnvironmentFisher.from_matrices([np.array([[1.0, 0.5], [0.0, 1.0]])]), "symmetric"),
        (lambda: EnvironmentFisher.from_matrices([np.diag([1.0, -0.1])]), "eigenvalue -0.1"),
        (lambda: EnvironmentFisher.from_matrices([np.full((2, 2), np.nan)]), "finite"),
        (lambda: EnvironmentFisher.from_matrices([np.eye(2), np.eye(3)]), "one size"),
        (lambda: EnvironmentFisher.from_matrices([]), "at least one"),
        (lambda: environment_fishers(np.ones((2, 2)), np.full(2, 0.5), np.zeros(2), labels=[0, 7]), "7 has no sample"),
        (lambda: environment_fishers(np.ones((2, 2)), np.full(2, 0.5), np.zeros(3)), "2 samples"),
        (lambda: unwrap(environment_fishers)(np.ones((2, 2)), np.full(2, 0.5), np.zeros(2), "sum"), "normalise"),
        (lambda: environment_fishers(np.ones((2, 2)), np.full(2, 0.5), np.zeros(2), observed=np.full(2, 2)), "0..1"),
        (lambda: EnvironmentFisher.from_matrices([np.zeros((2, 2))]).default_ridge(), "zero Fisher information"),
        (lambda: module_scores(nn.Linear(2, 1).eval(), torch.ones(1, 2), ["head"]), "weight, bias; got head"),
        (lambda: module_scores(nn.Linear(2, 1), torch.ones(1, 2)), "training mode"),
        (lambda: penultimate_features(nn.Sequential(nn.ReLU()).eval(), "0", torch.ones(1, 2)), "linear layer"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_negative_eigenvalue_from_rounding_is_accepted():
    EnvironmentFisher.from_matrices([np.diag([1.0, -1e-12])])


def test_weights_are_rescaled_with_a_warning():
    with pytest.warns(UserWarning, match="sum to 2"):
        fisher = EnvironmentFisher.from_matrices([np.eye(2), np.eye(2)], np.array([0.5, 1.5]))
    np.testing.assert_allclose(fisher.weights, [0.25, 0.75])
