"""Settings of the model and of the solver, with the values the paper publishes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Positions = Literal["rope", "learned", "none"]
Convolution = Literal["conv1d", "conv2d", "none"]
Norm = Literal["pre", "post", "peri"]
NormPlacement = Literal["none", "input", "output"]
ResidualScale = Literal["channel", "fixed", "input", "none"]
ResidualKind = Literal["per_position", "global"]
InitialState = Literal["random", "frozen"]

_DEFAULT_KERNEL = {"conv1d": 4, "conv2d": 3, "none": 1}
_CHOICES: dict[str, tuple[str, ...]] = {
    "positions": ("rope", "learned", "none"),
    "conv": ("conv1d", "conv2d", "none"),
    "norm": ("pre", "post", "peri"),
    "norm_placement": ("none", "input", "output"),
    "residual_scale": ("channel", "fixed", "input", "none"),
    "initial_state": ("random", "frozen"),
}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True)
class FPRMConfig:
    """Shape and options of a Fixed-Point Reasoning Model (sections 3.2 and 3.3).

    Attributes:
        vocab_size: number of input tokens.
        seq_len: tokens in a sequence; an upper limit only for learned positions.
        out_vocab_size: number of output classes; `vocab_size` when `None`.
        hidden_size: channels `d` of the latent state.
        num_heads: attention heads; must divide `hidden_size`.
        num_layers: transformer blocks `L` in the loop body, so `2 L` sub-layers.
        expansion: SwiGLU expansion; the inner width is two thirds of `expansion * hidden_size`.
        ffn_multiple: the SwiGLU inner width is rounded up to a multiple of this.
        causal: whether position `j` sees only positions up to `j`.
        positions: rotary, learned or no position embedding.
        rope_base: base of the rotary frequencies.
        prefix_len: learned positions `P` put before the tokens, one set for each puzzle identifier.
        num_puzzle_ids: number of puzzle identifiers.
        conv: depth-wise convolution over the recurrent state (causal, or over a square grid).
        conv_kernel: its width; 4 for `conv1d` and 3 for `conv2d` when `None`.
        norm: where a sub-layer is normalised: its input, its sum, or its input and output.
        norm_placement: a further normalisation of the loop body's input or output.
        residual_scale: how the residual coefficients are had: one learned value a channel, constants,
            a function of the state, or all equal to one (no scaling).
        alpha1_init, alpha2_init: initial inner and outer coefficients, both in (0, 1).
        outer_only: scale only the injection (`alpha_1 = beta_1 = 1`, `beta_2 = 1 - alpha_2`).
        initial_state: draw a fresh `z_0` for every sample, or broadcast one frozen random vector.
        init_std: standard deviation of `z_0`.
        softmax_temperature: divides the attention logits.
        rms_eps: guard of the root mean square.

    Raises:
        ValueError: for a value outside its range or a combination that cannot be built.
    """

    vocab_size: int
    seq_len: int
    out_vocab_size: int | None = None
    hidden_size: int = 512
    num_heads: int = 8
    num_layers: int = 2
    expansion: float = 4.0
    ffn_multiple: int = 256
    causal: bool = False
    positions: Positions = "rope"
    rope_base: float = 10_000.0
    prefix_len: int = 0
    num_puzzle_ids: int = 1
    conv: Convolution = "conv1d"
    conv_kernel: int | None = None
    norm: Norm = "pre"
    norm_placement: NormPlacement = "none"
    residual_scale: ResidualScale = "channel"
    alpha1_init: float = 0.75
    alpha2_init: float = 0.25
    outer_only: bool = False
    initial_state: InitialState = "random"
    init_std: float = 6.0
    softmax_temperature: float = 1.0
    rms_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "seq_len",
            "hidden_size",
            "num_heads",
            "num_layers",
            "ffn_multiple",
            "num_puzzle_ids",
        ):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        _require(self.prefix_len >= 0, f"prefix_len must not be negative, got {self.prefix_len}")
        for name, allowed in _CHOICES.items():
            _require(getattr(self, name) in allowed, f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("alpha1_init", "alpha2_init"):
            _require(0.0 < getattr(self, name) < 1.0, f"{name} must lie in (0, 1), got {getattr(self, name)}")
        for name in ("expansion", "init_std", "softmax_temperature", "rms_eps"):
            _require(getattr(self, name) > 0, f"{name} must be positive, got {getattr(self, name)}")
        _require(
            self.hidden_size % self.num_heads == 0,
            f"hidden_size must be a multiple of num_heads, got {self.hidden_size} and {self.num_heads}",
        )
        if self.positions == "rope":
            _require(self.head_dim % 2 == 0, f"rotary positions need an even head dimension, got {self.head_dim}")
        _require(self.kernel >= 1, f"conv_kernel must be at least 1, got {self.kernel}")
        if self.conv == "conv2d":
            _require(self.kernel % 2 == 1, f"conv2d needs an odd kernel, got {self.kernel}")
            _require(
                math.isqrt(self.seq_len) ** 2 == self.seq_len,
                f"conv2d needs a square grid, but seq_len {self.seq_len} is not a perfect square",
            )
            _require(not self.causal, "conv2d looks at later cells, so it cannot be causal")

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def ffn_width(self) -> int:
        """Inner width of the SwiGLU layer."""
        return math.ceil(round(self.expansion * self.hidden_size * 2 / 3) / self.ffn_multiple) * self.ffn_multiple

    @property
    def kernel(self) -> int:
        """Width of the convolution."""
        return _DEFAULT_KERNEL[self.conv] if self.conv_kernel is None else self.conv_kernel

    @property
    def num_classes(self) -> int:
        """Number of output classes."""
        return self.vocab_size if self.out_vocab_size is None else self.out_vocab_size

    @classmethod
    def sudoku(cls, **changes: Any) -> FPRMConfig:
        """Published settings for Sudoku-Extreme (9x9, blank and nine digits)."""
        published = {"vocab_size": 10, "out_vocab_size": 9, "seq_len": 81, "prefix_len": 16, "conv": "conv2d"}
        return cls(**(published | changes))

    @classmethod
    def maze(cls, **changes: Any) -> FPRMConfig:
        """Published settings for Maze-Hard (30x30 cells, five characters)."""
        published = {"vocab_size": 5, "seq_len": 900, "prefix_len": 16, "conv": "conv1d", "norm_placement": "output"}
        return cls(**(published | changes))

    @classmethod
    def state_tracking(cls, **changes: Any) -> FPRMConfig:
        """Published settings for state tracking over A5 (for S5 give `vocab_size=120`)."""
        published = {
            "vocab_size": 60,
            "seq_len": 128,
            "causal": True,
            "positions": "none",
            "conv": "conv1d",
            "alpha1_init": 0.5,
            "alpha2_init": 0.5,
        }
        return cls(**(published | changes))


@dataclass(frozen=True, kw_only=True)
class SolverConfig:
    """Settings of the damped fixed-point solver (section 3.4).

    Attributes:
        tau: a sample halts when its relative residual falls below this; zero or less never halts by residual.
        eta0: initial step size.
        gamma_train, gamma_eval: factor of the step size when the residual stopped improving.
            A larger value spends more iterations and is more accurate.
        patience: steps without a better residual before the step size shrinks.
        max_iter: most iterations in evaluation.
        min_step: a sample halts, without having converged, when its step size falls below this.
        residual: the largest relative residual over the positions, or one of the whole state.
        eps: guard of the relative residual's denominator.
        noise_std: standard deviation of Gaussian noise added to every iterate; 0 is none.

    Raises:
        ValueError: for a value outside its range.
    """

    tau: float = 0.1
    eta0: float = 1.0
    gamma_train: float = 0.9
    gamma_eval: float = 0.99
    patience: int = 5
    max_iter: int = 1000
    min_step: float = 1e-3
    residual: ResidualKind = "per_position"
    eps: float = 1e-8
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        _require(self.max_iter >= 1, f"max_iter must be at least 1, got {self.max_iter}")
        _require(self.patience >= 1, f"patience must be at least 1, got {self.patience}")
        _require(math.isfinite(self.tau), f"tau must be finite, got {self.tau}")
        for name in ("eta0", "gamma_train", "gamma_eval"):
            _require(0.0 < getattr(self, name) <= 1.0, f"{name} must lie in (0, 1], got {getattr(self, name)}")
        _require(0.0 <= self.min_step < 1.0, f"min_step must lie in [0, 1), got {self.min_step}")
        _require(self.eps > 0, f"eps must be positive, got {self.eps}")
        _require(self.noise_std >= 0, f"noise_std must not be negative, got {self.noise_std}")
        _require(
            self.residual in ("per_position", "global"),
            f"residual must be 'per_position' or 'global', got {self.residual!r}",
        )

    @classmethod
    def fixed(cls, iterations: int) -> SolverConfig:
        """Plain iteration, `iterations` times, with neither damping nor halting."""
        return cls(tau=0.0, gamma_train=1.0, gamma_eval=1.0, max_iter=iterations)
