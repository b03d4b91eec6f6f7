"""What is to be run: experiments x seeds with their settings, and the mark that tells a stale result from a valid."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claimlab.claims import Claim
from claimlab.paper import Experiment, Paper, Scale, parse_overrides


@dataclass(frozen=True)
class Task:
    """One seed of one experiment. `mark` changes with its settings and with the code."""

    experiment: Experiment
    seed: int
    config: Any
    mark: str

    @property
    def name(self) -> str:
        return f"{self.experiment.name}-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The tasks of one run.

    `variant` keeps runs apart that must not be mixed with the recorded ones: other seeds (`from-1000`),
    overridden settings (`custom`).
    """

    paper: Paper
    scale: Scale
    tasks: tuple[Task, ...]
    variant: str = ""

    @classmethod
    def make(
        cls,
        paper: Paper,
        scale: Scale,
        *,
        experiments: Iterable[str] = (),
        seeds: int | None = None,
        first_seed: int = 0,
        settings: Iterable[str] = (),
    ) -> Plan:
        """Plan a run of the named experiments (all by default).

        Raises:
            ClaimlabError: an experiment or a setting that the paper does not have, a setting of the wrong type.
        """
        settings = list(settings)
        chosen = paper.select(experiments)
        overrides = parse_overrides(settings, chosen)
        tasks = []
        for experiment in chosen:
            config = experiment.config(scale, overrides[experiment.name])
            mark = fingerprint(paper, config)
            count = 1 if experiment.deterministic else (seeds or experiment.seeds[scale])
            tasks += [Task(experiment, first_seed + k, config, mark) for k in range(count)]
        variant = "-".join((["custom"] if settings else []) + ([f"from-{first_seed}"] if first_seed else []))
        return cls(paper, scale, tuple(tasks), variant)

    @property
    def experiments(self) -> dict[str, list[Task]]:
        """The tasks of each experiment, by its name."""
        out: dict[str, list[Task]] = {}
        for task in self.tasks:
            out.setdefault(task.experiment.name, []).append(task)
        return out

    @property
    def claims(self) -> list[Claim]:
        """The claims that this plan can judge; all of them when it runs everything."""
        chosen = set(self.experiments)
        if chosen == set(self.paper.experiments):
            return list(self.paper.claims)
        return [c for c in self.paper.claims if c.experiments and c.experiments <= chosen]


def fingerprint(paper: Paper, config: Any) -> str:
    """Changes when the settings, the paper's code, or the part of claimlab that experiments call changes."""
    digest = hashlib.sha256(repr(config).encode())
    own = Path(__file__).parent
    files = [own / name for name in ("costs.py", "run.py", "smollm.py", "stats.py")]
    files += [p for p in sorted(paper.directory.rglob("*")) if p.is_file() and _makes_numbers(p)]
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _makes_numbers(path: Path) -> bool:
    return path.name not in ("claims.toml", "baseline.toml") and "__pycache__" not in path.parts
