"""Eleven classic POMDPs, built by rule (no files are shipped).

The list of eleven is our choice (reconstruction: the abstract does not name the paper's). Rules are those of the public
models of Cassandra's collection and of the literature; where an original is undiscounted, gamma is 0.95.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .pomdp import POMDP

_MOVES = {"north": (-1, 0), "south": (1, 0), "east": (0, 1), "west": (0, -1)}


def tiger(accuracy: float = 0.85, gamma: float = 0.95) -> POMDP:
    """Kaelbling, Littman and Cassandra's tiger: listen, or open one of two doors."""
    T = np.full((3, 2, 2), 0.5)
    T[0] = np.eye(2)
    Z = np.full((3, 2, 2), 0.5)
    Z[0] = [[accuracy, 1 - accuracy], [1 - accuracy, accuracy]]
    r = np.array([[-1.0, -100.0, 10.0], [-1.0, 10.0, -100.0]])
    return POMDP(
        T, Z, r, gamma, np.full(2, 0.5), ("tiger-left", "tiger-right"),
        ("listen", "open-left", "open-right"), ("hear-left", "hear-right"),
    )  # fmt: skip


def one_d(gamma: float = 0.75) -> POMDP:
    """Four cells in a row, the goal third; only the goal is seen."""
    L, M, R, G = range(4)
    T = np.zeros((2, 4, 4))
    for a, moves in enumerate(({L: L, M: L, R: G}, {L: M, M: G, R: R})):
        for s, following in moves.items():
            T[a, s, following] = 1.0
        T[a, G, [L, M, R]] = 1 / 3
    Z = np.zeros((2, 4, 2))
    Z[:, :G, 0] = 1.0
    Z[:, G, 1] = 1.0
    r = T[:, :, G].T
    return POMDP(
        T, Z, r, gamma, np.full(4, 0.25), ("left", "middle", "right", "goal"), ("west", "east"), ("nothing", "goal")
    )


def maze_4x3(variant: str = "rule", gamma: float = 0.95) -> POMDP:
    """Russell's 4x3 maze. ``variant="cassandra"`` keeps the oddity of the public file (action east in state 9)."""
    if variant not in ("rule", "cassandra"):
        raise ValueError(f"variant must be 'rule' or 'cassandra', got {variant!r}")
    cells = [(y, x) for y in range(3) for x in range(4) if (y, x) != (1, 1)]
    number = {cell: i for i, cell in enumerate(cells)}
    sides = {"north": ("east", "west"), "east": ("north", "south")}
    slip = {**sides, "south": sides["north"], "west": sides["east"]}
    plus, minus = 3, 6
    others = [s for s in range(11) if s not in (plus, minus)]
    actions = ("north", "south", "east", "west")

    def move(cell: tuple[int, int], direction: str) -> int:
        dy, dx = _MOVES[direction]
        return number.get((cell[0] + dy, cell[1] + dx), number[cell])

    T = np.zeros((4, 11, 11))
    for a, name in enumerate(actions):
        for s, cell in enumerate(cells):
            if s in (plus, minus):
                T[a, s, others] = 1 / 9
                continue
            T[a, s, move(cell, name)] += 0.8
            for side in slip[name]:
                T[a, s, move(cell, side)] += 0.1
    if variant == "cassandra":
        T[2, 9, 9] -= 0.1
        T[2, 9, 8] += 0.1
    seen = np.empty(11, dtype=int)
    for s, (y, x) in enumerate(cells):
        left, right = (y, x - 1) not in number, (y, x + 1) not in number
        seen[s] = {(True, False): 0, (False, True): 1, (False, False): 2, (True, True): 3}[left, right]
    seen[plus], seen[minus] = 4, 5
    r = np.full((11, 4), -0.04)
    r[plus], r[minus] = 1.0, -1.0
    b0 = np.zeros(11)
    b0[others] = 1 / 9
    return POMDP(T, _seen(seen, 4, 6), r, gamma, b0, (), actions, ("left", "right", "neither", "both", "good", "bad"))


def cheese(gamma: float = 0.95) -> POMDP:
    """McCallum's cheese maze: three legs below a corridor, the cheese at the end of the middle one."""
    corridor = [(i, "east", i + 1) for i in range(4)]
    legs = [(0, "south", 5), (5, "south", 8), (2, "south", 6), (6, "south", 10), (4, "south", 7), (7, "south", 9)]
    seen = np.array([0, 1, 2, 1, 3, 4, 4, 4, 5, 5, 6])
    return _goal_maze(11, 10, corridor + legs, seen, gamma)


def maze_4x4(gamma: float = 0.95) -> POMDP:
    """A 4x4 room without landmarks; only the goal in the corner is seen."""
    edges = [(4 * y + x, "east", 4 * y + x + 1) for y in range(4) for x in range(3)]
    edges += [(4 * y + x, "south", 4 * y + x + 4) for y in range(3) for x in range(4)]
    return _goal_maze(16, 15, edges, (np.arange(16) == 15).astype(int), gamma)


def _goal_maze(n: int, goal: int, edges: list[tuple[int, str, int]], seen: np.ndarray, gamma: float) -> POMDP:
    """A deterministic maze; arriving at the goal pays 1, and leaving it ends anywhere else."""
    actions = ("north", "south", "east", "west")
    opposite = {"east": "west", "south": "north"}
    T = np.tile(np.eye(n), (4, 1, 1))
    for s, direction, following in edges:
        T[actions.index(direction), s] = np.eye(n)[following]
        T[actions.index(opposite[direction]), following] = np.eye(n)[s]
    elsewhere = np.full(n, 1 / (n - 1))
    elsewhere[goal] = 0.0
    T[:, goal] = elsewhere
    return POMDP(T, _seen(seen, 4, int(seen.max()) + 1), T[:, :, goal].T, gamma, elsewhere, (), actions)


def shuttle(gamma: float = 0.95) -> POMDP:
    """Chrisman's space shuttle between two stations, docking backwards."""
    forward, turn, back = 0, 1, 2
    T = np.zeros((3, 8, 8))
    for s, following in enumerate((1, 4, 5, 6, 1, 2, 3, 1)):
        T[turn, s, following] = 1.0
    for s, following in enumerate((4, 1, 1, 2, 5, 6, 6, 4)):
        T[forward, s, following] = 1.0
    backup = (
        {7: 1.0}, {1: 0.4, 2: 0.3, 4: 0.3}, {2: 0.1, 3: 0.8, 6: 0.1}, {0: 0.7, 3: 0.3},
        {4: 0.3, 7: 0.7}, {1: 0.1, 4: 0.8, 5: 0.1}, {3: 0.3, 5: 0.3, 6: 0.4}, {7: 1.0},
    )  # fmt: skip
    for s, law in enumerate(backup):
        for following, p in law.items():
            T[back, s, following] = p
    Z = np.zeros((3, 8, 5))
    for s, law in enumerate(({4: 1}, {1: 1}, {1: 0.7, 3: 0.3}, {3: 1}, {3: 1}, {0: 0.7, 3: 0.3}, {0: 1}, {2: 1})):
        for o, p in law.items():
            Z[:, s, o] = p
    r = np.zeros((8, 3))
    r[[1, 6], forward] = -3.0
    r[3, back] = 10 * T[back, 3, 0]
    return POMDP(
        T, Z, r, gamma, np.eye(8)[7], (), ("forward", "turn-around", "backup"),
        ("sees-LRV", "sees-MRV", "docked-MRV", "nothing", "docked-LRV"),
    )  # fmt: skip


def parr95(gamma: float = 0.95) -> POMDP:
    """Parr and Russell's 1995 example: which of two hidden branches was entered shows only by going round."""
    names = ("I", "hiA", "loA", "C", "D", "plus", "minus")
    moves = {
        "hiA": ("C", "minus", "plus"), "loA": ("D", "plus", "minus"), "C": ("hiA", "I", "I"), "D": ("loA", "I", "I"),
        "plus": ("I", "I", "I"), "minus": ("I", "I", "I"),
    }  # fmt: skip
    T = np.zeros((3, 7, 7))
    T[:, 0, 1:3] = 0.5
    for state, following in moves.items():
        for a in range(3):
            T[a, names.index(state), names.index(following[a])] = 1.0
    r = np.zeros((7, 3))
    r[names.index("plus")] = 2.0
    seen = np.array([0, 1, 1, 2, 3, 4, 5])
    return POMDP(T, _seen(seen, 3, 6), r, gamma, np.eye(7)[0], names, ("a", "b", "c"), ("I", "A", "C", "D", "+", "-"))


def cheng_d3_5(gamma: float = 0.95) -> POMDP:
    """Cheng's random problem D3-5: three states, three actions, three noisy observations (originally gamma .999)."""
    T = [
        [[0.445, 0.222, 0.333], [0.5, 0.173, 0.327], [0.204, 0.553, 0.243]],
        [[0.234, 0.064, 0.702], [0.549, 0.218, 0.233], [0.061, 0.466, 0.473]],
        [[0.535, 0.313, 0.152], [0.114, 0.87, 0.016], [0.325, 0.36, 0.315]],
    ]
    Z = [
        [[0.686, 0.182, 0.132], [0.138, 0.786, 0.076], [0.279, 0.083, 0.638]],
        [[0.698, 0.131, 0.171], [0.283, 0.624, 0.093], [0.005, 0.202, 0.793]],
        [[0.567, 0.234, 0.199], [0.243, 0.641, 0.116], [0.186, 0.044, 0.77]],
    ]
    r = [[5.2, 0.8, 9.0], [4.6, 6.8, 9.3], [4.1, 6.9, 0.8]]
    return POMDP(np.array(T), np.array(Z), np.array(r), gamma, np.full(3, 1 / 3))


def ejs1(gamma: float = 0.95) -> POMDP:
    """Sondik's machine maintenance as in Cassandra's ejs1: manufacture, examine, inspect or replace."""
    decay = np.array([[0.81, 0.18, 0.01], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    renewed = np.tile([1.0, 0.0, 0.0], (3, 1))
    Z = np.zeros((4, 3, 2))
    Z[:, :, 0] = 1.0
    Z[1] = [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]
    r = np.stack([decay @ [1.0, 0.5, 0.25], decay @ [0.75, 0.25, 0.0], [-0.5, -1.5, -2.5], [-2.0, -2.0, -2.0]], axis=1)
    return POMDP(
        np.stack([decay, decay, renewed, renewed]), Z, r, gamma, np.eye(3)[0],
        ("good", "one-bad", "two-bad"), ("manufacture", "examine", "inspect", "replace"), ("good", "defective"),
    )  # fmt: skip


def light_maze(gamma: float = 0.95) -> POMDP:
    """A T-maze whose sign can be read at the start, made continuing (reconstruction after Littman's tutorial)."""
    start, branch, left, right = range(4)
    forward, go_left, go_right, lookup = range(4)
    bits = (right, left)  # which arm pays
    T = np.tile(np.eye(8), (4, 1, 1))
    r = np.zeros((8, 4))
    for k, good in enumerate(bits):
        place = lambda p, k=k: 4 * k + p  # noqa: E731
        T[forward, place(start)] = np.eye(8)[place(branch)]
        T[go_left, place(branch)] = np.eye(8)[place(left)]
        T[go_right, place(branch)] = np.eye(8)[place(right)]
        for arm in (left, right):
            T[forward, place(arm)] = 0.5 * (np.eye(8)[start] + np.eye(8)[4 + start])
            r[place(arm), forward] = 1.0 if arm == good else -1.0
    Z = _seen(np.tile(np.arange(4), 2), 4, 6)
    Z[lookup, start] = np.eye(6)[4]
    Z[lookup, 4 + start] = np.eye(6)[5]
    b0 = np.zeros(8)
    b0[[start, 4 + start]] = 0.5
    states = tuple(f"{place}/{bit}" for bit in ("right", "left") for place in ("start", "branch", "left", "right"))
    return POMDP(
        T, Z, r, gamma, b0, states, ("forward", "left", "right", "lookup"),
        ("start", "branch", "left", "right", "sign-right", "sign-left"),
    )  # fmt: skip


def rocksample(
    size: int = 3, rocks: tuple[tuple[int, int], ...] = ((0, 0), (1, 2)), start: tuple[int, int] = (0, 1),
    half_distance: float = 20.0, gamma: float = 0.95,
) -> POMDP:  # fmt: skip
    """RockSample (Smith and Simmons, 2004). Default: 3x3 with two rocks; leaving to the east ends and pays 10."""
    n_rocks, combos = len(rocks), 2 ** len(rocks)
    end = size * size * combos
    index = lambda x, y, good: (x * size + y) * combos + good  # noqa: E731
    actions = ("north", "south", "east", "west", "sample", *(f"check{i}" for i in range(n_rocks)))
    T = np.zeros((len(actions), end + 1, end + 1))
    Z = np.zeros((len(actions), end + 1, 2))
    Z[:, :, 0] = 1.0
    r = np.zeros((end + 1, len(actions)))
    T[:, end, end] = 1.0
    for x in range(size):
        for y in range(size):
            for good in range(combos):
                s = index(x, y, good)
                for a, (dx, dy) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
                    if x + dx == size:
                        T[a, s, end], r[s, a] = 1.0, 10.0
                    else:
                        T[a, s, index(min(max(x + dx, 0), size - 1), min(max(y + dy, 0), size - 1), good)] = 1.0
                if (x, y) in rocks:
                    bit = 1 << rocks.index((x, y))
                    r[s, 4] = 10.0 if good & bit else -10.0
                    T[4, s, index(x, y, good & ~bit)] = 1.0
                else:
                    r[s, 4] = -100.0
                    T[4, s, s] = 1.0
                for i, (rx, ry) in enumerate(rocks):
                    T[5 + i, s, s] = 1.0
                    correct = 0.5 * (1 + 2 ** (-np.hypot(x - rx, y - ry) / half_distance))
                    Z[5 + i, s, 1] = correct if good >> i & 1 else 1 - correct
                    Z[5 + i, s, 0] = 1 - Z[5 + i, s, 1]
    b0 = np.zeros(end + 1)
    b0[[index(*start, good) for good in range(combos)]] = 1 / combos
    return POMDP(T, Z, r, gamma, b0, (), actions, ("bad", "good"))


def _seen(observation: np.ndarray, n_actions: int, n_observations: int) -> np.ndarray:
    """Z of a sensor that shows ``observation[s']`` whatever the action."""
    return np.tile(np.eye(n_observations)[observation], (n_actions, 1, 1))


_RULES: dict[str, Callable[..., POMDP]] = {
    "tiger": tiger, "1d": one_d, "4x3": maze_4x3, "cheese": cheese, "4x4": maze_4x4, "shuttle": shuttle,
    "parr95": parr95, "cheng.D3-5": cheng_d3_5, "ejs1": ejs1, "light-maze": light_maze, "rocksample-3-2": rocksample,
}  # fmt: skip

BENCHMARKS: tuple[str, ...] = tuple(_RULES)
"""Names of the eleven models."""


def benchmarks(name: str, **parameters) -> POMDP:
    """The classic model called ``name`` (one of :data:`BENCHMARKS`); ``parameters`` go to its rule.

    Raises:
        ValueError: there is no such model.
    """
    if name not in _RULES:
        raise ValueError(f"unknown benchmark {name!r}; expected one of {', '.join(BENCHMARKS)}")
    return _RULES[name](**parameters)
