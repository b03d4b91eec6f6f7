"""The paper's theorems as functions: bounded iterates, linear convergence, damping, truncated gradients (section 4).

Everything works on plain numpy arrays in float64, apart from `implicit_gradient`, which differentiates with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .scaling import coupled_betas

Sublayer = Callable[[Float[np.ndarray, " dim"]], Float[np.ndarray, " dim"]]


def scaled_pass(
    z: Float[np.ndarray, " dim"],
    injection: Float[np.ndarray, " dim"],
    sublayers: Sequence[Sublayer],
    alpha1: float,
    alpha2: float,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """One pass of the loop body without its convolution, over arbitrary sub-layers.

    Args:
        z: state.
        injection: input injection `e`.
        sublayers: the `2L` maps `g_l`; an even number.
        alpha1, alpha2: coefficients in [0, 1).

    Returns:
        `(u^0, u^(2L))`: the state after the re-injection and after the last sub-layer.

    Raises:
        ValueError: for an odd number of sub-layers, or as `coupled_betas`.
    """
    if not sublayers or len(sublayers) % 2:
        raise ValueError(f"a pass has two sub-layers a block, got {len(sublayers)}")
    beta1, beta2 = coupled_betas(alpha1, alpha2, len(sublayers) // 2, eps=0.0)
    start = alpha2 * z + beta2 * injection
    u = start
    for sublayer in sublayers:
        u = alpha1 * u + beta1 * sublayer(u)
    return start, u


def limit_norm(
    injection: Float[np.ndarray, " dim"],
    sublayers: Sequence[Sublayer],
    alpha1: float,
    alpha2: float,
    *,
    start: Float[np.ndarray, " dim"] | None = None,
    iterations: int = 150,
    tail: int = 20,
) -> float:
    """Largest norm of `u^0` over the last `tail` of `iterations` passes: what theorem 1 bounds.

    Args:
        start: first state; zeros when `None`. Others as in `scaled_pass`.
    """
    z = np.zeros_like(injection) if start is None else start
    norms = []
    for _ in range(iterations):
        u0, z = scaled_pass(z, injection, sublayers, alpha1, alpha2)
        norms.append(float(np.linalg.norm(u0)))
    return max(norms[-tail:])


def convergence_bound(first_residual: float, alpha2: float, lipschitz: float, iteration: int) -> float:
    """Largest residual `||f(z_i) - z_i||` after `iteration` steps (theorem 2): `(alpha_2 lambda_f)^i` times the first.

    Raises:
        ValueError: if `alpha2 * lipschitz` is not below 1: the theorem then says nothing.
    """
    rate = alpha2 * lipschitz
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"theorem 2 needs alpha2 * lipschitz in [0, 1), got {rate}")
    return first_residual * rate**iteration


def residuals(
    f: Callable[[np.ndarray], np.ndarray], z: Float[np.ndarray, " dim"], iterations: int
) -> Float[np.ndarray, " steps"]:
    """`||f(z_i) - z_i||` of the plain iteration, for `i = 0 .. iterations - 1`."""
    norms = np.empty(iterations)
    for i in range(iterations):
        fz = f(z)
        norms[i] = np.linalg.norm(fz - z)
        z = fz
    return norms


def log_slope(values: Float[np.ndarray, " steps"]) -> float:
    """Slope of `log(values)` against the index, by least squares.

    Raises:
        ValueError: for fewer than two values or one that is not positive.
    """
    if len(values) < 2 or (values <= 0).any():
        raise ValueError(f"log_slope needs at least two positive values, got {values}")
    return float(np.polyfit(np.arange(len(values)), np.log(values), 1)[0])


def rotation_scaling(eigenvalue: complex) -> Float[np.ndarray, "2 2"]:
    """The real normal 2x2 matrix with this eigenvalue and its conjugate."""
    return np.array([[eigenvalue.real, -eigenvalue.imag], [eigenvalue.imag, eigenvalue.real]])


def measured_critical_damping(
    jacobian: Float[np.ndarray, "dim dim"], *, iterations: int = 20_000, tolerance: float = 1e-4
) -> float:
    """Largest step size at which `z <- z + eta (J z - z)` shrinks, found by running it and halving the interval.

    The independent counterpart of `critical_damping`, which computes it from eigenvalues. A run is judged by whether
    its norm has fallen after `iterations` steps (by repeated squaring of the step's matrix, rescaled on the way).

    Raises:
        ValueError: if not even a tiny step shrinks.
    """
    identity = np.eye(len(jacobian))

    def shrinks(step_size: float) -> bool:
        matrix, log_norm, power = identity + step_size * (jacobian - identity), 0.0, 1
        while power < iterations:
            matrix, power = matrix @ matrix, 2 * power
            norm = float(np.linalg.norm(matrix, 2))
            if norm == 0.0:
                return True
            matrix, log_norm = matrix / norm, 2 * log_norm + np.log(norm)
        return bool(log_norm < 0)

    if not shrinks(tolerance):
        raise ValueError("the damped iteration does not converge at any step size")
    low, high = tolerance, 1.0
    while shrinks(high):
        low, high = high, 2 * high
    while high - low > tolerance * low:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shrinks(middle) else (low, middle)
    return 0.5 * (low + high)


def truncation_error(jacobian: Float[np.ndarray, "dim dim"], terms: int) -> float:
    """Frobenius norm of `(I - J)^-1 - sum_{j < terms} J^j`: what `terms` unrolled steps miss of the gradient.

    Raises:
        ValueError: for negative `terms`.
    """
    if terms < 0:
        raise ValueError(f"terms must not be negative, got {terms}")
    identity = np.eye(len(jacobian))
    inverse = np.linalg.inv(identity - jacobian)
    partial, power = np.zeros_like(identity), identity
    for _ in range(terms):
        partial, power = partial + power, power @ jacobian
    return float(np.linalg.norm(inverse - partial))


def truncation_bound(spectral_norm: float, terms: int, dim: int) -> float:
    """Proposition 1: `sqrt(D) sigma^k / (1 - sigma)`.

    Raises:
        ValueError: if the spectral norm is not in [0, 1).
    """
    if not 0.0 <= spectral_norm < 1.0:
        raise ValueError(f"proposition 1 needs a spectral norm in [0, 1), got {spectral_norm}")
    return float(np.sqrt(dim) * spectral_norm**terms / (1.0 - spectral_norm))


def implicit_gradient(
    f: Callable[[Tensor, Tensor], Tensor],
    z_star: Float[Tensor, " dim"],
    parameters: Float[Tensor, " parameters"],
    output_gradient: Float[Tensor, " dim"],
) -> Float[Tensor, " parameters"]:
    """Gradient of a scalar through the fixed point `z* = f(z*, theta)`, by a dense linear solve.

    `P^T (I - J)^-T g`, with `J = df/dz` and `P = df/dtheta` at `z*`. For small dimensions: an oracle, not a method.
    """
    in_z, in_theta = torch.func.jacrev(f, argnums=(0, 1))(z_star, parameters)
    identity = torch.eye(z_star.numel(), dtype=z_star.dtype, device=z_star.device)
    return in_theta.T @ torch.linalg.solve((identity - in_z).T, output_gradient)


def truncated_gradient(
    f: Callable[[Tensor, Tensor], Tensor],
    z_star: Float[Tensor, " dim"],
    parameters: Float[Tensor, " parameters"],
    output_gradient: Float[Tensor, " dim"],
    terms: int,
) -> Float[Tensor, " parameters"]:
    """The same gradient through `terms` unrolled steps from the detached fixed point, as in training.

    Raises:
        ValueError: for fewer than one step.
    """
    if terms < 1:
        raise ValueError(f"terms must be at least 1, got {terms}")
    theta = parameters.detach().requires_grad_()
    z = z_star.detach()
    for _ in range(terms):
        z = f(z, theta)
    return torch.autograd.grad(z, theta, output_gradient)[0]
