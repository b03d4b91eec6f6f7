"""What a paper declares: its claims (claims.toml) and its experiments (functions registered on a `Paper`)."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import pandas as pd
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from claimlab.claims import Claim
from claimlab.errors import ClaimlabError

Scale = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
DEFAULT_SEEDS: Mapping[Scale, int] = {"smoke": 2, "laptop": 3, "paper": 3}

Count = Annotated[int, Field(ge=1)]
"""Type of a setting that counts something: none of it would measure nothing, and pass."""
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]

Function = TypeVar("Function", bound=Callable[..., Any])
FigureMaker = Callable[[dict[str, pd.DataFrame]], dict[str, Figure]]


class PaperInfo(BaseModel):
    """The `[paper]` table of claims.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    authors: tuple[str, ...] = ()
    arxiv: str = ""
    venue: str
    evidence: Literal["full text", "parts", "abstract only"]
    assets: tuple[str, ...] = ()


class ClaimsFile(BaseModel):
    """claims.toml as a whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: PaperInfo
    claim: Annotated[tuple[Claim, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Experiment:
    """One registered experiment: a function `(config, run) -> None` with a configuration for each scale."""

    name: str
    function: Callable[..., None]
    configs: Mapping[Scale, Any]
    seeds: Mapping[Scale, int]
    deterministic: bool = False
    minutes: Mapping[Scale, float] = field(default_factory=dict)
    needs: Mapping[Scale, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """First paragraph of the function's docstring, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    def config(self, scale: Scale, overrides: Mapping[str, str] | None = None) -> Any:
        """The scale's configuration with `field=value` overrides, each parsed as a TOML value and validated by type."""
        config = self.configs[scale]
        types, limits = get_type_hints(type(config)), get_type_hints(type(config), include_extras=True)
        values = {}
        for name, text in (overrides or {}).items():
            try:
                parsed = tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError:
                parsed = text
            try:
                # JSON mode: a list becomes a tuple, a string a path; but never "3.5" an int.
                values[name] = TypeAdapter(limits[name]).validate_python(parsed)
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                expected = types[name].__name__ if isinstance(types[name], type) else types[name]
                told = f"--set {name}={text}: expected {expected} for {self.name}.{name} ({reason})"
                raise ClaimlabError(told) from None
        try:
            return dataclasses.replace(config, **values)
        except ValueError as error:  # the configuration's own validation
            raise ClaimlabError(f"--set for {self.name}: {error}") from None


class Paper:
    """A paper: its claims, read from claims.toml in `package`, and the experiments registered on it.

    Arguments:
        slug: name of the distribution and of `make reproduce-<slug>`.
        package: import name of the package that holds claims.toml and baseline.toml.
        directory: where those files are, when they are not in an importable package (tests).
    """

    def __init__(self, slug: str, package: str = "", *, directory: Path | None = None) -> None:
        self.slug = slug
        self.package = package or slug.replace("-", "_")
        self.directory = directory or _package_directory(self.package)
        self.experiments: dict[str, Experiment] = {}
        self.figure_makers: dict[str, FigureMaker] = {}

    @property
    def baseline_path(self) -> Path:
        return self.directory / "baseline.toml"

    @property
    def project(self) -> Path:
        """Folder of the package in a checkout (with README.md), or the import package itself when installed."""
        root = self.directory.parent.parent
        return root if (root / "pyproject.toml").is_file() else self.directory

    @cached_property
    def claims_file(self) -> ClaimsFile:
        path = self.directory / "claims.toml"
        try:
            return ClaimsFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise ClaimlabError(f"{path} does not exist; a paper declares its claims there") from None
        except tomllib.TOMLDecodeError as error:
            raise ClaimlabError(f"{path} is not valid TOML: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ClaimlabError(f"{path}: {where}: {first['msg']}") from None

    @property
    def info(self) -> PaperInfo:
        return self.claims_file.paper

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.claims_file.claim

    def experiment(
        self,
        *,
        smoke: Any,
        laptop: Any,
        paper: Any,
        seeds: Mapping[Scale, int] | None = None,
        deterministic: bool = False,
        minutes: Mapping[Scale, float] | None = None,
        needs: Mapping[Scale, str] | None = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function `(config, run) -> None` under its own name.

        Arguments:
            smoke, laptop, paper: frozen dataclass instances, the settings of each scale.
            seeds: number of seeds by scale (default 2, 3, 3). `deterministic` experiments have one.
            minutes: rough duration by scale on two cores, for `--dry-run`.
            needs: data or hardware by scale, for `--dry-run`.
        """
        configs: dict[Scale, Any] = {"smoke": smoke, "laptop": laptop, "paper": paper}
        kinds = {type(c) for c in configs.values()}
        if len(kinds) != 1 or not dataclasses.is_dataclass(kinds.pop()):
            raise TypeError(f"the configurations of one experiment must be of one dataclass, got {configs}")
        asked = {**DEFAULT_SEEDS, **(seeds or {})}
        counts: dict[Scale, int] = {scale: 1 if deterministic else asked[scale] for scale in SCALES}

        def register(function: Function) -> Function:
            name = function.__name__
            if name in self.experiments:
                raise ValueError(f"experiment {name!r} is registered twice")
            self.experiments[name] = Experiment(
                name, function, configs, counts, deterministic, dict(minutes or {}), dict(needs or {})
            )
            return function

        return register

    def figures(self, experiment: Callable[..., None]) -> Callable[[Function], Function]:
        """Register the decorated function `(tables) -> {name: figure}`, called once after all seeds of `experiment`."""

        def register(function: Function) -> Function:
            self.figure_makers[experiment.__name__] = function
            return function

        return register

    def select(self, names: Iterable[str] = ()) -> list[Experiment]:
        """The named experiments, or all."""
        names = list(names)
        unknown = [n for n in names if n not in self.experiments]
        if unknown:
            raise ClaimlabError(
                f"{self.slug} has no experiment {', '.join(unknown)}; it has {', '.join(self.experiments)}"
            )
        return [e for e in self.experiments.values() if not names or e.name in names]


def _package_directory(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ClaimlabError(f"package {package!r} cannot be found")
    return Path(spec.origin).parent


def paper_names() -> list[str]:
    """Slugs of the papers installed in this environment."""
    return sorted(ep.name for ep in entry_points(group="claimlab.papers"))


def load_paper(slug: str) -> Paper:
    """The installed paper of that name."""
    found = entry_points(group="claimlab.papers", name=slug)
    if not found:
        names = ", ".join(paper_names()) or "none; install one with `pip install ./packages/<paper>`"
        raise ClaimlabError(f"no paper {slug!r} is installed here; installed: {names}")
    return next(iter(found)).load()


def parse_overrides(settings: Iterable[str], experiments: Iterable[Experiment]) -> dict[str, dict[str, str]]:
    """Sort `field=value` and `experiment.field=value` by experiment; a name that no experiment has is an error."""
    experiments = list(experiments)
    overrides: dict[str, dict[str, str]] = {e.name: {} for e in experiments}
    for setting in settings:
        match = re.fullmatch(r"(?:(\w+)\.)?(\w+)=(.*)", setting, flags=re.DOTALL)
        if match is None:
            raise ClaimlabError(f"--set {setting}: expected field=value")
        scope, name, text = match.groups()
        fields = {e.name: [f.name for f in dataclasses.fields(e.configs["smoke"])] for e in experiments}
        targets = [e for e in overrides if name in fields[e] and scope in (None, e)]
        if not targets:
            known = sorted({f for fs in fields.values() for f in fs})
            raise ClaimlabError(f"--set {setting}: no selected experiment has this field; fields: {', '.join(known)}")
        for target in targets:
            overrides[target][name] = text
    return overrides
