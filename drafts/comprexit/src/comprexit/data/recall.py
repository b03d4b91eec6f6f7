"""Recall contexts: facts (key, value) hidden among filler, and a small language model that can look them up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from ..compressor import IGNORE


class RecallBatch(NamedTuple):
    """Contexts with all their questions.

    Attributes:
        context_ids: `[B, T]` facts at random positions among filler.
        target_ids: `[B, n + 1]` the keys of all facts in random order, and a token nobody reads.
        labels: `[B, n + 1]` the value that is to follow each key; the first is -100.
        positions: `[B, n]` where the fact of each asked key stands in the context.
    """

    context_ids: Int[Tensor, "batch tokens"]
    target_ids: Int[Tensor, "batch target"]
    labels: Int[Tensor, "batch target"]
    positions: Int[Tensor, "batch facts"]


@dataclass(frozen=True)
class RecallTask:
    """The vocabulary: BOS, keys, values, fillers, and one token for every (key, value) pair."""

    keys: int = 8
    values: int = 8
    fillers: int = 8

    @property
    def vocab_size(self) -> int:
        return 1 + self.keys + self.values + self.fillers + self.keys * self.values

    @property
    def first_value(self) -> int:
        return 1 + self.keys

    @property
    def first_fact(self) -> int:
        return 1 + self.keys + self.values + self.fillers

    def sample(
        self, count: int, facts: int, length: int, rng: np.random.Generator, asked: int | None = None
    ) -> RecallBatch:
        """`count` contexts of `length` tokens with `facts` facts of different keys; `asked` of them in the query.

        Raises:
            ValueError: for more facts than keys or tokens, or more questions than facts.
        """
        asked = facts if asked is None else asked
        if not 1 <= facts <= min(self.keys, length):
            raise ValueError(f"facts must be between 1 and {min(self.keys, length)}, got {facts}")
        if not 1 <= asked <= facts:
            raise ValueError(f"asked must be between 1 and the {facts} facts, got {asked}")
        key = rng.random((count, self.keys)).argsort(1)[:, :facts]
        value = rng.integers(self.values, size=(count, facts))
        position = rng.random((count, length)).argsort(1)[:, :facts]
        context = self.first_value + self.values + rng.integers(self.fillers, size=(count, length))
        np.put_along_axis(context, position, self.first_fact + key * self.values + value, axis=1)
        # Keys, values and positions are in random order already, so the first `asked` are a random choice.
        target = np.concatenate([1 + key[:, :asked], np.zeros((count, 1), dtype=int)], axis=1)
        labels = np.concatenate([np.full((count, 1), IGNORE), self.first_value + value[:, :asked]], axis=1)
        return RecallBatch(*(torch.from_numpy(x) for x in (context, target, labels, position[:, :asked])))

    def value_of(self, fact_ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Index of the value that each fact token stands for."""
        return (fact_ids - self.first_fact) % self.values


@dataclass(frozen=True)
class RecallLMConfig:
    """The frozen language model of the recall experiments and its training.

    Noise of `noise` times the embeddings' standard deviation on the inputs, and label smoothing, keep the model smooth
    between its token embeddings; facts that are missing from the context (a share `missing` of those asked for) teach
    it to spread its guess when it does not know; weight decay keeps its hidden states of all layers on one scale. A
    large model is smooth by nature; a small over-confident one gives compressors no usable gradient.
    """

    hidden_size: int = 64
    layers: int = 3
    heads: int = 4
    steps: int = 800
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.3
    max_facts: int = 6
    max_length: int = 32
    noise: float = 1.0
    missing: float = 0.1
    label_smoothing: float = 0.1


def train_recall_lm(
    task: RecallTask,
    config: RecallLMConfig,
    rng: np.random.Generator,
    *,
    device: torch.device | None = None,
    progress: Callable[[Iterable[int]], Iterable[int]] = lambda steps: steps,
) -> LlamaForCausalLM:
    """A small Llama trained from scratch to answer all questions of contexts of many lengths.

    Initialised from torch's global generator.
    """
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=task.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=2 * config.hidden_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            bos_token_id=0,
            eos_token_id=None,
            pad_token_id=None,
            tie_word_embeddings=False,
        )
    )
    model.to(device or torch.device("cpu"))  # pyright: ignore[reportArgumentType]
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    for _ in progress(range(config.steps)):
        facts = int(rng.integers(1, config.max_facts + 1))
        length = int(rng.integers(facts, config.max_length + 1))
        batch = task.sample(config.batch_size, facts, length, rng)
        lost = (batch.context_ids >= task.first_fact).numpy() & (rng.random(batch.context_ids.shape) < config.missing)
        batch.context_ids[torch.from_numpy(lost)] = task.first_fact - 1
        logits = _logits(model, batch, config.noise)
        labels = batch.labels.flatten().to(logits.device)
        loss = F.cross_entropy(logits.flatten(0, 1), labels, label_smoothing=config.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def _logits(model: LlamaForCausalLM, batch: RecallBatch, noise: float) -> Float[Tensor, "batch target vocabulary"]:
    ids = torch.cat([torch.zeros_like(batch.context_ids[:, :1]), batch.context_ids, batch.target_ids[:, :-1]], dim=1)
    table: Tensor = model.model.embed_tokens.weight
    embeddings = table[ids.to(table.device)]
    embeddings = embeddings + noise * table.detach().std() * torch.randn_like(embeddings)
    return model(inputs_embeds=embeddings, logits_to_keep=batch.target_ids.shape[1], use_cache=False).logits
