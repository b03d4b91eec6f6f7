"""Fixtures of the tests; the annotations are checked by the hook in the root's conftest.py."""

import pytest
import torch
from jaxtyping import config


@pytest.fixture(autouse=True)
def reproducible():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def tiny():
    """Builds a small model configuration; any field can be changed."""
    from fprm import FPRMConfig

    def make(**changes):
        base = {"vocab_size": 5, "seq_len": 16, "hidden_size": 16, "num_heads": 2, "num_layers": 1, "ffn_multiple": 8}
        return FPRMConfig(**(base | changes))

    return make


@pytest.fixture
def unchecked():
    """Lets wrongly typed arguments through to the package's own messages."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
