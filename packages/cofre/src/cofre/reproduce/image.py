"""E8: MaskGIT and FP-MaskGIT on real 8x8 digits (paper scale: image codes)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from claimlab import Count, Counts, Run, plotting, stats

from ..data import array_source, digit_tokens, load_codes
from ..fixed_point import SJFB
from ..maskgit import MaskGITSampler
from ..metrics import frechet_distance, inception_score
from ..models import Denoiser, FixedPointDenoiser, MaskedDenoiser
from ..objectives import MaskGITObjective
from ..pretrain import checkpoint_path
from ..reuse import RULES, ReuseRule
from ..sampling import sample
from ..schedules import allocate
from ..training import IMAGENETTE, Recipe, train
from .declaration import paper

LABELS = {"maskgit_24": "MaskGIT, 24 blocks", "maskgit_12": "MaskGIT, 12 blocks", "fp": "FP-MaskGIT, 4/1/4"}


RECIPE = Recipe(
    steps=300, batch_size=32, learning_rate=2e-3, warmup=30, decay="cosine", betas=(0.9, 0.99), ema_decay=0.97
)


@dataclass(frozen=True)
class ImageConfig:
    """Digits quantised to `levels` tokens, or arrays of image codes from an external tokenizer."""

    levels: Count = 8
    side: Count = 8
    hidden: Count = 32
    heads: Count = 4
    cond_dim: int | None = None
    dropout: float = 0.0
    registers: int = 1
    deep: Recipe = RECIPE
    shallow: Recipe = RECIPE
    fixed_point: Recipe = RECIPE
    budgets: Counts = (48, 96, 192, 384)
    step_costs: Counts = (10, 12, 16)  # block passes a step may cost in the fixed-point model
    guidance: float = 0.0
    samples: Count = 200  # images of each sampling seed
    sampling_seeds: Count = 3
    selection_samples: Count = 128
    codes: Path | None = None  # .npy (N, side^2) of codes; then features are histograms of codes
    labels: Path | None = None
    vocab_size: Count = 4096  # of the codes
    checkpoints: Path | None = None  # folder of `python -m cofre.pretrain`


class Features:
    """Two views of images for the Fréchet distance: a small classifier's last hidden layer, and principal
    components."""

    def __init__(self, images: Tensor, digits: Tensor, levels: int, iterations: int = 300) -> None:
        self.levels = levels
        x = self._scaled(images)
        self.classifier = MLPClassifier((64,), max_iter=iterations, random_state=0)
        self.classifier.fit(x, digits.numpy())
        self.pca = PCA(min(20, *x.shape), random_state=0).fit(x)

    def _scaled(self, images: Tensor) -> np.ndarray:
        return images.cpu().numpy() / (self.levels - 1)

    def penultimate(self, images: Tensor) -> np.ndarray:
        """The classifier's 64 hidden units, after the rectifier."""
        weights, bias = self.classifier.coefs_[0], self.classifier.intercepts_[0]
        return np.maximum(self._scaled(images) @ weights + bias, 0)

    def components(self, images: Tensor) -> np.ndarray:
        """Principal components of the pixels."""
        return np.asarray(self.pca.transform(self._scaled(images)))

    def probabilities(self, images: Tensor) -> np.ndarray:
        """Classes of the images, for the inception score."""
        return np.asarray(self.classifier.predict_proba(self._scaled(images)))


_SMOKE = Recipe(steps=4, batch_size=8, learning_rate=2e-3, ema_decay=0.8)


@paper.experiment(
    smoke=ImageConfig(
        hidden=8,
        heads=2,
        deep=_SMOKE,
        shallow=_SMOKE,
        fixed_point=_SMOKE,
        budgets=(24, 48),
        step_costs=(10, 12),
        samples=16,
        sampling_seeds=2,
        selection_samples=16,
    ),
    laptop=ImageConfig(),
    paper=ImageConfig(
        side=16,
        hidden=1024,
        heads=16,
        cond_dim=1024,
        dropout=0.1,
        deep=IMAGENETTE,
        shallow=IMAGENETTE,
        fixed_point=IMAGENETTE,
        samples=10_000,
    ),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"laptop": 5, "paper": 3000},
    needs={
        "paper": "ImageNette as VQ codes (codes=codes.npy labels=labels.npy) and a GPU; `cofre.pretrain image_fp` first"
    },
)
def image(config: ImageConfig, run: Run) -> None:
    """Train MaskGIT with 24 and 12 blocks and FP-MaskGIT; Fréchet distance of samples at equal budgets."""
    images, digits, levels = _load(config)
    models = _train(images, digits, levels, config, run)
    features = Features(images, digits, levels)
    real = features.penultimate(images), features.components(images)
    rows, pictures = [], {}
    for budget in config.budgets:
        best = _choose(models["fp"], budget, features, real, digits, config, run)
        for arm, model in models.items():
            depth = {"maskgit_24": 24, "maskgit_12": 12}.get(arm)
            steps, iterations, rule = (budget // depth, None, "none") if depth else best
            for index in range(config.sampling_seeds):
                drawn, passes = _sample(model, steps, iterations, rule, config.samples, digits, config, run, index + 1)
                rows.append({
                    "arm": arm, "budget": budget, "sampling_seed": index, "steps": steps, "reuse": rule,
                    "block_passes": passes,
                    "fid": frechet_distance(real[0], features.penultimate(drawn)),
                    "fid_pca": frechet_distance(real[1], features.components(drawn)),
                    "inception_score": inception_score(features.probabilities(drawn)),
                })  # fmt: skip
                if index == 0:
                    pictures[arm, budget] = drawn[:10]
    table = pd.DataFrame(rows)
    run.table("fid", table)
    run.figure("digits", _picture(images, digits, pictures, config))
    _measure(table, config, run)


def _load(config: ImageConfig) -> tuple[Tensor, Tensor, int]:
    if config.codes is not None and config.labels is not None:
        codes, classes = load_codes(config.codes, config.labels, config.vocab_size, config.side**2)
        return codes, classes, config.vocab_size
    if config.side != 8:
        raise ValueError("image codes need codes=FILE and labels=FILE (.npy)")
    images, digits = digit_tokens(config.levels)
    return images, digits, config.levels


def _train(images: Tensor, digits: Tensor, levels: int, config: ImageConfig, run: Run) -> dict[str, Denoiser]:
    """The three models on the same batches."""
    shape = {
        "hidden": config.hidden,
        "heads": config.heads,
        "cond_dim": config.cond_dim,
        "dropout": config.dropout,
        "classes": int(digits.max()) + 1,
        "registers": config.registers,
        "positions": "learned",
    }
    models: dict[str, Denoiser] = {}
    for arm, recipe in {"maskgit_24": config.deep, "maskgit_12": config.shallow, "fp": config.fixed_point}.items():
        torch.manual_seed(run.seed)
        if arm == "fp":
            model = FixedPointDenoiser(levels, config.side**2, pre=4, post=4, **shape)
        else:
            model = MaskedDenoiser(levels, config.side**2, blocks=int(arm.removeprefix("maskgit_")), **shape)
        generator = torch.Generator().manual_seed(run.seed)
        source = array_source(images, digits, generator=torch.Generator().manual_seed(run.seed + 1), device=run.device)
        sjfb = SJFB(generator=generator) if arm == "fp" else None
        objective = MaskGITObjective(sjfb, class_dropout=0.1, generator=generator)
        name = {"maskgit_24": "image_plain", "fp": "image_fp"}.get(arm, arm)
        path = None if config.checkpoints is None else checkpoint_path(config.checkpoints, name, run.seed)
        models[arm] = train(  # pyright: ignore[reportArgumentType]
            model.to(run.device),
            source,
            objective,
            recipe,
            checkpoint=path,
            progress=lambda steps, arm=arm: run.progress(steps, LABELS[arm]),
        )
    return models


def _sample(
    model: Denoiser,
    steps: int,
    iterations: list[int] | None,
    rule: str,
    n: int,
    digits: Tensor,
    config: ImageConfig,
    run: Run,
    purpose: int,
) -> tuple[Tensor, float]:
    """Images of the classes in the data's proportions."""
    generator = torch.Generator().manual_seed(run.seed * 1_000_003 + purpose)
    classes = digits[torch.randint(len(digits), (n,), generator=generator)].to(run.device)
    sampler = MaskGITSampler(grid=(config.side, config.side), guidance=config.guidance)
    result = sample(
        model,
        n,
        steps=steps,
        iterations=iterations,
        reuse=ReuseRule(rule),  # pyright: ignore[reportArgumentType]
        sampler=sampler,
        generator=generator,
        classes=classes,
    )
    return result.tokens, result.block_passes


def _choose(
    model: Denoiser,
    budget: int,
    features: Features,
    real: tuple[np.ndarray, np.ndarray],
    digits: Tensor,
    config: ImageConfig,
    run: Run,
) -> tuple[int, list[int], str]:
    """Split and reuse rule with the lowest distance, on images of their own seed."""
    best, lowest = None, np.inf
    for cost in config.step_costs:
        steps = max(1, budget // cost)
        iterations = allocate(budget, steps, 4, 1, 4)
        for rule in RULES:
            drawn, _ = _sample(model, steps, iterations, rule, config.selection_samples, digits, config, run, 0)
            fid = frechet_distance(real[0], features.penultimate(drawn))
            if fid < lowest:
                best, lowest = (steps, iterations, rule), fid
    assert best is not None
    return best


def _measure(table: pd.DataFrame, config: ImageConfig, run: Run) -> None:
    by = table.set_index(["arm", "budget", "sampling_seed"]).sort_index()

    def ratio(column: str, budget: int, other: str) -> stats.Interval:
        """Ratio to another arm over sampling seeds, with its t interval (on logarithms)."""
        logs = np.log(by[column]["fp", budget].to_numpy()) - np.log(by[column][other, budget].to_numpy())
        return stats.Interval(*np.exp(stats.mean(logs)))

    low, second, largest = config.budgets[0], config.budgets[1], config.budgets[-1]
    for name, budget in (("smallest", low), ("second", second), ("largest", largest)):
        run.measure(f"fid_fp_over_24_{name}", ratio("fid", budget, "maskgit_24"))
    run.measure("fid_fp_over_12_smallest", ratio("fid", low, "maskgit_12"))
    run.measure("fid_fp_over_12_largest", ratio("fid", largest, "maskgit_12"))
    run.measure("fid_pca_fp_over_24_smallest", ratio("fid_pca", low, "maskgit_24"))
    run.measure("fid_pca_fp_over_24_largest", ratio("fid_pca", largest, "maskgit_24"))
    run.measure("inception_score_fp_over_24_smallest", ratio("inception_score", low, "maskgit_24"))
    # A step of the fixed-point model may leave a rest of the budget unused, never more than it.
    exceeded = float((table["block_passes"] - table["budget"]).max())
    run.measure("budget_exceeded", stats.Interval(exceeded, exceeded, exceeded))


def _picture(images: Tensor, digits: Tensor, pictures: dict[tuple[str, int], Tensor], config: ImageConfig) -> Figure:
    """Real digits, and samples of the deep and the fixed-point model at the smallest and the largest budget."""
    rows = [("real", images[:10])]
    for budget in (config.budgets[0], config.budgets[-1]):
        rows += [(f"{LABELS[arm]}\n{budget} block passes", pictures[arm, budget]) for arm in ("maskgit_24", "fp")]
    fig, axes = plotting.subplots(len(rows), 10, figsize=(9.5, 1.0 * len(rows)))
    for axis_row, (label, tokens) in zip(axes, rows, strict=True):
        for ax, tokens_of_one in zip(axis_row, tokens, strict=True):
            ax.imshow(tokens_of_one.cpu().reshape(config.side, config.side), cmap="Greys", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
        axis_row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    return fig


@paper.figures(image)
def image_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Fréchet distance against budget, in both views."""
    fig, axes = plotting.subplots(1, 2, figsize=(9.5, 3.8))
    for ax, column, title in zip(
        axes, ("fid", "fid_pca"), ("classifier features", "20 principal components"), strict=True
    ):
        plotting.mean_curve(ax, tables["fid"], x="budget", y=column, by="arm", labels=LABELS)
        budgets = sorted(tables["fid"]["budget"].unique())
        ax.set(xscale="log", yscale="log", xlabel="budget (block passes a sample)", title=title, xticks=budgets)
        ax.set_xticklabels([str(b) for b in budgets])
        ax.minorticks_off()
    axes[0].set(ylabel="Fréchet distance to the real digits")
    axes[0].legend(fontsize="small")
    return {"fid": fig}
