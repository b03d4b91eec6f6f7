"""A user's own tables, by one call and by one command."""

import numpy as np
import pandas as pd
import pytest
from kernel_fdr import analyse_table
from kernel_fdr.cli import app
from kernel_fdr.simulate import draw_counts, graph_space, load_adbench, plane
from kernel_fdr.tables import read_counts, read_edges, read_newick
from typer.testing import CliRunner

SPACE = plane(14)
DATA, SIGNAL = draw_counts(SPACE, 60, np.random.default_rng(1))
TABLE = pd.DataFrame(
    {
        "id": [f"h{i}" for i in range(len(DATA))],
        "k": DATA.k,
        "n": DATA.n,
        "x": DATA.locations[:, 0],
        "y": DATA.locations[:, 1],
    }
)


def write(path, frame):
    frame.to_csv(path, index=False)
    return path


def test_one_call_finds_the_signals():
    result = analyse_table(TABLE, q=0.2)
    assert list(result.columns) == ["id", "k", "n", "discovery", "lfdr", "alpha", "alpha_std", "x", "y"]
    assert set(result["id"]) == set(TABLE["id"])
    found = result[result["discovery"]]
    truth = pd.Series(SIGNAL, index=TABLE["id"])
    assert len(found) >= 5
    assert truth[found["id"]].mean() > 0.6
    assert result["discovery"].is_monotonic_decreasing


def test_table_coordinates_file_and_command_agree(tmp_path):
    counts = write(tmp_path / "counts.csv", TABLE[["id", "k", "n"]])
    places = write(tmp_path / "places.csv", TABLE[["id", "x", "y"]].sample(frac=1, random_state=0))
    from_file = analyse_table(counts, coordinates=places, q=0.2, length_scale=0.3)
    assert from_file["discovery"].equals(analyse_table(TABLE, q=0.2, length_scale=0.3)["discovery"])
    out = tmp_path / "found.csv"
    arguments = [str(counts), "--coordinates", str(places), "--q", "0.2", "--length-scale", "0.3", "--out", str(out)]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert f"{int(from_file['discovery'].sum())} discoveries among {len(TABLE)}" in run.output
    pd.testing.assert_frame_equal(pd.read_csv(out), from_file, check_dtype=False)


def test_p_values_are_turned_back_into_counts(tmp_path):
    table = pd.DataFrame({"ID": ["a", "b"], "p": (np.array([3, 40]) + 1) / 51, "N": 50, "x": [0.0, 1.0]})
    assert read_counts(write(tmp_path / "p.csv", table))["k"].tolist() == [3, 40]
    table["p"] = [0.013, 0.5]
    with pytest.raises(ValueError, match=r"p = 0.013 is not \(k \+ 1\) / \(n \+ 1\)"):
        read_counts(write(tmp_path / "p.csv", table))


def test_edge_list(tmp_path):
    space = graph_space("block_model", seed=3)
    data, signal = draw_counts(space, 60, np.random.default_rng(2))
    ids = [f"g{i}" for i in range(len(data))]
    nodes = space.kernel.labels
    place = {node: i for i, node in enumerate(nodes)}
    import networkx as nx

    graph = nx.stochastic_block_model([50] * 12, (0.25 * np.eye(12) + 0.01 * (1 - np.eye(12))).tolist(), seed=3)
    edges = pd.DataFrame([(ids[place[a]], ids[place[b]]) for a, b in graph.edges], columns=["a", "b"])
    counts = write(tmp_path / "counts.csv", pd.DataFrame({"id": ids, "k": data.k, "n": data.n}))
    result = analyse_table(counts, edges=write(tmp_path / "edges.csv", edges), q=0.1)
    found = result.loc[result["discovery"], "id"]
    assert len(found) >= 10
    assert pd.Series(signal, index=ids)[found].mean() > 0.6


def test_ids_without_an_edge_are_isolated(tmp_path):
    edges = write(tmp_path / "edges.csv", pd.DataFrame({"a": ["x"], "b": ["y"], "weight": [2.5]}))
    graph = read_edges(edges, ["x", "y", "z"])
    assert set(graph.nodes) == {"x", "y", "z"}
    assert graph["x"]["y"]["weight"] == 2.5


def test_newick(tmp_path):
    path = tmp_path / "tree.nwk"
    path.write_text("((a:1,b:2)ab:0.5,c_1:3);")
    graph = read_newick(path)
    assert set(graph.nodes) == {"_inner_0", "ab", "a", "b", "c_1"}
    assert graph["ab"]["b"]["weight"] == 2.0
    assert graph["_inner_0"]["c_1"]["weight"] == 3.0
    leaves = [f"t{i}" for i in range(24)]
    path.write_text("((" + ",".join(leaves[:12]) + ")left,(" + ",".join(leaves[12:]) + ")right)root;")
    rng = np.random.default_rng(0)
    k = np.concatenate([np.zeros(12, dtype=int), rng.integers(0, 41, 12)])
    counts = write(tmp_path / "counts.csv", pd.DataFrame({"id": leaves, "k": k, "n": 40}))
    result = analyse_table(counts, newick=path, q=0.2)
    assert set(result.loc[result["discovery"], "id"]) >= set(leaves[:12])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": None}, "lacks the column 'k'"),
        ({"id": "same"}, "stands more than once"),
        ({"x": np.nan}, "missing value in column 'x', row 1"),
        ({"x": "here"}, "column 'x' is not"),
        ({"k": 0.5}, "k must hold whole numbers, got 0.5"),
        ({"k": 61}, "k must lie in 0..n, got k = 61"),
    ],
)
def test_bad_tables_end_in_one_line(tmp_path, change, message):
    table = TABLE.astype({"k": float}).assign(**{name: value for name, value in change.items() if value is not None})
    table = table.drop(columns=[name for name, value in change.items() if value is None])
    path = write(tmp_path / "counts.csv", table)
    with pytest.raises(ValueError, match=message):
        analyse_table(path)
    run = CliRunner().invoke(app, [str(path), "--out", str(tmp_path / "out.csv")])
    assert run.exit_code == 2
    assert run.output.startswith("kernel-fdr: ")
    assert run.output.count("\n") == 1


def test_bad_structures(tmp_path):
    counts = write(tmp_path / "counts.csv", TABLE[["id", "k", "n"]])
    with pytest.raises(ValueError, match="no structure"):
        analyse_table(counts)
    places = write(tmp_path / "places.csv", TABLE[["id", "x", "y"]].iloc[1:])
    with pytest.raises(ValueError, match="no row for id 'h0'"):
        analyse_table(counts, coordinates=places)
    with pytest.raises(ValueError, match="give one structure"):
        analyse_table(counts, coordinates=places, edges=places)
    bad_tree = tmp_path / "tree.nwk"
    bad_tree.write_text("((a,b")
    with pytest.raises(ValueError, match="no Newick tree"):
        read_newick(bad_tree)
    bad_tree.write_text("(a,b);")
    with pytest.raises(ValueError, match="'h0' is no item of the kernel"):
        analyse_table(counts, newick=bad_tree)
    edges = write(tmp_path / "edges.csv", pd.DataFrame({"a": ["h0"], "b": ["h1"], "weight": [-1.0]}))
    with pytest.raises(ValueError, match="weights must be positive"):
        analyse_table(counts, edges=edges)
    with pytest.raises(ValueError, match="lacks the column 'id'"):
        analyse_table(pd.DataFrame({"k": [1], "n": [2]}))


def test_command_warns_when_there_are_too_few(tmp_path):
    path = write(tmp_path / "few.csv", TABLE.iloc[:5])
    run = CliRunner().invoke(app, [str(path), "--out", str(tmp_path / "out.csv"), "--length-scale", "0.5"])
    assert run.exit_code == 0
    assert "at least 10 hypotheses" in run.output
    run = CliRunner().invoke(app, [str(path), "--out", str(tmp_path / "nowhere" / "out.csv"), "--length-scale", "0.5"])
    assert run.exit_code == 2
    assert "cannot write" in run.output


def test_adbench_file(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, X=np.random.default_rng(0).normal(5, 3, (40, 4)), y=np.zeros(40))
    points = load_adbench(path)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-12)
    np.savez(path, y=np.zeros(40))
    with pytest.raises(ValueError, match="no array 'X'"):
        load_adbench(path)
