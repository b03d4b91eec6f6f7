"""Entropic optimal transport in the log domain, and the segments that seed the slots (section 3.3)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# Stands for log(0): far below every log of a float32, yet finite, so that no infinity meets another.
LOG_ZERO = -1e9


def sinkhorn_log(
    cost: Float[Tensor, "windows positions slots"],
    a: Float[Tensor, "windows positions"],
    b: Float[Tensor, "windows slots"],
    eps: float = 0.1,
    n_iter: int = 30,
) -> Float[Tensor, "windows positions slots"]:
    """Transport plans between the masses `a` and `b`, one a window, by Sinkhorn's iteration in the log domain.

    Minimises `<P, cost> - eps * entropy(P)`. The last update is on the slots, so column sums are `b` after any number
    of iterations and row sums converge to `a`. Rows and columns without mass are zero. Gradients flow through the
    iterations to all three arguments. Works in float32 at the least; the plan has that precision.

    Arguments:
        cost: not negative.
        a: source masses, not negative.
        b: target masses, not negative, in each window of the same sum as `a` (to 1e-3).
        eps: strength of the entropy; the smaller, the sharper the plan and the slower the convergence.
        n_iter: rounds of both updates.

    Raises:
        ValueError: for shapes that do not fit, `eps <= 0`, `n_iter < 1`, a negative or non-finite cost or mass, or
            masses of different sums.
    """
    check_sinkhorn_settings(eps, n_iter)
    if cost.ndim != 3 or a.shape != cost.shape[:2] or b.shape != (cost.shape[0], cost.shape[2]):
        shapes = f"{tuple(cost.shape)}, {tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"expected cost [N, W, S], a [N, W] and b [N, S], got {shapes}")
    for name, value in (("cost", cost), ("a", a), ("b", b)):
        if not (torch.isfinite(value) & (value >= 0)).all():
            raise ValueError(f"{name} must be finite and not negative, got a minimum of {value.min().item():.4g}")
    difference = (a.sum(-1) - b.sum(-1)).abs().max().item() if len(a) else 0.0
    if difference > 1e-3:
        raise ValueError(f"a and b must have the same sum in each window; the sums differ by {difference:.4g}")
    return transport_plan(cost, a, b, eps, n_iter)


def check_sinkhorn_settings(eps: float, n_iter: int) -> None:
    """ValueError unless `eps` is positive and there is at least one iteration."""
    if not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}")
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter}")


def transport_plan(
    cost: Float[Tensor, "windows positions slots"],
    a: Float[Tensor, "windows positions"],
    b: Float[Tensor, "windows slots"],
    eps: float,
    n_iter: int,
) -> Float[Tensor, "windows positions slots"]:
    """`sinkhorn_log` without its checks, for the inside of a model."""
    dtype = torch.promote_types(cost.dtype, torch.float32)
    log_kernel = cost.to(dtype) / -eps
    log_a, log_b = _log_mass(a.to(dtype)), _log_mass(b.to(dtype))
    g = torch.where(b > 0, 0.0, LOG_ZERO).to(dtype)  # a column without mass takes no part from the first update on
    f = torch.zeros_like(log_a)
    for _ in range(n_iter):
        f = log_a - torch.logsumexp(log_kernel + g[:, None, :], dim=2)
        g = log_b - torch.logsumexp(log_kernel + f[:, :, None], dim=1)
    served = (a > 0)[:, :, None] & (b > 0)[:, None, :]
    return torch.where(served, torch.exp(log_kernel + f[:, :, None] + g[:, None, :]), 0.0)


def _log_mass(mass: Tensor) -> Tensor:
    present = mass > 0
    # The inner `where` keeps log(0) and its gradient out of the graph.
    return torch.where(present, torch.where(present, mass, 1.0).log(), LOG_ZERO)


def segment_map(window: int, slots: int) -> Float[Tensor, "window slots"]:
    """Which of `slots` contiguous segments each position of a window belongs to, one-hot (section 3.3, step 1).

    The lengths of the segments differ by at most one, longer ones first: 10 positions in 4 segments are 3, 3, 2, 2.

    Raises:
        ValueError: for a window without positions, no slots, or more slots than positions (a slot of zero length).
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    if not 1 <= slots <= window:
        raise ValueError(f"slots must be between 1 and the window of {window} positions, got {slots}")
    shortest, longer = divmod(window, slots)
    lengths = torch.full((slots,), shortest)
    lengths[:longer] += 1
    owner = torch.repeat_interleave(torch.arange(slots), lengths)
    return torch.nn.functional.one_hot(owner, slots).float()
