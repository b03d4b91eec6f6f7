"""The trained models of the text experiments: every arm of one seed, each with its own tuned recipe."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from claimlab import Count, Counts, Run

from ..convert import convert_mdlm
from ..data import read_text
from ..diffusion import nelbo
from ..fixed_point import SJFB
from ..judge import CausalJudge
from ..markov import MarkovText
from ..metrics import unigram_entropy
from ..models import FixedPointDenoiser, MaskedDenoiser, Positions
from ..objectives import (
    AdaptationObjective,
    Batch,
    ConsistencyConfig,
    ConsistencyObjective,
    MaskedObjective,
    SDTTObjective,
    sdtt_step_sizes,
)
from ..pretrain import checkpoint_path, text_source
from ..training import BatchSource, Objective, Recipe, train

MODEL_SEED, DATA_SEED, VALIDATION_SEED, SELECTION_SEED, SAMPLING_SEED = range(5)


BASE = Recipe(
    steps=700, batch_size=32, learning_rate=4e-3, warmup=50, decay="cosine", betas=(0.9, 0.99), ema_decay=0.98
)
POST = Recipe(steps=150, batch_size=32, learning_rate=1e-3, betas=(0.9, 0.99), ema_decay=0.97)
CONVERSION = replace(BASE, steps=100, warmup=10, ema_decay=0.95)
CONSISTENCY = ConsistencyConfig(warmup=40)


@dataclass(frozen=True)
class TextConfig:
    """Text from the exact chain (smoke, laptop) or real documents with pretrained checkpoints (paper).

    The recipes' learning rates were tuned arm by arm on seeds that are not recorded.
    """

    text_file: Path | None = None  # text that the chain is estimated from; bundled documentation if not given
    documents: str | None = None  # paper scale: .jsonl or .parquet, or a hub name; then there is no chain
    checkpoints: Path | None = None  # folder of `python -m cofre.pretrain`: an arm continues from its file there
    judge: str = "gpt2-large"  # paper scale: reference of generative perplexity
    length: Count = 32
    hidden: Count = 48
    heads: Count = 4
    positions: Positions = "relative"
    cond_dim: int | None = None
    dropout: float = 0.0
    blocks: Count = 12
    plain: Recipe = BASE
    fixed_point: Recipe = BASE
    post: Recipe = POST
    conversion: Recipe = CONVERSION
    sdtt_rounds: Count = 2
    sdtt_first_step: float = 1 / 16  # of the first round; the last student steps twice as far
    consistency: ConsistencyConfig = CONSISTENCY
    longer: Count = 4  # the long consistency run, in lengths of the selected one
    validations: Count = 5  # checkpoints in `post.steps` steps, where the 15 % rule is looked at
    validation_sequences: Count = 256
    validation_times: Count = 4
    budgets: Counts = (24, 48, 96, 192)
    step_costs: Counts = (3, 4, 6, 8)  # block passes a refinement step may cost in a fixed-point model
    selection_samples: Count = 48
    samples: Count = 32  # in each block
    blocks_of_samples: Count = 5
    dynamics_samples: Count = 96
    dynamics_steps: Count = 16
    schedule_cost: Count = 6
    temperatures: tuple[float, ...] = (0.3, 0.8, 0.9, 1.0)


@runtime_checkable
class Reference(Protocol):
    """What scores samples: the exact chain, or a pretrained language model."""

    def nll(self, tokens: Tensor) -> Tensor: ...


@dataclass
class TextTask:
    """Data and reference of one seed."""

    source: Callable[[], BatchSource]
    validation: Tensor
    reference: Reference
    vocab_size: int
    data_entropy: float
    data_perplexity: float


def chain_task(config: TextConfig, run: Run) -> TextTask:
    """The Markov chain of a real text; every arm of a seed sees the same batches."""
    chain = MarkovText.fit(read_text(config.text_file))

    def source() -> BatchSource:
        generator = generator_for(run, DATA_SEED)
        return lambda count: Batch(chain.sample(count, config.length, generator).to(run.device))

    validation = chain.sample(config.validation_sequences, config.length, generator_for(run, VALIDATION_SEED))
    many = chain.sample(4000, config.length, generator_for(run, VALIDATION_SEED))
    entropy = float(unigram_entropy(many, chain.symbols).mean())
    perplexity = math.exp(chain.entropy_per_token(config.length))
    return TextTask(source, validation.to(run.device), chain, chain.symbols, entropy, perplexity)


def document_task(config: TextConfig, run: Run) -> TextTask:
    """Packed real documents with GPT-2's tokenizer; the last of them are for validation."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    draw = text_source(config.documents, tokenizer, config.length, run.device)
    validation = draw(config.validation_sequences).tokens
    judge = CausalJudge.load(config.judge)
    entropy = float(unigram_entropy(validation, len(tokenizer)).mean())
    perplexity = float(judge.nll(validation).double().mean().exp())
    return TextTask(lambda: draw, validation, judge, len(tokenizer), entropy, perplexity)


def generator_for(run: Run, purpose: int, index: int = 0) -> torch.Generator:
    """A generator of its own for each purpose of a seed."""
    return torch.Generator().manual_seed(run.seed * 1_000_003 + purpose * 1_009 + index)


@dataclass
class Arms:
    """Trained models of one seed, and what was seen while training them."""

    models: dict[str, nn.Module] = field(default_factory=dict)
    nelbo: dict[str, np.ndarray] = field(default_factory=dict)  # of each validation sequence
    nelbo_at_start: dict[str, np.ndarray] = field(default_factory=dict)  # of conversions, before adaptation
    selected_step: int = 0
    rule_fired: bool = False
    adaptation: pd.DataFrame = field(default_factory=pd.DataFrame)  # arm, step, nelbo
    post: pd.DataFrame = field(default_factory=pd.DataFrame)  # consistency run: step, perplexity

    def __getitem__(self, name: str) -> Any:
        return self.models[name]


class _ArmTrainer:
    """Trains arms on one task; equal batches, own generator for masks and iterations."""

    def __init__(self, task: TextTask, config: TextConfig, run: Run) -> None:
        self.task, self.config, self.run = task, config, run
        names = ("hidden", "heads", "cond_dim", "dropout", "positions")
        self.shape = {name: getattr(config, name) for name in names}

    def base(self, fixed_point: bool) -> MaskedObjective:
        generator = generator_for(self.run, MODEL_SEED, 7)
        return MaskedObjective(SJFB(generator=generator) if fixed_point else None, generator=generator)

    def new(self, fixed_point: bool) -> nn.Module:
        torch.manual_seed(self.run.seed)
        sizes = (self.task.vocab_size, self.config.length)
        if fixed_point:
            return FixedPointDenoiser(*sizes, **self.shape).to(self.run.device)
        return MaskedDenoiser(*sizes, blocks=self.config.blocks, **self.shape).to(self.run.device)

    def sequence_nelbo(self, model: nn.Module) -> np.ndarray:
        """NELBO of each validation sequence, always with the same masks."""
        generator = generator_for(self.run, VALIDATION_SEED, 1)
        return nelbo(model, self.task.validation, self.config.validation_times, generator=generator).cpu().numpy()

    def validate(self, model: nn.Module) -> float:
        """Their mean."""
        return float(self.sequence_nelbo(model).mean())

    def train(
        self,
        model: nn.Module,
        objective: Objective,
        recipe: Recipe,
        arm: str,
        validate: Callable[[nn.Module, int], bool] | None = None,
        every: int = 1,
    ) -> nn.Module:
        folder = self.config.checkpoints
        return train(
            model,
            self.task.source(),
            objective,
            recipe,
            checkpoint=None if folder is None else checkpoint_path(folder, arm, self.run.seed),
            validate=validate,
            validate_every=every,
            progress=lambda steps: self.run.progress(steps, arm),
        )


def train_arms(task: TextTask, config: TextConfig, run: Run) -> Arms:
    """Train every arm from scratch: bases, post-trainings, controls, conversions."""
    trainer, arms = _ArmTrainer(task, config, run), Arms()
    plain = trainer.train(trainer.new(False), trainer.base(False), config.plain, "mdlm")
    fixed_point = trainer.train(trainer.new(True), trainer.base(True), config.fixed_point, "fp")
    arms.models |= {"mdlm": plain, "fp": fixed_point}
    _post_train(trainer, arms)
    _distil(trainer, arms)
    _convert(trainer, arms)
    arms.nelbo = {name: trainer.sequence_nelbo(model) for name, model in arms.models.items()}
    return arms


def _post_train(trainer: _ArmTrainer, arms: Arms) -> None:
    """Consistency with its stopping rule and four times as long; controls with as many extra steps of the base loss."""
    config = trainer.config
    start = trainer.validate(arms["fp"])
    every = max(1, config.post.steps // config.validations)
    seen = [(0, math.exp(start))]
    reference = seen[0][1]

    def validate(model: nn.Module, step: int) -> bool:
        perplexity = math.exp(trainer.validate(model))
        seen.append((step, perplexity))
        fired = config.consistency.stops(perplexity, reference)
        if not arms.selected_step and (fired or step >= config.post.steps):
            arms.selected_step, arms.rule_fired = step, fired
            arms.models["consistency"] = copy.deepcopy(model)
        return bool(arms.selected_step) and step >= config.longer * arms.selected_step

    objective = ConsistencyObjective(trainer.base(True), config.consistency)
    recipe = replace(config.post, steps=config.longer * config.post.steps)
    student = copy.deepcopy(arms["fp"])
    arms.models["consistency_long"] = trainer.train(student, objective, recipe, "consistency", validate, every)
    if "consistency" not in arms.models:  # a finished checkpoint: nothing was left to train
        arms.models["consistency"] = arms["consistency_long"]
        arms.selected_step = config.post.steps
    arms.post = pd.DataFrame(seen, columns=["step", "perplexity"])

    extra = replace(config.post, steps=arms.selected_step)
    arms.models["control"] = trainer.train(copy.deepcopy(arms["fp"]), trainer.base(True), extra, "control")
    arms.models["mdlm_control"] = trainer.train(copy.deepcopy(arms["mdlm"]), trainer.base(False), extra, "mdlm_control")
    objective = ConsistencyObjective(trainer.base(False), config.consistency)
    arms.models["mdlm_consistency"] = trainer.train(copy.deepcopy(arms["mdlm"]), objective, extra, "mdlm_consistency")


def _distil(trainer: _ArmTrainer, arms: Arms) -> None:
    """Self-distillation through time of the plain model; the rounds share the extra steps of the other arms."""
    config, student = trainer.config, copy.deepcopy(arms["mdlm"])
    recipe = replace(config.post, steps=max(1, arms.selected_step // config.sdtt_rounds))
    for number, step_size in enumerate(sdtt_step_sizes(config.sdtt_first_step, config.sdtt_rounds), start=1):
        teacher = copy.deepcopy(student).eval()
        objective = SDTTObjective(trainer.base(False), teacher, step_size)
        student = trainer.train(student, objective, recipe, f"mdlm_sdtt{number}")
    arms.models["mdlm_sdtt"] = student


def _convert(trainer: _ArmTrainer, arms: Arms) -> None:
    """The trained stack converted and adapted, with and without initialised projections, against a model from
    scratch."""
    config, last = trainer.config, trainer.config.blocks - 1
    adaptation = replace(config.consistency, warmup=max(1, config.conversion.steps // 4))
    every = max(1, config.conversion.steps // 10)
    rows: list[tuple[str, int, float]] = []
    for arm in ("converted", "converted_uninitialised", "scratch"):
        if arm == "scratch":
            model, objective = trainer.new(True), trainer.base(True)
        else:
            torch.manual_seed(trainer.run.seed)
            layers = (0, last // 2, last)
            model = convert_mdlm(arms["mdlm"], layers, initialise_projections=arm == "converted")
            objective = AdaptationObjective(trainer.base(True), arms["mdlm"], adaptation)
        arms.nelbo_at_start[arm] = trainer.sequence_nelbo(model)
        rows.append((arm, 0, float(arms.nelbo_at_start[arm].mean())))

        def validate(model: nn.Module, step: int, arm: str = arm) -> bool:
            rows.append((arm, step, trainer.validate(model)))
            return False

        arms.models[arm] = trainer.train(model, objective, config.conversion, arm, validate, every)
    arms.adaptation = pd.DataFrame(rows, columns=["arm", "step", "nelbo"])
