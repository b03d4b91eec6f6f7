"""The Fixed-Point Reasoning Model: one block, applied until its state stops changing (sections 3.2 to 3.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .config import FPRMConfig, SolverConfig
from .layers import Attention, LocalConvolution, SwiGLU, linear, rms_norm, truncated_normal_
from .scaling import ResidualScaling
from .solver import FixedPointSolver


class InputInjection(nn.Module):
    """Token embedding, puzzle prefix and learned positions: the part `e(x)` that enters every iteration."""

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.tokens = nn.Embedding(config.vocab_size, width)
        truncated_normal_(self.tokens.weight, 1.0 / math.sqrt(width))
        if config.prefix_len:
            # One zero-initialised vector a puzzle fills the first prefix position; the others are padded with zeros.
            self.puzzles = nn.Embedding(config.num_puzzle_ids, width)
            nn.init.zeros_(self.puzzles.weight)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.prefix_len + config.seq_len, width))
            truncated_normal_(self.positions, 1.0 / math.sqrt(width))

    def forward(
        self, x: Int[Tensor, "batch tokens"], puzzle_ids: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch positions width"]:
        config = self.config
        self._check(x, puzzle_ids)
        e = self.tokens(x)
        if config.prefix_len:
            ids = x.new_zeros(x.shape[0]) if puzzle_ids is None else puzzle_ids
            prefix = self.puzzles(ids)[:, None]
            padding = prefix.new_zeros(x.shape[0], config.prefix_len - 1, config.hidden_size)
            e = torch.cat((prefix, padding, e), dim=1)
        if config.positions == "learned":
            e = (e + self.positions[: e.shape[1]]) / math.sqrt(2.0)
        return math.sqrt(config.hidden_size) * e

    def _check(self, x: Tensor, puzzle_ids: Tensor | None) -> None:
        config = self.config
        length = x.shape[1]
        if config.positions == "learned" and length > config.seq_len:
            raise ValueError(f"learned positions end at {config.seq_len} tokens, got {length}")
        if config.conv == "conv2d" and math.isqrt(length) ** 2 != length:
            raise ValueError(f"conv2d needs a square grid, but {length} tokens are not a perfect square")
        if x.numel() and (x.min() < 0 or x.max() >= config.vocab_size):
            raise ValueError(f"token ids must lie in [0, {config.vocab_size}), got {int(x.min())} to {int(x.max())}")
        if puzzle_ids is not None and puzzle_ids.numel():
            low, high = int(puzzle_ids.min()), int(puzzle_ids.max())
            if low < 0 or high >= config.num_puzzle_ids:
                raise IndexError(f"puzzle ids must lie in [0, {config.num_puzzle_ids}), got {low} to {high}")


class LoopBlock(nn.Module):
    """One application of the loop body, `f_theta(z; e)` (section 3.3).

    `L` transformer blocks whose `2L` residual sums are weighted by the coupled coefficients; with `norm="post"` and
    `residual_scale="none"` it is the block of the recursive baselines.
    """

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        self.norm = config.norm
        self.norm_placement = config.norm_placement
        self.eps = config.rms_eps
        self.scaling = ResidualScaling(config)
        self.convolution = LocalConvolution(config)
        self.sublayers = nn.ModuleList(
            sublayer(config) for _ in range(config.num_layers) for sublayer in (Attention, SwiGLU)
        )

    def forward(
        self, z: Float[Tensor, "batch positions width"], injection: Float[Tensor, "batch positions width"]
    ) -> Float[Tensor, "batch positions width"]:
        alpha1, alpha2, beta1, beta2 = self.scaling(z)
        z = self.convolution(z)
        if self.norm_placement == "input":
            z = rms_norm(z, self.eps)
        u = alpha2 * z + beta2 * injection
        for sublayer in self.sublayers:
            update = sublayer(u if self.norm == "post" else rms_norm(u, self.eps))
            if self.norm == "peri":
                update = rms_norm(update, self.eps)
            u = alpha1 * u + beta1 * update
            if self.norm == "post":
                u = rms_norm(u, self.eps)
        return rms_norm(u, self.eps) if self.norm_placement == "output" else u


@dataclass(frozen=True)
class FPRMOutput:
    """Answer of a model.

    Attributes:
        logits: `(batch, tokens, classes)`.
        iterations: applications of the loop body, for each sample.
        residual: relative residual of each sample's last iteration.
        converged: whether each sample reached a fixed point.
        trace: residual of every iteration, `(iterations, batch)`, if it was asked for.
    """

    logits: Float[Tensor, "batch tokens classes"]
    iterations: Int[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    trace: Float[Tensor, "steps batch"] | None = None


class LoopedModel(nn.Module):
    """What every model here has in common: an injection, a state that a body refines, a readout and a halting head.

    Subclasses give `body` and, if their state is not one latent vector a position, `latent` and `initial_state`.
    """

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__()
        self.config = config
        self.injection = InputInjection(config)
        self.head = linear(config.hidden_size, config.num_classes)
        self.halting_head = linear(config.hidden_size, 2, bias=True)
        nn.init.zeros_(self.halting_head.weight)
        nn.init.constant_(self.halting_head.bias, -5.0)

    def inject(
        self, x: Int[Tensor, "batch tokens"], puzzle_ids: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch positions width"]:
        """Input injection `e(x)`, with the prefix before the tokens.

        Raises:
            ValueError: for token ids out of range, too long a sequence for learned positions, or a
                sequence that is no square grid with `conv2d`.
            IndexError: for puzzle ids out of range.
        """
        return self.injection(x, puzzle_ids)

    def initial_state(self, injection: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """States to start from, one for each sample of `injection`."""
        raise NotImplementedError

    def body(self, z: Tensor, injection: Tensor) -> Tensor:
        """One iteration."""
        raise NotImplementedError

    def latent(self, z: Tensor) -> Float[Tensor, "batch positions width"]:
        """The part of the state that answers are read from."""
        return z

    def readout(self, z: Tensor) -> Float[Tensor, "batch tokens classes"]:
        """Logits of every token."""
        return self.head(self.latent(z)[:, self.config.prefix_len :])

    def halt_logit(self, z: Tensor) -> Float[Tensor, " batch"]:
        """Logit of "this answer is right", read at the first position; only the ACT baselines halt by it."""
        return self.halting_head(self.latent(z)[:, 0])[:, 0]

    def forward(
        self,
        x: Int[Tensor, "batch tokens"],
        puzzle_ids: Int[Tensor, " batch"] | None = None,
        *,
        solver: FixedPointSolver | SolverConfig | None = None,
        return_trace: bool = False,
        grad_iterations: int = 0,
        generator: torch.Generator | None = None,
    ) -> FPRMOutput:
        """Iterate each sample to its halting and read the answer.

        The search for the fixed point runs without gradient. `grad_iterations` further iterations run with it, a
        truncated estimate of the implicit gradient (proposition 1); the deep-supervision trainer does not need them.

        Args:
            x: token ids.
            puzzle_ids: identifiers for the prefix; all 0 when `None`.
            solver: a solver, or settings of one; the evaluation settings of the paper when `None`.
            return_trace: whether to keep the residual of every iteration.
            grad_iterations: plain iterations with gradient after the halting.
            generator: source of the random initial states; torch's global one when `None`.

        Raises:
            ValueError, IndexError: as `inject`.
            RuntimeError: if a state stops being finite; names the iteration.
        """
        if not isinstance(solver, FixedPointSolver):
            solver = FixedPointSolver(solver)
        injection = self.inject(x, puzzle_ids)
        with torch.no_grad():
            z0 = self.initial_state(injection, generator)
            result = solver.solve(self.body, z0, context=(injection,))
        z = result.z
        for _ in range(grad_iterations):
            z = self.body(z, injection)
        return FPRMOutput(
            logits=self.readout(z),
            iterations=result.iterations,
            residual=result.residual,
            converged=result.converged,
            trace=result.history if return_trace else None,
        )

    @torch.no_grad()
    def predict(
        self,
        x: Int[Tensor, "batch tokens"],
        puzzle_ids: Int[Tensor, " batch"] | None = None,
        *,
        solver: FixedPointSolver | SolverConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "batch tokens"]:
        """Most likely class of every token. Arguments and errors as `forward`."""
        return self(x, puzzle_ids, solver=solver, generator=generator).logits.argmax(-1)


class FPRM(LoopedModel):
    """Fixed-Point Reasoning Model: a single looped block with pre-norm and coupled residual scaling."""

    def __init__(self, config: FPRMConfig) -> None:
        super().__init__(config)
        self.block = LoopBlock(config)
        if config.initial_state == "frozen":
            self.frozen_state: Tensor
            self.register_buffer("frozen_state", truncated_normal_(torch.empty(config.hidden_size), config.init_std))

    def initial_state(
        self, injection: Float[Tensor, "batch positions width"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch positions width"]:
        """A truncated normal of standard deviation `init_std` for every sample, or the frozen vector."""
        if self.config.initial_state == "frozen":
            return self.frozen_state.expand_as(injection).clone()
        return truncated_normal_(torch.empty_like(injection), self.config.init_std, generator)

    def body(
        self, z: Float[Tensor, "batch positions width"], injection: Float[Tensor, "batch positions width"]
    ) -> Float[Tensor, "batch positions width"]:
        """`f_theta(z; e)`: the loop body, `num_layers` blocks deep."""
        return self.block(z, injection)

    def effective_layers(self, iterations: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Transformer blocks that a sample went through."""
        return iterations * self.config.num_layers
