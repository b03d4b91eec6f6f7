"""The static site: recorded claims, fresh runs beside them, figures and READMEs as plain HTML files."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from claimlab import regression, report
from claimlab.claims import Check, Claim, ClaimResult, Measure, judge
from claimlab.errors import ClaimlabError
from claimlab.paper import SCALES, Paper, Scale
from claimlab.plan import Plan
from claimlab.readme import Readme, inline
from claimlab.stats import Interval
from claimlab.store import Store, write_atomic

WIDTH, EDGE = 220.0, 6.0  # of an interval's drawing, in its own units


class Drawing(NamedTuple):
    """Where the parts of an interval's picture stand, from the left."""

    accepted: tuple[float, float]
    bounds: list[float]
    value: float
    span: tuple[float, float] | None


def drawing(interval: Sequence[float], accepted: Sequence[float]) -> Drawing | None:
    """Lay out an interval and the accepted range on one line; None where there is nothing finite to draw.
    Without a range (`accepted` is empty) nothing is shaded."""
    value, *ends = interval
    if not math.isfinite(value):
        return None
    marks = [x for x in (*interval, *accepted) if math.isfinite(x)]
    first, last = min(marks), max(marks)
    margin = (last - first) * 0.15 or abs(first) * 0.1 or 1.0
    first, last = first - margin, last + margin

    def place(x: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * (min(max(x, first), last) - first) / (last - first), 1)

    region = (0.0, 0.0)
    if accepted:
        low, high = accepted
        region = (place(low) if low > first else 0.0, place(high) if high < last else WIDTH)
    span = None if any(map(math.isnan, ends)) else (place(ends[0]), place(ends[1]))
    return Drawing(region, [place(x) for x in accepted if math.isfinite(x)], place(value), span)


@dataclass(frozen=True)
class Fresh:
    """A run found in the results folder: its claims, and what differs from the record."""

    folder: Path
    provenance: Mapping[str, Any]
    results: Mapping[str, ClaimResult]
    changes: Sequence[regression.Change]

    @classmethod
    def find(cls, paper: Paper, scale: Scale, out: Path) -> Fresh | None:
        """The run at that scale of today's code; unfinished experiments and their claims are left out."""
        store = Store(out, Plan.make(paper, scale))
        records = store.records()
        if not records:
            return None
        measures = store.measures()
        claims = [c for c in paper.claims if c.experiments and c.experiments <= records.keys()]
        results = {claim.id: judge(claim, measures) for claim in claims}
        section = regression.load(paper).get(scale)
        changes = []
        if section:
            ran = {key: entry for key, entry in section["measures"].items() if key.split(".")[0] in records}
            changes = regression.compare({**section, "measures": ran}, measures, list(results.values()))
        newest = max((r["provenance"] for rs in records.values() for r in rs), key=lambda p: p["date"])
        return cls(store.directory, newest, results, changes)


@dataclass(frozen=True)
class Page:
    """Everything the page of one paper shows."""

    paper: Paper
    out: Path  # results folder

    @cached_property
    def baseline(self) -> dict[str, Any]:
        return regression.load(self.paper)

    @cached_property
    def recorded(self) -> tuple[Scale, list[ClaimResult]] | None:
        return report.best_recorded(self.paper)

    @property
    def scale(self) -> Scale:
        return self.recorded[0] if self.recorded else "laptop"

    @cached_property
    def results(self) -> list[ClaimResult]:
        return self.recorded[1] if self.recorded else [judge(claim, {}) for claim in self.paper.claims]

    @cached_property
    def measures(self) -> dict[str, Measure]:
        return regression.recorded_measures(self.baseline[self.scale]) if self.recorded else {}

    @cached_property
    def fresh(self) -> Fresh | None:
        return Fresh.find(self.paper, self.scale, self.out)

    @cached_property
    def readme(self) -> Readme:
        path = self.paper.project / "README.md"
        return Readme.parse(path.read_text(encoding="utf-8") if path.is_file() else "")

    @cached_property
    def figures(self) -> dict[str, bytes]:
        """The README's figures that were drawn, by file name."""
        paths = [self.paper.project / "figures" / figure.name for figure in self.readme.figures]
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def command(self, claim: Claim | None = None, experiment: str = "") -> str:
        """What to type to run the paper, one experiment, or the experiments of one claim."""
        wanted = claim.experiments if claim else {experiment}
        names = [f"--experiment {name}" for name in self.paper.experiments if name in wanted]
        return " ".join(["claimlab run", self.paper.slug, "--scale", self.scale, *names])

    def claims_about(self, key: str) -> list[Claim]:
        return [c for c in self.paper.claims if key in (*c.check_keys, *c.show_keys)]


def size(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    return struct.unpack(">II", png[16:24])


def timings(path: Path) -> list[dict[str, Any]]:
    """The rows that `make bench` wrote; none where it has not run."""
    if not path.is_file():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        for row in rows:
            report.benchmark_cells(row)
    except (ValueError, KeyError, TypeError):
        raise ClaimlabError(f"{path} is damaged; delete it and run `make bench`") from None
    return rows


def examples() -> list[ClaimResult]:
    """One made-up claim for each verdict that a number can have, for the page that explains them."""
    check = Check(measure="gain", above=0.1, label="accuracy gained")
    claim = Claim(id="example", statement="", source="", reported="", experiment="example", checks=(check,))
    intervals = (Interval(0.2, 0.14, 0.26), Interval(0.02, -0.03, 0.07), Interval(0.12, 0.05, 0.19))
    return [judge(claim, {"example.gain": Measure("gain", (i.value,), i)}) for i in intervals]


def build(papers: Sequence[Paper], site: Path, *, out: Path, benchmarks: Path) -> Path:
    """Write the site and return its first page.

    Arguments:
        site: folder to write to; files of an earlier site are replaced.
        out: results folder; a run found there is shown beside the record.
        benchmarks: what `make bench` wrote.

    Raises:
        ClaimlabError: a file cannot be written, or something that is shown is damaged.
    """
    environment = Environment(
        loader=PackageLoader("claimlab"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": inline, "slug": lambda text: str(text).replace(" ", "-")}
    pages = [Page(paper, out) for paper in papers]
    environment.globals |= {
        "report": report,
        "drawing": drawing,
        "width": WIDTH,
        "size": size,
        "scales": SCALES,
        "inf": math.inf,
    }

    def write(path: str, template: str, **context: Any) -> None:
        context |= {"here": path, "root": "../" * path.count("/"), "pages": pages}
        write_atomic(site / path, environment.get_template(template).render(context))

    write("index.html", "index.html")
    write("verdicts.html", "verdicts.html", examples=examples())
    write("benchmarks.html", "benchmarks.html", rows=timings(benchmarks))
    write("style.css", "style.css")
    for page in pages:
        for name, content in page.figures.items():
            write_atomic(site / "figures" / page.paper.slug / name, content)
        write(f"papers/{page.paper.slug}.html", "paper.html", page=page)
    return site / "index.html"
