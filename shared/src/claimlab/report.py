"""What is said about claims, in one place: terminal tables, the marked parts of READMEs, the words of the site."""

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
MEANINGS = {
    Verdict.REPRODUCED: "the whole interval meets the criterion",
    Verdict.NOT_REPRODUCED: "the whole interval fails it",
    Verdict.INCONCLUSIVE: "the interval straddles it, or there is no interval",
    Verdict.NOT_TESTED: "it needs what is not here (weights, GPUs, human raters…); the reason is given",
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


def spoken(name: str) -> str:
    """A measure's name (`measure` or `experiment.measure`) in words."""
    return name.rpartition(".")[2].replace("_", " ")


def check_name(result: CheckResult) -> str:
    return result.check.label or spoken(result.check.measure)


def check_value(result: CheckResult) -> str:
    """What was measured: a value with its interval, or in how many seeds it holds."""
    if result.measure is None:
        return result.reason
    if result.check.holds is None:
        return interval(result.measure)
    met, seeds = sum(v != 0 for v in result.measure.values), len(result.measure.values)
    return f"{met} of {seeds} seeds" if seeds > 1 else "yes" if met else "no"


def measured_lines(result: ClaimResult) -> list[str]:
    """One line a check, then the measures shown beside them."""
    lines = []
    for check in result.checks:
        mark = MARKS[check.verdict] + " " if len(result.checks) > 1 else ""
        lines.append(f"{mark}{check_name(check)}: {check_value(check)}")
    lines += [f"({spoken(key)}: {interval(measure)})" for key, measure in result.shown]
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


def verdict_counts(results: Sequence[ClaimResult]) -> dict[Verdict, int]:
    """How many claims have each verdict, in the order of every scoreboard."""
    counts = Counter(r.verdict for r in results)
    return {verdict: counts[verdict] for verdict in MARKS}


def summary(results: Sequence[ClaimResult]) -> str:
    """`8 reproduced, 1 not reproduced, 2 inconclusive, 1 not tested`."""
    return ", ".join(f"{count} {verdict}" for verdict, count in verdict_counts(results).items() if count)


def verdicts_table() -> str:
    """What each verdict means, as Markdown."""
    rows = [f"| **{verdict}** | {meaning} |" for verdict, meaning in MEANINGS.items()]
    return "\n".join(["| verdict | when |", "| --- | --- |", *rows])


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


def record_sentence(paper: Paper, scale: Scale, results: Sequence[ClaimResult]) -> str:
    """When and on what a scale was recorded, and what came out."""
    section = regression.load(paper)[scale]
    return (
        f"Recorded at {scale} scale on {section['date'][:10]} ({section['cpu']}, Python {section['python']}, "
        f"{section['cpu_seconds'] / 60:.1f} CPU-minutes): {summary(results)}. "
        f"How much of the paper could be read: {paper.info.evidence}."
    )


def other_seeds_sentence(paper: Paper, scale: Scale) -> str:
    """How the verdicts on seeds that nobody looked at differ; empty where no such run was recorded."""
    section = regression.load(paper)[scale]
    if not (fresh := section.get("fresh")):
        return ""
    differing = [
        f"{claim}: {section['verdicts'][claim]} here, {verdict} there"
        for claim, verdict in fresh["verdicts"].items()
        if verdict != section["verdicts"][claim]
    ]
    told = "; ".join(differing) if differing else "every verdict is the same"
    return f"On seeds nobody looked at before (from {fresh['first_seed']}): {told}."


def readme_section(paper: Paper) -> str:
    """What stands between the claims markers of a package's README, from the record."""
    best = best_recorded(paper)
    if best is None:
        return "*Nothing recorded yet.*"
    parts = [record_sentence(paper, *best), markdown_table(best[1]), other_seeds_sentence(paper, best[0])]
    return "\n\n".join(filter(None, parts))


def scoreboard(papers: Sequence[Paper], link: str = "packages/{slug}") -> str:
    """One row a paper, for the README at the root."""
    rows = ["| package | paper | read | reproduced | not reproduced | inconclusive | not tested |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    for paper in papers:
        best = best_recorded(paper)
        cells = [f"[{paper.slug}]({link.format(slug=paper.slug)})", paper.info.title, paper.info.evidence]
        cells += [str(count) if best else "" for count in verdict_counts(best[1] if best else ()).values()]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def update_root_readme(path: Path, papers: Sequence[Paper]) -> None:
    """Bring the scoreboard and the meaning of the verdicts in the root README up to date."""
    text = between_markers(path.read_text(encoding="utf-8"), "scoreboard", scoreboard(papers), path)
    write_atomic(path, between_markers(text, "verdicts", verdicts_table(), path))


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


BENCHMARK_COLUMNS = ("paper", "what", "peer", "time ours / peer's", "target", "machine")


def missed(row: Mapping[str, Any]) -> bool:
    """Whether a timing is above its target."""
    return row["target"] is not None and row["ratio"] > row["target"]


def benchmark_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One timing against a peer, in words; a missed target is said, not hidden."""
    target = "–" if row["target"] is None else f"≤ {row['target']:g}"
    if missed(row):
        target += " (missed)"
    ratio = f"{number(row['ratio'])} ({number(row['low'])} to {number(row['high'])})"
    return row["paper"], row["what"], row["peer"], ratio, target, f"{row['cpu']}, {row['date']}"


def benchmarks_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Ratios against peers, as Markdown."""
    lines = ["| " + " | ".join(BENCHMARK_COLUMNS) + " |", "| " + " | ".join("---" for _ in BENCHMARK_COLUMNS) + " |"]
    lines += ["| " + " | ".join(_cell(cell) for cell in benchmark_cells(row)) + " |" for row in rows]
    return "\n".join(lines)
