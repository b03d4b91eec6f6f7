"""A copy of the toy paper that a test may break, with the command line run on it; and the site, built once."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_paper import Hostile

from claimlab import cli, load_paper, paper_names
from claimlab.site import build

SOURCE = Path(__file__).parent / "toy_paper"


@dataclass
class Finished:
    """What a command left: exit status and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class Toy:
    """The toy paper in a folder of its own, with a space and an umlaut in its path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.code = folder  # what stands on the path
        self.out = folder / "results"
        self.monkeypatch = monkeypatch
        self.capsys = capsys
        shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def __call__(self, *args: str, out: Path | None = None, **extra: str) -> Finished:
        """`claimlab <args>` in this process, writing to `out`; one job unless asked for more."""
        if args[0] in ("run", "check", "record"):
            args = (*args, "--out", str(out or self.out))
        if args[0] in ("run", "check") and not {"--jobs", "--backend"} & set(args):
            args = (*args, "--jobs", "1")
        with self.monkeypatch.context() as patch:
            patch.syspath_prepend(str(self.code))
            self.forget(patch)
            patch.setattr(sys, "argv", ["claimlab", *args])
            patch.chdir(self.folder)
            # joblib's workers are processes: they find the toy through the environment.
            for name, value in {"PYTHONPATH": str(self.code), "LOKY_MAX_CPU_COUNT": "2", **extra}.items():
                patch.setenv(name, value)
            self.capsys.readouterr()
            with pytest.raises(SystemExit) as exit_info:
                cli.main()
            captured = self.capsys.readouterr()
        return Finished(int(exit_info.value.code or 0), captured.out, captured.err)

    def forget(self, patch: pytest.MonkeyPatch) -> None:
        """The next import reads the toy's files anew."""
        for name in [m for m in sys.modules if m.partition(".")[0] == "toy"]:
            patch.delitem(sys.modules, name)

    def paper(self):
        """The toy's `Paper`, imported into this process."""
        self.monkeypatch.syspath_prepend(str(self.code))
        self.forget(self.monkeypatch)
        return load_paper("toy")

    def environment(self, **extra: str) -> dict[str, str]:
        """For a process of its own."""
        return {**os.environ, "PYTHONPATH": str(self.code), **extra}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "claimlab.cli", *args]

    def claims(self, scale: str = "smoke") -> str:
        """The claims table that a run wrote."""
        return (self.out / "toy" / scale / "claims.md").read_text(encoding="utf-8")

    def result(self, experiment: str, seed: int, scale: str = "smoke") -> Path:
        return self.out / "toy" / scale / experiment / f"seed-{seed}" / "result.json"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Toy:
    return Toy(tmp_path / "töy paper", monkeypatch, capsys)


@pytest.fixture
def toy_paper(toy: Toy):
    return toy.paper()


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return Hostile(tmp_path_factory.mktemp("höstile paper"))


@pytest.fixture(scope="session")
def site(hostile: Hostile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the hostile paper, with a fresh run and timings, and of every paper that is installed."""
    folder = tmp_path_factory.mktemp("the sïte")
    papers = [hostile.paper, *(load_paper(name) for name in paper_names())]
    build(papers, folder, out=hostile.results, benchmarks=hostile.benchmarks)
    return folder
