"""Each package installs alone from the checkout and imports without any other paper."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from checkout import PACKAGES, ROOT

UV = Path(sys.executable).parent / "uv"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"UV_COMPILE_BYTECODE": "0"}
    result = subprocess.run([str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an empty virtual environment."""
    venv.create(tmp_path / "venv", with_pip=True)
    return tmp_path / "venv" / "bin" / "python"


def installed_papers(python: Path, cwd: Path) -> list[str]:
    return run(python, "-c", "import claimlab; print(*claimlab.paper_names())", cwd=cwd).split()


def test_installs_alone_and_imports_without_any_other_paper(package, python, tmp_path):
    # uv takes what it has already unpacked from its cache: seconds instead of minutes for a package with torch.
    run(UV, "pip", "install", "--quiet", "--python", python, "-c", ROOT / "constraints.txt", package.folder)
    assert installed_papers(python, tmp_path) == [package.slug]
    run(python, "-c", f"import {package.module}, {package.module}.reproduce", cwd=tmp_path)
    run(python.parent / "claimlab", "run", package.slug, "--scale", "smoke", "--dry-run", cwd=tmp_path)


@pytest.mark.parametrize("source", ["folder", "git"])
def test_plain_pip_takes_the_shared_package_from_the_checkout(source, python, tmp_path):
    """Resolved and built for real, but not installed: the libraries are what the test above installs."""
    package = PACKAGES[0]
    if source == "git":
        clone = tmp_path / "clone with space"
        run("git", "clone", "--quiet", "--no-hardlinks", ROOT, clone)
        target = f"git+{clone.as_uri()}#subdirectory=packages/{package.slug}"
    else:
        target = str(package.folder)
    report = tmp_path / "report.json"
    pins = ("-c", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "--dry-run", "--report", report, *pins, target, cwd=tmp_path)
    plan = json.loads(report.read_text())["install"]
    taken = {item["metadata"]["name"]: item["download_info"]["url"] for item in plan}
    assert taken["claimlab"].startswith("file:") and taken["claimlab"].endswith("/shared")
    assert set(taken).isdisjoint({p.slug for p in PACKAGES} - {package.slug})
