"""Generation at equal budgets of block passes: choice of the split, scores with intervals, degenerate results
flagged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats as sps
from torch import nn

from claimlab import Run, stats
from claimlab.stats import Interval

from ..metrics import generative_perplexity, is_degenerate, unigram_entropy
from ..reuse import RULES, ReuseRule
from ..sampling import sample
from ..schedules import ScheduleKind, allocate
from .text_arms import SAMPLING_SEED, SELECTION_SEED, TextConfig, TextTask, generator_for


@dataclass(frozen=True)
class Split:
    """How a fixed-point model spends a budget: steps, and iterations of each."""

    steps: int
    iterations: tuple[int, ...]

    @classmethod
    def of(cls, budget: int, step_cost: int, kind: ScheduleKind = "decreasing") -> Split:
        """As many steps as the budget has of `step_cost` block passes each."""
        steps = max(1, budget // step_cost)
        return cls(steps, tuple(allocate(budget, steps, kind=kind)))


@dataclass(frozen=True)
class Scores:
    """Scores of one arm at one budget, in independent blocks of samples.

    Attributes:
        nll: (blocks, samples) mean `-log p` per token of each sample.
        entropy: (blocks, samples) unigram entropy of each sample.
        block_passes: as counted by hooks.
    """

    nll: np.ndarray
    entropy: np.ndarray
    block_passes: float

    @property
    def perplexity(self) -> float:
        """GenPPL of all samples together."""
        return float(np.exp(self.nll.mean()))

    @property
    def interval(self) -> Interval:
        """GenPPL with its bootstrap interval over samples."""
        return Interval(*np.exp(stats.bootstrap(self.nll.ravel(), resamples=1000)))

    @property
    def mean_entropy(self) -> float:
        """Unigram entropy, nats."""
        return float(self.entropy.mean())


def perplexity_ratio(ours: Sequence[Scores], other: Sequence[Scores]) -> Interval:
    """Geometric mean over pairs of GenPPL(ours) / GenPPL(other), with a bootstrap interval over samples."""
    a, b = (np.mean([scores.nll.ravel() for scores in side], axis=0) for side in (ours, other))
    return Interval(*np.exp(stats.bootstrap((a, b), _difference_of_means, resamples=1000)))


def paired_ratio(ours: Sequence[Scores], other: Sequence[Scores]) -> Interval:
    """The same with a t interval over blocks of samples, paired."""
    a, b = (np.mean([scores.nll.mean(1) for scores in side], axis=0) for side in (ours, other))
    return Interval(*np.exp(stats.paired_difference(a, b)))


def entropy_difference(ours: Scores, other: Scores) -> Interval:
    """Mean entropy minus the other's (nats), with a bootstrap interval over samples."""
    return stats.bootstrap((ours.entropy.ravel(), other.entropy.ravel()), _difference_of_means, resamples=1000)


def entropy_ratio(ours: Scores, other: Scores) -> Interval:
    """Mean entropy over the other's, with a bootstrap interval over samples."""
    return stats.bootstrap((ours.entropy.ravel(), other.entropy.ravel()), stats.ratio_of_means, resamples=1000)


def trend(ours: Sequence[Scores], other: Sequence[Scores]) -> Interval:
    """Rank correlation of GenPPL(ours) / GenPPL(other) with its place in the list, with a bootstrap interval."""
    samples = tuple(scores.nll.ravel() for scores in (*ours, *other))

    def correlation(*nll: np.ndarray, axis: int = -1) -> np.ndarray:
        means = [x.mean(axis) for x in nll]
        logs = np.stack([a - b for a, b in zip(means[: len(ours)], means[len(ours) :], strict=True)])
        ranks = sps.rankdata(logs, axis=0)
        places = np.arange(len(ours)).reshape(-1, *[1] * (logs.ndim - 1))
        centred, places = ranks - ranks.mean(0), places - places.mean()
        return (centred * places).sum(0) / np.sqrt((centred**2).sum(0) * (places**2).sum())

    return stats.bootstrap(samples, correlation, resamples=1000)


def _difference_of_means(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    return a.mean(axis) - b.mean(axis)


class Generator:
    """Draws and scores samples of the arms of one seed."""

    def __init__(self, task: TextTask, config: TextConfig, run: Run) -> None:
        self.task, self.config, self.run = task, config, run
        self._splits: dict[tuple[str, int], Split] = {}

    def draw(
        self,
        model: nn.Module,
        steps: int,
        iterations: tuple[int, ...] | None,
        rule: str,
        n: int,
        generator: torch.Generator,
        temperature: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean nll and entropy of each of `n` samples, and the block passes that they took."""
        result = sample(
            model,
            n,
            steps=steps,
            iterations=None if iterations is None else list(iterations),
            reuse=ReuseRule(rule),  # pyright: ignore[reportArgumentType]
            generator=generator,
            temperature=temperature,
        )
        nll = self.task.reference.nll(result.tokens).mean(1)
        entropy = unigram_entropy(result.tokens, self.task.vocab_size)
        return nll.numpy(), entropy.cpu().numpy(), result.block_passes

    def choose_splits(self, model: nn.Module) -> None:
        """For each rule and budget the cost of a step with the lowest GenPPL, on samples of their own seed.

        Chosen on one model and used for all that are compared with it.
        """
        for rule in RULES:
            for budget in self.config.budgets:
                scores = {}
                for cost in self.config.step_costs:
                    split, generator = Split.of(budget, cost), generator_for(self.run, SELECTION_SEED)
                    n = self.config.selection_samples
                    nll, _, _ = self.draw(model, split.steps, split.iterations, rule, n, generator)
                    scores[cost] = generative_perplexity(torch.from_numpy(nll)[:, None])
                best = min(scores, key=scores.__getitem__)
                self._splits[rule, budget] = Split.of(budget, best)

    def split(self, rule: str, budget: int) -> Split:
        """The chosen split."""
        return self._splits[rule, budget]

    def score(
        self,
        model: nn.Module,
        split: Split | int,
        rule: str = "none",
        *,
        temperature: float = 1.0,
        blocks: int | None = None,
    ) -> Scores:
        """Scores of fresh samples, from equal random numbers for all arms; `split` is a plain model's steps."""
        steps, iterations = (split, None) if isinstance(split, int) else (split.steps, split.iterations)
        shape = (blocks or self.config.blocks_of_samples, self.config.samples)
        generator = generator_for(self.run, SAMPLING_SEED)
        nll, entropy, passes = self.draw(model, steps, iterations, rule, shape[0] * shape[1], generator, temperature)
        return Scores(nll.reshape(shape), entropy.reshape(shape), passes)

    def row(self, arm: str, rule: str, budget: int, steps: int, scores: Scores) -> dict:
        """A row of the table of results; degenerate ones are marked."""
        return {
            "arm": arm,
            "reuse": rule,
            "budget": budget,
            "block_passes": scores.block_passes,
            "steps": steps,
            "gen_ppl": scores.perplexity,
            "low": scores.interval.low,
            "high": scores.interval.high,
            "entropy": scores.mean_entropy,
            "degenerate": is_degenerate(scores.mean_entropy, self.task.data_entropy),
        }
