"""SQuAD's exact match and token F1 (lower case, without punctuation and articles; best over references)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> list[str]:
    """Words of an answer as SQuAD compares them."""
    text = answer.lower().translate(_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def exact_match(prediction: str, references: Sequence[str]) -> float:
    """1 if the prediction equals a reference, else 0.

    Raises:
        ValueError: without references.
    """
    return max(float(normalise(prediction) == normalise(reference)) for reference in _some(references))


def token_f1(prediction: str, references: Sequence[str]) -> float:
    """Harmonic mean of the precision and recall of words, best over references.

    Raises:
        ValueError: without references.
    """
    return max(_f1(normalise(prediction), normalise(reference)) for reference in _some(references))


def _f1(predicted: list[str], expected: list[str]) -> float:
    if not predicted or not expected:
        return float(predicted == expected)
    common = (Counter(predicted) & Counter(expected)).total()
    return 2 * common / (len(predicted) + len(expected))


def _some(references: Sequence[str]) -> Sequence[str]:
    if not references:
        raise ValueError("a score needs at least one reference answer, got none")
    return references
