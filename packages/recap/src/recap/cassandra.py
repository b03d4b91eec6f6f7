"""Readers of the field's file formats: Cassandra's ``.POMDP`` models and alpha-vector policies (also SARSOP's)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .pomdp import POMDP, ROW_TOLERANCE
from .value import ValueFunction

_PREAMBLE = ("discount", "values", "states", "actions", "observations", "start")
_KEYWORDS = (*_PREAMBLE, "T", "O", "R")
_SPARSE_FROM = 1_000  # states from which transitions are kept as sparse matrices


def load_pomdp(path: str | Path, gamma: float | None = None, tolerance: float = ROW_TOLERANCE) -> POMDP:
    """Read a model in Cassandra's format.

    Understood: ``discount``, ``values: reward|cost``, counts or names of ``states``/``actions``/``observations``,
    ``start`` (probabilities, one state, ``uniform``, ``include``, ``exclude``), ``T``/``O``/``R`` for single entries,
    rows and matrices with ``*``, ``identity``, ``uniform`` and ``reset``, and ``#`` comments. Later lines overwrite
    earlier ones. Rewards on (s', o) are averaged with T and Z.

    Args:
        gamma: use this discount instead of the file's; needed where the file says 1.
        tolerance: how far a row may be from summing to one. Rows within the default 1e-6 are kept as they are; rows
            that only a wider tolerance admits are rescaled, because you asked for it.

    Raises:
        ValueError: with file, line and what was expected.
        OSError: the file cannot be read.
    """
    return _Parser(Path(path), tolerance).parse(gamma)


@dataclass(frozen=True)
class _Token:
    text: str
    line: int


class _Parser:
    def __init__(self, path: Path, tolerance: float) -> None:
        self.path, self.tolerance = path, tolerance
        self.tokens: list[_Token] = []
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            words = line.split("#", 1)[0].replace(":", " : ").split()
            self.tokens += [_Token(word, number) for word in words]
        self.at = 0
        self.names: dict[str, tuple[str, ...]] = {}
        self.index: dict[str, dict[str, int]] = {}
        self.rewards: list[tuple[list[np.ndarray], list[float], int]] = []

    def fail(self, line: int, message: str) -> ValueError:
        return ValueError(f"{self.path}:{line}: {message}")

    def parse(self, gamma: float | None) -> POMDP:
        fields: dict[str, tuple[list[_Token], int]] = {}
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.text not in _KEYWORDS:
                raise self.fail(token.line, f"expected one of {', '.join(_KEYWORDS)}, got {token.text!r}")
            if token.text in ("T", "O", "R"):
                if not self.names:
                    self._declare(fields)
                self.at += 1
                self._colon()
                {"T": self._transition, "O": self._observation, "R": self._reward}[token.text]()
            else:
                if self.names:
                    raise self.fail(token.line, f"{token.text!r} must come before the first T, O or R")
                self.at += 1
                mode = []
                if token.text == "start" and self._peek() in ("include", "exclude"):
                    mode = [self._next("include or exclude")]
                self._colon()
                fields[token.text] = (mode + self._rest(), token.line)
        if not self.names:
            self._declare(fields)
        return self._build(fields, gamma)

    # Tokens -----------------------------------------------------------------------------------------------------

    def _peek(self) -> str | None:
        return self.tokens[self.at].text if self.at < len(self.tokens) else None

    def _line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 1

    def _next(self, expected: str) -> _Token:
        if self.at >= len(self.tokens):
            raise self.fail(self._line(), f"expected {expected}, got the end of the file")
        self.at += 1
        return self.tokens[self.at - 1]

    def _colon(self) -> None:
        token = self._next("':'")
        if token.text != ":":
            raise self.fail(token.line, f"expected ':', got {token.text!r}")

    def _at_keyword(self) -> bool:
        """A keyword starts a statement before a colon or at the start of a line; elsewhere a state may be called T."""
        if self._peek() not in _KEYWORDS:
            return False
        if self.at == 0 or self.tokens[self.at - 1].line < self.tokens[self.at].line:
            return True
        following = self.tokens[self.at + 1].text if self.at + 1 < len(self.tokens) else ""
        return following == ":" or (self._peek() == "start" and following in ("include", "exclude"))

    def _rest(self) -> list[_Token]:
        found = []
        while self.at < len(self.tokens) and not self._at_keyword():
            found.append(self._next("a value"))
        return found

    def _number(self, token: _Token, what: str) -> float:
        try:
            return float(token.text)
        except ValueError:
            raise self.fail(token.line, f"expected {what}, got {token.text!r}") from None

    def _numbers(self, count: int, what: str) -> np.ndarray:
        expected = f"{count} number{'s' * (count > 1)} ({what})"
        return np.array([self._number(self._next(expected), expected) for _ in range(count)])

    # Preamble ---------------------------------------------------------------------------------------------------

    def _declare(self, fields: dict[str, tuple[list[_Token], int]]) -> None:
        for kind in ("states", "actions", "observations"):
            if kind not in fields:
                raise self.fail(self._line(), f"expected '{kind}:' before the first T, O or R")
            tokens, line = fields[kind]
            if not tokens:
                raise self.fail(line, f"expected a count or names after '{kind}:'")
            if len(tokens) == 1 and re.fullmatch(r"\d+", tokens[0].text):
                names = tuple(str(i) for i in range(int(tokens[0].text)))
            else:
                names = tuple(token.text for token in tokens)
            if not names or len(set(names)) != len(names):
                raise self.fail(line, f"expected at least one of {kind}, all different")
            self.names[kind] = names
            self.index[kind] = {name: i for i, name in enumerate(names)}
        S, A, n_obs = (len(self.names[kind]) for kind in ("states", "actions", "observations"))
        self.sparse = S >= _SPARSE_FROM
        self.T: list[Any] = [sparse.lil_array((S, S)) if self.sparse else np.zeros((S, S)) for _ in range(A)]
        self.Z = np.zeros((A, S, n_obs))
        self.b0 = self._start(fields)
        self.line_T, self.line_Z = np.zeros((A, S), dtype=int), np.zeros((A, S), dtype=int)

    def _pick(self, kind: str) -> np.ndarray:
        token = self._next(f"one of {kind} or '*'")
        names = self.names[kind]
        if token.text == "*":
            return np.arange(len(names))
        if token.text in self.index[kind]:
            return np.array([self.index[kind][token.text]])
        if token.text.isdigit() and int(token.text) < len(names):
            return np.array([int(token.text)])
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise self.fail(token.line, f"unknown name {token.text!r} in {kind}; expected one of {shown} or '*'")

    # T and O ----------------------------------------------------------------------------------------------------

    def _transition(self) -> None:
        S = len(self.names["states"])

        def assign(actions: np.ndarray, rows: np.ndarray, columns: np.ndarray | slice, values: Any) -> None:
            for a in actions:
                if isinstance(values, sparse.lil_array):
                    self.T[a] = values.copy()
                    continue
                for i, s in enumerate(rows):
                    self.T[a][s, columns] = values if np.ndim(values) < 2 else values[i]

        self._kernel("states", S, assign, self.line_T)

    def _observation(self) -> None:
        def assign(actions: np.ndarray, rows: np.ndarray, columns: np.ndarray | slice, values: Any) -> None:
            for a in actions:
                for i, s in enumerate(rows):
                    self.Z[a, s, columns] = values if np.ndim(values) < 2 else values[i]

        self._kernel("observations", len(self.names["observations"]), assign, self.line_Z)

    def _kernel(self, into: str, width: int, assign: Callable[..., None], lines: np.ndarray) -> None:
        """``a : s : x p``, ``a : s`` and a row, or ``a`` and a matrix."""
        line = self.tokens[self.at - 2].line
        actions = self._pick("actions")
        rows = np.arange(len(self.names["states"]))
        if self._peek() == ":":
            self._colon()
            rows = self._pick("states")
            if self._peek() == ":":
                self._colon()
                columns = self._pick(into)
                assign(actions, rows, columns, self._probability())
            else:
                assign(actions, rows, slice(None), self._row(width, into))
        else:
            assign(actions, rows, slice(None), self._matrix(len(rows), width, into))
        lines[np.ix_(actions, rows)] = line

    def _probability(self) -> float:
        token = self._next("a probability")
        value = self._number(token, "a probability")
        if not 0 <= value <= 1:
            raise self.fail(token.line, f"expected a probability in [0, 1], got {token.text}")
        return value

    def _row(self, width: int, into: str) -> np.ndarray:
        if self._peek() == "uniform":
            self.at += 1
            return np.full(width, 1 / width)
        if self._peek() == "reset" and into == "states":
            self.at += 1
            return self.b0
        return np.array([self._probability() for _ in range(width)])

    def _matrix(self, height: int, width: int, into: str) -> np.ndarray | sparse.lil_array:
        if self._peek() in ("uniform", "reset"):
            return np.tile(self._row(width, into), (height, 1))
        if self._peek() == "identity":
            token = self._next("identity")
            if height != width:
                raise self.fail(token.line, f"expected a {height} x {width} matrix: 'identity' needs a square one")
            return sparse.eye_array(height, format="lil") if self.sparse and into == "states" else np.eye(height)
        return np.array([[self._probability() for _ in range(width)] for _ in range(height)])

    # R ----------------------------------------------------------------------------------------------------------

    def _reward(self) -> None:
        """Kept until T and O are known: rewards on (s', o) are averaged with them."""
        S, n_obs = len(self.names["states"]), len(self.names["observations"])
        line = self.tokens[self.at - 2].line
        picked = [self._pick("actions")]
        self._colon_or(line, "a start state")
        picked.append(self._pick("states"))
        for kind in ("states", "observations"):
            if self._peek() != ":":
                break
            self._colon()
            picked.append(self._pick(kind))
        count = {4: 1, 3: n_obs, 2: S * n_obs}[len(picked)]
        what = {4: "a reward", 3: "a reward for each observation", 2: "a reward for each next state and observation"}
        self.rewards.append((picked, list(self._numbers(count, what[len(picked)])), line))

    def _colon_or(self, line: int, expected: str) -> None:
        if self._peek() != ":":
            raise self.fail(line, f"expected ':' and {expected} after the action of R")
        self._colon()

    def _expected_reward(self, transitions: list) -> np.ndarray:
        A, S, n_obs = self.Z.shape
        base = np.zeros((S, A))  # reward where it does not depend on (s', o)
        special: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}  # (s, a) -> next states, rewards (n, O)
        for picked, numbers, _ in self.rewards:
            actions, states = picked[0], picked[1]
            constant = len(picked) == 4 and len(picked[2]) == S and len(picked[3]) == n_obs
            if constant:
                base[np.ix_(states, actions)] = numbers[0]
                for s, a in [key for key in special if key[0] in states and key[1] in actions]:
                    del special[s, a]
                continue
            values = np.array(numbers)
            for a in actions:
                for s in states:
                    if (s, a) not in special:
                        row = transitions[a][[s]]
                        support = np.flatnonzero(row.toarray()[0] if self.sparse else row[0])
                        special[s, a] = support, np.full((len(support), n_obs), base[s, a])
                    support, table = special[s, a]
                    if len(picked) == 4:
                        table[np.ix_(np.isin(support, picked[2]), np.isin(np.arange(n_obs), picked[3]))] = values[0]
                    elif len(picked) == 3:
                        table[np.isin(support, picked[2])] = values
                    else:
                        table[:] = values.reshape(S, n_obs)[support]
        for (s, a), (support, table) in special.items():
            row = transitions[a][[s]]
            p = (row.toarray()[0] if self.sparse else row[0])[support]
            base[s, a] = p @ (self.Z[a, support] * table).sum(axis=1)
        return base

    # The model --------------------------------------------------------------------------------------------------

    def _build(self, fields: dict[str, tuple[list[_Token], int]], gamma: float | None) -> POMDP:
        last = self.tokens[-1].line if self.tokens else 1
        if gamma is None:
            if "discount" not in fields:
                raise self.fail(last, "expected 'discount:'; or give one: load_pomdp(path, gamma=...)")
            tokens, line = fields["discount"]
            gamma = self._single(tokens, line, "a discount")
            if not 0 < gamma < 1:
                raise self.fail(
                    line,
                    f"expected a discount between 0 and 1, got {gamma:g}; override it: load_pomdp(path, gamma=...)",
                )
        sign = 1.0
        if "values" in fields:
            tokens, line = fields["values"]
            if len(tokens) != 1 or tokens[0].text not in ("reward", "cost"):
                raise self.fail(line, f"expected 'reward' or 'cost', got {' '.join(t.text for t in tokens)!r}")
            sign = -1.0 if tokens[0].text == "cost" else 1.0
        transitions: list[Any] = [sparse.csr_array(matrix) for matrix in self.T] if self.sparse else list(self.T)
        for a, name in enumerate(self.names["actions"]):
            transitions[a] = self._checked(transitions[a], self.line_T[a], f"T: {name}")
            self.Z[a] = self._checked(self.Z[a], self.line_Z[a], f"O: {name}")
        T = tuple(transitions) if self.sparse else np.stack(transitions)
        return POMDP(
            T, self.Z, sign * self._expected_reward(transitions), gamma, self.b0,
            self.names["states"], self.names["actions"], self.names["observations"],
        )  # fmt: skip

    def _checked(self, matrix: Any, lines: np.ndarray, what: str) -> Any:
        sums = np.asarray(matrix.sum(axis=1)).ravel()
        wrong = np.flatnonzero(np.abs(sums - 1) > self.tolerance * (1 + 1e-6))
        if wrong.size:
            s = int(wrong[0])
            where = int(lines[s]) or (self.tokens[-1].line if self.tokens else 1)
            given = "" if lines[s] else " (no line gives this row)"
            raise self.fail(where, f"expected {what} : {self.names['states'][s]} to sum to 1, got {sums[s]:.9g}{given}")
        if self.tolerance <= ROW_TOLERANCE:
            return matrix
        if isinstance(matrix, sparse.csr_array):
            return sparse.csr_array(sparse.diags_array(1 / sums) @ matrix)
        return matrix / sums[:, None]

    def _single(self, tokens: list[_Token], line: int, what: str) -> float:
        if len(tokens) != 1:
            raise self.fail(line, f"expected {what}, got {' '.join(t.text for t in tokens)!r}")
        return self._number(tokens[0], what)

    def _start(self, fields: dict[str, tuple[list[_Token], int]]) -> np.ndarray:
        S = len(self.names["states"])
        if "start" not in fields:
            return np.full(S, 1 / S)
        tokens, line = fields["start"]
        words = [token.text for token in tokens]
        if words and words[0] in ("include", "exclude"):
            chosen = np.zeros(S, dtype=bool)
            for token in tokens[1:]:
                chosen[self._state(token)] = True
            chosen = chosen if words[0] == "include" else ~chosen
            if not chosen.any():
                raise self.fail(line, "expected at least one start state")
            return chosen / chosen.sum()
        if words == ["uniform"]:
            return np.full(S, 1 / S)
        if len(words) == 1 and (S > 1 or words[0] in self.index["states"]):
            return np.eye(S)[self._state(tokens[0])]
        if len(words) != S:
            raise self.fail(line, f"expected {S} start probabilities, one state or 'uniform', got {len(words)} values")
        b0 = np.array([self._number(token, "a probability") for token in tokens])
        if (b0 < 0).any() or abs(b0.sum() - 1) > self.tolerance * (1 + 1e-6):
            raise self.fail(line, f"expected start probabilities that sum to 1, got {b0.sum():.9g}")
        return b0 / b0.sum() if self.tolerance > ROW_TOLERANCE else b0

    def _state(self, token: _Token) -> int:
        if token.text in self.index["states"]:
            return self.index["states"][token.text]
        if token.text.isdigit() and int(token.text) < len(self.names["states"]):
            return int(token.text)
        raise self.fail(token.line, f"unknown state {token.text!r}")


def load_policy(path: str | Path, pomdp: POMDP) -> ValueFunction:
    """Read alpha-vectors: Cassandra's ``.alpha`` (an action line, then a line of values) or SARSOP's XML ``.policy``.

    Each vector must be a lower bound of the value of a policy that starts with its action, as both solvers write them.

    Raises:
        ValueError: with file, line and what was expected.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    S = pomdp.n_states
    alphas: list[np.ndarray] = []
    actions: list[int] = []
    if text.lstrip().startswith("<"):
        try:
            root = ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise ValueError(f"{path}:{error.position[0]}: expected XML of an alpha-vector policy: {error}") from None
        for element in root.iter("Vector"):
            alphas.append(np.array((element.text or "").split(), dtype=float))
            actions.append(int(element.attrib["action"]))
        for element in root.iter("SparseVector"):
            alpha = np.zeros(S)
            for entry in element.iter("Entry"):
                state, value = (entry.text or "").split()
                alpha[int(state)] = float(value)
            alphas.append(alpha)
            actions.append(int(element.attrib["action"]))
        lines = [0] * len(alphas)
    else:
        rows = [(n, line.split()) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
        if len(rows) % 2:
            raise ValueError(f"{path}:{rows[-1][0]}: expected pairs of lines (action, then {S} values)")
        lines = [n for n, _ in rows[1::2]]
        try:
            actions = [int(words[0]) for _, words in rows[::2]]
            alphas = [np.array(words, dtype=float) for _, words in rows[1::2]]
        except ValueError as error:
            raise ValueError(f"{path}: expected an action number, then {S} values ({error})") from None
    if not alphas:
        raise ValueError(f"{path}: expected at least one alpha-vector, found none")
    for line, alpha, action in zip(lines, alphas, actions, strict=True):
        where = f"{path}:{line}" if line else str(path)
        if alpha.shape != (S,):
            raise ValueError(f"{where}: expected {S} values in a vector, got {alpha.size}")
        if not 0 <= action < pomdp.n_actions:
            raise ValueError(f"{where}: expected an action in 0..{pomdp.n_actions - 1}, got {action}")
    return ValueFunction(np.stack(alphas), np.array(actions), pomdp.b0[None])
