"""The damped fixed-point solver: iterate a map until each sample's state stops changing (section 3.4).

It works on any callable `f: (batch, ...) -> (batch, ...)`, a transformer block or a scalar function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .config import ResidualKind, SolverConfig


@dataclass(frozen=True)
class SolverState:
    """What the solver remembers of each sample, one entry a sample.

    `halted` and `converged` describe the last step alone: whether the sample may stop, and whether because its
    residual fell below `tau`.
    """

    step_size: Float[Tensor, " batch"]
    best_residual: Float[Tensor, " batch"]
    patience: Int[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    iterations: Int[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    halted: Bool[Tensor, " batch"]

    def select(self, index: Tensor) -> SolverState:
        """The state of some samples, by position or by mask."""
        return SolverState(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def put(self, index: Int[Tensor, " chosen"], other: SolverState) -> SolverState:
        """This state with the samples at `index` taken from `other`."""
        return SolverState(
            **{f.name: getattr(self, f.name).index_copy(0, index, getattr(other, f.name)) for f in fields(self)}
        )


@dataclass(frozen=True)
class FixedPointResult:
    """Where a solve ended.

    Attributes:
        z: final state of every sample, frozen at the step in which the sample halted.
        iterations: how often `f` was applied to each sample.
        residual: relative residual of each sample's last step.
        converged: whether that residual was below `tau`. A sample that ran into the cap or whose step size
            vanished is not converged.
        step_size: each sample's last step size.
        history: residual of every step, `nan` once a sample has halted.
    """

    z: Float[Tensor, "batch ..."]
    iterations: Int[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    step_size: Float[Tensor, " batch"]
    history: Float[Tensor, "steps batch"]


Callback = Callable[[int, Tensor, Tensor, SolverState], None]


@torch.no_grad()
def relative_residual(
    z: Float[Tensor, "batch ..."],
    fz: Float[Tensor, "batch ..."],
    eps: float = 1e-8,
    mode: ResidualKind = "per_position",
) -> Float[Tensor, " batch"]:
    """Relative residual of each sample in the maximum norm, in at least float32.

    `per_position` takes `||z_j - f(z)_j|| / (||f(z)_j|| + eps)` over the last dimension (the channels) and the largest
    over all positions; `global` takes one ratio of the whole state. Scaling `z` and `f(z)` together leaves it as it is.

    Raises:
        ValueError: if the shapes differ.
    """
    if z.shape != fz.shape:
        raise ValueError(f"the map must keep the state's shape, got {tuple(z.shape)} -> {tuple(fz.shape)}")
    if z.dtype in (torch.float16, torch.bfloat16):
        z, fz = z.float(), fz.float()
    if z.ndim == 1:
        z, fz = z[:, None], fz[:, None]
    elif mode == "global":
        z, fz = z.flatten(1), fz.flatten(1)
    ratio = (z - fz).abs().amax(-1) / (fz.abs().amax(-1) + eps)
    return ratio.flatten(1).amax(1) if ratio.ndim > 1 else ratio


class FixedPointSolver:
    """Damped iteration with a step size, a patience counter and a halting test for each sample ("FPOPT").

    One step, given `z` and `f(z)`:

        r   = relative residual of z against f(z)          (of the undamped map; no gradient)
        z  <- eta f(z) + (1 - eta) z
        a better r than ever resets the patience, any other uses it up;
        out of patience with r >= tau: eta <- gamma eta, patience reset.

    A sample halts when `r < tau`, or, without having converged, when `eta < min_step`.

    Args:
        config: settings; its `gamma_train` is used if `training`, else `gamma_eval`.
        training: which `gamma` to use.
        generator: source of the optional noise.
    """

    def __init__(
        self, config: SolverConfig | None = None, *, training: bool = False, generator: torch.Generator | None = None
    ) -> None:
        self.config = SolverConfig() if config is None else config
        self.gamma = self.config.gamma_train if training else self.config.gamma_eval
        self.generator = generator

    def init(
        self, batch_size: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> SolverState:
        """State of `batch_size` samples that have not been iterated."""

        def full(value: float) -> Tensor:
            return torch.full((batch_size,), value, device=device, dtype=dtype)

        count = torch.zeros(batch_size, device=device, dtype=torch.int64)
        flag = torch.zeros(batch_size, device=device, dtype=torch.bool)
        return SolverState(
            step_size=full(self.config.eta0),
            best_residual=full(float("inf")),
            patience=count + self.config.patience,
            residual=full(float("inf")),
            iterations=count,
            converged=flag,
            halted=flag,
        )

    def step(
        self, state: SolverState, z: Float[Tensor, "batch ..."], fz: Float[Tensor, "batch ..."]
    ) -> tuple[Float[Tensor, "batch ..."], SolverState]:
        """One damped step of every sample, whether or not it has halted before."""
        config = self.config
        residual = relative_residual(z, fz, config.eps, config.residual).to(state.residual.dtype)
        step_size = state.step_size.to(z.dtype).view(-1, *(1,) * (z.ndim - 1))
        z = torch.lerp(z, fz, step_size.expand_as(z))
        if config.noise_std > 0:
            noise = torch.randn(z.shape, generator=self.generator, device=z.device, dtype=z.dtype)
            z = z + config.noise_std * noise

        better = residual < state.best_residual
        patience = torch.where(better, config.patience, state.patience - 1)
        stuck = (patience <= 0) & (residual >= config.tau)
        step_size = torch.where(stuck, self.gamma * state.step_size, state.step_size)
        converged = residual < config.tau
        return z, SolverState(
            step_size=step_size,
            best_residual=torch.where(better, residual, state.best_residual),
            patience=torch.where(stuck, config.patience, patience),
            residual=residual,
            iterations=state.iterations + 1,
            converged=converged,
            halted=converged | (step_size < config.min_step),
        )

    def solve(
        self,
        f: Callable[..., Tensor],
        z0: Float[Tensor, "batch ..."],
        *,
        context: Sequence[Tensor] | None = None,
        callback: Callback | None = None,
    ) -> FixedPointResult:
        """Iterate every sample until it halts or `max_iter` is reached.

        A halted sample is frozen. With `context` it also leaves the batch, so the cost of an iteration falls
        with the number of samples that are still moving.

        Args:
            f: the map. Called as `f(z)` on the whole batch, or, if `context` is given, as `f(z, *context)` with
                only the samples that have not halted.
            z0: initial states `(batch, ...)`.
            context: tensors with one leading entry a sample that `f` needs; `()` if it needs none.
            callback: called after every step with the iteration (from 1), the indices of the samples that took
                it, their new states and their solver state.

        Raises:
            ValueError: if `f` changes the shape, or a context tensor has another batch size.
            RuntimeError: if `f` returns a value that is not finite; names the iteration.
        """
        batch = z0.shape[0]
        for tensor in context or ():
            if tensor.shape[0] != batch:
                raise ValueError(f"context tensors must have {batch} entries like z0, got {tensor.shape[0]}")
        dtype = z0.dtype if z0.dtype == torch.float64 else torch.float32
        final = self.init(batch, z0.device, dtype)
        final_z = z0
        z, state, active = z0, final, torch.arange(batch, device=z0.device)
        history: list[Tensor] = []
        for iteration in range(1, self.config.max_iter + 1):
            if active.numel() == 0:
                break
            if context is None:
                fz = f(final_z.index_copy(0, active, z))
                fz = fz[active] if fz.shape == z0.shape else fz
            else:
                fz = f(z, *context)
            z, state = self.step(state, z, fz)
            if not torch.isfinite(state.residual).all():
                raise RuntimeError(f"the map returned a value that is not finite in iteration {iteration}")
            history.append(state.residual.new_full((batch,), float("nan")).index_copy(0, active, state.residual))
            if callback is not None:
                callback(iteration, active, z, state)
            if bool(state.halted.any()) or iteration == self.config.max_iter:
                final_z, final = final_z.index_copy(0, active, z), final.put(active, state)
                moving = (~state.halted).nonzero().squeeze(1)
                z, state, active = z[moving], state.select(moving), active[moving]
                context = None if context is None else [tensor[moving] for tensor in context]
        return FixedPointResult(
            z=final_z,
            iterations=final.iterations,
            residual=final.residual,
            converged=final.converged,
            step_size=final.step_size,
            history=torch.stack(history) if history else final.residual.new_empty((0, batch)),
        )


class ActHalting(FixedPointSolver):
    """Stop when a trained head says so, as the adaptive computation time of HRM and TRM does (baseline).

    Args:
        halt_logit: maps states `(batch, ...)` to one logit a sample.
        max_iter: most iterations.
        threshold: a sample stops when the logit's sigmoid exceeds this.

    Raises:
        ValueError: for a threshold outside (0, 1).
    """

    def __init__(self, halt_logit: Callable[[Tensor], Tensor], max_iter: int = 16, threshold: float = 0.5) -> None:
        if not 0.0 < threshold < 1.0:
            raise ValueError(f"threshold must lie in (0, 1), got {threshold}")
        super().__init__(SolverConfig.fixed(max_iter))
        self.halt_logit = halt_logit
        self.threshold = threshold

    def step(self, state: SolverState, z: Tensor, fz: Tensor) -> tuple[Tensor, SolverState]:
        """One plain step; a sample halts when its head fires."""
        z, state = super().step(state, z, fz)
        fired = torch.sigmoid(self.halt_logit(z)) > self.threshold
        return z, replace(state, halted=fired, converged=fired)


def critical_damping(eigenvalues: Sequence[complex | float] | np.ndarray) -> float:
    """Largest step size below which the damped iteration converges near a fixed point (theorem 3).

    For a normal Jacobian with eigenvalues `l_i`, `eta f(z) + (1 - eta) z` contracts exactly for
    `0 < eta < min_i 2 (1 - Re l_i) / |1 - l_i|^2` (elementary; reconstruction).

    Raises:
        ValueError: if there is no eigenvalue, or one with real part 1 or more: then no step size converges.
    """
    values = np.asarray(eigenvalues, dtype=np.complex128).ravel()
    if values.size == 0:
        raise ValueError("critical_damping needs at least one eigenvalue")
    if not (values.real < 1.0).all():
        raise ValueError(f"every eigenvalue needs a real part below 1, got {values[values.real.argmax()]:.6g}")
    return float((2.0 * (1.0 - values.real) / np.abs(1.0 - values) ** 2).min())
