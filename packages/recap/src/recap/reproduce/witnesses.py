"""E1: V*, Jensen gaps and code cells on the line of tiger's beliefs; what a gap certifies about every policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from claimlab import Count, Counts, Run, plotting

from ..codebook import RECAP
from ..controller import RandomizedController
from ..models import benchmarks
from ..reach import belief_layers
from ..upper import upper_value
from ..witness import decision_witness, gap_matrix
from .problems import Models, Problem, count, paper, problems

_ZERO = 1e-11  # a gap up to this is none


@dataclass(frozen=True)
class Witnesses(Models):
    """Pairs of reachable beliefs and the policies that serve them (section 6, E1)."""

    policies: Count = 100  # random controllers of three states; each memory state is a policy
    horizon: Count = 4  # steps within which beliefs are listed
    max_beliefs: Count = 100  # beliefs of which all pairs are looked at, where V* is known on the whole simplex
    max_bounded: Count = 20  # the same where V* at every midpoint needs an upper bound of its own
    memory: Counts = (2, 3, 4, 5, 6)  # codebooks drawn in the figure


@paper.experiment(
    smoke=Witnesses(models=("tiger", "1d", "parr95"), policies=20, horizon=3, max_bounded=10),
    laptop=Witnesses(),
    paper=Witnesses(policies=500, horizon=6, max_beliefs=400, max_bounded=60, n_beliefs=5_000),
    minutes={"laptop": 0.7},
)
def witnesses(config: Witnesses, run: Run) -> None:
    """What a Jensen gap says about every policy, and tiger's V*, gaps and cells."""
    worst, violations, rows = 0.0, 0, []
    for problem in run.progress(problems(config, run.seed), "models", count(config)):
        found = _pairs(problem, config, run.rng)
        worst, violations = max(worst, found["shared"]), violations + found["violations"]
        witness = decision_witness(problem.pomdp, problem.vf, K=1, t_max=config.horizon)
        rows.append(
            {
                "model": problem.name, "pairs": found["pairs"], "without_gap": found["without_gap"],
                "certified_gaps": found["certified_gaps"],
                "witness_size": len(witness.probs), "witness_time": witness.t, "margin": witness.margin,
                **{f"counting_{K}": witness.bound(K) for K in (1, 2, 3, 4)},
            }
        )  # fmt: skip
    run.measure("zero_gap_distortion", worst)
    run.measure("margin_violations", violations)
    run.table("witnesses", pd.DataFrame(rows))
    run.figure("tiger_line", _tiger_line(config.memory, run.seed))


def _pairs(problem: Problem, config: Witnesses, rng: np.random.Generator) -> dict[str, float]:
    """Over all pairs: the best policy shared at zero gap, and policies that contradict a gap.

    A gap that is to bind every policy needs V* at the midpoint from above and at the two beliefs from below; what a
    policy loses needs V* at the beliefs from above. Small models have both to 1e-6.
    """
    layers = belief_layers(problem.pomdp, config.horizon, max_beliefs=2_000)
    beliefs = np.unique(np.round(np.vstack([layer.beliefs for layer in layers]), 9), axis=0)
    vf, known = problem.whole, np.isfinite(problem.whole.error)
    limit = config.max_beliefs if known else config.max_bounded
    if len(beliefs) > limit:
        beliefs = beliefs[rng.choice(len(beliefs), limit, replace=False)]
    i, j = np.triu_indices(len(beliefs), 1)
    middle = 0.5 * (beliefs[i] + beliefs[j])
    low = np.asarray(vf.value(beliefs))
    if known:
        high, high_middle = low + vf.error, np.asarray(vf.value(middle)) + vf.error
    else:
        upper = upper_value(problem.pomdp, np.vstack([beliefs, middle]), vf, config.upper_beliefs)
        high, high_middle = np.asarray(upper.value(beliefs)), np.asarray(upper.value(middle))
    certified = 0.5 * (low[i] + low[j]) - high_middle
    # Value vectors of random controllers are policies that the solver never saw.
    F = [RandomizedController.draw(problem.pomdp, 3, rng).evaluate(problem.pomdp) for _ in range(config.policies)]
    alphas = np.vstack([vf.alphas, *F])
    lost = high[:, None] - beliefs @ alphas.T
    best_shared = np.array([np.maximum(lost[a], lost[b]).min() for a, b in zip(i, j, strict=True)])
    none = gap_matrix(vf, beliefs)[i, j] <= _ZERO
    shared = vf.distortion(beliefs)
    together = np.array([np.maximum(shared[a], shared[b]).min() for a, b in zip(i[none], j[none], strict=True)])
    return {
        "pairs": len(i),
        "without_gap": int(none.sum()),
        "certified_gaps": int((certified > 1e-7).sum()),
        "shared": float(together.max(initial=0.0)),
        "violations": int((best_shared < certified - 1e-9).sum()),
    }


def _tiger_line(memory: tuple[int, ...], seed: int) -> Figure:
    problem = next(problems(Models(models=("tiger",)), seed))
    vf, x = problem.whole, np.linspace(0, 1, 301)
    beliefs = np.column_stack([x, 1 - x])
    fig, (left, middle, right) = plotting.subplots(1, 3, figsize=(12.5, 3.8))
    for alpha, action in zip(vf.alphas, vf.actions, strict=True):
        left.plot(x, beliefs @ alpha, color=plotting.COLOURS[action], lw=0.8, alpha=0.6)
    left.plot(x, vf.value(beliefs), color="black", lw=2.2, label="V*")
    names = benchmarks("tiger").actions
    for action, name in enumerate(names):
        left.plot([], [], color=plotting.COLOURS[action], lw=0.8, label=f"vectors: {name}")
    left.set(ylim=(15, 30), xlabel="probability that the tiger is left", ylabel="value", title="V* and its vectors")
    left.legend(fontsize="small")
    image = middle.imshow(gap_matrix(vf, beliefs), origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
    witness = decision_witness(problem.pomdp, vf, K=1)
    for a in witness.beliefs:
        for b in witness.beliefs:
            if a is not b:
                middle.plot(a[0], b[0], marker="x", color="white", ms=7, mew=2)
    middle.set(xlabel="belief b", ylabel="belief b'", title="Jensen gap; crosses: a decision witness")
    middle.grid(visible=False)
    fig.colorbar(image, ax=middle, label="gap (value)")
    for K in memory:
        code = RECAP(K, seed=seed, closed_loop=False, nested=False, restarts=1).fit(problem.pomdp, vf, problem.sample)
        cell = np.asarray(code.codebook_.encode(beliefs))
        for k in np.unique(cell):
            colour = plotting.COLOURS[code.codebook_.actions[k]]
            inside = x[cell == k]
            right.plot([inside.min(), inside.max()], [K, K], lw=9, solid_capstyle="butt", color=colour)
            right.plot(inside.max(), K, marker="|", color="white", ms=11, mew=2)
            right.plot(code.codebook_.beliefs[k][0], K, marker="o", color="white", mec="black", ms=5)
    right.set(xlabel="probability that the tiger is left", ylabel="memory states K", yticks=list(memory))
    right.set_title("Cells and representatives (colour: action)")
    return fig
