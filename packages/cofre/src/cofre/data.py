"""Real inputs: documentation text, document collections packed to a length, digits, and arrays of image codes."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Integer
from sklearn.datasets import load_digits
from torch import Tensor

from .objectives import Batch
from .training import BatchSource

_DOCUMENTED = ("cluster", "decomposition", "linear_model", "svm")


def bundled_documents() -> list[str]:
    """Docstrings of scikit-learn's main packages and its descriptions of data sets: English prose that is on every
    machine.

    One document for each module or description, in the order of their names.
    """
    root = Path(str(files("sklearn")))
    sources = [path for name in _DOCUMENTED for path in sorted((root / name).glob("*.py"))]
    documents = []
    for path in sources:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
        documents.append("\n\n".join(text for node in nodes if (text := ast.get_docstring(node))))
    documents += [path.read_text(encoding="utf-8") for path in sorted((root / "datasets" / "descr").glob("*.rst"))]
    return [text for text in documents if text]


def read_text(path: Path | None = None) -> str:
    """Text of a file, or the bundled documents.

    Raises:
        FileNotFoundError: if the file does not exist.
    """
    return "\n".join(bundled_documents()) if path is None else path.read_text(encoding="utf-8")


def read_documents(source: str | Path | None = None, column: str = "text", split: str = "train") -> Iterator[str]:
    """Documents one after the other, never all in memory.

    Args:
        source: a `.jsonl` or `.parquet` file with a column of texts, a `.txt` file with a blank line between documents,
            a name on the Hugging Face hub (streamed; needs `datasets` and network), or `None` for the bundled ones.
        column: where the text stands.
        split: of a data set on the hub.

    Raises:
        ValueError: if a file has no such column.
        FileNotFoundError: for a file that does not exist.
    """
    if source is None:
        yield from bundled_documents()
        return
    path = Path(source)
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                record = json.loads(line)
                if column not in record:
                    raise ValueError(f"{path.name}, line {number}: no field {column!r}, it has {', '.join(record)}")
                yield record[column]
    elif path.suffix == ".parquet":
        frame = pd.read_parquet(path)
        if column not in frame:
            raise ValueError(f"{path.name} has no column {column!r}, it has {', '.join(map(str, frame.columns))}")
        yield from frame[column]
    elif path.suffix == ".txt":
        yield from (text for text in path.read_text(encoding="utf-8").split("\n\n") if text.strip())
    else:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]

        for record in load_dataset(str(source), split=split, streaming=True):
            yield record[column]


def pack(documents: Iterable[Sequence[int]], length: int, end: int) -> Iterator[Integer[Tensor, " length"]]:
    """Sequences of `length` from token lists: joined with the end token after each document, then cut; the tail is
    dropped.

    Raises:
        ValueError: for a length below 1.
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    buffer: list[int] = []
    for document in documents:
        buffer += [*document, end]
        while len(buffer) >= length:
            yield torch.tensor(buffer[:length])
            del buffer[:length]


def compact_vocabulary(
    tokens: Integer[Tensor, "rows length"],
) -> tuple[Integer[Tensor, "rows length"], Integer[Tensor, " symbols"]]:
    """Renumber the token ids that occur as 0, 1, …; and the table that leads back."""
    table, renumbered = tokens.unique(return_inverse=True)
    return renumbered, table


def array_source(
    tokens: Integer[Tensor, "rows length"],
    classes: Integer[Tensor, " rows"] | None = None,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> BatchSource:
    """Batches of random rows, drawn with replacement.

    Raises:
        ValueError: for no rows, or another number of classes than rows.
    """
    if not len(tokens) or (classes is not None and len(classes) != len(tokens)):
        raise ValueError(
            f"expected rows with a class each, got {len(tokens)} rows, {0 if classes is None else len(classes)} classes"
        )

    def draw(count: int) -> Batch:
        rows = torch.randint(len(tokens), (count,), generator=generator)
        return Batch(tokens[rows].to(device), None if classes is None else classes[rows].to(device))

    return draw


def digit_tokens(levels: int = 8) -> tuple[Integer[Tensor, "images pixels"], Integer[Tensor, " images"]]:
    """scikit-learn's 1,797 real 8x8 digits with grey values 0 … 16 in `levels` equal parts, row by row; and the digits.

    Raises:
        ValueError: for levels outside 2 … 17.
    """
    if not 2 <= levels <= 17:
        raise ValueError(f"levels must lie in 2 … 17, got {levels}")
    pixels, digits = load_digits(return_X_y=True)
    return torch.from_numpy((pixels * levels / 17).astype(np.int64)), torch.from_numpy(digits.astype(np.int64))


def load_codes(
    codes: Path, labels: Path, vocab_size: int = 4096, length: int = 256
) -> tuple[Integer[Tensor, "images length"], Integer[Tensor, " images"]]:
    """Image codes that a VQ tokenizer made elsewhere: `.npy` files (N, length) of integers and (N,) of classes.

    Raises:
        ValueError: for another shape or type, or codes outside 0 … vocab_size - 1.
        FileNotFoundError: for a file that does not exist.
    """
    array, classes = np.load(codes), np.load(labels)
    if array.ndim != 2 or array.shape[1] != length or array.dtype.kind not in "iu":
        raise ValueError(f"{codes.name} must hold integers (N, {length}), got {array.dtype} {array.shape}")
    if classes.shape != (len(array),) or classes.dtype.kind not in "iu":
        raise ValueError(f"{labels.name} must hold {len(array)} integers, got {classes.dtype} {classes.shape}")
    if array.min() < 0 or array.max() >= vocab_size:
        raise ValueError(f"{codes.name}: codes must lie in 0 … {vocab_size - 1}, got {array.min()} … {array.max()}")
    return torch.from_numpy(array.astype(np.int64)), torch.from_numpy(classes.astype(np.int64))
