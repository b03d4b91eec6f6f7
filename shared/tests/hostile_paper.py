"""A paper whose every text tries to become part of the page, with a record, a fresh run that moved, and timings."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from claimlab import Paper, plotting
from claimlab.plan import Plan
from claimlab.run import render
from claimlab.runner import run_plan
from claimlab.store import Store

EVIL = (
    """<script>document.title='owned'</script> & "quoted" 'x' </td></table> """
    "<img src=https://example.invalid/a.png onerror=alert(1)>"
)

README = f"""# evil {EVIL}

The *idea*, with {EVIL} and ![remote](https://example.invalid/b.png) and [home](../../README.md).

The idea goes on.

```python
print("{EVIL}")
```

Words after the example.

## What is claimed

A note beside the table.

<!-- claims:start -->
| stale | table |
| --- | --- |
<!-- claims:end -->

![A "curve" <b>bold</b>](figures/curve.png)

Caption of the curve.

![Not drawn](figures/missing.png)

Caption of nothing.

## Reconstructions

- **One** [bad](javascript:alert(1)), [good](https://example.org/x), [near](#limits)

| a wide table | {"| ".join(f"column number {i} " for i in range(12))}|
|{" --- |" * 13}
|{" cell |" * 13}

## Limits <i>all</i>

A very long word: {"x" * 300}, and `{"code" * 80}`.

    indented </code></pre><script>alert(2)</script>
"""


@dataclass(frozen=True)
class Config:
    """Settings."""

    n: int = 1


class Hostile:
    """`paper`, the `results` folder with its fresh run, and the file of `benchmarks`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.benchmarks = folder / "results.json"
        package = folder / "src" / "evil"
        package.mkdir(parents=True)
        (folder / "pyproject.toml").write_text("")
        (folder / "README.md").write_text(README, encoding="utf-8")
        (package / "claims.toml").write_text(tomli_w.dumps(claims()), encoding="utf-8")
        (package / "baseline.toml").write_text(tomli_w.dumps(baseline()), encoding="utf-8")
        (folder / "figures").mkdir()
        fig, ax = plotting.subplots()
        ax.plot([1, 2])
        (folder / "figures" / "curve.png").write_bytes(render(fig)["png"])
        self.benchmarks.write_text(json.dumps([timing(0.5, 1.0), timing(2.0, 1.0), timing(1.5, None)]))
        self.paper = Paper("evil", directory=package)

        @self.paper.experiment(
            smoke=Config(), laptop=Config(), paper=Config(), needs={"paper": EVIL}, minutes={"paper": 5000}
        )
        def measuring(config, run):
            run.measure("gain", 0.3 + 0.01 * run.seed)
            run.measure("holds_up", run.seed != 1)
            run.measure("rate", 7.0)
            run.measure("seconds", 1.0, timing=True)

        measuring.__doc__ = EVIL
        run_plan(Store(self.results, Plan.make(self.paper, "laptop")), jobs=1)


def claims() -> dict:
    claim = {"source": EVIL, "reported": EVIL, "statement": EVIL, "experiment": "measuring"}
    return {
        "paper": {"title": EVIL, "authors": [EVIL], "arxiv": '1"><script>', "venue": EVIL, "evidence": "parts"},
        "claim": [
            {**claim, "id": "c-ten", "spec": "C10", "checks": [{"measure": "gain", "above": 0.1, "label": EVIL}]},
            {
                **claim,
                "id": "c-two",
                "spec": "C2",
                "reconstructed": True,
                "checks": [{"measure": "rate", "below": 1.0}],
            },
            {
                **claim,
                "id": "c-one",
                "spec": EVIL,
                "checks": [{"measure": "holds_up", "holds": 0.6}, {"measure": "gain", "between": [0.2, 0.4]}],
                "show": ["seconds"],
            },
            {"id": "c-none", **{k: EVIL for k in ("source", "reported", "statement", "not_tested")}},
        ],
    }


def baseline() -> dict:
    def entry(values: list[float], low: float, high: float, **more) -> dict:
        return {
            "mean": sum(values) / len(values),
            "low": low,
            "high": high,
            "values": values,
            "tolerance": 0.05,
            **more,
        }

    section = {
        "date": "2026-01-02T03:04:05Z",
        "commits": [EVIL],
        "cpu": EVIL,
        "python": EVIL,
        "platform": EVIL,
        "cpu_seconds": 60.0,
        "versions": {EVIL: EVIL},
        "verdicts": {
            "c-ten": "reproduced",
            "c-two": "not reproduced",
            "c-one": "inconclusive",
            "c-none": "not tested",
        },
        "measures": {
            "measuring.gain": entry([0.3, 0.31, 0.32], 0.15, 0.47),
            "measuring.holds_up": entry([1.0, 0.0, 1.0], -0.7, 2.0),
            "measuring.rate": entry([9.0, 10.0, 11.0], 7.5, 12.5),
            "measuring.seconds": entry([1.0, 1.0, math.nan], math.nan, math.nan, timing=True),
        },
        "fresh": {"first_seed": 1000, "verdicts": {"c-ten": "inconclusive"}},
    }
    return {"smoke": section, "laptop": section}


def timing(ratio: float, target: float | None) -> dict:
    return {
        **{"paper": "evil", "what": EVIL, "peer": EVIL, "cpu": EVIL, "python": "3", "date": "2026-01-02"},
        **{"ratio": ratio, "low": ratio * 0.9, "high": ratio * 1.1, "target": target},
    }
