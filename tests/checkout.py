"""The packages found in the checkout, and the command line run on them without a network."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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


def offline(*args: str, out: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in a process whose sockets (and its workers') reach nothing but this machine."""
    return subprocess.run(
        [sys.executable, "-m", "claimlab.cli", *args, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "offline"), "COLUMNS": "200"},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
