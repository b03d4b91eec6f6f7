"""A pretrained causal language model as the reference of generative perplexity (section 3.7)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F


class CausalJudge:
    """`-log p` of each token under a causal language model.

    Args:
        model: a transformers model: `model(ids).logits`.
        table: judge's id of each symbol, where symbols were renumbered (`cofre.data.compact_vocabulary`).
        batch_size: sequences in one pass.
    """

    def __init__(self, model: Any, table: Integer[Tensor, " symbols"] | None = None, batch_size: int = 16) -> None:
        self.model, self.table, self.batch_size = model, table, batch_size

    @classmethod
    def load(cls, name_or_path: str, table: Integer[Tensor, " symbols"] | None = None) -> CausalJudge:
        """The judge by name: `smollm2` (the asset), a local folder, or a hub name (`gpt2-large` in the paper).

        Raises:
            ClaimlabError: if the asset was not fetched.
        """
        from claimlab.smollm import load_causal_lm

        model, _ = load_causal_lm(name_or_path)
        return cls(model, table)

    @torch.no_grad()
    def nll(self, tokens: Integer[Tensor, "n length"]) -> Float[Tensor, "n scored"]:
        """`-log` probability of every token but the first, given those before it (nats); one column less than `tokens`.

        Raises:
            ValueError: for sequences of fewer than two tokens.
        """
        if tokens.shape[1] < 2:
            raise ValueError(f"a causal judge needs at least two tokens a sequence, got {tokens.shape[1]}")
        ids = (tokens if self.table is None else self.table[tokens.cpu()]).to(self.model.device)
        rows = []
        for part in ids.split(self.batch_size):
            logits = self.model(part).logits[:, :-1].float()
            rows.append(F.cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none").cpu())
        return torch.cat(rows)
