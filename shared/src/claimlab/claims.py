"""Claims, their criteria and how a measure is judged against them. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from claimlab import stats
from claimlab.stats import Interval


class Verdict(StrEnum):
    """What a claim's measured value says about it."""

    REPRODUCED = "reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"
    NOT_REPRODUCED = "not reproduced"

    @property
    def severity(self) -> int:
        """0 is best; a claim takes the most severe verdict of its checks."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Measure:
    """One named number of an experiment, over its seeds.

    `interval` has NaN bounds where none can be had (one seed of a random experiment, or a value that is not finite).
    """

    name: str
    values: tuple[float, ...]
    interval: Interval
    timing: bool = False

    @classmethod
    def over_seeds(
        cls, name: str, per_seed: Sequence[Interval], *, exact: bool = False, timing: bool = False
    ) -> Measure:
        """Join the seeds' values: Student's t over several seeds; one seed keeps its own interval.

        `exact` says that the experiment has no randomness, so that one value is its own interval.
        """
        values = tuple(x.value for x in per_seed)
        interval = stats.mean(values)
        if len(per_seed) == 1:
            (own,) = per_seed
            if not math.isnan(own.low):
                interval = own
            elif exact:
                interval = Interval(own.value, own.value, own.value)
        return cls(name, values, interval, timing)


class Check(BaseModel):
    """One criterion on one measure: exactly one of `above`, `below`, `between`, `near` (with `tolerance`), `holds`.

    Bounds are inclusive. `holds = true`: the measure is true in every seed; `holds = 0.8`: in at least 80 % of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    measure: str
    experiment: str = ""
    label: str = ""
    above: float | None = None
    below: float | None = None
    between: tuple[float, float] | None = None
    near: float | None = None
    tolerance: Annotated[float, Field(ge=0)] | None = None
    holds: Literal[True] | Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _one_criterion(self) -> Check:
        kinds = [k for k in ("above", "below", "between", "near", "holds") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"check of {self.measure!r} needs exactly one of above, below, between, near, holds; got {kinds}"
            )
        if (self.near is None) != (self.tolerance is None):
            raise ValueError(f"check of {self.measure!r}: near and tolerance go together")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"check of {self.measure!r}: between needs low <= high, got {list(self.between)}")
        return self

    @property
    def accepted(self) -> tuple[float, float]:
        """The closed range of values that meet the criterion (for `holds`: of the share of seeds)."""
        if self.above is not None:
            return self.above, math.inf
        if self.below is not None:
            return -math.inf, self.below
        if self.between is not None:
            return self.between
        if self.near is not None and self.tolerance is not None:
            return self.near - self.tolerance, self.near + self.tolerance
        return float(self.holds or 0), math.inf

    def __str__(self) -> str:
        if self.above is not None:
            return f">= {self.above:g}"
        if self.below is not None:
            return f"<= {self.below:g}"
        if self.between is not None:
            return f"in [{self.between[0]:g}, {self.between[1]:g}]"
        if self.near is not None:
            return f"{self.near:g} ± {self.tolerance:g}"
        return "holds" if self.holds is True else f"holds in {self.holds:.0%} of seeds"

    def judge(self, measure: Measure) -> Verdict:
        """Compare the whole interval with the accepted range."""
        low, high = self.accepted
        if self.holds is not None:
            if any(math.isnan(v) for v in measure.values):
                return Verdict.INCONCLUSIVE
            share = sum(v != 0 for v in measure.values) / len(measure.values)
            return Verdict.REPRODUCED if share >= low - 1e-12 else Verdict.NOT_REPRODUCED
        bounds = measure.interval[1:]
        if any(math.isnan(b) for b in bounds):
            return Verdict.INCONCLUSIVE
        if bounds[0] >= low and bounds[1] <= high:
            return Verdict.REPRODUCED
        if bounds[1] < low or bounds[0] > high:
            return Verdict.NOT_REPRODUCED
        return Verdict.INCONCLUSIVE


class Claim(BaseModel):
    """One claim of a paper, as claims.toml declares it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    spec: str = ""
    statement: str
    source: str
    reported: str
    reconstructed: bool = False
    experiment: str = ""
    checks: tuple[Check, ...] = ()
    show: tuple[str, ...] = ()
    not_tested: str = ""

    @model_validator(mode="after")
    def _tested_or_not(self) -> Claim:
        if bool(self.not_tested) == bool(self.checks):
            raise ValueError(f"claim {self.id!r} needs either checks or a not_tested reason")
        if self.checks and not self.experiment and not all(c.experiment for c in self.checks):
            raise ValueError(f"claim {self.id!r} needs an experiment for its checks")
        return self

    def key(self, measure: str, experiment: str = "") -> str:
        """`experiment.measure`, the name under which a measure is kept (a `show` entry may already carry its own)."""
        return measure if "." in measure else f"{experiment or self.experiment}.{measure}"

    @property
    def check_keys(self) -> tuple[str, ...]:
        return tuple(self.key(c.measure, c.experiment) for c in self.checks)

    @property
    def show_keys(self) -> tuple[str, ...]:
        return tuple(self.key(name) for name in self.show)

    @property
    def experiments(self) -> set[str]:
        return {key.split(".")[0] for key in (*self.check_keys, *self.show_keys)}


@dataclass(frozen=True)
class CheckResult:
    check: Check
    key: str
    measure: Measure | None
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class ClaimResult:
    claim: Claim
    verdict: Verdict
    checks: tuple[CheckResult, ...] = ()
    shown: tuple[tuple[str, Measure], ...] = ()
    reason: str = ""

    @property
    def timed(self) -> bool:
        """Whether the verdict hangs on a timing, which differs between machines."""
        return any(c.measure is not None and c.measure.timing for c in self.checks)


def judge(claim: Claim, measures: Mapping[str, Measure]) -> ClaimResult:
    """Judge a claim by measures named `experiment.measure`; a missing one leaves it not tested, with the reason."""
    if claim.not_tested:
        return ClaimResult(claim, Verdict.NOT_TESTED, reason=claim.not_tested)
    results = []
    for check, key in zip(claim.checks, claim.check_keys, strict=True):
        measure = measures.get(key)
        if measure is None:
            results.append(CheckResult(check, key, None, Verdict.NOT_TESTED, f"no measure {key} in this run"))
            continue
        verdict, reason = check.judge(measure), ""
        if verdict is Verdict.INCONCLUSIVE:
            reason = _why_inconclusive(key, measure)
        results.append(CheckResult(check, key, measure, verdict, reason))
    worst = max(results, key=lambda r: r.verdict.severity)
    shown = tuple((key, measures[key]) for key in claim.show_keys if key in measures)
    return ClaimResult(claim, worst.verdict, tuple(results), shown, worst.reason)


def _why_inconclusive(key: str, measure: Measure) -> str:
    if not all(math.isfinite(v) for v in measure.values):
        return f"{key} is not a finite number in every seed"
    if math.isnan(measure.interval.low):
        return f"{key} has one seed and so no interval"
    return "the interval straddles the criterion"
