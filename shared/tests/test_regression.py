import subprocess
import tomllib

import pytest

from claimlab import Interval, Measure, regression


@pytest.fixture
def recorded(toy):
    """The toy with a smoke record, made from committed code."""
    folder = toy.folder
    (folder / "pyproject.toml").write_text("")  # a checkout: README and figures stand beside src/
    (folder / "src").mkdir()
    (folder / "toy").rename(folder / "src" / "toy")
    (folder / "toy-0.1.0.dist-info").rename(folder / "src" / "toy-0.1.0.dist-info")
    (folder / "README.md").write_text(
        "# Toy\n\nbefore\n<!-- claims:start -->\nstale text\n<!-- claims:end -->\nafter ![line](figures/running.png)\n"
    )
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "toy"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *command], cwd=folder, check=True
        )
    toy.code = folder / "src"
    toy("run", "toy", "--scale", "smoke")
    result = toy("record", "toy", "--scale", "smoke")
    assert result.returncode == 0, result.stderr
    toy.baseline = folder / "src" / "toy" / "baseline.toml"
    return toy


def test_record_then_check_agrees_and_the_readme_is_written(recorded):
    section = tomllib.loads(recorded.baseline.read_text())["smoke"]
    assert section["verdicts"]["mean-is-five"] == "reproduced"
    assert section["measures"]["draws.mean"]["values"] and not section["measures"]["draws.mean"].get("timing")
    assert section["measures"]["draws.seconds"]["timing"] is True
    assert section["commits"] and section["versions"]["toy"] == "0.1.0"
    readme = (recorded.folder / "README.md").read_text()
    assert readme.startswith("# Toy\n\nbefore\n<!-- claims:start -->\n")
    assert "| C3 | The mean is negative (it is not). *(reconstructed)* |" in readme and "stale text" not in readme
    assert r"mean \| of [draws]" in readme
    check = recorded("check", "toy", "--scale", "smoke")
    assert check.returncode == 0 and "agrees with the record" in check.stdout


def test_check_trips_on_a_moved_mean_and_names_it(recorded):
    text = recorded.baseline.read_text()
    section = tomllib.loads(text)["smoke"]["measures"]["line.slope"]
    moved = f"mean = {section['mean'] + 2 * section['tolerance']}"
    recorded.baseline.write_text(text.replace(f"mean = {section['mean']}", moved))
    check = recorded("check", "toy", "--scale", "smoke")
    assert check.returncode == 1
    assert "line.slope" in check.stdout and "FAILED" in check.stdout and "REGRESSION" in check.stdout
    recorded.baseline.write_text(text)
    assert recorded("check", "toy", "--scale", "smoke").returncode == 0


def test_check_trips_on_a_worse_verdict_but_not_on_a_better_one(recorded):
    text = recorded.baseline.read_text()
    recorded.baseline.write_text(text.replace('mean-is-negative = "not reproduced"', 'mean-is-negative = "reproduced"'))
    check = recorded("check", "toy", "--scale", "smoke")
    assert check.returncode == 1 and "claim mean-is-negative" in check.stdout
    recorded.baseline.write_text(text.replace('mean-is-five = "reproduced"', 'mean-is-five = "inconclusive"'))
    check = recorded("check", "toy", "--scale", "smoke")
    assert check.returncode == 0 and "noted" in check.stdout


def test_check_reports_a_timing_and_does_not_trip_on_it(recorded):
    check = recorded("check", "toy", "--scale", "smoke", out=recorded.folder / "again", TOY_SECONDS="50")
    assert check.returncode == 0
    assert "draws.seconds" in check.stdout and "noted" in check.stdout


def test_record_refuses_code_that_is_not_committed(recorded):
    source = recorded.folder / "src" / "toy" / "reproduce.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert "is unfinished" in recorded("record", "toy", "--scale", "smoke").stderr
    recorded("run", "toy", "--scale", "smoke")
    refused = recorded("record", "toy", "--scale", "smoke")
    assert refused.returncode == 2 and "not committed" in refused.stderr


def test_record_notes_the_verdicts_on_fresh_seeds(recorded):
    recorded("run", "toy", "--scale", "smoke", "--first-seed", "1000")
    assert recorded("record", "toy", "--scale", "smoke").returncode == 0
    fresh = tomllib.loads(recorded.baseline.read_text())["smoke"]["fresh"]
    assert fresh["first_seed"] == 1000 and fresh["verdicts"]["mean-is-five"] == "reproduced"
    assert (
        "On seeds nobody looked at before (from 1000): every verdict is the same."
        in (recorded.folder / "README.md").read_text()
    )


def test_check_without_a_record_fails(toy):
    check = toy("check", "toy", "--scale", "smoke")
    assert check.returncode == 1 and "nothing recorded" in check.stderr


def test_tolerance_covers_the_spread_over_seeds_and_a_share_of_the_bound():
    exact = Measure("m", (2.0,), Interval(2.0, 2.0, 2.0))
    assert regression.tolerance(exact, []) == pytest.approx(0.02)
    assert regression.tolerance(exact, [1.0, 10.0]) == pytest.approx(0.05)
    rounding = Measure("m", (3e-16,), Interval(3e-16, 3e-16, 3e-16))
    assert regression.tolerance(rounding, [1e-6]) == pytest.approx(5e-8)  # rounding noise far below its bound
    noisy = Measure.over_seeds("m", [Interval(v, float("nan"), float("nan")) for v in (1.0, 2.0, 3.0)])
    # t(0.995, 2) * sqrt(2) * s / sqrt(n), with s = 1 and n = 3
    assert regression.tolerance(noisy, []) == pytest.approx(9.924843 * (2 / 3) ** 0.5, rel=1e-6)
    binomial = Measure("m", (0.5,), Interval(0.5, 0.4, 0.6))
    assert regression.tolerance(binomial, []) == pytest.approx(0.2)
