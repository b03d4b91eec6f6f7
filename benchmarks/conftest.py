"""The fixture `compare`: two callables timed in turn in one run; the ratios go to results.json and README.md here.

pytest-benchmark times one callable after the other, so that a machine whose speed drifts favours one of them;
`claimlab.costs.paired_ratio` alternates. `make bench` runs everything.
"""

import json
import os
import platform
from pathlib import Path

import pytest

from claimlab import costs, report
from claimlab.store import provenance, write_atomic

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
rows: list[dict] = []


@pytest.fixture
def compare(request: pytest.FixtureRequest):
    """`compare(label, ours, peer, peer_name=…, target=…)`: records the median ratio time(ours) / time(peer)."""

    def record(label: str, ours, peer, *, peer_name: str, target: float | None, repeats: int = 15) -> float:
        ratio = costs.paired_ratio(ours, peer, repeats=repeats)
        where = provenance(0, os.cpu_count() or 1, 0.0, 0.0)
        rows.append(
            {
                "paper": request.path.stem.removeprefix("bench_").replace("_", "-"),
                "what": label,
                "peer": peer_name,
                "ratio": float(f"{ratio.value:.4g}"),
                "low": float(f"{ratio.low:.4g}"),
                "high": float(f"{ratio.high:.4g}"),
                "target": target,
                "cpu": where["cpu"],
                "python": platform.python_version(),
                "date": where["date"][:10],
            }
        )
        return ratio.value

    return record


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Replace the rows of the papers that were timed, keep the others."""
    if not rows:
        return
    timed = {row["paper"] for row in rows}
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    merged = sorted([r for r in kept if r["paper"] not in timed] + rows, key=lambda r: (r["paper"], r["what"]))
    write_atomic(RESULTS, json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
    readme = HERE / "README.md"
    text = readme.read_text(encoding="utf-8")
    write_atomic(readme, report.between_markers(text, "benchmarks", report.benchmarks_table(merged), readme))
