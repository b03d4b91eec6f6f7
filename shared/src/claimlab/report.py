"""Claims tables for people: in the terminal, as Markdown, and between the markers of a README."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from claimlab import regression
from claimlab.claims import CheckResult, ClaimResult, Measure, Verdict
from claimlab.errors import ClaimlabError
from claimlab.paper import Paper, Scale
from claimlab.store import write_atomic

COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_TESTED: "dim",
}
MARKS = {
    Verdict.REPRODUCED: "✓",
    Verdict.NOT_REPRODUCED: "✗",
    Verdict.INCONCLUSIVE: "~",
    Verdict.NOT_TESTED: "–",
}


def number(value: float) -> str:
    """Three or four significant digits, as a person would write it."""
    if math.isnan(value):
        return "?"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text and 1e3 <= abs(value) < 1e6 else text


def interval(measure: Measure) -> str:
    """`value (low to high, n seeds)`; no interval is shown where there is none."""
    value, low, high = measure.interval
    seeds = f"{len(measure.values)} seeds" if len(measure.values) > 1 else ""
    span = "" if math.isnan(low) or low == high else f"{number(low)} to {number(high)}"
    inside = ", ".join(filter(None, (span, seeds)))
    return number(value) + (f" ({inside})" if inside else "")


def _check_line(result: CheckResult) -> str:
    name = result.check.label or result.check.measure.replace("_", " ")
    if result.measure is None:
        return f"{name}: {result.reason}"
    if result.check.holds is not None:
        met = sum(v != 0 for v in result.measure.values)
        return (
            f"{name}: {met} of {len(result.measure.values)} seeds"
            if len(result.measure.values) > 1
            else (f"{name}: {'yes' if met else 'no'}")
        )
    return f"{name}: {interval(result.measure)}"


def measured_lines(result: ClaimResult) -> list[str]:
    """One line a check, then the measures shown beside them."""
    lines = []
    for check in result.checks:
        mark = MARKS[check.verdict] + " " if len(result.checks) > 1 else ""
        lines.append(mark + _check_line(check))
    lines += [f"({key.split('.')[1].replace('_', ' ')}: {interval(measure)})" for key, measure in result.shown]
    return lines or [result.reason]


def criterion_lines(result: ClaimResult) -> list[str]:
    return [str(check.check) for check in result.checks]


def terminal_table(paper: Paper, scale: str, results: Sequence[ClaimResult]) -> Table:
    """The claims of one paper for a terminal."""
    table = Table(title=f"{paper.slug}, {scale} scale: {paper.info.title}", show_lines=True, title_justify="left")
    for column in ("id", "claim", "paper", "measured here", "criterion", "verdict"):
        table.add_column(column, overflow="fold")
    for result in results:
        claim, colour = result.claim, COLOURS[result.verdict]
        table.add_row(
            claim.spec or claim.id,
            claim.statement + (" [dim](reconstructed)[/dim]" if claim.reconstructed else ""),
            claim.reported,
            "\n".join(_escape(line) for line in measured_lines(result)),
            _escape("\n".join(criterion_lines(result))),
            f"[{colour}]{result.verdict}[/{colour}]",
        )
    return table


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", "<br>")


def markdown_table(results: Sequence[ClaimResult]) -> str:
    """The claims as a Markdown table."""
    rows = ["| id | claim | paper's number | measured here (95 % interval) | criterion | verdict |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for result in results:
        claim = result.claim
        cells = (
            claim.spec or claim.id,
            claim.statement + (" *(reconstructed)*" if claim.reconstructed else ""),
            claim.reported,
            "\n".join(measured_lines(result)),
            "\n".join(criterion_lines(result)) or "–",
            f"**{result.verdict}**",
        )
        rows.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(rows)


def summary(results: Sequence[ClaimResult]) -> str:
    """`8 reproduced, 1 not reproduced, 2 inconclusive, 1 not tested`."""
    counts = Counter(r.verdict for r in results)
    order = (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE, Verdict.NOT_TESTED)
    return ", ".join(f"{counts[v]} {v}" for v in order if counts[v])


def between_markers(text: str, name: str, content: str, path: Path) -> str:
    """`text` with what stands between `<!-- name:start -->` and `<!-- name:end -->` replaced."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ClaimlabError(f"{path} needs the markers {start} and {end}, once each")
    head, rest = text.split(start)
    return f"{head}{start}\n{content}\n{end}{rest.split(end)[1]}"


def best_recorded(paper: Paper) -> tuple[Scale, list[ClaimResult]] | None:
    """The recorded results of the largest recorded scale up to laptop."""
    for scale in ("laptop", "smoke"):
        results = regression.recorded_results(paper, scale)
        if results is not None:
            return scale, results
    return None


def readme_section(paper: Paper) -> str:
    """What stands between the claims markers of a package's README, from the record."""
    best = best_recorded(paper)
    if best is None:
        return "*Nothing recorded yet.*"
    scale, results = best
    section = regression.load(paper)[scale]
    lines = [
        f"Recorded at {scale} scale on {section['date'][:10]} ({section['cpu']}, Python {section['python']}, "
        f"{section['cpu_seconds'] / 60:.1f} process-minutes): {summary(results)}. "
        f"How much of the paper could be read: {paper.info.evidence}.",
        "",
        markdown_table(results),
    ]
    if fresh := section.get("fresh"):
        differing = [
            f"{claim}: {section['verdicts'][claim]} here, {verdict} there"
            for claim, verdict in fresh["verdicts"].items()
            if verdict != section["verdicts"][claim]
        ]
        told = "; ".join(differing) if differing else "every verdict is the same"
        lines += ["", f"On seeds nobody looked at before (from {fresh['first_seed']}): {told}."]
    return "\n".join(lines)


def scoreboard(papers: Sequence[Paper], link: str = "packages/{slug}") -> str:
    """One row a paper, for the README at the root."""
    rows = ["| package | paper | read | reproduced | not reproduced | inconclusive | not tested |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    for paper in papers:
        best = best_recorded(paper)
        counts = Counter(r.verdict for r in best[1]) if best else Counter()
        cells = [f"[{paper.slug}]({link.format(slug=paper.slug)})", paper.info.title, paper.info.evidence]
        order = (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE, Verdict.NOT_TESTED)
        cells += [str(counts[v]) if best else "" for v in order]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def update_readme(paper: Paper, figures: Path | None = None) -> None:
    """Bring the package's README up to date with the record, and take the figures it shows from `figures`."""
    path = paper.project / "README.md"
    text = path.read_text(encoding="utf-8")
    write_atomic(path, between_markers(text, "claims", readme_section(paper), path))
    for name in readme_figures(text) if figures else ():
        found = sorted(figures.rglob(name)) if figures else []
        if not found:
            raise ClaimlabError(f"{path} shows figures/{name}, which this run did not draw")
        write_atomic(paper.project / "figures" / name, found[0].read_bytes())


def readme_figures(text: str) -> list[str]:
    """File names of the figures that a README shows from its `figures` folder."""
    return re.findall(r"\]\(figures/([\w-]+\.png)\)", text)


def print_results(console: Console, paper: Paper, scale: str, results: Sequence[ClaimResult]) -> None:
    """The claims table and its summary."""
    console.print(terminal_table(paper, scale, results))
    console.print(f"{paper.slug}: {summary(results)}", highlight=False)


def benchmarks_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Ratios against peers, as Markdown; a missed target is said, not hidden."""
    lines = ["| paper | what | peer | time ours / peer's | target | machine |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        target = "–" if row["target"] is None else f"≤ {row['target']:g}"
        if row["target"] is not None and row["ratio"] > row["target"]:
            target += " (missed)"
        ratio = f"{number(row['ratio'])} ({number(row['low'])} to {number(row['high'])})"
        cells = (row["paper"], row["what"], row["peer"], ratio, target, f"{row['cpu']}, {row['date']}")
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)
