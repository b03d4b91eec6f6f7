"""Depth-wise transmission: every token mixes its hidden states of all layers (section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Depth = Literal["adaptive", "mean", "last"]


class DepthMixer(nn.Module):
    """A small attention over layers, for each token: states of all layers -> token anchors.

        q~ = sum_l softmax(omega)_l h^l        q = W_q q~ + b_q        k^l = W_k h^l + b_k + e_l
        alpha = softmax_l(<q, k^l> / (sqrt(d_g) tau))                  z = sum_l alpha_l (W_v h^l + b_v)

    Computed without the keys and values of every layer: `<q, k^l> = <W_k^T q, h^l> + <q, b_k + e_l>` and
    `z = W_v (sum_l alpha_l h^l) + b_v`, which are the same numbers for `1 / K` of the work.

    Arguments:
        hidden_size: width `H` of the language model.
        num_states: `K = L + 1` hidden states: the embedding output and the output of each layer.
        gate_size: width `d_g` of queries and keys.
        temperature: `tau`; towards 0 each token picks one layer.
        depth: `adaptive` is the method; `mean` and `last` fix the weights (ablations).

    Raises:
        ValueError: for sizes below 1 or a temperature that is not positive.
    """

    def __init__(
        self,
        hidden_size: int,
        num_states: int,
        gate_size: int = 256,
        temperature: float = 0.7,
        depth: Depth = "adaptive",
    ) -> None:
        super().__init__()
        for name, size in (("hidden_size", hidden_size), ("num_states", num_states), ("gate_size", gate_size)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if depth not in get_args(Depth):
            raise ValueError(f"depth must be one of {', '.join(get_args(Depth))}, got {depth!r}")
        self.scale = 1.0 / (math.sqrt(gate_size) * temperature)
        self.depth = depth
        self.num_states = num_states
        self.layer_logits = nn.Parameter(torch.zeros(num_states))
        self.query = nn.Linear(hidden_size, gate_size)
        self.key = nn.Linear(hidden_size, gate_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.layer_embeddings = nn.Parameter(0.02 * torch.randn(num_states, gate_size))

    def forward(
        self,
        states: Sequence[Float[Tensor, "batch tokens hidden"]] | Float[Tensor, "states batch tokens hidden"],
        mask: Bool[Tensor, "batch tokens"],
    ) -> tuple[Float[Tensor, "batch tokens hidden"], Float[Tensor, "batch tokens states"]]:
        """Anchors and the weight of each layer; both are 0 for padded tokens.

        Raises:
            ValueError: if the number of states is not `num_states`.
        """
        if len(states) != self.num_states:
            raise ValueError(f"expected {self.num_states} hidden states (layers + 1), got {len(states)}")
        layers = [state.to(self.value.weight.dtype) for state in states]
        if self.depth == "adaptive":
            weights = self._attend(layers)
        else:
            fixed = torch.zeros(self.num_states, dtype=layers[0].dtype, device=layers[0].device)
            fixed[-1 if self.depth == "last" else slice(None)] = 1.0
            weights = (fixed / fixed.sum()).expand(*mask.shape, -1)
        anchors = self.value(_weighted_sum(layers, weights.unbind(-1)))
        return anchors * mask[..., None], weights * mask[..., None]

    def _attend(self, layers: list[Tensor]) -> Tensor:
        shares = self.layer_logits.softmax(0)
        query = self.query(_weighted_sum(layers, shares.unbind(0)))
        folded = query @ self.key.weight
        content = torch.stack([torch.einsum("bth,bth->bt", layer, folded) for layer in layers], dim=-1)
        offset = query @ (self.layer_embeddings + self.key.bias).T
        return ((content + offset) * self.scale).softmax(-1)


def _weighted_sum(layers: list[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Sum of `[B, T, H]` states, one at a time, with scalars or `[B, T]` weights."""
    total = torch.zeros_like(layers[0])
    for layer, weight in zip(layers, weights, strict=True):
        total = torch.addcmul(total, layer, weight[..., None] if weight.ndim else weight)
    return total
