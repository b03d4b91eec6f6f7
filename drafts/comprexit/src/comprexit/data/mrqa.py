"""MRQA 2019: gzipped JSON lines of contexts with questions, and batches of them (section 3.5, phase 2)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..compressor import IGNORE
from ..training import Batch


class Question(NamedTuple):
    """One question on a context; `answers` are all accepted ones."""

    context: str
    question: str
    answers: tuple[str, ...]


def read_mrqa(path: str | Path, limit: int | None = None) -> list[Question]:
    """Questions of one MRQA file: a header line, then `{"context": ..., "qas": [{"question", "answers"}]}` a line.

    Arguments:
        limit: stop after so many questions.

    Raises:
        ValueError: for a line that is not of this form, naming its number, or a file without questions.
        FileNotFoundError: if it does not exist.
    """
    questions: list[Question] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                if number == 1 and "header" in record:
                    continue
                for qa in record["qas"]:
                    questions.append(Question(record["context"], qa["question"].strip(), tuple(qa["answers"])))
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not an MRQA record ({error!r})") from None
            if limit is not None and len(questions) >= limit:
                return questions[:limit]
    if not questions:
        raise ValueError(f"{path} holds no questions")
    return questions


def prompt(question: str) -> str:
    """What follows the compressed context (the paper's template)."""
    return f"Question: {question}Answer the question directly with a short span only, no explanation. Answer:"


def question_batch(tokenizer: Any, questions: Sequence[Question], max_context: int, max_answer: int = 32) -> Batch:
    """Contexts padded on the left, prompt and first answer padded on the right; loss on the answer only.

    Arguments:
        max_context: tokens of the context that are kept, its first ones.
        max_answer: tokens of the answer, its end token included.
    """
    contexts = [_ids(tokenizer, q.context)[:max_context] for q in questions]
    targets, labels = [], []
    for q in questions:
        asked = _ids(tokenizer, prompt(q.question))
        answer = [*_ids(tokenizer, " " + q.answers[0])[: max_answer - 1], tokenizer.eos_token_id]
        targets.append(asked + answer)
        labels.append([IGNORE] * len(asked) + answer)
    width = max(map(len, contexts))
    return Batch(
        torch.stack([_padded(ids, width, 0, left=True) for ids in contexts]),
        torch.stack([_padded([1] * len(ids), width, 0, left=True) for ids in contexts]),
        torch.stack([_padded(ids, max(map(len, targets)), 0) for ids in targets]),
        torch.stack([_padded(ids, max(map(len, targets)), IGNORE) for ids in labels]),
    )


def question_batches(
    tokenizer: Any, questions: Sequence[Question], batch_size: int, max_context: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Endless batches in a new random order every epoch."""
    while True:
        order = rng.permutation(len(questions))
        for start in range(0, len(order), batch_size):
            yield question_batch(tokenizer, [questions[i] for i in order[start : start + batch_size]], max_context)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _padded(values: list[int], width: int, fill: int, left: bool = False) -> Tensor:
    missing = [fill] * (width - len(values))
    return torch.tensor(missing + values if left else values + missing)
