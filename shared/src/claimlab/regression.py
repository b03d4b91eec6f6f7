"""baseline.toml: what was recorded for each scale, and whether a run still agrees with it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w
from scipy import stats as sps

from claimlab.claims import ClaimResult, Measure, Verdict, judge
from claimlab.errors import ClaimlabError
from claimlab.paper import Paper, Scale
from claimlab.stats import Interval
from claimlab.store import Store, write_atomic

# A mean may move by this share of itself, or of the bound it is judged by, without a word: BLAS, CPU, thread count.
RELATIVE = 0.01
OF_BOUND = 0.05


@dataclass(frozen=True)
class Change:
    """A difference between a run and the record. `failed` says whether it is a regression."""

    what: str
    recorded: str
    measured: str
    allowed: str
    failed: bool


def tolerance(measure: Measure, bounds: Sequence[float]) -> float:
    """How far the mean may move: the spread over seeds (99 % t bound of a difference of two such means), an interval
    of its own, and a small share of the value and of the nearest criterion."""
    allowed = RELATIVE * abs(measure.interval.value)
    finite = [abs(b) for b in bounds if math.isfinite(b)]
    if finite:
        allowed = max(allowed, OF_BOUND * min(finite))
    n = len(measure.values)
    if n > 1:
        low, high = measure.interval[1:]
        error = (high - low) / 2 / sps.t.ppf(0.975, n - 1)  # standard error of the mean
        allowed = max(allowed, float(sps.t.ppf(0.995, n - 1)) * math.sqrt(2) * error)
    elif not math.isnan(measure.interval.low):
        allowed = max(allowed, measure.interval.high - measure.interval.low)
    return allowed


def record(store: Store, results: Sequence[ClaimResult], fresh: tuple[int, Sequence[ClaimResult]] | None) -> None:
    """Write this scale's section of baseline.toml.

    Arguments:
        fresh: verdicts on seeds that nobody looked at while the criteria were set, with the first such seed.

    Raises:
        ClaimlabError: an experiment is unfinished, or the code was not committed when it ran.
    """
    paper, scale = store.plan.paper, store.plan.scale
    records = store.records()
    missing = [name for name in paper.experiments if name not in records]
    if missing:
        raise ClaimlabError(f"{paper.slug} at {scale} scale is unfinished: {', '.join(missing)}; run it first")
    provenances = [r["provenance"] for rs in records.values() for r in rs]
    commits = {p["git"]["commit"] for p in provenances}
    if any(p["git"]["dirty"] in (True, None) for p in provenances):
        raise ClaimlabError(f"{paper.slug}: these results come from code that is not committed; commit, then run again")
    newest = max(provenances, key=lambda p: p["date"])
    bounds = criterion_bounds(paper)
    section: dict[str, Any] = {
        "date": newest["date"],
        "commits": sorted(commits),
        "cpu": newest["cpu"],
        "python": newest["python"],
        "platform": newest["platform"],
        "cpu_seconds": round(sum(p["cpu_seconds"] for p in provenances), 1),
        "versions": newest["versions"],
        "verdicts": {r.claim.id: str(r.verdict) for r in results},
        "measures": {key: _entry(m, bounds.get(key, [])) for key, m in store.measures().items()},
    }
    if fresh is not None:
        section["fresh"] = {"first_seed": fresh[0], "verdicts": {r.claim.id: str(r.verdict) for r in fresh[1]}}
    baseline = {**load(paper), scale: section}
    text = "# Written by `claimlab record` from a run on committed code; not edited by hand.\n\n" + tomli_w.dumps(
        baseline
    )
    write_atomic(paper.baseline_path, text)


def load(paper: Paper) -> dict[str, Any]:
    """baseline.toml as it stands; empty where nothing was recorded."""
    try:
        return tomllib.loads(paper.baseline_path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise ClaimlabError(f"{paper.baseline_path} is not valid TOML: {error}") from None


def recorded_measures(section: Mapping[str, Any]) -> dict[str, Measure]:
    """The recorded measures as they were judged."""
    return {
        key: Measure(
            key.split(".")[1],
            tuple(entry["values"]),
            Interval(entry["mean"], entry["low"], entry["high"]),
            entry.get("timing", False),
        )
        for key, entry in section["measures"].items()
    }


def recorded_results(paper: Paper, scale: Scale) -> list[ClaimResult] | None:
    """The recorded measures judged by today's claims; None where the scale was not recorded."""
    section = load(paper).get(scale)
    if section is None:
        return None
    measures = recorded_measures(section)
    return [judge(claim, measures) for claim in paper.claims]


def compare(
    section: Mapping[str, Any], measures: Mapping[str, Measure], results: Sequence[ClaimResult]
) -> list[Change]:
    """What differs from the record. A worse verdict or a moved mean fails; timings and better verdicts are told."""
    changes = []
    for result in results:
        before = section["verdicts"].get(result.claim.id)
        if before is None:
            changes.append(Change(f"claim {result.claim.id}", "nothing", str(result.verdict), "", True))
        elif before != result.verdict:
            worse = result.verdict.severity > Verdict(before).severity
            changes.append(
                Change(f"claim {result.claim.id}", before, str(result.verdict), "no worse", worse and not result.timed)
            )
    for key, entry in section["measures"].items():
        measure = measures.get(key)
        if measure is None:
            changes.append(Change(key, f"{entry['mean']:.6g}", "missing", "", True))
            continue
        allowed = entry.get("tolerance", math.inf)
        moved = abs(measure.interval.value - entry["mean"])
        same = measure.interval.value == entry["mean"] or moved <= allowed
        if math.isnan(entry["mean"]) and math.isnan(measure.interval.value):
            same = True
        if not same:
            timing = entry.get("timing", False)
            changes.append(
                Change(key, f"{entry['mean']:.6g}", f"{measure.interval.value:.6g}", f"± {allowed:.3g}", not timing)
            )
    for key in measures.keys() - section["measures"].keys():
        changes.append(Change(key, "nothing", f"{measures[key].interval.value:.6g}", "", True))
    return changes


def criterion_bounds(paper: Paper) -> dict[str, list[float]]:
    """The finite ends of every criterion on each measure."""
    out: dict[str, list[float]] = {}
    for claim in paper.claims:
        for check, key in zip(claim.checks, claim.check_keys, strict=True):
            if check.holds is None:
                out.setdefault(key, []).extend(b for b in check.accepted if math.isfinite(b))
    return out


def _entry(measure: Measure, bounds: Sequence[float]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "mean": measure.interval.value,
        "low": measure.interval.low,
        "high": measure.interval.high,
        "values": list(measure.values),
        "tolerance": tolerance(measure, bounds),
    }
    if measure.timing:
        entry["timing"] = True
    return entry
