"""The regret bounds and the step sizes they suggest.

The paper could be read as its abstract only: theorems, constants and exponents here are reconstructions, with a proof
in outline beside each. m is the memory, D the Euclidean diameter, beta the smoothness of f in the joint argument,
L* the total loss of the best fixed decision.
"""

from __future__ import annotations

import math
import warnings

Number = float | int


def _positive(**values: Number) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}")


def _non_negative(**values: Number) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be >= 0 and finite, got {value!r}")


def _counts(**values: Number) -> None:
    for name, value in values.items():
        if not (1 <= value < math.inf and value == int(value)):
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")


def tuned_eta_lazy(l_star: Number, complexity: Number, m: int) -> float:
    """eta = min(1, sqrt(complexity / (m L*))); complexity is ln N (or d ln T for a convex body)."""
    _non_negative(l_star=l_star, complexity=complexity)
    _counts(m=m)
    return 1.0 if l_star * m <= complexity else math.sqrt(complexity / (m * l_star))


def lazy_ew_bound(eta: Number, l_star: Number, n_actions: int, m: int) -> float:
    """Theorem A: E sum f_t(z_t) <= (1 + (m-1) eta) (eta L* + ln N) / (1 - e^-eta), losses in [0, 1].

    Exponential weights give E sum f~_t(x_t) <= (eta L* + ln N)/(1 - e^-eta); the expected number of redraws is at most
    eta times that, and each spoils at most m - 1 windows by at most 1.
    """
    _positive(eta=eta)
    _counts(n_actions=n_actions, m=m)
    _non_negative(l_star=l_star)
    return (1 + (m - 1) * eta) * (eta * l_star + math.log(n_actions)) / -math.expm1(-eta)


def lazy_ew_convex_bound(eta: Number, l_star: Number, dim: int, horizon: int, m: int) -> float:
    """Theorem A on a convex body with the uniform prior: ln N becomes d ln T and L* becomes L* + 1.

    The prior's mass on the points within a factor 1/T of x* is T^-d, and they lose at most 1/T more a round.
    """
    _positive(eta=eta)
    _counts(dim=dim, horizon=horizon, m=m)
    _non_negative(l_star=l_star)
    return (1 + (m - 1) * eta) * (eta * (l_star + 1) + dim * math.log(horizon)) / -math.expm1(-eta)


def first_guess(n_actions: int) -> float:
    """The first guess of L* in the doubling scheme: ln N (1 for a single action, where nothing depends on it)."""
    return math.log(n_actions) if n_actions > 1 else 1.0


def lazy_ew_doubling_bound(l_star: Number, n_actions: int, m: int) -> float:
    """Theorem A for `eta="doubling"`: the sum of the epochs' bounds plus m - 1 for each restart.

    A finished epoch's best action lost more than its guess G_j = 2^j G_0 and at most G_j + 1, so with J restarts
    G_0 (2^J - 1) <= L*. The epochs' best losses add up to at most L*; the factor before them falls from epoch to epoch,
    so the worst case fills the early epochs first.
    """
    _non_negative(l_star=l_star)
    _counts(n_actions=n_actions, m=m)
    start, complexity = first_guess(n_actions), math.log(n_actions)
    restarts = math.floor(math.log2(l_star / start + 1))
    total, left = restarts * (m - 1.0), float(l_star)
    for j in range(restarts + 1):
        guess = start * 2**j
        spent = left if j == restarts else min(guess + 1, left)
        total += lazy_ew_bound(tuned_eta_lazy(guess, complexity, m), spent, n_actions, m)
        left -= spent
    return total


def tuned_eta_smooth(l_star: Number, beta: Number, m: int, diameter: Number) -> float:
    """eta = min(1/(4 beta m^2), D / sqrt(2 beta m^2 L*))."""
    _positive(beta=beta, diameter=diameter)
    _counts(m=m)
    _non_negative(l_star=l_star)
    cap = 1 / (4 * beta * m**2)
    return min(cap, diameter / (m * math.sqrt(2 * beta * l_star))) if l_star > 0 else cap


def smooth_ogd_bound(eta: Number, l_star: Number, beta: Number, m: int, diameter: Number) -> float:
    """Theorem B: sum f_t(z_t) <= (1 + eta beta m (m-1)/sqrt 2)^2 / (1 - eta m beta) * (L* + D^2/(2 eta)).

    Constant eta < 1/(m beta); infinite, with a warning, from there on. Online gradient descent and the self-bounding
    ||grad f~||^2 <= 2 m beta f~ bound the unary loss L~; smoothness bounds f(z_t) - f~(x_t) by the movement, and
    sum ||z_t - (x_t, ..., x_t)||^2 <= eta^2 m^2 (m-1)^2 beta L~.
    """
    _positive(eta=eta, beta=beta)
    _counts(m=m)
    _non_negative(l_star=l_star, diameter=diameter)
    if eta * m * beta >= 1:
        warnings.warn(f"Theorem B needs eta < 1/(m beta) = {1 / (m * beta):g}, got {eta:g}: no bound", stacklevel=2)
        return math.inf
    movement = (1 + eta * beta * m * (m - 1) / math.sqrt(2)) ** 2
    return movement / (1 - eta * m * beta) * (l_star + diameter**2 / (2 * eta))


def self_confident_bound(l_star: Number, beta: Number, m: int, diameter: Number) -> float:
    """Theorem B for the self-confident steps eta_t = min(1/(4 beta m^2), D / sqrt(2 beta m^2 S_t)).

    S_t is the unary loss up to round t. With decreasing steps L~ <= L* + D^2/(2 eta_T) + sum eta_t ||g_t||^2 / 2.
    Self-bounding and sum f~_t/sqrt(S_t) <= 2 sqrt(L~) turn this into a quadratic in sqrt(L~),
    L~ <= L* + 2 beta m^2 D^2 + D sqrt(beta/2) (m + 2) sqrt(L~). The movement is
    sum ||z_t - (x_t, ..)||^2 <= (m-1) m (2m-1)/6 * sum eta_t^2 ||g_t||^2, where by cap, then logarithm,
    sum eta_t^2 f~_t <= D^2/(2 beta m^2) * (1 + ln max(1, L~/(8 beta m^2 D^2))).
    """
    _positive(beta=beta)
    _counts(m=m)
    _non_negative(l_star=l_star, diameter=diameter)
    fixed = l_star + 2 * beta * m**2 * diameter**2
    slope = diameter * math.sqrt(beta / 2) * (m + 2)
    unary = ((slope + math.sqrt(slope**2 + 4 * fixed)) / 2) ** 2
    knee = 8 * beta * m**2 * diameter**2
    logarithm = 1 + math.log(max(1.0, unary / knee)) if knee > 0 else 0.0
    movement = (m - 1) * (2 * m - 1) / 6 * diameter**2 * logarithm
    return unary + math.sqrt(2 * beta * unary * movement) + beta / 2 * movement


def memory_ogd_eta(diameter: Number, lipschitz: Number, m: int, horizon: int) -> float:
    """D / (G sqrt(m T)): the horizon-tuned step of gradient descent with memory; G bounds ||grad f~||."""
    _positive(diameter=diameter, lipschitz=lipschitz)
    _counts(m=m, horizon=horizon)
    return diameter / (lipschitz * math.sqrt(m * horizon))
