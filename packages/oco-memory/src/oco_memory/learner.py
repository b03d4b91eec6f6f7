"""The protocol of every learner: `play()` gives the decision of this round, `update(loss)` takes what was revealed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float

from .losses import MemoryLoss, require_memory
from .sets import DecisionSet


class Learner(ABC):
    """A learner for losses of the last `memory` decisions; keeps O(m d) of history, whatever the horizon.

    The first m - 1 rounds play x_1 and count nothing: windows reach back to x_1 and learning starts in round m.
    `update(None)` is a round without a loss; it changes no decision.

    Attributes:
        round_: rounds finished.
        cumulative_unary_: sum of f~_t(x_t) over the rounds learnt from.
    """

    def __init__(self, decision_set: DecisionSet, memory: int) -> None:
        self.decision_set, self.memory = decision_set, require_memory(memory)
        self.round_ = 0
        self.cumulative_unary_ = 0.0

    def _start(self, x: np.ndarray) -> None:
        self._x = np.asarray(x, dtype=float)
        self._window = np.repeat(self._x[None], self.memory, axis=0)

    def play(self) -> Float[np.ndarray, " d"]:
        """The decision x_t of the current round."""
        return self._x

    @property
    def window(self) -> Float[np.ndarray, "m d"]:
        """z_t: the last m decisions, oldest first, the current one last."""
        return self._window

    def update(self, loss: MemoryLoss | None) -> None:
        """Learn from the loss of the current round and move to the next.

        Raises:
            ValueError: the loss has another memory, or its value is negative, infinite or NaN (the round is named).
        """
        self.round_ += 1
        if loss is not None:
            if loss.memory != self.memory:
                raise ValueError(
                    f"round {self.round_}: the loss has memory {loss.memory}, the learner has {self.memory}"
                )
            if self.round_ >= self.memory:
                self._x = self._learn(loss)
        self._window[:-1] = self._window[1:]
        self._window[-1] = self._x

    @abstractmethod
    def _learn(self, loss: MemoryLoss) -> np.ndarray:
        """The next decision; adds this round's unary loss to `cumulative_unary_`."""
