"""E2 and E3: compression of recall contexts by every method, and what slots and layers hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from claimlab import Count, Run, plotting, stats

from .. import analysis
from ..arms import ARMS, Arm, Shape, get_arm
from ..baselines import MemoryTokens
from ..compressor import Compressor
from ..data.recall import RecallBatch, RecallLMConfig, RecallTask, train_recall_lm
from ..frozen_lm import FrozenLM
from ..model import ComprExIT
from ..training import Batch, Point, Recipe, train
from .declaration import paper

REFERENCES = ("full", "truncated", "none")
RIVALS = ("icae", "fivehundredx", "beacon")  # the soft compressors that train the language model


TASK, LANGUAGE_MODEL = RecallTask(), RecallLMConfig()
RECIPE = Recipe(steps=400, learning_rate=3e-3)
SHAPE = Shape(
    window=24,
    gate_size=32,
    metric_size=32,
    projector_gain=1.0,
    max_slots=6,
    lora_rank=8,
    lora_alpha=16.0,
    lora_dropout=0.0,
    beacon_window=24,
)


@dataclass(frozen=True)
class RecallConfig:
    """The frozen model, the contexts, and the methods at each ratio."""

    task: RecallTask = TASK
    lm: RecallLMConfig = LANGUAGE_MODEL
    facts: Count = 4
    length: Count = 24  # tokens of context
    test_contexts: Count = 1024
    recipe: Recipe = RECIPE  # each arm has its own learning rate
    batch_size: Count = 64
    shape: Shape = SHAPE
    ratio: Count = 4
    methods: tuple[str, ...] = (
        "comprexit",
        *RIVALS,
        "mean_pool",
        "last_layer",
        "no_transport",
    )
    second_ratio: Count = 8
    second_methods: tuple[str, ...] = ("comprexit", *RIVALS)
    one_seed: tuple[str, ...] = ("icae_normal", "softmax", "uniform_mass")
    gate: float = 0.95  # accuracy that the model must reach on full contexts
    learning_rates: tuple[float, ...] = ()  # a grid to tune every method on, by its score; empty: the tuned rates


SMOKE = RecallConfig(
    lm=RecallLMConfig(layers=2, hidden_size=32, steps=20),
    test_contexts=48,
    recipe=Recipe(steps=2),
    batch_size=8,
    gate=0.0,
    one_seed=(),
)


@paper.experiment(
    smoke=SMOKE,
    laptop=RecallConfig(),
    paper=RecallConfig(
        lm=RecallLMConfig(steps=3000),
        recipe=Recipe(steps=6000),
        learning_rates=(3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
        one_seed=tuple(name for name in ARMS if name not in (*REFERENCES, *RecallConfig().methods)),
    ),
    seeds={"smoke": 1},
    minutes={"laptop": 14.0, "paper": 600},
)
def recall(config: RecallConfig, run: Run) -> None:
    """Answers from slots, by every method at two ratios; coverage, redundancy and probes of what was learned."""
    model = train_recall_lm(
        config.task, config.lm, run.rng, device=run.device, progress=lambda steps: run.progress(steps, "language model")
    )
    lm = FrozenLM(model)
    test = config.task.sample(config.test_contexts, config.facts, config.length, run.rng)
    scores: dict[tuple[int, str], np.ndarray] = {}
    for ratio in (config.ratio, config.second_ratio):
        for name in REFERENCES:
            scores[ratio, name] = answers(get_arm(name).build(lm, config.shape, ratio), test)
    full = scores[config.ratio, "full"].mean()
    if full < config.gate:
        raise RuntimeError(
            f"the language model reaches {full:.3f} on full contexts, expected {config.gate} at the least"
        )

    methods: dict[tuple[int, str], Compressor] = {}
    curves = []
    names = [(config.ratio, n) for n in (*config.methods, *(config.one_seed if run.seed == 0 else ()))]
    for ratio, name in [*names, *((config.second_ratio, n) for n in config.second_methods)]:
        method, points = _trained(get_arm(name), lm, ratio, config, run)
        methods[ratio, name] = method
        scores[ratio, name] = answers(method, test)
        curves += [(ratio, name, p.step, p.seconds, p.loss, p.score) for p in points]
    curve = pd.DataFrame(curves, columns=["ratio", "method", "step", "seconds", "loss", "f1"])
    run.table("curves", curve)
    run.table(
        "f1",
        pd.DataFrame(
            [(r, n, *stats.mean(s)) for (r, n), s in scores.items()], columns=["ratio", "method", "f1", "low", "high"]
        ),
    )

    for (ratio, name), score in scores.items():
        if name not in config.one_seed:
            run.measure(f"f1_{name}_r{ratio}", stats.mean(score))
    _comparisons(scores, curve, config, run)
    _structure(lm, methods, scores, test, config, run)
    _long_contexts(methods[config.ratio, "comprexit"], scores[config.ratio, "comprexit"].mean(), config, run)


@torch.no_grad()
def answers(method: Compressor, test: RecallBatch, batch: int = 256) -> np.ndarray:
    """Share of right answers for each context: token F1 of answers of one token."""
    method.eval()
    shares = []
    for ids, target, labels in zip(*(x.split(batch) for x in test[:3]), strict=True):
        ids, target, labels = (x.to(method.lm.device) for x in (ids, target, labels))
        best = method.lm.read(method.compress(ids), target)[:, :-1].argmax(-1)
        shares.append((best == labels)[:, 1:].double().mean(1))
    return torch.cat(shares).cpu().numpy()


def _trained(arm: Arm, lm: FrozenLM, ratio: int, config: RecallConfig, run: Run) -> tuple[Compressor, list[Point]]:
    """The arm trained on the same batches as all others; with a grid, the rate that is best on contexts of its own."""
    rates = config.learning_rates or (arm.learning_rate,)
    validation = config.task.sample(256, config.facts, config.length, np.random.default_rng([run.seed, 1]))
    tried = []
    for rate in rates:
        assert rate is not None
        torch.manual_seed(run.seed)
        method = arm.build(lm, config.shape, ratio)
        points = train(
            method,
            _batches(config, run.seed),
            replace(config.recipe, learning_rate=rate),
            evaluate=lambda method=method: float(answers(method, validation).mean()),
            every=max(1, config.recipe.steps // 6),
            progress=lambda steps: run.progress(steps, f"{arm.label}, ratio {ratio}"),
        )
        tried.append((points[-1].score, method, points))
    _, method, points = max(tried, key=lambda entry: entry[0])
    return method, points


def _batches(config: RecallConfig, seed: int) -> Iterator[Batch]:
    rng = np.random.default_rng([seed, 0])
    while True:
        # From one fact to as many as are tested: with several from the start, no method that begins from noise gets
        # past telling which values occur, to which key belongs to which.
        facts = int(rng.integers(1, config.facts + 1))
        made = config.task.sample(config.batch_size, facts, config.length, rng)
        yield Batch(made.context_ids, None, made.target_ids, made.labels)


def _comparisons(scores: dict, curve: pd.DataFrame, config: RecallConfig, run: Run) -> None:
    """Claims X1, X5 and X7: differences of mean F1."""
    for ratio in (config.ratio, config.second_ratio):
        mean = {name: score.mean() for (r, name), score in scores.items() if r == ratio}
        best = max(mean[name] for name in RIVALS)
        run.measure(f"full_minus_best_rival_r{ratio}", mean["full"] - best)
        run.measure(f"gain_r{ratio}", mean["comprexit"] / best - 1)
        for name in RIVALS:
            run.measure(f"over_{name}_r{ratio}", mean["comprexit"] - mean[name])
            run.measure(f"over_{name}_equal_time_r{ratio}", _equal_time(curve, ratio, name), timing=True)
    mean = {name: score.mean() for (r, name), score in scores.items() if r == config.ratio}
    for name in ("last_layer", "no_transport", "mean_pool", "truncated"):
        run.measure(f"over_{name}", mean["comprexit"] - mean[name])


def _equal_time(curve: pd.DataFrame, ratio: int, rival: str) -> float:
    """Difference of F1 when the faster of the two has finished, read off both curves at that second."""
    chosen = curve[curve["ratio"] == ratio]
    ours, theirs = (chosen[chosen["method"] == name] for name in ("comprexit", rival))
    end = min(ours["seconds"].max(), theirs["seconds"].max())
    at = [float(np.interp(end, [0.0, *c["seconds"]], [0.0, *c["f1"]])) for c in (ours, theirs)]
    return at[0] - at[1]


@torch.no_grad()
def _structure(lm: FrozenLM, methods: dict, scores: dict, test: RecallBatch, config: RecallConfig, run: Run) -> None:
    """Claims X2 to X4: recovery of facts, coverage and redundancy of slots, what each layer knows."""
    ids, mask = test.context_ids.to(lm.device), torch.ones_like(test.context_ids, dtype=torch.bool, device=lm.device)
    ours = methods[config.ratio, "comprexit"]
    assert isinstance(ours, ComprExIT)
    sent = ours.transmit(ids, mask)
    rows = {"comprexit": sent.slots.weights()}
    for name in ("icae", "fivehundredx"):
        method = methods[config.ratio, name]
        assert isinstance(method, MemoryTokens)
        rows[name] = method.memory_attention(ids, mask)
    positions = test.positions.to(lm.device)
    imbalance = {name: analysis.coverage_imbalance(w, positions) for name, w in rows.items()}
    copies = {name: analysis.redundancy(w) for name, w in rows.items()}
    for name in rows:
        run.measure(f"imbalance_{name}", imbalance[name])
        run.measure(f"redundancy_{name}", copies[name])
        if name != "comprexit":
            run.measure(f"imbalance_{name}_minus_ours", imbalance[name] - imbalance["comprexit"])
            run.measure(f"redundancy_{name}_minus_ours", copies[name] - copies["comprexit"])

    facts = ids.gather(1, positions).cpu() - config.task.first_fact
    recovery = {}
    for (ratio, name), method in methods.items():
        if ratio == config.ratio and name not in config.one_seed:
            features = analysis.memory_features(method.compress(ids))
            recovery[name] = analysis.recovery_accuracy(features, facts, config.task.values, config.task.keys)
    f1 = [scores[config.ratio, name].mean() for name in recovery]
    run.measure("recovery_rank_correlation", pd.Series(f1).corr(pd.Series(list(recovery.values())), method="spearman"))
    run.table("recovery", pd.DataFrame({"method": list(recovery), "recovery": list(recovery.values()), "f1": f1}))

    states = torch.stack(
        [
            h.gather(1, positions[..., None].expand(-1, -1, lm.hidden_size)).flatten(0, 1)
            for h in lm.hidden_states(ids, mask)
        ]
    )
    probe = analysis.layer_probe_accuracy(states.cpu(), config.task.value_of(ids.gather(1, positions)).flatten().cpu())
    run.measure("probe_gap", max(probe[1:-1]) - probe[-1])
    run.measure("probe_embeddings", probe[0])
    run.measure("probe_last_layer", probe[-1])

    is_fact = torch.zeros_like(mask).scatter(1, positions, True)
    weights = {"fact": sent.layer_weights[is_fact].mean(0), "filler": sent.layer_weights[~is_fact].mean(0)}
    run.table(
        "layers",
        pd.DataFrame(
            [(k, layer, float(x), probe[layer]) for k, v in weights.items() for layer, x in enumerate(v)],
            columns=["token", "layer", "weight", "probe"],
        ),
    )
    mass = sent.slots.source_mass.flatten(1)[:, : config.length]
    run.measure("fact_mass_over_filler", mass[is_fact].mean() / mass[~is_fact].mean())
    run.figure("plan", _plan_figure(rows, positions))


@torch.no_grad()
def _long_contexts(method: Compressor, short: float, config: RecallConfig, run: Run) -> None:
    """Claim X9: contexts of four segments, compressed one by one; the reader is asked for as many facts as before."""
    segments, count = 4, min(config.test_contexts, 512)
    facts = min(config.task.keys, segments * config.facts)  # no two facts of a context share a key
    made = config.task.sample(count, facts, segments * config.length, run.rng, asked=config.facts)
    compressed = method.compress_long(made.context_ids.to(method.lm.device), segment=config.length)
    best = method.lm.read(compressed, made.target_ids.to(method.lm.device))[:, 1:-1].argmax(-1).cpu()
    accuracy = (best == made.labels[:, 1:]).double().mean(1).numpy()
    run.measure("f1_four_segments", stats.mean(accuracy))
    run.measure("long_over_short", accuracy.mean() / short)


def _plan_figure(rows: dict[str, torch.Tensor], positions: torch.Tensor) -> Figure:
    """Who takes what, in one context: ComprExIT's plan and two attentions; ticks mark the facts."""
    fig, axes = plotting.subplots(1, len(rows), figsize=(9.5, 2.6))
    for ax, (name, weights) in zip(axes, rows.items(), strict=True):
        ax.imshow(weights[0].cpu(), aspect="auto", cmap="viridis", vmin=0)
        facts = sorted(positions[0].tolist())
        ax.set_xticks(facts, ["fact"] * len(facts), rotation=90, fontsize="small")
        ax.set(title=ARMS[name].label, ylabel="slot" if ax is axes[0] else "")
        ax.grid(False)
    axes[1].set_xlabel("token of the context")
    return fig


@paper.figures(recall)
def recall_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """F1 by method and ratio; F1 against training seconds; layer weights of fact and filler tokens."""
    labels = {name: arm.label for name, arm in ARMS.items()}
    table = tables["f1"]
    order = table[table["ratio"] == table["ratio"].min()].groupby("method")["f1"].mean().sort_values().index
    bars, ax = plotting.subplots(figsize=(6.4, 5.2))
    for index, (ratio, rows) in enumerate(table.groupby("ratio")):
        mean = rows.groupby("method")["f1"].apply(lambda x: stats.mean(x).value).reindex(order)
        low, high = (rows.groupby("method")["f1"].agg(fn).reindex(order) for fn in ("min", "max"))
        y = np.arange(len(order)) + 0.2 - 0.4 * index
        ax.barh(
            y,
            mean,
            0.38,
            xerr=[mean - low, high - mean],
            color=plotting.COLOURS[index],
            label=f"ratio {ratio}",
            error_kw={"linewidth": 1},
        )
    ax.set_yticks(range(len(order)), [labels[name] for name in order])
    ax.set(xlabel="answers right (token F1); bars: mean, whiskers: range over seeds", xlim=(0, 1.02))
    ax.legend(loc="lower right")

    curves = tables["curves"]
    curves = curves[
        (curves["ratio"] == curves["ratio"].min()) & curves["method"].isin(["comprexit", *RIVALS, "mean_pool"])
    ]
    timed, ax = plotting.subplots()
    for index, (name, rows) in enumerate(curves.groupby("method", sort=False)):
        mean = rows.groupby("step")[["seconds", "f1"]].mean()
        ax.plot(mean["seconds"], mean["f1"], "o-", color=plotting.COLOURS[index], label=labels[name])
    ax.set(xlabel="training seconds", ylabel="answers right (token F1)", ylim=(0, 1.02))
    ax.legend()

    layers, (left, right) = plotting.subplots(1, 2, figsize=(8.4, 3.4))
    plotting.mean_curve(left, tables["layers"], x="layer", y="weight", by="token")
    left.set(xlabel="hidden state (0: embeddings)", ylabel="weight in ComprExIT's mixture", ylim=(0, 1))
    left.legend()
    plotting.mean_curve(right, tables["layers"].query("token == 'fact'"), x="layer", y="probe")
    for ax in (left, right):
        ax.set_xticks(sorted(tables["layers"]["layer"].unique()))
    right.set(xlabel="hidden state (0: embeddings)", ylabel="value read by a linear probe", ylim=(0, 1.02))
    return {"recall": bars, "time": timed, "layers": layers}
