"""Fisher-Glass: greedy repair against refactorising, Woodbury against dense, accumulation against plain BLAS."""

import numpy as np
import pytest
from fisher_glass import Fisher, environment_fishers, logistic_rows, select_repairs
from fisher_glass.fisher import fisher_of_rows


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_greedy_repair_against_refactorising(compare, rng):
    """Sixty of 10,000 candidates with 257 parameters; refactorising takes O(n d^2) a step, a rank-one update O(n d)."""
    n, d, steps = 10_000, 257, 60
    z, p, env = rng.standard_normal((n, d)), rng.random(n), rng.integers(4, size=n)
    fisher = environment_fishers(z, p, env, "pooled", weights=np.full(4, 0.25))
    rows = logistic_rows(z, p) / np.sqrt(n)
    task, ridge, alpha = np.eye(d)[0], fisher.default_ridge(), 0.5

    def ours():
        return select_repairs(
            fisher, rows, env, None, task, budget=steps, policy="direction", alpha=alpha, ridge=ridge
        )[0]

    def naive():
        matrices = fisher.F + ridge * np.eye(d)
        chosen = []
        for _ in range(steps):
            inverse = np.linalg.inv(matrices)
            along = np.einsum("nd,nd->n", rows, inverse[env, :, 0])
            spread = np.empty(n)
            for e in range(4):
                s = rows[env == e]
                spread[env == e] = np.einsum("nd,nd->n", s @ inverse[e], s)
            glass = inverse[:, 0, 0]
            worst = np.zeros(4)
            worst[np.argsort(-glass)[:2]] = 0.5  # tail weights of CVaR 0.5 over four equal environments
            score = worst[env] * along**2 / (1 + spread)
            score[chosen] = -1.0
            chosen.append(int(score.argmax()))
            s = rows[chosen[-1]]
            matrices[env[chosen[-1]]] += np.outer(s, s)
        return np.array(chosen)

    assert ours().tolist() == naive().tolist()
    compare(
        "greedy repair, 60 steps, 10,000 candidates, d = 257",
        ours,
        naive,
        peer_name="refactorising at each step",
        target=0.05,
        repeats=3,
    )


def test_woodbury_against_dense(compare, rng):
    """An environment of 60 samples and 1500 parameters."""
    rows, rhs = rng.standard_normal((60, 1500)), rng.standard_normal((1500, 1))
    factored = Fisher(rows, factored=True)

    def dense():
        return Fisher(rows.T @ rows).ridge_solve(rhs, 0.1)

    np.testing.assert_allclose(factored.ridge_solve(rhs, 0.1), dense(), rtol=1e-6, atol=1e-10)
    compare(
        "one ridge solve, n = 60, d = 1500",
        lambda: factored.ridge_solve(rhs, 0.1),
        dense,
        peer_name="dense Cholesky",
        target=0.1,
        repeats=5,
    )


def test_accumulation_against_a_bare_product(compare, rng):
    """Weighted Fisher accumulation against the product of the already weighted rows alone."""
    z, p = rng.standard_normal((20_000, 257)), rng.random(20_000)
    rows = logistic_rows(z, p)
    np.testing.assert_allclose(fisher_of_rows(logistic_rows(z, p)).array, rows.T @ rows)
    compare(
        "Fisher accumulation, n = 20,000, d = 257",
        lambda: fisher_of_rows(logistic_rows(z, p)),
        lambda: rows.T @ rows,
        peer_name="bare BLAS product",
        target=2.0,
    )
