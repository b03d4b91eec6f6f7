"""A copy of the toy paper that a test may break, and the command line run on it in a process of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "toy_paper"


class Toy:
    """The toy paper in a folder of its own, with a space and an umlaut in its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "results"
        shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "200", **extra}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", "from claimlab.cli import main; main()", *args]

    def __call__(self, *args: str, out: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
        """`claimlab <args>`, writing to `out`, in one process unless asked for more."""
        if args[0] in ("run", "check", "record"):
            args = (*args, "--out", str(out or self.out))
        if args[0] in ("run", "check") and not {"--jobs", "--backend"} & set(args):
            args = (*args, "--jobs", "1")
        return subprocess.run(
            self.command(*args), env=self.environment(**extra), cwd=self.folder, capture_output=True, text=True
        )

    def claims(self, scale: str = "smoke") -> str:
        """The claims table that a run wrote."""
        return (self.out / "toy" / scale / "claims.md").read_text()

    def result(self, experiment: str, seed: int, scale: str = "smoke") -> Path:
        return self.out / "toy" / scale / experiment / f"seed-{seed}" / "result.json"


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "töy paper")


@pytest.fixture
def toy_paper(toy: Toy, monkeypatch: pytest.MonkeyPatch):
    """The toy's `Paper`, imported into this process."""
    monkeypatch.syspath_prepend(str(toy.folder))
    for name in [m for m in sys.modules if m.partition(".")[0] == "toy"]:
        monkeypatch.delitem(sys.modules, name)
    from claimlab import load_paper

    return load_paper("toy")
