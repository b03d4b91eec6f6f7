"""Sequences of losses: guessing games, moving targets, random smooth losses.

All randomness comes from the generator that is handed in. Sequences are made before the game.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .losses import (
    AbsMemoryLoss,
    HuberMemoryLoss,
    LinearSignLoss,
    MemoryLoss,
    QuadraticMemoryLoss,
    ResidualLoss,
    SoftplusMemoryLoss,
)

LossList = list[MemoryLoss | None]


def sign_losses(
    horizon: int, informative: int, flip: float, memory: int, rng: np.random.Generator, *, bias: int = 1
) -> LossList:
    """`informative` random rounds of f(z) = mean_i (1 - s x_i)/2 on [-1, 1], s = bias flipped with probability `flip`.

    The best decision is about x = bias with L* near flip * informative; flip = 1/2 makes the signs fair.

    Raises:
        ValueError: more informative rounds than fit after round m.
    """
    first = memory - 1
    if not 0 <= informative <= horizon - first:
        raise ValueError(f"informative must lie in [0, {horizon - first}] for T = {horizon}, m = {memory}")
    losses: LossList = [None] * horizon
    chosen = np.sort(rng.choice(np.arange(first, horizon), size=informative, replace=False))
    flips = rng.random(informative) < flip
    kinds = {sign: LinearSignLoss(sign, memory) for sign in (-1, 1)}
    for t, flipped in zip(chosen, flips, strict=True):
        losses[t] = kinds[-bias if flipped else bias]
    return losses


def target_losses(
    targets: Float[np.ndarray, " t"], weights: Float[np.ndarray, " m"], kind: type[ResidualLoss], scale: float = 1.0
) -> LossList:
    """f_t(z) = scale * phi(<weights, z> - target_t) in one dimension; weights oldest decision first."""
    C = np.asarray(weights, dtype=float)[None, :, None]
    return [kind(C, targets[t : t + 1], scale) for t in range(len(targets))]


def quadratic_losses(
    horizon: int, dim: int, memory: int, amplitude: float, rng: np.random.Generator
) -> list[MemoryLoss | None]:
    """Rotated quadratics in the unit ball: f_t(z) = 1/2 |S Q_t (sum_i h_i x_{t-i} - target_t)|^2.

    Q_t are random rotations, S = diag(1, .., 1/2) stretches, h is a random point of the simplex, and the targets are a
    fixed point of norm 1/2 plus noise of norm at most `amplitude`; L* = 0 for amplitude 0.
    """
    h = rng.dirichlet(np.ones(memory))
    stretch = np.linspace(1.0, 0.5, dim)
    goal = rng.standard_normal(dim)
    goal *= 0.5 / np.linalg.norm(goal)
    rotations = np.linalg.qr(rng.standard_normal((horizon, dim, dim)))[0]
    noise = rng.standard_normal((horizon, dim))
    noise *= amplitude * rng.random((horizon, 1)) / np.linalg.norm(noise, axis=1, keepdims=True)
    rows = stretch[None, :, None] * rotations
    offsets = np.einsum("tqd,td->tq", rows, goal + noise)
    coefficients = rows[:, :, None, :] * h[None, None, :, None]
    return [QuadraticMemoryLoss(coefficients[t], offsets[t]) for t in range(horizon)]


def random_smooth_losses(
    horizon: int, dim: int, memory: int, rng: np.random.Generator, *, scale: float = 1.0
) -> LossList:
    """Random smooth losses of one kind (quadratic, Huber or softplus) with memory, two residuals a round.

    Every coefficient is random and differs between rounds, so no structure favours a method; `scale` multiplies the
    losses and so their smoothness.
    """
    kind = (QuadraticMemoryLoss, HuberMemoryLoss, SoftplusMemoryLoss)[int(rng.integers(3))]
    drift = rng.standard_normal((2, memory, dim))
    C = (drift + 0.5 * rng.standard_normal((horizon, 2, memory, dim))) / np.sqrt(memory * dim)
    a = rng.normal(0.0, rng.uniform(0.05, 1.0), size=(horizon, 2)) + C.sum(axis=2) @ rng.uniform(-0.5, 0.5, size=dim)
    return [kind(C[t], a[t], scale) for t in range(horizon)]


def absolute_losses(horizon: int, target: float, noise: float, memory: int, rng: np.random.Generator) -> LossList:
    """f_t(z) = |mean(z) - target_t| / 2 on [-1, 1], targets uniform within `noise` of `target` (clipped to [-1, 1])."""
    targets = np.clip(target + noise * rng.uniform(-1, 1, size=horizon), -1.0, 1.0)
    return target_losses(targets, np.full(memory, 1.0 / memory), AbsMemoryLoss, 0.5)
