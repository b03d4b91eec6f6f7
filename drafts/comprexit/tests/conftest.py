"""Fixtures of the tests; the annotations are checked by the hook in the root's conftest.py."""

import pytest
import torch
from jaxtyping import config
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 50


@pytest.fixture(autouse=True)
def reproducible():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def tiny_llama(**changes):
    """A random Llama with grouped-query attention."""
    shape = dict(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(LlamaConfig(**(shape | changes)))


@pytest.fixture
def llama():
    """Builds the tiny model; any field of its configuration can be changed."""
    return tiny_llama


@pytest.fixture
def lm():
    from comprexit import FrozenLM

    return FrozenLM(tiny_llama())


@pytest.fixture
def ids():
    """Three contexts of 20 tokens."""
    return torch.randint(3, VOCABULARY, (3, 20))


@pytest.fixture
def query():
    return torch.randint(3, VOCABULARY, (3, 5))


@pytest.fixture
def unchecked():
    """Lets wrongly typed arguments through to the package's own messages."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
