"""Text from a Markov chain: unlimited training data with an exact reference for generative perplexity
(reconstruction)."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

ALPHABET = string.ascii_lowercase + " "


def encode_text(text: str) -> Int64[np.ndarray, " characters"]:
    """Symbols 0 … 26 of a text: lower-case letters, and one space for every run of anything else."""
    letters = "".join(c if "a" <= c <= "z" else " " for c in text.lower())
    codes = np.frombuffer(" ".join(letters.split()).encode("ascii"), dtype=np.uint8).astype(np.int64)
    return np.where(codes == ord(" "), len(ALPHABET) - 1, codes - ord("a"))


def decode_text(tokens: Integer[Tensor, " length"]) -> str:
    """Text of one sequence."""
    return "".join(ALPHABET[token] for token in tokens.tolist())


@dataclass(frozen=True)
class MarkovText:
    """A stationary Markov chain over the 27 symbols.

    Attributes:
        order: symbols of context.
        transitions: (27^order, 27) probabilities of the next symbol.
        stationary: (27^order,) stationary law of contexts, the first symbol being the slowest digit.
    """

    order: int
    transitions: Float[Tensor, "contexts symbols"]
    stationary: Float[Tensor, " contexts"]

    @classmethod
    def fit(cls, text: str, order: int = 2, smoothing: float = 1e-3) -> MarkovText:
        """Estimate the chain from a text, with `smoothing` added to each count.

        Raises:
            ValueError: for an order below 1, a smoothing that is not positive, or a text that is too short.
        """
        if order < 1 or smoothing <= 0:
            raise ValueError(f"expected order >= 1 and smoothing > 0, got {order} and {smoothing}")
        codes = encode_text(text)
        if len(codes) <= order:
            raise ValueError(f"a chain of order {order} needs a longer text than {len(codes)} letters")
        symbols = len(ALPHABET)
        windows = np.lib.stride_tricks.sliding_window_view(codes, order + 1)
        flat = windows @ symbols ** np.arange(order, -1, -1)
        counts = np.bincount(flat, minlength=symbols ** (order + 1)).reshape(-1, symbols) + smoothing
        transitions = torch.from_numpy(counts / counts.sum(1, keepdims=True))
        return cls(order, transitions, _stationary(transitions))

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return self.transitions.shape[1]

    def sample(self, n: int, length: int, generator: torch.Generator | None = None) -> Integer[Tensor, "n length"]:
        """`n` independent stretches of the stationary chain.

        Raises:
            ValueError: for a stretch that is shorter than the order.
        """
        if n < 1 or length < self.order:
            raise ValueError(f"expected n >= 1 and length >= order = {self.order}, got {n} and {length}")
        context = torch.multinomial(self.stationary, n, replacement=True, generator=generator)
        digits = [context // self.symbols**k % self.symbols for k in range(self.order - 1, -1, -1)]
        u = torch.rand(n, length, generator=generator, dtype=torch.float64)
        cumulative = self.transitions.cumsum(1)
        for position in range(self.order, length):
            below = u[:, position, None] >= cumulative[context]
            symbol = below.sum(1).clamp_max(self.symbols - 1)
            digits.append(symbol)
            context = (context * self.symbols + symbol) % len(self.transitions)
        return torch.stack(digits, dim=1)

    def nll(self, tokens: Integer[Tensor, "n length"]) -> Float[Tensor, "n length"]:
        """`-log` probability of each token given those before it (nats).

        Raises:
            ValueError: for symbols outside the alphabet.
        """
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.symbols:
            raise ValueError(
                f"symbols must lie in 0 … {self.symbols - 1}, got {int(tokens.min())} … {int(tokens.max())}"
            )
        tokens = tokens.cpu()
        law = self.stationary.reshape((self.symbols,) * self.order)
        result, before = [], torch.ones(len(tokens), dtype=torch.float64)
        for position in range(min(self.order, tokens.shape[1])):
            joint = law.reshape((self.symbols,) * (position + 1) + (-1,)).sum(-1)
            here = joint[tuple(tokens[:, : position + 1].T)]
            result.append(-(here / before).log())
            before = here
        place = self.symbols ** torch.arange(self.order - 1, -1, -1)
        if tokens.shape[1] > self.order:
            contexts = (tokens.unfold(1, self.order, 1)[:, :-1] * place).sum(-1)
            later = -self.transitions[contexts, tokens[:, self.order :]].log()
            return torch.cat((torch.stack(result, dim=1), later), dim=1)
        return torch.stack(result, dim=1)

    def entropy_rate(self) -> float:
        """`-sum pi P log P` (nats a symbol): the smallest expected nll of a long text."""
        return float((self.stationary[:, None] * torch.special.entr(self.transitions)).sum())

    def entropy_per_token(self, length: int) -> float:
        """Expected nll per token of a stretch of `length`, whose first symbols have less context (nats).

        Raises:
            ValueError: for a stretch that is shorter than the order.
        """
        if length < self.order:
            raise ValueError(f"length must be at least {self.order}, got {length}")
        start = float(torch.special.entr(self.stationary).sum())
        return (start + (length - self.order) * self.entropy_rate()) / length


def _stationary(transitions: Tensor, tolerance: float = 1e-14, limit: int = 10_000) -> Tensor:
    """Power iteration: `pi(b, c) = sum_a pi(a, b) P(c | a, b)`."""
    contexts, symbols = transitions.shape
    pi = torch.full((contexts,), 1 / contexts, dtype=transitions.dtype)
    for _ in range(limit):
        after = (pi[:, None] * transitions).view(symbols, -1, symbols).sum(0).flatten()
        if float((after - pi).abs().sum()) < tolerance:
            break
        pi = after
    return pi / pi.sum()
