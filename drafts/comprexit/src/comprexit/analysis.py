"""What slots and layers hold: coverage of the context, redundancy of slots, linear probes (experiment E3)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression, RidgeCV
from torch import Tensor
from torch.nn import functional as F

from .frozen_lm import Compressed

RIDGE_PENALTIES = tuple(10.0**k for k in range(-3, 4))


def coverage_imbalance(weights: Float[Tensor, "batch memory tokens"], positions: Int[Tensor, "batch facts"]) -> float:
    """Coefficient of variation, over the tokens at `positions`, of what all slots together take from a token.

    0: every fact is covered alike. Mean over contexts.

    Arguments:
        weights: share of every token in every slot, rows of sum 1: a plan over its slot masses, or attention.
    """
    received = weights.sum(1).gather(1, positions)
    return (received.std(1, correction=0) / received.mean(1)).mean().item()


def redundancy(weights: Float[Tensor, "batch memory tokens"]) -> float:
    """Mean cosine between the rows of two slots of the same context: 1 when all slots copy the same tokens.

    Raises:
        ValueError: for fewer than two slots.
    """
    count = weights.shape[1]
    if count < 2:
        raise ValueError(f"redundancy compares slots, got {count}")
    rows = F.normalize(weights, dim=-1)
    pairs = rows @ rows.transpose(1, 2)
    total = pairs.sum((1, 2)) - pairs.diagonal(dim1=1, dim2=2).sum(1)
    return (total / (count * (count - 1))).mean().item()


def layer_probe_accuracy(
    states: Float[Tensor, "layers samples hidden"], labels: Int[Tensor, " samples"], train_share: float = 0.5
) -> list[float]:
    """Held-out accuracy of a logistic regression from each layer's state to the label."""
    split = int(train_share * len(labels))
    y = labels.numpy()
    scores = []
    for layer in states:
        x = layer.double().numpy()
        scale = x[:split].std(0) + 1e-9
        probe = LogisticRegression(max_iter=200).fit(x[:split] / scale, y[:split])
        scores.append(float(probe.score(x[split:] / scale, y[split:])))
    return scores


def memory_features(compressed: Compressed) -> Float[np.ndarray, "batch features"]:
    """Everything the reader sees of each context, flattened: slots, or keys and values of all layers."""
    if compressed.embeddings is not None:
        return compressed.embeddings.flatten(1).double().numpy()
    return torch.cat([x.flatten(1) for pair in compressed.key_values or () for x in pair], 1).double().numpy()


def recovery_accuracy(
    features: Float[np.ndarray, "contexts features"],
    facts: Int[Tensor, "contexts facts"],
    values: int,
    keys: int,
) -> float:
    """How many facts of a context a linear map recovers from its memory (the reconstruction probe of claim X2).

    Ridge regression from the memory to the presence of each (key, value) pair, fitted on half of the contexts; a fact
    of the other half counts as recovered if, for its key, its value scores highest. Chance is `1 / values`.

    Arguments:
        facts: `key * values + value` of every fact.
    """
    split = len(features) // 2
    present = np.zeros((len(features), keys * values))
    np.put_along_axis(present, facts.numpy(), 1.0, axis=1)
    centre, scale = features[:split].mean(0), features[:split].std(0) + 1e-9
    x = (features - centre) / scale
    probe = RidgeCV(alphas=RIDGE_PENALTIES).fit(x[:split], present[:split])
    scores = probe.predict(x[split:]).reshape(-1, keys, values)
    asked = facts[split:].numpy()
    best = scores.argmax(-1)
    return float((np.take_along_axis(best, asked // values, axis=1) == asked % values).mean())
