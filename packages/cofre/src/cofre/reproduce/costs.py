"""E2: time of a training step, bytes kept for the backward pass, time of sampling, all in one run and in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

from claimlab import Count, Counts, Run, plotting, stats
from claimlab import costs as measuring

from ..fixed_point import SJFB
from ..models import Denoiser, FixedPointDenoiser, MaskedDenoiser
from ..objectives import Batch, MaskedObjective, MaskGITObjective
from ..sampling import sample
from ..schedules import allocate
from ..training import Recipe, Trainer
from .declaration import paper

GRAD = (3, 4, 5, 6)  # N_g of S-JFB


@dataclass(frozen=True)
class CostConfig:
    """Sizes of the timed models; both keep the paper's numbers of blocks."""

    hidden: Count = 128
    heads: Count = 4
    cond_dim: Count = 32
    length: Count = 128
    batch: Count = 4
    vocab_sizes: Counts = (27, 50_257)  # small, and GPT-2's, whose cost is common to both models
    repeats: Count = 20  # alternating pairs of steps after 3 warm-ups
    image_length: Count = 64
    image_hidden: Count = 64
    sample_steps: Count = 8  # of the 12-block model; the fixed-point model spends the same block passes


@paper.experiment(
    smoke=CostConfig(
        hidden=16, heads=2, cond_dim=8, length=16, batch=2, vocab_sizes=(27, 500), repeats=3, image_length=16,
        image_hidden=16, sample_steps=2,
    ),
    laptop=CostConfig(),
    paper=CostConfig(hidden=768, heads=12, cond_dim=128, length=1024, batch=8, image_length=256, image_hidden=1024),
    deterministic=True,  # but for the timings, which have intervals of their own
    minutes={"laptop": 1.5, "paper": 60},
    needs={"paper": "a GPU with 80 GB, or much patience"},
)  # fmt: skip
def costs(config: CostConfig, run: Run) -> None:
    """Time and memory of fixed-point models beside plain stacks."""
    for vocab in config.vocab_sizes:
        name = "small_vocabulary" if vocab == min(config.vocab_sizes) else "large_vocabulary"
        plain, fixed_point = _text_models(config, vocab, run)
        ratio = _step_time_ratio(plain, fixed_point, MaskedObjective, config, run)
        run.measure(f"step_time_{name}", ratio, timing=True)
    run.measure("step_time_expected", _expected_ratio((1, 1, 1), 12))
    rows = _memory(config, run)
    run.table(
        "bytes", pd.DataFrame(rows, columns=["iterations with gradient", "measured", "predicted", "twelve blocks"])
    )

    plain, fixed_point = _image_models(config, run)
    run.measure("image_step_time", _step_time_ratio(plain, fixed_point, MaskGITObjective, config, run), timing=True)
    run.measure("image_step_time_expected", _expected_ratio((4, 1, 4), 24))
    kept = _mean_saved(fixed_point, config, run) / _saved(plain, config, run)
    run.measure("image_saved_bytes", kept)
    run.measure("sampling_time", _sampling_time_ratio(config, run), timing=True)


def _text_models(config: CostConfig, vocab: int, run: Run) -> tuple[MaskedDenoiser, FixedPointDenoiser]:
    shape = {"hidden": config.hidden, "heads": config.heads, "cond_dim": config.cond_dim}
    plain = MaskedDenoiser(vocab, config.length, blocks=12, **shape)
    return plain.to(run.device), FixedPointDenoiser(vocab, config.length, **shape).to(run.device)


def _image_models(config: CostConfig, run: Run) -> tuple[MaskedDenoiser, FixedPointDenoiser]:
    shape = {"hidden": config.image_hidden, "heads": config.heads, "cond_dim": config.cond_dim, "classes": 10}
    plain = MaskedDenoiser(8, config.image_length, blocks=24, **shape)
    fixed_point = FixedPointDenoiser(8, config.image_length, pre=4, post=4, **shape)
    return plain.to(run.device), fixed_point.to(run.device)


def _batch(model: Denoiser, config: CostConfig, run: Run) -> Batch:
    generator = torch.Generator().manual_seed(run.seed)
    tokens = torch.randint(model.vocab_size, (config.batch, model.length), generator=generator)
    classes = None if model.classes is None else torch.randint(model.classes, (config.batch,), generator=generator)
    return Batch(tokens.to(run.device), None if classes is None else classes.to(run.device))


def _step_time_ratio(
    plain: Denoiser, fixed_point: Denoiser, objective: type[MaskedObjective], config: CostConfig, run: Run
) -> stats.Interval:
    """Time of the fixed-point model's optimiser step over the plain one's; S-JFB draws anew in each step."""
    recipe = Recipe(steps=10_000, batch_size=config.batch, learning_rate=1e-4, ema_decay=0.999)
    sjfb = SJFB(generator=torch.Generator().manual_seed(run.seed))
    ours = Trainer(fixed_point, objective(sjfb), recipe)
    other = Trainer(plain, objective(), recipe)

    def step(trainer: Trainer) -> Callable[[], None]:
        batch = _batch(trainer.model, config, run)  # pyright: ignore[reportArgumentType]

        def one() -> None:
            trainer.step(batch)
            _wait(run)

        return one

    # Numbers of iterations are random: the ratio is that of the mean times, over pairs made in turn.
    a, b = step(ours), step(other)
    times = []
    for index in range(config.repeats + 3):
        first, second = (a, b) if index % 2 else (b, a)
        pair = measuring.timed(first), measuring.timed(second)
        times.append(pair if index % 2 else pair[::-1])
    ours_time, other_time = np.array(times[3:]).T
    return stats.bootstrap((ours_time, other_time), stats.ratio_of_means)


def _wait(run: Run) -> None:
    if run.device.type == "cuda":
        torch.cuda.synchronize()


def _expected_ratio(blocks: tuple[int, int, int], depth: int) -> float:
    """From block counts alone, a backward pass costing two forward ones: mean of S-JFB's draws against `depth`
    blocks."""
    pre, shared, post = blocks
    no_grad, grad = 2.0, 4.5
    forward, backward = pre + post + shared * (no_grad + grad), pre + post + shared * grad
    return (forward + 2 * backward) / (3 * depth)


def _saved(model: Denoiser, config: CostConfig, run: Run, **solver: int) -> int:
    """Bytes kept for the backward pass of one loss."""
    batch = _batch(model, config, run)
    z = torch.full_like(batch.tokens, model.mask_id)
    arguments = (z, torch.ones(len(z), device=z.device), batch.classes)

    def loss() -> torch.Tensor:
        logits = model(*arguments, **solver).logits
        return nn.functional.cross_entropy(logits[..., :-1].transpose(1, 2), batch.tokens)

    return measuring.saved_bytes(loss)


def _mean_saved(model: Denoiser, config: CostConfig, run: Run) -> float:
    """Mean over the equally likely numbers of iterations with gradient."""
    return float(np.mean([_saved(model, config, run, iterations=n) for n in GRAD]))


def _memory(config: CostConfig, run: Run) -> list[tuple[int, int, float, int]]:
    """Saved bytes against their prediction from parts that are measured on plain stacks and single modules."""
    vocab = max(config.vocab_sizes)
    plain, fixed_point = _text_models(config, vocab, run)
    shape = {"hidden": config.hidden, "heads": config.heads, "cond_dim": config.cond_dim}
    one, two = (
        _saved(MaskedDenoiser(vocab, config.length, blocks=n, **shape).to(run.device), config, run) for n in (1, 2)
    )
    block, frame = two - one, 2 * one - two  # a block; embedding, conditioning, last norm, logits
    h = torch.randn(config.batch, config.length, config.hidden, device=run.device, requires_grad=True)
    inject = measuring.saved_bytes(lambda: fixed_point.inject(1.0 * h, 1.0 * h))
    twelve = _saved(plain, config, run)
    rows, errors = [], []
    for n in GRAD:
        measured = _saved(fixed_point, config, run, iterations=n)
        predicted = frame + (2 + n) * block + n * inject
        rows.append((n, measured, predicted, twelve))
        errors.append(abs(measured / predicted - 1))
    mean_saved = float(np.mean([row[1] for row in rows]))
    run.measure("saved_bytes", mean_saved / twelve)
    run.measure("saved_bytes_model_error", max(errors))
    # Weights, gradients, Adam's two moments and the average: five numbers a parameter.
    fixed = {m: 5 * 4 * sum(p.numel() for p in m.parameters()) for m in (plain, fixed_point)}
    run.measure("training_memory", (mean_saved + fixed[fixed_point]) / (twelve + fixed[plain]))
    small_plain, small_fixed = _text_models(config, min(config.vocab_sizes), run)
    run.measure(
        "saved_bytes_small_vocabulary", _mean_saved(small_fixed, config, run) / _saved(small_plain, config, run)
    )
    return rows


def _sampling_time_ratio(config: CostConfig, run: Run) -> stats.Interval:
    """Time of sampling at one budget: fixed point with three-state reuse over 12 blocks (SDTT's students cost the
    same)."""
    plain, fixed_point = _text_models(config, min(config.vocab_sizes), run)
    budget = 12 * config.sample_steps
    counts = allocate(budget, budget // 6)
    passes: dict[str, float] = {}

    def ours() -> None:
        result = sample(fixed_point, config.batch, steps=len(counts), iterations=counts, reuse="three_state")
        passes["ours"] = result.block_passes
        _wait(run)

    def other() -> None:
        passes["other"] = sample(plain, config.batch, steps=config.sample_steps).block_passes
        _wait(run)

    ratio = measuring.paired_ratio(ours, other, repeats=max(3, config.repeats // 2))
    run.measure("sampling_budget_ratio", passes["ours"] / passes["other"])
    return ratio


@paper.figures(costs)
def cost_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Bytes kept for the backward pass by number of iterations with gradient."""
    table = tables["bytes"]
    fig, ax = plotting.subplots()
    x = table["iterations with gradient"]
    ax.plot(x, table["measured"] / 2**20, marker="o", linestyle="none", label="fixed point 1/1/1, measured")
    ax.plot(x, table["predicted"] / 2**20, label="predicted from single modules")
    ax.axhline(table["twelve blocks"].iloc[0] / 2**20, color=plotting.COLOURS[1], label="twelve blocks")
    ax.set(xlabel="iterations with gradient", ylabel="kept for the backward pass (MiB)", ylim=(0, None), xticks=x)
    ax.legend()
    return {"bytes": fig}
