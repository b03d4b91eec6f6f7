"""Hypothesis spaces and counts with a known truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from kernel_fdr.counts import CountData, Values
from kernel_fdr.kernels import Kernel, Matern, diffusion, tree


@dataclass(frozen=True, eq=False)
class Space:
    """A hypothesis space with the true null probability.

    Attributes:
        alpha: null probability, shape ``(N,)``.
        kernel: a kernel that fits the space.
        locations: coordinates ``(N, d)``, or ``None`` where the kernel lists the hypotheses.
    """

    alpha: Float[np.ndarray, " hypotheses"]
    kernel: Kernel
    locations: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.alpha)


def draw_truth(
    alpha: Float[np.ndarray, " hypotheses"], rng: np.random.Generator, a: float = 0.3, b: float = 6.0
) -> tuple[Bool[np.ndarray, " hypotheses"], Float[np.ndarray, " hypotheses"]]:
    """Which hypotheses are signals, and all p-values: uniform for nulls, ``Beta(a, b)`` for signals."""
    signal = rng.random(len(alpha)) >= alpha
    return signal, np.where(signal, rng.beta(a, b, len(alpha)), rng.random(len(alpha)))


def draw_counts(
    space: Space, n: int | Int[np.ndarray, " hypotheses"], rng: np.random.Generator, a: float = 0.3, b: float = 6.0
) -> tuple[CountData, Bool[np.ndarray, " hypotheses"]]:
    """Counts with ``n`` null draws each, and which hypotheses are signals."""
    signal, p = draw_truth(space.alpha, rng, a, b)
    return CountData(rng.binomial(n, p), n, space.locations), signal


def fdp_and_power(
    rejected: Bool[np.ndarray, " hypotheses"], signal: Bool[np.ndarray, " hypotheses"]
) -> tuple[float, float]:
    """False discovery proportion (0 without rejections) and share of signals found (0 without signals)."""
    false = int((rejected & ~signal).sum())
    return false / max(1, int(rejected.sum())), int((rejected & signal).sum()) / max(1, int(signal.sum()))


def plane(side: int = 25, length_scale: float = 0.15) -> Space:
    """The 2-d benchmark: a grid on [0, 1]^2 with two smooth regions of signals; about 110 of 625 are signals."""
    axis = np.linspace(0, 1, side)
    x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))
    first = 0.9 * np.exp(-((x - 0.3) ** 2 + (y - 0.35) ** 2) / (2 * 0.15**2))
    second = 0.8 * np.exp(-((x - 0.75) ** 2 + (y - 0.7) ** 2) / (2 * 0.12**2))
    alpha = np.clip(1 - first - second, 0.02, 1)
    return Space(alpha, Matern(length_scale, 1.5, relative=False), np.column_stack([x, y]))


GRAPHS = ("grid", "barabasi_albert", "block_model", "karate")


def graph_space(name: str, seed: int = 0, beta: float = 2.0) -> Space:
    """A graph with one or two connected signal regions and its diffusion kernel.

    Args:
        name: ``"grid"`` (20 x 20), ``"barabasi_albert"`` (400 nodes), ``"block_model"`` (12 blocks of 50; two of them
            carry signals), or ``"karate"`` (34 nodes; one faction carries signals).
        seed: of the random graphs.
        beta: of the diffusion kernel.

    Raises:
        ValueError: for an unknown name.
    """
    if name == "grid":
        graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 20))
        region = _ball(graph, 20 * 6 + 6, 60)
    elif name == "barabasi_albert":
        graph = nx.barabasi_albert_graph(400, 2, seed=seed)
        region = _ball(graph, 100, 80)
    elif name == "block_model":
        sizes = [50] * 12
        within = 0.25 * np.eye(12) + 0.01 * (1 - np.eye(12))
        graph = nx.stochastic_block_model(sizes, within.tolist(), seed=seed)
        region = set(range(100))
    elif name == "karate":
        graph = nx.karate_club_graph()
        region = {node for node, faction in graph.nodes(data="club") if faction == "Officer"}
    else:
        raise ValueError(f"graph must be one of {GRAPHS}, got {name!r}")
    alpha = np.array([0.2 if node in region else 0.97 for node in graph.nodes])
    return Space(alpha, diffusion(graph, beta))


def _ball(graph: nx.Graph, centre: int, size: int) -> set[int]:
    """The ``size`` nodes nearest to the centre."""
    distance = nx.single_source_shortest_path_length(graph, centre)
    return set(sorted(distance, key=lambda node: (distance[node], node))[:size])


def tree_space(branching: int = 3, depth: int = 5, scale: float = 3.0) -> Space:
    """A balanced tree (364 nodes by default), all tested; one subtree of the root has alpha 0.4, the rest 0.97."""
    graph = nx.balanced_tree(branching, depth)
    subtree = nx.descendants(nx.bfs_tree(graph, 0), 1) | {1}
    return Space(np.array([0.4 if node in subtree else 0.97 for node in graph.nodes]), tree(graph, scale))


GEOMETRIES = ("digits", "breast_cancer", "wine")


def real_points(name: str) -> Float[np.ndarray, "n d"]:
    """Standardised features of a data set that scikit-learn carries: digits, breast_cancer or wine."""
    loaders = {"digits": load_digits, "breast_cancer": load_breast_cancer, "wine": load_wine}
    if name not in loaders:
        raise ValueError(f"data set must be one of {GEOMETRIES}, got {name!r}")
    return StandardScaler().fit_transform(loaders[name](return_X_y=True)[0])


def load_adbench(path: str | Path) -> Float[np.ndarray, "n d"]:
    """Standardised features of an ADBench file (npz with ``X`` and ``y``), downloaded by the user.

    Raises:
        ValueError: when the file lacks ``X`` or it is not a finite matrix.
    """
    with np.load(path) as archive:
        if "X" not in archive:
            raise ValueError(f"{path} has no array 'X', it has {sorted(archive)}")
        points = np.asarray(archive["X"], dtype=float)
    if points.ndim != 2 or not np.isfinite(points).all():
        raise ValueError(f"'X' of {path} must be a finite matrix, got shape {points.shape}")
    return StandardScaler().fit_transform(points)


def clustered_space(
    points: Float[np.ndarray, "n d"], rng: np.random.Generator, size: int = 450, corruption: float = 0.2
) -> Space:
    """Three mutually distant clusters of a real geometry: one of signals, two of nulls (sibling paper's protocol).

    Centres are taken greedily far from each other (in the kernel's feature space, where distance decreases with the
    kernel); each collects its nearest points. ``corruption`` of the labels are wrong: alpha is 0.2 and 0.8 for 0.2.
    """
    third = min(size, len(points)) // 3
    kernel = Matern(0.5, 1.5)
    centres = [int(rng.integers(len(points)))]
    for _ in range(2):
        centres.append(int(np.argmax(cdist(points, points[centres]).min(axis=1))))
    free = np.ones(len(points), dtype=bool)
    chosen, alpha = [], []
    for number, centre in enumerate(centres):
        distance = np.where(free, cdist(points, points[[centre]]).ravel(), np.inf)
        members = np.argsort(distance, kind="stable")[:third]
        free[members] = False
        chosen.append(members)
        alpha.append(np.full(third, corruption if number == 0 else 1 - corruption))
    return Space(np.concatenate(alpha), kernel, points[np.concatenate(chosen)])


def permuted_rows(count: int, rng: np.random.Generator) -> Int[np.ndarray, " hypotheses"]:
    """A random reassignment of hypotheses to locations."""
    return rng.permutation(count)


def swapped_rows(alpha: Values) -> Int[np.ndarray, " hypotheses"]:
    """The adversarial reassignment: the likeliest signals get the locations of the likeliest nulls."""
    order = np.argsort(np.asarray(alpha), kind="stable")
    rows = np.empty(len(order), dtype=np.int64)
    rows[order] = order[::-1]
    return rows
