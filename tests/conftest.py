"""The packages found in the checkout; every contract test runs for each of them."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Package:
    """One folder below packages/."""

    slug: str

    @property
    def folder(self) -> Path:
        return ROOT / "packages" / self.slug

    @property
    def module(self) -> str:
        return self.slug.replace("-", "_")

    @property
    def readme(self) -> str:
        return (self.folder / "README.md").read_text(encoding="utf-8")

    @property
    def example(self) -> str:
        """The first Python block of the README."""
        found = re.search(r"```python\n(.*?)```", self.readme, flags=re.DOTALL)
        assert found, f"{self.slug}: README.md has no ```python block"
        return found.group(1)


PACKAGES = [Package(p.parent.name) for p in sorted(ROOT.glob("packages/*/pyproject.toml"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "package" in metafunc.fixturenames:
        metafunc.parametrize("package", PACKAGES, ids=lambda p: p.slug, scope="session")


@pytest.fixture(scope="session")
def smoke_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for all smoke runs of this session."""
    return tmp_path_factory.mktemp("smoke results")


def offline(*args: str, out: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in a process whose sockets (and its workers') reach nothing but this machine."""
    return subprocess.run(
        [sys.executable, "-m", "claimlab.cli", *args, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "offline"), "COLUMNS": "200"},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
