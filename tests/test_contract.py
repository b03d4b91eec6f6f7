"""What every package keeps, for all packages found in the checkout."""

import ast
import os
import subprocess
import sys
import tomllib

import pytest
from checkout import PACKAGES, ROOT, offline

from claimlab import load_paper, regression, report
from claimlab.plan import Plan
from claimlab.store import Store

MODULES = {p.module for p in PACKAGES}


@pytest.fixture(scope="session")
def smoke(package, smoke_results):
    """The package's smoke run: the process that made it, and its store."""
    process = offline("run", package.slug, "--scale", "smoke", out=smoke_results, cwd=smoke_results)
    return process, Store(smoke_results, Plan.make(load_paper(package.slug), "smoke"))


def test_smoke_run_measures_every_claim(package, smoke):
    process, store = smoke
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    measures = store.measures()
    for claim in store.plan.paper.claims:
        missing = [key for key in (*claim.check_keys, *claim.show_keys) if key not in measures]
        assert not missing, f"{claim.id}: no measure {missing}"


def test_every_measure_and_every_experiment_is_used(package, smoke):
    _, store = smoke
    claims = store.plan.paper.claims
    used = {key for claim in claims for key in (*claim.check_keys, *claim.show_keys)}
    assert not store.measures().keys() - used, "measures that no claim checks or shows"
    reached = {name for claim in claims for name in claim.experiments}
    assert reached == set(store.plan.paper.experiments)


def test_smoke_agrees_with_the_record(package, smoke, smoke_results):
    assert smoke[0].returncode == 0
    process = offline("check", package.slug, "--scale", "smoke", out=smoke_results, cwd=smoke_results)
    assert process.returncode == 0, process.stdout + process.stderr


def test_the_same_seed_gives_the_same_measures(package, smoke, smoke_results, tmp_path):
    _, store = smoke
    again = offline("run", package.slug, "--scale", "smoke", "--seeds", "1", out=tmp_path, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    repeated = Store(tmp_path, Plan.make(store.plan.paper, "smoke", seeds=1))
    for name, tasks in repeated.plan.experiments.items():
        first, second = store.record(tasks[0]), repeated.record(tasks[0])
        assert first is not None and second is not None
        for key, entry in first["measures"].items():
            if not entry["timing"]:
                assert second["measures"][key]["value"] == pytest.approx(
                    entry["value"], rel=1e-6, abs=1e-12, nan_ok=True
                ), f"{name}.{key}"


def test_the_record_matches_the_claims(package):
    paper = load_paper(package.slug)
    baseline = regression.load(paper)
    assert "smoke" in baseline
    for scale in baseline:
        assert list(baseline[scale]["verdicts"]) == [claim.id for claim in paper.claims]
        judged = regression.recorded_results(paper, scale)
        assert judged is not None
        told = {r.claim.id: str(r.verdict) for r in judged}
        assert told == baseline[scale]["verdicts"], "claims.toml changed after the record was made"


def test_the_readme_is_up_to_date_and_its_figures_exist(package):
    paper = load_paper(package.slug)
    path = package.folder / "README.md"
    assert report.between_markers(package.readme, "claims", report.readme_section(paper), path) == package.readme
    for section in ("## Reconstructions", "## Limits", "## How to run", "## Citation"):
        assert section in package.readme
    figures = report.readme_figures(package.readme)
    assert figures, "a README shows at least one figure"
    assert all((package.folder / "figures" / name).is_file() for name in figures)


def test_the_readme_example_runs(package, tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", package.example],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "offline"), "MPLBACKEND": "agg"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr


def test_imports_point_one_way(package):
    """No paper imports another; method modules import neither the runner's side nor `reproduce`."""
    source = package.folder / "src" / package.module
    for path in source.rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        tops = {name.partition(".")[0] for name in names}
        assert not tops & (MODULES - {package.module}), f"{path} imports another paper"
        if not path.relative_to(source).parts[0].startswith("reproduce"):
            assert f"{package.module}.reproduce" not in names, f"{path} imports its own experiments"


def test_the_package_says_what_it_is(package):
    project = tomllib.loads((package.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == package.slug
    assert project["entry-points"]["claimlab.papers"] == {package.slug: f"{package.module}.reproduce:paper"}
    assert any(d.startswith("claimlab") and "{root:parent:parent:uri}/shared" in d for d in project["dependencies"])
    assert (ROOT / "benchmarks" / f"bench_{package.module}.py").is_file()
    assert list((package.folder / "tests").glob("test_*.py"))


def test_paper_scale_can_be_looked_at_anywhere(package, tmp_path):
    process = offline("run", package.slug, "--scale", "paper", "--dry-run", out=tmp_path, cwd=tmp_path)
    assert process.returncode == 0 and "nothing was run" in process.stdout
    assert not list(tmp_path.iterdir())
