"""Fixtures of the tests; the annotations are checked by the hook in the root's conftest.py."""

import pytest
import torch
from jaxtyping import config
from torch import nn


@pytest.fixture(autouse=True)
def reproducible():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def unchecked():
    """Lets wrongly typed arguments through to the package's own messages."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def fixed_point():
    """Builds a small fixed-point model whose output matrix is not zero; any argument can be changed."""
    from cofre import FixedPointDenoiser

    def make(**changes):
        model = FixedPointDenoiser(**({"vocab_size": 7, "length": 12, "hidden": 16, "heads": 2} | changes))
        return awake(model)

    return make


@pytest.fixture
def plain():
    """Builds a small plain stack whose output matrix is not zero."""
    from cofre import MaskedDenoiser

    def make(**changes):
        model = MaskedDenoiser(**({"vocab_size": 7, "length": 12, "hidden": 16, "heads": 2, "blocks": 3} | changes))
        return awake(model)

    return make


def awake(model):
    """Output matrix and adaLN gates start at zero, which would make many tests pass for the wrong reason."""
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


class Contraction(nn.Module):
    """A user's module: `F(h) = A h + injection` with a known fixed point; not one of this package's models."""

    vocab_size, length, mask_id = 5, 4, 5

    def __init__(self, norm=0.5, width=6):
        super().__init__()
        matrix = torch.randn(width, width, dtype=torch.float64)
        self.a = nn.Parameter(norm * matrix / torch.linalg.matrix_norm(matrix, 2))
        self.embedding = nn.Parameter(torch.randn(6, width, dtype=torch.float64))
        self.out = nn.Parameter(torch.randn(6, width, dtype=torch.float64))

    def encode(self, z, t=None, classes=None):
        h = self.embedding[z]
        return h, 2 * h

    def apply_block(self, h, injection, t=None, classes=None):
        return h @ self.a.T + injection

    def decode(self, h, t=None, classes=None):
        from cofre import DenoiserOutput

        return DenoiserOutput(h @ self.out.T, h)


@pytest.fixture
def contraction():
    """The class `Contraction`."""
    return Contraction
