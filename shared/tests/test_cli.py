import pytest

from claimlab import ClaimlabError


def test_list_shows_the_paper(toy):
    result = toy("list")
    assert result.returncode == 0 and "A toy with known answers" in result.stdout


def test_dry_run_prints_settings_and_runs_nothing(toy):
    result = toy("run", "toy", "--scale", "paper", "--dry-run", "--set", "centre=7")
    assert "n = 10000" in result.stdout and "centre = 7.0" in result.stdout
    assert "needs: a large machine" in result.stdout and "about 2 min" in result.stdout
    assert not toy.out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nope"], "no paper 'nope' is installed here; installed: "),
        (["run", "toy", "--scale", "huge"], "--scale huge: expected one of smoke, laptop, paper"),
        (["run", "toy", "--experiment", "nope"], "toy has no experiment nope; it has draws, line"),
        (
            ["run", "toy", "--set", "nope=3"],
            "has this field; fields: centre, data_file, n, points, sizes",
        ),
        (["run", "toy", "--set", "line.n=3"], "no selected experiment has this field"),
        (["run", "toy", "--set", "n=many"], "--set n=many: expected int for draws.n"),
        (["run", "toy", "--set", "n=2.5"], "--set n=2.5"),
        (["run", "toy", "--set", "n=-1"], "expected n > 0, got -1"),
        (["run", "toy", "--set", "n"], "--set n: expected field=value"),
        (
            ["run", "toy", "--set", "points=0"],
            "--set points=0: expected int for line.points (Input should be greater",
        ),
        (
            ["run", "toy", "--set", "points=-3"],
            "--set points=-3: expected int for line.points (Input should be",
        ),
        (
            ["run", "toy", "--set", "sizes=[]"],
            "--set sizes=[]: expected tuple[int, ...] for draws.sizes (Tuple should hav",
        ),
        (["run", "toy", "--set", "sizes=[2, -1]"], "--set sizes=[2, -1]: expected tuple[int, ...] for draws.sizes"),
        (["run", "toy", "--seeds", "0"], "--seeds 0: expected 1 or more"),
        (["run", "toy", "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["run", "toy", "--first-seed", "-1"], "--first-seed -1: expected 0 or more"),
        (["report", "toy", "--readme", "nope.md"], "error: [Errno 2] No such file or directory: "),
        (["record", "toy", "--scale", "smoke"], "toy at smoke scale is unfinished: draws, line; run it first"),
        (["assets", "fetch", "nope"], "no asset 'nope'; known: smollm2, mnist"),
    ],
)
def test_errors_are_one_clear_line(toy, arguments, message):
    result = toy(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_recording_from_a_file_instead_of_a_folder_is_one_clear_line(toy, tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    result = toy("record", "toy", "--scale", "smoke", out=blocked)
    assert result.returncode == 2
    assert "Not a directory" in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_a_summary_of_two_lines_is_shown_whole(toy):
    source = toy.folder / "toy" / "reproduce.py"
    source.write_text(source.read_text().replace('"""A straight line."""', '"""A straight\n    line.\n\n    More."""'))
    assert "line: A straight line.\n" in toy("run", "toy", "--dry-run").stdout


def test_debug_shows_the_traceback(toy):
    with pytest.raises(ClaimlabError, match="no paper 'nope'"):
        toy("run", "nope", "--debug")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("between = [4.5, 5.5]", "betwen = [4.5, 5.5]", "claim.0.checks.0.betwen"),
        ('evidence = "full text"', 'evidence = "hearsay"', "paper.evidence"),
        ('title = "A toy with known answers"', "title = A toy", "not valid TOML"),
    ],
)
def test_a_malformed_claims_file_is_named(toy, old, new, message):
    path = toy.folder / "toy" / "claims.toml"
    path.write_text(path.read_text().replace(old, new))
    result = toy("run", "toy", "--scale", "smoke")
    assert result.returncode == 2 and message in result.stderr and "claims.toml" in result.stderr


def test_settings_are_typed(toy_paper):
    draws = toy_paper.experiments["draws"]
    config = draws.config("smoke", {"sizes": "[3, 4]", "data_file": "a b/dätä.csv", "centre": "2"})
    assert config.sizes == (3, 4) and config.data_file.name == "dätä.csv" and config.centre == 2.0
