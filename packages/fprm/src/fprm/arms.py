"""The models that experiments compare: how each is built, trained and halted.

All train with the same number of block applications in an optimiser step: `bptt` iterations of the loop are one TRM
segment of as many applications, a non-looped network of `bptt` times the depth, or one of the same depth on a batch
`bptt` times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from .baselines import HRM, TRM, FixedDepthTransformer
from .config import FPRMConfig, SolverConfig
from .model import FPRM, LoopedModel
from .recipes import Recipe
from .solver import ActHalting, FixedPointSolver


@dataclass(frozen=True)
class Arm:
    """One way to solve the task.

    Attributes:
        name: short name, used in measures and files.
        label: name in figures.
        build: makes the model from the shape and the recipe.
        recipe: changes the recipe to this arm's.
        solver: halting in evaluation, given the trained model and the arm's own recipe.
        weights_of: the arm that is trained in the same way, if this one differs in evaluation only.
    """

    name: str
    label: str
    build: Callable[[FPRMConfig, Recipe], LoopedModel]
    recipe: Callable[[Recipe], Recipe]
    solver: Callable[[LoopedModel, Recipe], FixedPointSolver]
    weights_of: str | None = None

    def checkpoint(self, folder: Path, seed: int) -> Path:
        """Where this arm's training with one seed is kept."""
        return folder / f"{self.weights_of or self.name}-seed{seed}.pt"


def _fixed_point(model: LoopedModel, recipe: Recipe) -> FixedPointSolver:
    return FixedPointSolver(recipe.solver)


def _all_segments(model: LoopedModel, recipe: Recipe) -> FixedPointSolver:
    return FixedPointSolver(SolverConfig.fixed(recipe.bptt * recipe.max_segments))


def _by_head(model: LoopedModel, recipe: Recipe) -> FixedPointSolver:
    return ActHalting(model.halt_logit, max_iter=recipe.bptt * recipe.max_segments)


def _act(recipe: Recipe) -> Recipe:
    return replace(recipe, halting="act", q_loss_coeff=0.5)


def _segments(recipe: Recipe) -> Recipe:
    return replace(_act(recipe), bptt=1, max_segments=recipe.trm_segments)


def _one_pass(recipe: Recipe) -> Recipe:
    return replace(recipe, halting="none", q_loss_coeff=0.0, bptt=1, max_segments=1)


def _shallow(recipe: Recipe) -> Recipe:
    return replace(_one_pass(recipe), batch_size=recipe.batch_size * recipe.bptt)


def _trm(config: FPRMConfig, recipe: Recipe) -> LoopedModel:
    return TRM(config, *recipe.cycles)


def _loop(config: FPRMConfig, recipe: Recipe) -> LoopedModel:
    return FPRM(config)


_ALL = (
    Arm("fprm", "FPRM", _loop, lambda recipe: recipe, _fixed_point),
    Arm(
        "fixed_loop",
        "looped, fixed iterations",
        _loop,
        lambda recipe: replace(recipe, halting="none"),
        _all_segments,
    ),
    Arm("act", "looped, ACT halting", _loop, _act, _by_head),
    Arm("trm", "TRM", lambda config, recipe: _trm(replace(config, conv="none"), recipe), _segments, _all_segments),
    Arm("trm_conv", "TRM + conv", _trm, _segments, _all_segments),
    Arm("trm_conv_act", "TRM + conv + ACT at inference", _trm, _segments, _by_head, weights_of="trm_conv"),
    Arm("hrm", "HRM", lambda config, recipe: HRM(replace(config, conv="none")), _segments, _all_segments),
    Arm(
        "shallow",
        "not looped, equal parameters",
        lambda config, recipe: FixedDepthTransformer(config, config.num_layers),
        _shallow,
        _all_segments,
    ),
    Arm(
        "deep",
        "not looped, equal depth",
        lambda config, recipe: FixedDepthTransformer(config, config.num_layers * recipe.bptt),
        _one_pass,
        _all_segments,
    ),
)
ARMS: dict[str, Arm] = {arm.name: arm for arm in _ALL}


def get_arm(name: str) -> Arm:
    """The arm of that name.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in ARMS:
        raise ValueError(f"unknown arm {name!r}; there are {', '.join(ARMS)}")
    return ARMS[name]
