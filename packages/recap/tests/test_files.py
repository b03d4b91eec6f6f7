"""Reading models and policies, the command line, and a user's model in the reproduction."""

import json
import re

import numpy as np
import pytest
from recap import BENCHMARKS, benchmarks, load_policy, load_pomdp
from recap.cli import app
from recap.reproduce import paper
from typer.testing import CliRunner

TIGER = """\
# two doors
discount: 0.95
values: reward
states: tiger-left tiger-right
actions: listen open-left open-right
observations: hear-left hear-right
start: uniform

T: listen
identity
T: open-left
uniform
T: open-right : *
0.5 0.5
O: * : *
uniform
O: listen : tiger-left : hear-left 0.85
O: listen : tiger-left : hear-right 0.15
O: listen : 1
0.15 0.85
R: listen : * : * : * -1
R: open-left : tiger-left : * : * -100
R: open-left : tiger-right : * : * 10
R: open-right : tiger-left : * : * 10
R: 2 : tiger-right : * : * -100
"""


@pytest.fixture
def write(tmp_path):
    def make(text: str, name: str = "model.POMDP"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


def as_text(pomdp) -> str:
    """A model written out in full, rewards on arrival included."""
    lines = [f"discount: {pomdp.gamma}", "values: reward", f"states: {pomdp.n_states}", f"actions: {pomdp.n_actions}"]
    lines += [f"observations: {pomdp.n_observations}", "start: " + " ".join(map(repr, map(float, pomdp.b0)))]
    for a in range(pomdp.n_actions):
        lines += [f"T: {a}"] + [" ".join(map(repr, map(float, row))) for row in pomdp.T[a]]
        lines += [f"O: {a}"] + [" ".join(map(repr, map(float, row))) for row in pomdp.Z[a]]
        lines += [f"R: {a} : {s} : * : * {float(pomdp.r[s, a])!r}" for s in range(pomdp.n_states)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_models_survive_writing_and_reading(name, write):
    model = benchmarks(name)
    read = load_pomdp(write(as_text(model)))
    for field in ("T", "Z", "r", "b0"):
        assert getattr(read, field) == pytest.approx(getattr(model, field), abs=1e-12)
    assert read.gamma == model.gamma


def test_tiger_with_wildcards_and_overwriting(write):
    model, read = benchmarks("tiger"), load_pomdp(write(TIGER))
    assert read.states == ("tiger-left", "tiger-right")
    for field in ("T", "Z", "r", "b0"):
        assert getattr(read, field) == pytest.approx(getattr(model, field), abs=1e-12)


def test_rewards_on_arrival_and_observation_are_averaged(write):
    text = """\
discount: 0.9
values: cost
states: a b
actions: go
observations: x y
start: a
T: go
0.25 0.75
reset
O: go
0.5 0.5
0.2 0.8
R: go : a : * : * 1
R: go : a : b : y 5
R: go : b
1 2
3 4
R: go : b : a
7 8
"""
    text = text.replace("reset\n", "1 0\n")
    read = load_pomdp(write(text))
    # a: to a (.25) pays 1; to b (.75) pays .2 * 1 + .8 * 5; costs are negative rewards
    assert read.r[0, 0] == pytest.approx(-(0.25 + 0.75 * (0.2 + 0.8 * 5)))
    assert read.r[1, 0] == pytest.approx(-(0.5 * 7 + 0.5 * 8))
    assert read.b0.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [("start: 1", [0, 1]), ("start: tiger-left", [1, 0]), ("start: 0.3 0.7", [0.3, 0.7]),
     ("start: uniform", [0.5, 0.5]), ("start include: tiger-right", [0, 1]), ("start exclude: tiger-right", [1, 0]),
     ("", [0.5, 0.5])],
)  # fmt: skip
def test_starts(line, expected, write):
    assert load_pomdp(write(TIGER.replace("start: uniform", line))).b0.tolist() == pytest.approx(expected)


def test_reset_row_is_the_start_belief(write):
    text = TIGER.replace("start: uniform", "start: 0.3 0.7").replace("0.5 0.5\n", "reset\n")
    assert load_pomdp(write(text)).T[2] == pytest.approx(np.array([[0.3, 0.7], [0.3, 0.7]]))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("0.5 0.5\n", "0.5 0.4\n", 13, "expected T: open-right : tiger-left to sum to 1, got 0.9"),
        ("hear-right 0.15", "hear-right 0.25", 18, "expected O: listen : tiger-left to sum to 1, got 1.1"),
        ("R: listen :", "R: lisen :", 21, "unknown name 'lisen' in actions; expected one of listen, open-left"),
        ("O: listen : 1\n", "O: listen : 2\n", 19, "unknown name '2' in states"),
        ("0.15 0.85\n", "0.15 x\n", 20, "expected a probability, got 'x'"),
        ("hear-left 0.85", "hear-left 1.85", 17, "expected a probability in [0, 1], got 1.85"),
        ("T: listen\n", "T listen\n", 9, "expected ':', got 'listen'"),
        ("values: reward", "values: profit", 3, "expected 'reward' or 'cost', got 'profit'"),
        ("discount: 0.95", "discount: 1.0", 2, "expected a discount between 0 and 1, got 1; override it"),
        ("discount: 0.95", "discont: 0.95", 2, "expected one of discount, values"),
        ("start: uniform", "start: 0.5 0.4", 7, "expected start probabilities that sum to 1, got 0.9"),
        ("start: uniform", "start: 0.5 0.4 0.1", 7, "expected 2 start probabilities, one state or 'uniform', got 3"),
        ("start: uniform", "start: nowhere", 7, "unknown state 'nowhere'"),
        ("states: tiger-left tiger-right", "states: tiger tiger", 4, "expected at least one of states, all different"),
        ("observations: hear-left hear-right\n", "", 8, "expected 'observations:' before the first T, O or R"),
    ],
)
def test_errors_name_file_line_and_expectation(old, new, line, message, write):
    path = write(TIGER.replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(f"{path}:{line}: {message}")):
        load_pomdp(path)


def test_missing_rows_and_cut_files_are_refused(write):
    with pytest.raises(
        ValueError, match=r"expected T: open-left : tiger-left to sum to 1, got 0 \(no line gives this row\)"
    ):
        load_pomdp(write(TIGER.replace("T: open-left\nuniform\n", "")))
    with pytest.raises(ValueError, match=r"expected 1 number \(a reward\), got the end of the file"):
        load_pomdp(write(TIGER.rsplit(" ", 1)[0]))


def test_discount_and_row_tolerance_are_explicit(write):
    path = write(TIGER.replace("discount: 0.95", "discount: 1.0"))
    assert load_pomdp(path, gamma=0.9).gamma == 0.9
    loose = write(TIGER.replace("0.15 0.85", "0.15 0.8499"))
    with pytest.raises(ValueError, match=r"got 0\.9999"):
        load_pomdp(loose)
    assert load_pomdp(loose, tolerance=1e-3).Z.sum(axis=2) == pytest.approx(np.ones((3, 2)))


def test_many_states_are_kept_sparse(write, monkeypatch):
    n = 40
    monkeypatch.setattr("recap.cassandra._SPARSE_FROM", n)
    lines = ["discount: 0.9", "values: reward", f"states: {n}", "actions: 2", "observations: 1", "start: 0", "T: 0"]
    lines += ["identity", "O: *", "uniform", "R: 1 : * : 0 : * 2.0"]
    lines += [f"T: 1 : {s} : {(s + 1) % n} 1.0" for s in range(n)]
    pomdp = load_pomdp(write("\n".join(lines)))
    assert isinstance(pomdp.T, tuple)
    assert pomdp.T[1].nnz == n
    assert pomdp.r[n - 1].tolist() == [0.0, 2.0]
    from recap import constant_controller, solve

    vf = solve(pomdp, n_beliefs=20, rounds=1)
    assert vf.value(pomdp.b0) >= constant_controller(pomdp).value(pomdp) - 1e-9


def test_policies_of_both_formats(write, solved):
    pomdp, vf = solved("tiger")
    pairs = list(zip(vf.actions.tolist(), vf.alphas.tolist(), strict=True))
    alpha = "\n".join(f"{a}\n{v[0]!r} {v[1]!r}\n" for a, v in pairs)
    read = load_policy(write(alpha, "tiger.alpha"), pomdp)
    assert read.value(pomdp.b0) == pytest.approx(vf.value(pomdp.b0))
    vectors = "".join(
        f'<Vector action="{a}" obsValue="0">{v[0]!r} {v[1]!r} </Vector>'
        for a, v in zip(vf.actions.tolist(), vf.alphas.tolist(), strict=True)
    )
    xml = f'<?xml version="1.0"?><Policy><AlphaVector vectorLength="2">{vectors}</AlphaVector></Policy>'
    assert load_policy(write(xml, "tiger.policy"), pomdp).alphas == pytest.approx(read.alphas)
    with pytest.raises(ValueError, match=re.escape("bad.alpha:2: expected 2 values in a vector, got 3")):
        load_policy(write("0\n1 2 3\n", "bad.alpha"), pomdp)
    with pytest.raises(ValueError, match=re.escape("bad.alpha:2: expected an action in 0..2, got 7")):
        load_policy(write("7\n1 2\n", "bad.alpha"), pomdp)


def test_command_line(write, tmp_path):
    result = CliRunner().invoke(app, [str(write(TIGER)), "--memory", "5", "--output", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    assert "optimal value with unlimited memory: 19.3714 to 19.3714" in result.output
    saved = json.loads((tmp_path / "out.json").read_text())
    assert saved["value"] == pytest.approx(19.3714, abs=1e-4)
    assert len(saved["actions"]) == len(saved["next"]) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["absent.POMDP"], "absent.POMDP"), (["--output", "x.txt", "absent.POMDP"], "--output must end in .json or .dot")],
)
def test_command_line_errors_are_one_line(arguments, message):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("experiment", ["memory_budget", "sandwich", "ablation"])
def test_a_users_model_goes_through_the_paper_scale(experiment, write, tmp_path):
    from claimlab import Run

    chosen = paper.experiments[experiment]
    small = {"model_file": str(write(TIGER)), "n_beliefs": "20"}
    small |= {"memory_budget": {"memory": "[2, 5]", "scored": "[2, 5]"},
              "sandwich": {"controllers": "8", "codebooks": "4", "memory": "[1, 2]"},
              "ablation": {"codebooks": "5", "memory": "[5]"}}[experiment]  # fmt: skip
    run = Run(experiment, 0, scratch=tmp_path)
    chosen.function(chosen.config("paper", small), run)
    table = next(iter(run.tables.values()))
    assert set(table.model) == {"model"}
