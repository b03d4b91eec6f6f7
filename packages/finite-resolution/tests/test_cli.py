"""From CSV files to a plan, and from a saved plan to a decision."""

import json

import pandas as pd
import pytest
from finite_resolution.cli import app
from typer.testing import CliRunner

runner = CliRunner()


@pytest.fixture
def files(tmp_path):
    """Two routes, three scenarios, and two queries: one dear and one cheap."""
    pd.DataFrame({"road": [10.0, 20.0, 30.0], "rail": [18.0, 18.0, 18.0]}, index=["dry", "wet", "snow"]).to_csv(
        tmp_path / "costs.csv"
    )
    pd.DataFrame({"road": [1.0, 1.0], "price": [9.0, 2.0], "error": [0.5, 4.0]}, index=["survey", "forecast"]).to_csv(
        tmp_path / "queries.csv"
    )
    pd.DataFrame({"road": [1.0, 0.0], "rail": [0.0, 1.0]}, index=["take road", "take rail"]).to_csv(
        tmp_path / "decisions.csv"
    )
    pd.DataFrame({"road": [1.0], "rail": [1.0], "sense": ["="], "rhs": [1.0]}).to_csv(
        tmp_path / "constraints.csv", index=False
    )
    return tmp_path


def plan(folder, *options: str):
    return runner.invoke(app, ["plan", str(folder / "costs.csv"), str(folder / "queries.csv"), *options])


def test_plan_save_and_decide(files):
    result = plan(files, "--eps", "2", "--decisions", str(files / "decisions.csv"), "--save", str(files / "plan.json"))
    assert result.exit_code == 0, result.output
    for words in ("forecast", "price: 2", "lower bound: 2", "status: optimal"):
        assert words in result.output
    assert "survey" not in result.output
    pd.DataFrame({"query": ["forecast"], "reading": [12.0]}).to_csv(files / "readings.csv", index=False)
    decided = runner.invoke(app, ["decide", str(files / "plan.json"), str(files / "readings.csv"), "--json"])
    answer = json.loads(decided.output)
    assert (
        answer["scenarios"] == ["dry"]
        and answer["decision"] == {"road": 1.0, "rail": 0.0}
        and answer["worst_regret"] == 0.0
    )
    # 24 may be 20 (wet) or, just, not 30: rail is right for wet
    pd.DataFrame({"query": ["forecast"], "reading": [24.0]}).to_csv(files / "readings.csv", index=False)
    printed = runner.invoke(app, ["decide", str(files / "plan.json"), str(files / "readings.csv")])
    assert (
        printed.exit_code == 0
        and "rail" in printed.output
        and "wet" in printed.output
        and "tolerated: 2" in printed.output
    )


def test_constraints_state_the_same_problem(files):
    by_rows = plan(files, "--eps", "0", "--decisions", str(files / "decisions.csv"))
    by_constraints = plan(files, "--eps", "0", "--constraints", str(files / "constraints.csv"))
    assert by_rows.exit_code == by_constraints.exit_code == 0
    assert by_rows.output == by_constraints.output
    whole = plan(files, "--eps", "9", "--decisions", str(files / "decisions.csv"), "--indivisible")
    assert "nothing to buy" in whole.output and "price: 0" in whole.output


def test_infeasible_plan_names_the_scenarios(files):
    table = pd.read_csv(files / "queries.csv", index_col=0).assign(error=50.0)
    table.to_csv(files / "queries.csv")
    result = plan(files, "--eps", "1", "--decisions", str(files / "decisions.csv"))
    assert result.exit_code == 1
    assert "status: infeasible" in result.output and "dry, snow" in result.output


def test_time_limit_is_reported(files):
    result = plan(files, "--eps", "1", "--decisions", str(files / "decisions.csv"), "--time-limit", "1e-9")
    assert result.exit_code == 1 and "status: time_limit" in result.output and "optimal" not in result.output


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, ["--eps", "1"], "either decisions or constraints"),
        ({}, ["--eps", "-1", "--decisions", "decisions.csv"], "eps must be >= 0, got -1"),
        (
            {"decisions.csv": "name,road\na,1\n"},
            ["--eps", "1", "--decisions", "decisions.csv"],
            "needs the column 'rail'",
        ),
        ({"costs.csv": "name,road,rail\na,1,x\n"}, ["--eps", "1", "--decisions", "decisions.csv"], "must hold numbers"),
        ({"costs.csv": "name,road,rail\na,1,\n"}, ["--eps", "1", "--decisions", "decisions.csv"], "costs contains NaN"),
        ({"queries.csv": "name,sea\na,1\n"}, ["--eps", "1", "--decisions", "decisions.csv"], "column 'sea'"),
        (
            {"constraints.csv": "road,rail,sense,rhs\n1,1,<,1\n"},
            ["--eps", "1", "--constraints", "constraints.csv"],
            "sense must be",
        ),
        (
            {"constraints.csv": "road,sense,rhs\n1,<=,1\n"},
            ["--eps", "1", "--constraints", "constraints.csv"],
            "unbounded",
        ),
        ({}, ["--eps", "1", "--decisions", "absent.csv"], "absent.csv"),
    ],
)
def test_bad_files_give_one_clear_line(files, change, options, words):
    for name, text in change.items():
        (files / name).write_text(text)
    result = plan(files, *(str(files / o) if o.endswith(".csv") else o for o in options))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and words in result.stderr and result.stderr.count("\n") == 1


def test_bad_readings(files):
    plan(files, "--eps", "2", "--decisions", str(files / "decisions.csv"), "--save", str(files / "plan.json"))
    for text, words in (
        ("query,reading\nsurvey,1\n", "no reading for query 'forecast'"),
        ("query,reading\nforecast,10\nsurvey,1\n", "does not buy"),
        ("name,reading\nforecast,10\n", "needs the column 'query'"),
        ("query,reading\nforecast,99\n", "no cost explains the readings"),
        ("query,reading\nforecast,1\nforecast,2\n", "more than once"),
    ):
        (files / "readings.csv").write_text(text)
        result = runner.invoke(app, ["decide", str(files / "plan.json"), str(files / "readings.csv")])
        assert result.exit_code == 2 and words in result.stderr
