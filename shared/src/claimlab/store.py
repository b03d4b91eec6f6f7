"""The results folder: one directory a seed, written atomically, with the provenance of every number.

results/<paper>/<scale>/<experiment>/seed-<n>/result.json   measures, settings, provenance; written last
                                              <table>.csv
                                              <figure>.png, .svg
                                              error.txt     in its place: the traceback of what failed
results/<paper>/<scale>/figures/                            figures over seeds
results/<paper>/<scale>/claims.md, claims.json              the judged claims
"""

from __future__ import annotations

import importlib.metadata as metadata
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from claimlab.claims import Measure
from claimlab.errors import ClaimlabError
from claimlab.plan import Plan, Task
from claimlab.run import Recorded
from claimlab.stats import Interval

ERROR_FILE = "error.txt"


@dataclass
class SeedResult:
    """Everything one seed of one experiment left."""

    measures: dict[str, Recorded]
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, dict[str, bytes]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


class Store:
    """The results of one plan below the folder `out`."""

    def __init__(self, out: Path, plan: Plan) -> None:
        self.plan = plan
        self.directory = out / plan.paper.slug / "-".join(filter(None, (plan.scale, plan.variant)))

    def seed_directory(self, task: Task) -> Path:
        return self.directory / task.experiment.name / f"seed-{task.seed}"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the folder against a second run; fail at once where it cannot be written or is held."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.directory) as probe:
                probe.write(b"\0" * 4096)
                probe.flush()
        except OSError as error:
            raise ClaimlabError(f"cannot write to {self.directory}: {error.strerror}; choose another --out") from None
        lock = FileLock(self.directory / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ClaimlabError(
                f"another run is writing to {self.directory}; wait for it or choose another --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def save(self, task: Task, result: SeedResult) -> None:
        """Write tables and figures, then result.json, whose presence says that the seed is finished."""
        directory = self.seed_directory(task)
        for name, frame in result.tables.items():
            write_atomic(directory / f"{name}.csv", frame.to_csv(index=False))
        for name, kinds in result.figures.items():
            for kind, content in kinds.items():
                write_atomic(directory / f"{name}.{kind}", content)
        record = {
            "mark": task.mark,
            "config": asdict(task.config),
            "measures": {
                name: {part: _plain(getattr(m.interval, part)) for part in Interval._fields} | {"timing": m.timing}
                for name, m in result.measures.items()
            },
            "tables": sorted(result.tables),
            "figures": sorted(result.figures),
            "provenance": result.provenance,
        }
        write_atomic(directory / "result.json", json.dumps(record, indent=1, default=str, ensure_ascii=False))
        (directory / ERROR_FILE).unlink(missing_ok=True)

    def record(self, task: Task) -> dict[str, Any] | None:
        """The parsed result.json; None where the seed is not finished with this code and these settings.

        Raises:
            ClaimlabError: the file is damaged.
        """
        path = self.seed_directory(task) / "result.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(record["measures"], dict) or not isinstance(record["mark"], str):
                raise TypeError
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise ClaimlabError(f"{path} is damaged; delete it and run again (only this seed is repeated)") from None
        return record if record["mark"] == task.mark else None

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """The records of each experiment whose seeds are all finished."""
        found = {name: [self.record(task) for task in tasks] for name, tasks in self.plan.experiments.items()}
        return {
            name: [r for r in records if r is not None]
            for name, records in found.items()
            if all(r is not None for r in records)
        }

    def measures(self) -> dict[str, Measure]:
        """Measures over seeds, by `experiment.measure`; those of unfinished experiments are left out."""
        out: dict[str, Measure] = {}
        for experiment, records in self.records().items():
            exact = self.plan.paper.experiments[experiment].deterministic
            shared = [name for name in records[0]["measures"] if all(name in r["measures"] for r in records)]
            for name in shared:
                parts = [r["measures"][name] for r in records]
                per_seed = [Interval(*(float(part[f]) for f in Interval._fields)) for part in parts]
                out[f"{experiment}.{name}"] = Measure.over_seeds(name, per_seed, exact=exact, timing=parts[0]["timing"])
        return out

    def tables(self, experiment: str) -> dict[str, pd.DataFrame]:
        """The experiment's tables, seeds one under the other with a `seed` column."""
        frames: dict[str, list[pd.DataFrame]] = {}
        for task in self.plan.experiments[experiment]:
            record = self.record(task)
            for name in record["tables"] if record else ():
                path = self.seed_directory(task) / f"{name}.csv"
                try:
                    frame = pd.read_csv(path)
                except (OSError, ValueError) as error:
                    raise ClaimlabError(f"{path} cannot be read ({error}); run again with --force") from None
                frame.insert(0, "seed", task.seed)
                frames.setdefault(name, []).append(frame)
        return {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write beside the target and rename: a reader sees the old content or the new, never a part.

    Raises:
        ClaimlabError: the disk is full or the folder cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be what is wrong
            part.unlink()
        raise ClaimlabError(f"cannot write {path}: {error.strerror}; what was finished before is kept") from None


def _plain(value: float) -> float | str:
    """JSON knows no NaN and no infinity: they are kept as words that `float` reads."""
    return value if math.isfinite(value) else str(value)


def provenance(seed: int, threads: int, seconds: float, cpu_seconds: float, peak_mib: float) -> dict[str, Any]:
    """Where and how a number was made, as the process that made it sees it."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "gpu": _gpu_name(),
        "threads": threads,
        "seed": seed,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "peak_memory_mib": round(peak_mib, 1),
    }


def git_state(project: Path) -> dict[str, Any]:
    """Commit of the checkout, and whether the code that makes numbers differs from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=project, capture_output=True, text=True, check=True).stdout.strip()

    try:
        top = Path(git("rev-parse", "--show-toplevel"))
        code = [str(project / "src"), str(top / "shared" / "src")]
        changed = git("status", "--porcelain", "--", *[c for c in code if Path(c).exists()])
        lines = [line for line in changed.splitlines() if not line.endswith("baseline.toml")]
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(lines)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


@cache
def _cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return f"{found.group(1) if found else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _gpu_name() -> str | None:
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None


@cache
def versions(slug: str) -> dict[str, str]:
    """Versions of the paper's package, of claimlab, and of what the two ask for directly."""
    names = {slug, "claimlab"}
    for name in (slug, "claimlab"):
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        names |= {m.group() for r in requirements if "extra ==" not in r and (m := re.match(r"[\w.-]+", r))}
    out = {}
    for name in sorted(names):
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return out
