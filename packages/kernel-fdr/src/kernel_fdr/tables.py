"""A user's own tables: counts, coordinates, edges and trees, and the table of discoveries.

Counts: CSV with columns ``id, k, n``; or ``id, p, n`` with Monte-Carlo p-values ``(K + 1) / (n + 1)``. All further
numeric columns are coordinates, unless an edge list or a tree gives the structure.
Edges: CSV with two columns of ids and optionally a third, ``weight`` (a protein interaction network, for one).
Tree: Newick; tested ids are names of leaves or of inner nodes.
"""

from __future__ import annotations

from pathlib import Path

import dendropy
import networkx as nx
import numpy as np
import pandas as pd
from dendropy.utility.error import DataParseError

from kernel_fdr.counts import CountData
from kernel_fdr.kernels import Kernel, Matern, diffusion, tree
from kernel_fdr.rules import KernelFDR


def _read_csv(path: str | Path, what: str) -> pd.DataFrame:
    try:
        return pd.read_csv(path, sep=None, engine="python", comment="#")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no readable table of {what}: {error}") from None


def read_counts(path: str | Path) -> pd.DataFrame:
    """Counts table with columns ``id`` (text), ``k``, ``n`` and any coordinates. Separators are guessed.

    Raises:
        ValueError: for missing columns, repeated ids, missing values, or p-values that are no multiple of 1 / (n + 1).
    """
    table = _read_csv(path, "counts").rename(columns=lambda name: str(name).strip())
    known = {name: str(name).lower() for name in table if str(name).lower() in ("id", "k", "n", "p")}
    table = table.rename(columns=known)
    if "k" not in table and {"p", "n"} <= set(table):
        count = table["p"] * (table["n"] + 1) - 1
        table["k"] = count.round()
        off = (count - table["k"]).abs() > 1e-3
        if off.any():
            raise ValueError(
                f"{path}: p = {table.loc[off, 'p'].iloc[0]} is not (k + 1) / (n + 1) for whole k; give counts"
            )
        table = table.drop(columns="p")
    missing = [name for name in ("id", "k", "n") if name not in table]
    if missing:
        raise ValueError(f"{path} lacks the column {missing[0]!r}; it has {list(table.columns)}")
    if table.isna().any(axis=None):
        column = table.columns[table.isna().any()][0]
        raise ValueError(f"{path}: missing value in column {column!r}, row {int(table[column].isna().argmax()) + 1}")
    table["id"] = table["id"].astype(str)
    if table["id"].duplicated().any():
        raise ValueError(f"{path}: id {table.loc[table['id'].duplicated(), 'id'].iloc[0]!r} stands more than once")
    return table


def read_locations(path: str | Path, ids: list[str]) -> np.ndarray:
    """Coordinates of the listed ids, shape ``(N, d)``, from a CSV with the column ``id`` and numeric columns.

    Raises:
        ValueError: for ids without a row or columns that are not numeric.
    """
    table = _read_csv(path, "locations")
    if "id" not in table:
        raise ValueError(f"{path} lacks the column 'id'; it has {list(table.columns)}")
    table = table.set_index(table["id"].astype(str)).drop(columns="id")
    unknown = [item for item in ids if item not in table.index]
    if unknown:
        raise ValueError(f"{path} has no row for id {unknown[0]!r} ({len(unknown)} missing in all)")
    return _numeric(table.loc[ids], path)


def _numeric(table: pd.DataFrame, path: str | Path) -> np.ndarray:
    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if text:
        raise ValueError(f"{path}: coordinates must be numbers, column {text[0]!r} is not")
    return table.to_numpy(dtype=float)


def read_edges(path: str | Path, ids: list[str] | None = None) -> nx.Graph:
    """Undirected graph from an edge list; ids without an edge become isolated nodes.

    Raises:
        ValueError: for fewer than two columns or weights that are not positive numbers.
    """
    table = _read_csv(path, "edges")
    if table.shape[1] < 2:
        raise ValueError(f"{path} needs two columns of ids and optionally a weight, it has {list(table.columns)}")
    source, target = (table.iloc[:, column].astype(str) for column in (0, 1))
    weight = table["weight"] if "weight" in table else pd.Series(1.0, index=table.index)
    if not pd.api.types.is_numeric_dtype(weight) or not (weight > 0).all():
        raise ValueError(f"{path}: weights must be positive numbers")
    graph = nx.Graph()
    graph.add_nodes_from(ids or [])
    graph.add_weighted_edges_from(zip(source, target, weight.astype(float), strict=True))
    return graph


def read_newick(path: str | Path) -> nx.Graph:
    """Tree from a Newick file (dendropy). Nodes are labels; unlabelled inner nodes get numbers; length 1 where missing.

    Raises:
        ValueError: when the file is no Newick tree, or labels repeat.
    """
    try:
        parsed = dendropy.Tree.get(path=str(path), schema="newick", preserve_underscores=True)
    except (ValueError, DataParseError) as error:
        raise ValueError(f"{path} is no Newick tree: {error}") from None
    graph = nx.Graph()
    name: dict[dendropy.Node, str] = {}
    for number, node in enumerate(parsed.preorder_node_iter()):
        label = node.taxon.label if node.taxon else node.label
        name[node] = label or f"_inner_{number}"
        if name[node] in graph:
            raise ValueError(f"{path}: label {name[node]!r} stands more than once")
        graph.add_node(name[node])
        if node.parent_node is not None:
            length = 1.0 if node.edge.length is None else float(node.edge.length)
            graph.add_edge(name[node.parent_node], name[node], weight=length)
    return graph


def analyse_table(
    counts: str | Path | pd.DataFrame,
    coordinates: str | Path | None = None,
    edges: str | Path | None = None,
    newick: str | Path | None = None,
    q: float = 0.1,
    rule: str = "mirror",
    stretch: int = 1,
    length_scale: float | None = None,
    beta: float = 2.0,
    scale: float | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Analyse a table of counts in one call.

    Args:
        counts: a CSV (see the module) or a data frame with ``id``, ``k``, ``n``.
        coordinates, edges, newick: file with the structure; at most one. Without any, further columns of ``counts``
            are coordinates.
        q, rule, stretch: as in :class:`kernel_fdr.KernelFDR`.
        length_scale: of the Matern kernel, in multiples of the median distance; ``None`` chooses by cross-validation.
        beta: of the graph's diffusion kernel.
        scale: of the tree kernel, in units of branch length; ``None`` takes three mean branch lengths.
        random_state: seed.

    Returns:
        One row a hypothesis, discoveries first: ``id, k, n, discovery, lfdr, alpha, alpha_std`` and the coordinates.

    Raises:
        ValueError: for unreadable tables, several structures or none, or ids that the structure lacks.
    """
    table = counts.copy() if isinstance(counts, pd.DataFrame) else read_counts(counts)
    missing = [name for name in ("id", "k", "n") if name not in table]
    if missing:
        raise ValueError(f"the table of counts lacks the column {missing[0]!r}; it has {list(table.columns)}")
    given = [name for name, path in (("coordinates", coordinates), ("edges", edges), ("newick", newick)) if path]
    if len(given) > 1:
        raise ValueError(f"give one structure, got {' and '.join(given)}")
    ids = table["id"].astype(str).tolist()
    kernel: Kernel | list[Kernel]
    if edges is not None:
        kernel, locations = diffusion(read_edges(edges, ids), beta), np.array(ids, dtype=object)
    elif newick is not None:
        graph = read_newick(newick)
        unit = float(np.mean([length for _, _, length in graph.edges(data="weight")] or [1.0]))
        kernel, locations = tree(graph, 3 * unit if scale is None else scale), np.array(ids, dtype=object)
    else:
        extra = table.drop(columns=["id", "k", "n"])
        if coordinates is None and extra.empty:
            raise ValueError("no structure: add coordinate columns to the counts, or give coordinates, edges or a tree")
        source = "the table of counts" if isinstance(counts, pd.DataFrame) else counts
        locations = _numeric(extra, source) if coordinates is None else read_locations(coordinates, ids)
        lengths = (0.1, 0.25, 0.5, 1.0) if length_scale is None else (length_scale,)
        kernel = [Matern(length, 1.5) for length in lengths]
    data = CountData(table["k"].to_numpy(), table["n"].to_numpy(), locations)
    model = KernelFDR(kernel, q=q, rule=rule, stretch=stretch, random_state=random_state).fit(data)
    result = table.assign(
        discovery=model.rejected_, lfdr=model.lfdr_, alpha=model.prior_.alpha_, alpha_std=model.prior_.alpha_std()
    )
    result = result.sort_values(["discovery", "lfdr"], ascending=[False, True], kind="stable").reset_index(drop=True)
    first = ["id", "k", "n", "discovery", "lfdr", "alpha", "alpha_std"]
    return result[first + [name for name in result if name not in first]]
