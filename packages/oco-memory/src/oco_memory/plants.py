"""Systems and disturbances for the control experiments; all disturbances are fixed before the run (oblivious)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import signal

from .system import LinearSystem


def rotation(angle: float) -> Float[np.ndarray, "2 2"]:
    """The rotation by `angle` radians."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def rotation_plant(decay: float = 0.6, angle: float = 0.5) -> LinearSystem:
    """x_{t+1} = decay * R(angle) x_t + u_t + w_t in the plane."""
    return LinearSystem(decay * rotation(angle), np.eye(2))


def double_integrator(step: float = 1.0) -> LinearSystem:
    """Position and velocity driven by a force, sampled every `step` seconds; unstable without feedback."""
    return LinearSystem(np.array([[1.0, step], [0.0, 1.0]]), np.array([[step**2 / 2], [step]]))


def pitch_plant(step: float = 0.5) -> LinearSystem:
    """A stable four-state longitudinal motion of an aircraft's kind, two inputs, zero-order hold every `step` seconds.

    Made-up but typical modes: a fast one (natural frequency 2 rad/s, damping 0.5) and a slow one (0.6 rad/s, 0.5),
    coupled.
    """
    fast = np.array([[0.0, 1.0], [-4.0, -2.0]])
    slow = np.array([[0.0, 1.0], [-0.36, -0.6]])
    A = np.block([[fast, 0.1 * np.eye(2)], [np.zeros((2, 2)), slow]])
    B = np.array([[0.0, 0.0], [1.0, 0.2], [0.0, 0.0], [0.1, 1.0]])
    discrete = signal.cont2discrete((A, B, np.eye(4), np.zeros((4, 2))), step, method="zoh")
    return LinearSystem(discrete[0], discrete[1])


def rotating_disturbance(
    horizon: int, dx: int, frequency: float, rng: np.random.Generator
) -> Float[np.ndarray, "t dx"]:
    """Unit circles in successive pairs of coordinates, `frequency` radians a round, a random phase."""
    phase = rng.uniform(0, 2 * np.pi) + frequency * np.arange(horizon)
    return np.stack([np.cos(phase) if i % 2 == 0 else np.sin(phase) for i in range(dx)], axis=1)


def sinusoids(horizon: int, dx: int, rng: np.random.Generator, terms: int = 3) -> Float[np.ndarray, "t dx"]:
    """A sum of `terms` sinusoids with random frequencies and phases in each coordinate, at most 1 in size."""
    frequency, phase = rng.uniform(0.1, 1.5, size=(terms, dx)), rng.uniform(0, 2 * np.pi, size=(terms, dx))
    angles = frequency[None] * np.arange(horizon)[:, None, None] + phase[None]
    return np.sin(angles).mean(axis=1)


def shocks(
    horizon: int, dx: int, share: float, amplitude: float, rng: np.random.Generator
) -> Float[np.ndarray, "t dx"]:
    """Random directions of length `amplitude` in a random `share` of the rounds, zero elsewhere."""
    directions = rng.standard_normal((horizon, dx))
    directions *= amplitude / np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * (rng.random((horizon, 1)) < share)
