"""Declare a paper's claims, run its experiments, judge what was measured, guard the numbers."""

from claimlab import costs, plotting, stats
from claimlab.claims import Check, Claim, ClaimResult, Measure, Verdict, judge
from claimlab.errors import ClaimlabError
from claimlab.paper import Count, Counts, Paper, load_paper, paper_names
from claimlab.run import Run
from claimlab.stats import Interval

__all__ = [
    "Check",
    "Claim",
    "ClaimResult",
    "ClaimlabError",
    "Count",
    "Counts",
    "Interval",
    "Measure",
    "Paper",
    "Run",
    "Verdict",
    "costs",
    "judge",
    "load_paper",
    "paper_names",
    "plotting",
    "stats",
]
