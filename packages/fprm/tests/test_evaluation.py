"""Accuracy and cost on a model whose answers are known."""

import numpy as np
import pytest
import torch
from fprm import FPRM, SolverConfig, accuracy_by_iteration, evaluate
from fprm.training import IGNORE
from torch import nn


class Countdown(FPRM):
    """Answers class 1 everywhere once it has been iterated as often as the first token says, class 0 before."""

    def initial_state(self, injection, generator=None):
        return torch.zeros(injection.shape[0], injection.shape[1], self.config.hidden_size)

    def inject(self, x, puzzle_ids=None):
        return x[:, :, None].float().expand(-1, -1, self.config.hidden_size)

    def body(self, z, injection):
        return torch.minimum(z + 1, injection[:, :1].expand_as(z))

    def readout(self, z):
        done = (z[:, :, :1] >= self.wanted[: len(z)]).float()
        return torch.cat((1 - done, done, torch.zeros_like(done)), -1)


@pytest.fixture
def model(tiny):
    model = Countdown(tiny(seq_len=2, conv="none", positions="none"))
    model.head = nn.Identity()
    model.wanted = torch.tensor(3.0).view(1, 1, 1).expand(8, 1, 1)
    return model


def test_evaluation_counts_exact_final_and_tokens(model):
    inputs = np.array([[5, 0], [2, 0], [4, 0]])
    labels = np.array([[1, 0], [1, IGNORE], [0, 1]])
    result = evaluate(model, inputs, labels, SolverConfig(max_iter=20), batch_size=2)
    # Puzzles 0 and 2 reach 3, so both tokens say 1; puzzle 1 stops at 2 and says 0.
    assert result.exact.tolist() == [False, False, False]
    assert result.final.tolist() == [False, False, True]
    assert result.tokens.tolist() == [0.5, 0.0, 0.5]
    assert result.iterations.tolist() == [6, 3, 5]
    assert result.converged.all()


def test_accuracy_by_iteration(model):
    inputs, labels = np.array([[5, 0], [2, 0]]), np.ones((2, 2), dtype=np.int64)
    for batch_size in (1, 2):
        curve = accuracy_by_iteration(model, inputs, labels, 5, batch_size=batch_size)
        assert curve.tolist() == [0.0, 0.0, 0.5, 0.5, 0.5]


def test_no_puzzles(model):
    with pytest.raises(ValueError, match="no puzzles"):
        evaluate(model, np.zeros((0, 2), dtype=np.int64), np.zeros((0, 2), dtype=np.int64))
