"""Training by average, reweighted and worst-group loss, and a head trained with Fisher-Glass as a regulariser."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from fisher_glass.risk import cvar

Method = Literal["erm", "reweight", "groupdro"]


@dataclass(frozen=True)
class TrainConfig:
    """How a network is trained.

    Attributes:
        method: "erm" (average loss), "reweight" (groups drawn equally often), "groupdro" (exponentiated-gradient group
            weights on groups drawn equally often, as in its public recipe).
        epochs: passes; one pass is as many images as the training set has, also where groups are drawn equally often.
        batch_size: images a step.
        optimiser: "adamw" or "sgd" (momentum 0.9).
        learning_rate, weight_decay: of the optimiser.
        group_step_size: eta of GroupDRO.
    """

    method: Method = "erm"
    epochs: int = 15
    batch_size: int = 64
    optimiser: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    group_step_size: float = 0.01

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"method must be one of {', '.join(get_args(Method))}, got {self.method!r}")
        if self.optimiser not in ("adamw", "sgd"):
            raise ValueError(f"optimiser must be 'adamw' or 'sgd', got {self.optimiser!r}")
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(f"epochs and batch_size must be at least 1, got {self.epochs} and {self.batch_size}")


class SmallCNN(nn.Module):
    """Two strided convolutions, a 16-unit layer and a one-logit ``head``, for 3x28x28 images."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 16),
            nn.ReLU(),
        )
        self.head = nn.Linear(16, 1)

    def forward(self, images: Float[Tensor, "batch 3 28 28"]) -> Float[Tensor, "batch 1"]:
        return self.head(self.body(images))


class GroupWeights:
    """GroupDRO's group weights: ``q_g <- q_g exp(eta loss_g)``, normalised; the loss is ``sum_g q_g loss_g`` (Sagawa et
    al. 2020)."""

    def __init__(self, groups: int, step_size: float) -> None:
        self.weights = torch.full((groups,), 1 / groups)
        self.step_size = step_size

    def __call__(self, losses: Float[Tensor, " batch"], groups: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        self.weights = self.weights.to(losses.device)
        counts = torch.bincount(groups, minlength=len(self.weights)).to(losses.dtype)
        sums = torch.zeros_like(counts).index_add(0, groups, losses)
        means = sums / counts.clamp(min=1)
        # A group that is absent from the batch has mean 0 and keeps its relative weight.
        self.weights = self.weights * torch.exp(self.step_size * means.detach())
        self.weights = self.weights / self.weights.sum()
        return (self.weights * means).sum()


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that ``config`` names."""
    if config.optimiser == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=config.learning_rate, momentum=0.9, weight_decay=config.weight_decay
        )
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)


def batch_indices(groups: np.ndarray, config: TrainConfig, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """One epoch of index batches: a permutation for "erm", draws with equal group frequency otherwise."""
    n = len(groups)
    if config.method == "erm":
        order = rng.permutation(n)
    else:
        _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
        weights = 1 / counts[inverse]
        order = rng.choice(n, size=n, p=weights / weights.sum())
    for first in range(0, n, config.batch_size):
        yield order[first : first + config.batch_size]


def train_step(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    group_weights: GroupWeights | None,
    images: Tensor,
    labels: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
) -> float:
    """One optimiser step; returns the loss that was descended."""
    losses = functional.binary_cross_entropy_with_logits(model(images).reshape(-1), labels, reduction="none")
    loss = losses.mean() if group_weights is None else group_weights(losses, groups)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    return float(loss.detach())


def train(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: np.ndarray,
    groups: np.ndarray,
    config: TrainConfig,
    rng: np.random.Generator,
    progress: Callable[[range], Iterator[int]] = iter,  # type: ignore[assignment]
) -> nn.Module:
    """Train a one-logit classifier on images in memory; returns it in eval mode.

    Args:
        model: on the device to train on.
        images, labels (0 or 1), groups (0..G-1): training data.
        config: method and schedule.
        rng: order of the batches (initial weights come with the model).
        progress: wraps the range of epochs, to show how far it is.
    """
    device = next(model.parameters()).device
    images = images.to(device)
    y = torch.as_tensor(labels, dtype=images.dtype, device=device)
    g = torch.as_tensor(groups, dtype=torch.long, device=device)
    optimiser = make_optimiser(model, config)
    weights = GroupWeights(int(groups.max()) + 1, config.group_step_size) if config.method == "groupdro" else None
    model.train()
    for _ in progress(range(config.epochs)):
        for batch in batch_indices(groups, config, rng):
            index = torch.as_tensor(batch, device=device)
            train_step(model, optimiser, weights, images[index], y[index], g[index])
    return model.eval()


def glass_regularised_head(
    features: Float[np.ndarray, "n d"],
    labels: np.ndarray,
    environments: np.ndarray,
    task: Float[np.ndarray, " d"],
    *,
    weight: float,
    alpha: float,
    ridge: float,
    decay: float = 1e-3,
    steps: int = 100,
) -> Float[np.ndarray, " d"]:
    """Logistic head that minimises ``loss + weight * FG / FG_0 + decay/2 |theta|^2`` (the "FG-regularised" baseline,
    reconstruction).

    FG of the training environments at the current head, nuisance = complement, differentiated through the linear solve;
    the CVaR's tail weights are held constant (Danskin). ``FG_0`` is FG at theta = 0, so that ``weight`` is in units of
    loss.

    Args:
        features: standardised, constant last.
        labels: 0 or 1; environments: of each sample; uniform weights over environments.
        task: unit direction.
        weight: mu; 0 gives plain logistic regression.
        alpha, ridge: of FG.
        decay: of the squared norm.
        steps: most L-BFGS iterations.
    """
    z, y = torch.as_tensor(features), torch.as_tensor(np.asarray(labels, dtype=float))
    t = torch.as_tensor(task)
    groups = [torch.as_tensor(np.flatnonzero(environments == name)) for name in np.unique(environments)]
    shift = ridge * torch.eye(z.shape[1], dtype=z.dtype)

    def glass(theta: Tensor) -> Tensor:
        p = torch.sigmoid(z @ theta)
        curvature = p * (1 - p)
        values = torch.stack(
            [t @ torch.linalg.solve(z[i].T @ (z[i] * curvature[i, None]) / len(i) + shift, t) for i in groups]
        )
        _, tail = cvar(values.detach().numpy(), None, alpha)
        return torch.as_tensor(tail) @ values

    theta = torch.zeros(z.shape[1], dtype=z.dtype, requires_grad=True)
    initial = float(glass(theta.detach()))
    optimiser = torch.optim.LBFGS([theta], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(z @ theta, y) + decay / 2 * theta.square().sum()
        if weight > 0:
            loss = loss + weight * glass(theta) / initial
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    return theta.detach().numpy()
