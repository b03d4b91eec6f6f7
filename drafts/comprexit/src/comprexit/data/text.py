"""Plain text as contexts and their continuations (section 3.5, phase 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..training import Batch


def python_documentation() -> list[str]:
    """The topics of Python's own help (`pydoc_data.topics`, some 700 kB of English prose and code)."""
    from pydoc_data.topics import topics  # pyright: ignore[reportMissingImports]

    return [topics[name] for name in sorted(topics)]


def windows(tokenizer: Any, texts: Iterable[str], length: int) -> Int[Tensor, "windows length"]:
    """Consecutive windows of `length` tokens from each text; what is left at its end is dropped.

    Raises:
        ValueError: if no text is that long.
    """
    found = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        found += [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
    if not found:
        raise ValueError(f"no text has {length} tokens")
    return torch.tensor(found)


def continuation_batch(ids: Int[Tensor, "batch length"], context: int, states: Tensor | None = None) -> Batch:
    """The first `context` tokens of each window are compressed, all others are to be predicted."""
    return Batch(ids[:, :context], None, ids[:, context:], ids[:, context:], states)


def continuation_batches(
    ids: Int[Tensor, "windows length"],
    context: int,
    batch_size: int,
    rng: np.random.Generator,
    states: Tensor | None = None,
) -> Iterator[Batch]:
    """Endless batches in a new random order every epoch.

    Arguments:
        states: cached hidden states of all contexts, `[K, windows, context, H]` (`training.cache_states`).

    Raises:
        ValueError: if nothing is left of a window to be predicted, or there are fewer windows than a batch.
    """
    if not 0 < context < ids.shape[1]:
        raise ValueError(f"context must be between 1 and {ids.shape[1] - 1} of a window's tokens, got {context}")
    if not 1 <= batch_size <= len(ids):
        raise ValueError(f"batch_size must be between 1 and the {len(ids)} windows, got {batch_size}")
    while True:
        order = torch.from_numpy(rng.permutation(len(ids)))
        for rows in order.split(batch_size):
            if len(rows) == batch_size:
                yield continuation_batch(ids[rows], context, None if states is None else states[:, rows])


def read_dataset(folder: str | Path) -> Iterator[str]:
    """Texts of a local data set in the `datasets` format (SlimPajama-6B), in order, read as they are needed.

    Raises:
        ValueError: if it has no column `text`.
        FileNotFoundError: if there is no such data set.
    """
    from datasets import DatasetDict, load_from_disk

    data = load_from_disk(str(folder))
    if isinstance(data, DatasetDict):
        data = data["train"]
    if "text" not in data.column_names:
        raise ValueError(f"{folder} has no column 'text', only {', '.join(data.column_names)}")
    for row in data:
        yield row["text"]  # pyright: ignore[reportArgumentType, reportCallIssue, reportIndexIssue]
