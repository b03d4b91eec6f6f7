import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from claimlab import Check, Claim, Interval, Measure, Verdict, judge

# reproduced, not reproduced, straddling (inconclusive), not tested
R, N, S, T = Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE, Verdict.NOT_TESTED


def measure(value: float, low: float, high: float) -> Measure:
    return Measure("m", (value, value), Interval(value, low, high))


@pytest.mark.parametrize(
    ("criterion", "low", "high", "verdict"),
    [
        ({"above": 1.0}, 1.0, 2.0, R),  # bounds are inclusive
        ({"above": 1.0}, 0.5, 0.99, N),
        ({"above": 1.0}, 0.5, 1.0, S),
        ({"above": 1.0}, 0.9, 1.1, S),
        ({"below": 1.0}, 0.5, 1.0, R),
        ({"below": 1.0}, 1.01, 2.0, N),
        ({"below": 1.0}, 0.9, 1.1, S),
        ({"between": [0.0, 1.0]}, 0.0, 1.0, R),
        ({"between": [0.0, 1.0]}, 1.1, 1.2, N),
        ({"between": [0.0, 1.0]}, -0.2, -0.1, N),
        ({"between": [0.0, 1.0]}, -0.1, 1.1, S),
        ({"near": 2.0, "tolerance": 0.5}, 1.5, 2.5, R),
        ({"near": 2.0, "tolerance": 0.5}, 2.6, 2.7, N),
        ({"near": 2.0, "tolerance": 0.5}, 2.4, 2.6, S),
        ({"above": 1.0}, math.nan, math.nan, S),
        ({"above": 1.0}, math.inf, math.inf, R),
    ],
)
def test_criteria_at_their_edges(criterion, low, high, verdict):
    assert Check(measure="m", **criterion).judge(measure((low + high) / 2, low, high)) is verdict


@pytest.mark.parametrize(
    ("holds", "values", "verdict"),
    [
        (True, (1, 1, 1), R),
        (True, (1, 1, 0), N),
        (0.8, (1, 1, 1, 1, 0), R),
        (0.8, (1, 1, 1, 0, 0), N),
        (True, (1, math.nan), S),
    ],
)
def test_holds_counts_seeds(holds, values, verdict):
    over_seeds = Measure.over_seeds("m", [Interval(v, math.nan, math.nan) for v in values])
    assert Check(measure="m", holds=holds).judge(over_seeds) is verdict


@given(st.floats(-10, 10), st.floats(0, 5), st.floats(-10, 10))
def test_above_and_below_mirror_each_other(centre, half, bound):
    up = Check(measure="m", above=bound).judge(measure(centre, centre - half, centre + half))
    down = Check(measure="m", below=-bound).judge(measure(-centre, -centre - half, -centre + half))
    assert up is down


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"above": 1.0, "below": 2.0},
        {"near": 1.0},
        {"tolerance": 1.0, "above": 1.0},
        {"between": [2.0, 1.0]},
        {"holds": 1.5},
        {"holds": False},
        {"near": 1.0, "tolerance": -1.0},
        {"abvoe": 1.0},
    ],
)
def test_malformed_checks_are_refused(fields):
    with pytest.raises(ValidationError):
        Check(measure="m", **fields)


def claim(**fields) -> Claim:
    base = {"id": "a-claim", "statement": "s", "source": "s", "reported": "1", "experiment": "e"}
    return Claim.model_validate(base | fields)


def test_a_claim_takes_its_worst_check_and_keeps_each():
    checks = [{"measure": "good", "above": 0.0}, {"measure": "bad", "above": 5.0}, {"measure": "wide", "above": 1.0}]
    measures = {"e.good": measure(1, 0.5, 1.5), "e.bad": measure(1, 0.5, 1.5), "e.wide": measure(1, 0.5, 1.5)}
    result = judge(claim(checks=checks), measures)
    assert result.verdict is N
    assert [c.verdict for c in result.checks] == [R, N, S]
    assert judge(claim(checks=[checks[0], checks[2]]), measures).verdict is S


def test_a_missing_measure_leaves_the_claim_untested_with_the_reason():
    result = judge(claim(checks=[{"measure": "m", "above": 0.0}]), {})
    assert (result.verdict, result.reason) == (T, "no measure e.m in this run")
    failed = judge(
        claim(checks=[{"measure": "m", "above": 0.0}, {"measure": "bad", "above": 5.0}]), {"e.bad": measure(1, 1, 1)}
    )
    assert failed.verdict is N  # a criterion that fails is not hidden by one that is missing


def test_a_check_may_use_another_experiment():
    result = judge(claim(checks=[{"experiment": "f", "measure": "m", "above": 0.0}]), {"f.m": measure(1, 1, 1)})
    assert result.verdict is R


def test_not_tested_gives_its_reason():
    assert judge(claim(not_tested="needs GPUs", experiment=""), {}).reason == "needs GPUs"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"not_tested": "x", "checks": [{"measure": "m", "above": 0.0}]},
        {"id": "Not Kebab", "not_tested": "x"},
        {"experiment": "", "checks": [{"measure": "m", "above": 0.0}]},
    ],
)
def test_malformed_claims_are_refused(fields):
    with pytest.raises(ValidationError):
        claim(**fields)


def test_one_seed_has_no_interval_unless_the_experiment_gives_one_or_is_exact():
    bare, own = Interval(1.0, math.nan, math.nan), Interval(1.0, 0.5, 1.5)
    assert math.isnan(Measure.over_seeds("m", [bare]).interval.low)
    assert Measure.over_seeds("m", [own]).interval == own
    assert Measure.over_seeds("m", [bare], exact=True).interval == (1.0, 1.0, 1.0)
    assert Measure.over_seeds("m", [own, own, own]).interval == (1.0, 1.0, 1.0)  # over seeds, t takes over
    assert judge(claim(checks=[{"measure": "m", "above": 0.0}]), {"e.m": Measure.over_seeds("m", [bare])}).reason == (
        "e.m has one seed and so no interval"
    )


def test_a_value_that_is_not_finite_is_inconclusive():
    values = [Interval(v, math.nan, math.nan) for v in (1.0, math.inf, 2.0)]
    result = judge(claim(checks=[{"measure": "m", "above": 0.0}]), {"e.m": Measure.over_seeds("m", values)})
    assert result.verdict is S
    assert "not a finite number" in result.reason
