import itertools
import math

import numpy as np
import pytest
import torch
from cofre import frechet_distance, generative_perplexity, inception_score, is_degenerate, unigram_entropy
from cofre.dynamics import SolverProbe, lagged_logit_kl, nested_contexts
from cofre.metrics import frechet_from_moments
from cofre.sampling import SolvedStep, sample
from scipy import linalg

from claimlab.costs import saved_bytes


def test_entropy_of_distinct_and_of_equal_tokens():
    tokens = torch.stack((torch.arange(8), torch.zeros(8, dtype=torch.long), torch.arange(8) // 4))
    torch.testing.assert_close(
        unigram_entropy(tokens, 8), torch.tensor([math.log(8), 0.0, math.log(2)], dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="tokens must lie in 0 … 6, got 0 … 7"):
        unigram_entropy(tokens, 7)


def test_generative_perplexity_is_the_exponential_of_the_mean():
    assert generative_perplexity(torch.tensor([[0.0, 2.0], [4.0, 6.0]])) == pytest.approx(math.exp(3))


def test_collapse_is_flagged():
    assert is_degenerate(0.84, 1.0) and not is_degenerate(0.86, 1.0)


def test_frechet_of_known_gaussians():
    eye, zero = np.eye(3), np.zeros(3)
    assert frechet_from_moments(zero, eye, zero, eye) == pytest.approx(0.0, abs=1e-9)
    assert frechet_from_moments(zero, eye, np.array([1.0, 2.0, 2.0]), eye) == pytest.approx(9.0)
    assert frechet_from_moments(zero, 4 * eye, zero, eye) == pytest.approx(3.0)  # k (s - 1)^2


def test_frechet_agrees_with_the_matrix_square_root(unchecked):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 5)), rng.standard_normal((80, 5)) @ rng.standard_normal((5, 5)) + 1
    c1, c2 = np.cov(x.T), np.cov(y.T)
    expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(c1 + c2 - 2 * linalg.sqrtm(c1 @ c2).real)
    assert frechet_distance(x, y) == pytest.approx(expected)
    with pytest.raises(ValueError, match="equal width"):
        frechet_distance(x, y[:, :4])


def test_frechet_of_rank_deficient_features():
    x = np.zeros((10, 4))
    x[:, 0] = np.arange(10)
    assert frechet_distance(x, x + np.array([0, 3.0, 0, 0])) == pytest.approx(9.0)


def test_inception_score():
    assert inception_score(np.eye(4)) == pytest.approx(4.0)
    assert inception_score(np.full((5, 4), 0.25)) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="each row must be a distribution, got a least entry of -1,"):
        inception_score(np.array([[2.0, -1.0]]))


def test_contexts_are_nested(generator):
    x = torch.randint(5, (4, 50), generator=generator)
    contexts = nested_contexts(x, 5, 5, generator)
    assert (contexts[0] == 5).all()
    for before, after in itertools.pairwise(contexts):
        assert not ((after == 5) & (before != 5)).any()
        assert (after[after != 5] == x[after != 5]).all()
    assert float((contexts[3] == 5).float().mean()) == pytest.approx(0.4, abs=0.15)


def test_lagged_kl_of_a_hand_made_model():
    """Predictions that depend on the number of visible tokens only, with a known divergence."""
    from cofre import DenoiserOutput

    class ByStep(torch.nn.Module):
        mask_id = 2

        def forward(self, z, t=None, classes=None):
            visible = (z != 2).sum(1).float()
            logits = torch.stack((visible, 0 * visible, 0 * visible), -1)[:, None].expand(*z.shape, 3)
            return DenoiserOutput(logits, logits)

    contexts = [torch.tensor([[2, 2, 2]]), torch.tensor([[1, 2, 2]]), torch.tensor([[1, 1, 2]])]
    grid = lagged_logit_kl(ByStep(), contexts, (1, 2))

    def law(k):
        return np.array([math.exp(k), 1.0]) / (math.exp(k) + 1)

    def kl(later, earlier):
        return float((law(later) * np.log(law(later) / law(earlier))).sum())

    assert grid[0, :2].tolist() == pytest.approx([kl(1, 0), kl(2, 1)], rel=1e-5)
    assert float(grid[1, 0]) == pytest.approx(kl(2, 0), rel=1e-5)
    assert grid[0, 2].isnan() and grid[1, 1:].isnan().all()
    with pytest.raises(ValueError, match="lags must lie in 1 … 2"):
        lagged_logit_kl(ByStep(), contexts, (3,))


def test_probe_measures_movement_by_state():
    probe = SolverProbe(mask_id=9)
    before, after = torch.ones(1, 4, 4), torch.ones(1, 4, 4)
    after[0, 1] = 3.0  # a register row stands first: this is token 0, which was revealed
    after[0, 2] = 1.5
    residuals = torch.tensor([[0.1]])
    probe(SolvedStep(0, torch.tensor([[9, 9, 1]]), None, before, None, residuals))
    probe(SolvedStep(1, torch.tensor([[4, 9, 1]]), torch.tensor([[9, 9, 1]]), after, before, residuals))
    movement = {state: value[0] for state, value in probe.movement.items()}
    assert movement["newly revealed"] == (1, pytest.approx(2.0))
    assert movement["still masked"] == (1, pytest.approx(0.5))
    assert movement["visible"] == (1, pytest.approx(0.0))
    assert len(probe.residuals) == 1


def test_probe_refuses_plain_models(plain):
    with pytest.raises(ValueError, match="fixed-point model only"):
        sample(plain(), 2, steps=2, observe=SolverProbe(7))


def test_saved_bytes_grow_by_one_block_an_iteration(fixed_point, plain):
    """What an iteration with gradient keeps is a block and the projections around it; one without keeps nothing."""
    z = torch.full((3, 12), 7)

    def kept(model, **solver):
        return saved_bytes(lambda: model(z, **solver).logits.logsumexp(-1))

    model = fixed_point()
    three, four = kept(model, iterations=3), kept(model, iterations=4)
    block = kept(plain(blocks=4)) - kept(plain(blocks=3))
    h = torch.randn(3, 12, 16, requires_grad=True)
    inject = saved_bytes(lambda: model.inject(1.0 * h, 1.0 * h))
    assert four - three == pytest.approx(block + inject, rel=0.02)
    assert kept(model, iterations=3, no_grad_iterations=4) == three
