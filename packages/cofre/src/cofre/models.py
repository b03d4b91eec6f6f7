"""Masked denoisers: the plain stack of blocks (MDLM, MaskGIT), the fixed-point one, and the published shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from .diffusion import LogLinearSchedule
from .fixed_point import DenoiserOutput, denoise
from .layers import (
    DiTBlock,
    FinalLayer,
    Injection,
    RelativeBias,
    Rotary,
    TimestepEmbedding,
    check_tokens,
    token_embedding,
)

Positions = Literal["rotary", "relative", "learned"]


class Denoiser(nn.Module):
    """What both denoisers share: embedding, positions, conditioning, final layer.

    Args:
        vocab_size: symbols of the data, `V`; the mask is symbol `V`.
        length: longest sequence.
        hidden, heads: width and attention heads of every block.
        cond_dim: width of adaLN's conditioning vector; `None` for plain pre-norm blocks.
        dropout: of every block.
        classes: number of classes of a class-conditional model; class id `classes` means none (guidance).
        registers: learned rows before the sequence that stand for no token.
        positions: "rotary", a "relative" bias of the attention, which small models learn faster, or "learned" rows
            added to the embedding.
        time_conditioning: feed the noise level to adaLN; off in MDLM's published runs, where a constant is fed.

    Raises:
        ValueError: for a size below 1, a class-conditional call without classes, time conditioning without adaLN.
        TypeError: for tokens that are not integers.
    """

    def __init__(
        self,
        vocab_size: int,
        length: int,
        hidden: int,
        heads: int,
        *,
        cond_dim: int | None = None,
        dropout: float = 0.0,
        classes: int | None = None,
        registers: int = 0,
        positions: Positions = "rotary",
        time_conditioning: bool = False,
    ) -> None:
        super().__init__()
        for name, value in {"vocab_size": vocab_size, "length": length, "hidden": hidden, "heads": heads}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if positions not in get_args(Positions):
            raise ValueError(f"positions must be one of {', '.join(get_args(Positions))}, got {positions!r}")
        if time_conditioning and cond_dim is None:
            raise ValueError("time conditioning goes through adaLN: it needs cond_dim, got None")
        self.vocab_size, self.length, self.mask_id = vocab_size, length, vocab_size
        self.hidden, self.heads, self.cond_dim, self.dropout = hidden, heads, cond_dim, dropout
        self.classes, self.registers, self.positions = classes, registers, positions
        self.time_conditioning = time_conditioning
        # With adaLN every block starts as the identity; without it a small embedding would drown in their outputs.
        std = 0.02 if cond_dim is not None else 1.0
        self.embedding = token_embedding(vocab_size + 1, hidden, std)
        rows = length + registers
        self.attention_positions: Rotary | RelativeBias | None = None
        if positions == "rotary":
            self.attention_positions = Rotary(hidden // heads, rows)
        elif positions == "relative":
            self.attention_positions = RelativeBias(heads, rows)
        self.position_table = nn.Parameter(std * torch.randn(length, hidden)) if positions == "learned" else None
        self.register_table = nn.Parameter(std * torch.randn(registers, hidden)) if registers else None
        self.timestep = None if cond_dim is None else TimestepEmbedding(cond_dim)
        self.class_table = None if classes is None else token_embedding(classes + 1, cond_dim or hidden, std)
        self.final = FinalLayer(hidden, vocab_size + 1, cond_dim)

    @property
    def shape(self) -> dict:
        """Arguments that make another denoiser of the same embedding, conditioning and width."""
        names = ("vocab_size", "length", "hidden", "heads", "cond_dim", "dropout", "classes", "registers")
        return {name: getattr(self, name) for name in (*names, "positions", "time_conditioning")}

    def new_block(self) -> DiTBlock:
        """A block of this model's width."""
        return DiTBlock(self.hidden, self.heads, self.cond_dim, self.dropout)

    def condition(
        self, t: Float[Tensor, " batch"] | None = None, classes: Integer[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "rows cond"] | None:
        """AdaLN's conditioning vector; one row if all samples share it, `None` for a model without adaLN."""
        if self.timestep is None:
            return None
        if self.time_conditioning:
            if t is None:
                raise ValueError("this model is conditioned on time: it needs t")
            sigma = LogLinearSchedule().sigma(t)
        else:
            sigma = torch.zeros(1, device=self.embedding.weight.device)
        cond = self.timestep(sigma)
        if self.class_table is not None:
            cond = cond + self.class_table(self._checked_classes(classes))
        return nn.functional.silu(cond)

    def embed(
        self, z: Integer[Tensor, "batch length"], classes: Integer[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch rows width"]:
        """Token embeddings with learned positions, class and register rows where the model has them."""
        check_tokens(z, self.vocab_size + 1, "tokens")
        if z.shape[1] > self.length:
            raise ValueError(f"a sequence of {z.shape[1]} is longer than the model's {self.length} positions")
        h = self.embedding(z)
        if self.position_table is not None:
            h = h + self.position_table[: z.shape[1]]
        if self.class_table is not None and self.timestep is None:
            h = h + self.class_table(self._checked_classes(classes))[:, None]
        if self.register_table is not None:
            h = torch.cat((self.register_table.expand(len(h), -1, -1), h), dim=1)
        return h

    def read_out(
        self, h: Float[Tensor, "batch rows width"], cond: Float[Tensor, "rows_of_cond cond"] | None
    ) -> DenoiserOutput:
        """Logits and pre-logit states of the token rows."""
        return DenoiserOutput(*self.final(h[:, self.registers :], cond))

    def _checked_classes(self, classes: Tensor | None) -> Tensor:
        if classes is None or self.classes is None:
            raise ValueError(f"a class-conditional model needs classes (0 … {self.classes}, the last for none)")
        check_tokens(classes, self.classes + 1, "classes")
        return classes


class MaskedDenoiser(Denoiser):
    """A plain stack of blocks.

    Args:
        vocab_size, length, hidden, heads, options: see `Denoiser`.
        blocks: number of blocks.
    """

    def __init__(self, vocab_size: int, length: int, hidden: int, heads: int, blocks: int, **options) -> None:
        super().__init__(vocab_size, length, hidden, heads, **options)
        if blocks < 1:
            raise ValueError(f"blocks must be at least 1, got {blocks}")
        self.blocks = nn.ModuleList(self.new_block() for _ in range(blocks))

    def forward(
        self,
        z: Integer[Tensor, "batch length"],
        t: Float[Tensor, " batch"] | None = None,
        classes: Integer[Tensor, " batch"] | None = None,
    ) -> DenoiserOutput:
        """Predict every position."""
        cond = self.condition(t, classes)
        h = self.embed(z, classes)
        for block in self.blocks:
            h = block(h, self.attention_positions, cond)
        return self.read_out(h, cond)


class FixedPointDenoiser(Denoiser):
    """A denoiser whose middle is one block (or a few), iterated to a fixed point (equation 2).

    Args:
        vocab_size, length, hidden, heads, options: see `Denoiser`.
        pre, fixed_point, post: numbers of blocks before, in and after the iterated map.
    """

    def __init__(
        self,
        vocab_size: int,
        length: int,
        hidden: int,
        heads: int,
        *,
        pre: int = 1,
        fixed_point: int = 1,
        post: int = 1,
        **options,
    ) -> None:
        super().__init__(vocab_size, length, hidden, heads, **options)
        if pre < 0 or post < 0 or fixed_point < 1:
            raise ValueError(f"expected pre, post >= 0 and fixed_point >= 1, got {pre}, {post}, {fixed_point}")
        self.pre_blocks = nn.ModuleList(self.new_block() for _ in range(pre))
        self.project = nn.Linear(hidden, hidden)
        self.inject: nn.Module = Injection(hidden)
        self.shared_blocks = nn.ModuleList(self.new_block() for _ in range(fixed_point))
        self.post_blocks = nn.ModuleList(self.new_block() for _ in range(post))

    @property
    def block_counts(self) -> tuple[int, int, int]:
        """Numbers of blocks before, in and after the iterated map: what a pass costs."""
        return len(self.pre_blocks), len(self.shared_blocks), len(self.post_blocks)

    def encode(
        self,
        z: Integer[Tensor, "batch length"],
        t: Float[Tensor, " batch"] | None = None,
        classes: Integer[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch rows width"], Float[Tensor, "batch rows width"]]:
        """`h_pre`, and the injection `G(h_pre)`."""
        cond = self.condition(t, classes)
        h = self.embed(z, classes)
        for block in self.pre_blocks:
            h = block(h, self.attention_positions, cond)
        return h, self.project(h)

    def apply_block(
        self,
        h: Float[Tensor, "batch rows width"],
        injection: Float[Tensor, "batch rows width"],
        t: Float[Tensor, " batch"] | None = None,
        classes: Integer[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch rows width"]:
        """One application of the iterated map `F`."""
        cond = self.condition(t, classes)
        h = self.inject(h, injection)
        for block in self.shared_blocks:
            h = block(h, self.attention_positions, cond)
        return h

    def decode(
        self,
        h: Float[Tensor, "batch rows width"],
        t: Float[Tensor, " batch"] | None = None,
        classes: Integer[Tensor, " batch"] | None = None,
    ) -> DenoiserOutput:
        """Logits and pre-logit states from a solution."""
        cond = self.condition(t, classes)
        for block in self.post_blocks:
            h = block(h, self.attention_positions, cond)
        return self.read_out(h, cond)

    def forward(
        self,
        z: Integer[Tensor, "batch length"],
        t: Float[Tensor, " batch"] | None = None,
        classes: Integer[Tensor, " batch"] | None = None,
        *,
        iterations: int | None = None,
        no_grad_iterations: int = 0,
        init: Tensor | Callable[[Tensor], Tensor] | None = None,
        track_residuals: bool = False,
    ) -> DenoiserOutput:
        """See `cofre.fixed_point.denoise`."""
        return denoise(
            self,
            z,
            t,
            classes,
            iterations=iterations,
            no_grad_iterations=no_grad_iterations,
            init=init,
            track_residuals=track_residuals,
        )


class BlockCounter:
    """Block forward passes so far, in units of one pass of the whole batch of `batch` samples."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.rows = 0

    @property
    def passes(self) -> float:
        """Passes a sample; guidance, which doubles the rows of a pass, counts twice."""
        return self.rows / self.batch


@contextmanager
def count_block_passes(model: nn.Module, batch: int, block: type[nn.Module] = DiTBlock) -> Iterator[BlockCounter]:
    """Count the block passes of everything that runs inside, by forward hooks on modules of type `block`."""
    counter = BlockCounter(batch)

    def count(_module: nn.Module, inputs: tuple[Any, ...], _output: Tensor) -> None:
        counter.rows += len(inputs[0])

    handles = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, block)]
    try:
        yield counter
    finally:
        for handle in handles:
            handle.remove()


def mdlm_small(**changes) -> MaskedDenoiser:
    """MDLM at the published size: 12 blocks of width 768, GPT-2's vocabulary; 169,627,218 parameters."""
    return MaskedDenoiser(**(_TEXT | {"blocks": 12} | changes))


def fp_mdlm_small(**changes) -> FixedPointDenoiser:
    """FP-MDLM at the published size, 1/1/1 blocks; 104,659,794 parameters."""
    return FixedPointDenoiser(**(_TEXT | changes))


def maskgit_large(**changes) -> MaskedDenoiser:
    """Class-conditional MaskGIT of 24 blocks on 256 codes of 4096 (width and heads: reconstruction)."""
    return MaskedDenoiser(**(_IMAGE | {"blocks": 24} | changes))


def fp_maskgit(**changes) -> FixedPointDenoiser:
    """FP-MaskGIT, 4/1/4 blocks, otherwise like `maskgit_large`."""
    return FixedPointDenoiser(**(_IMAGE | {"pre": 4, "post": 4} | changes))


_TEXT = {"vocab_size": 50_257, "length": 1024, "hidden": 768, "heads": 12, "cond_dim": 128, "dropout": 0.1}
_IMAGE = {
    "vocab_size": 4096,
    "length": 256,
    "hidden": 1024,
    "heads": 16,
    "cond_dim": 1024,
    "dropout": 0.1,
    "classes": 10,
    "registers": 1,
}
