"""The null prior: the probability that a hypothesis is null, as a function in a reproducing-kernel Hilbert space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from kernel_fdr.counts import CountData, MaskedCounts, Values
from kernel_fdr.kernels import Eigenfeatures, Kernel
from kernel_fdr.likelihood import ALPHA_RANGE, Alternative, fit_pooled, likelihood_ratio, local_fdr
from kernel_fdr.solver import hessian, objective, pointwise, solve_descent, solve_newton

LAMBDA_GRID = (100.0, 10.0, 1.0, 0.1, 1e-2, 1e-3)
"""Penalties tried by cross-validation, strongest first: the sibling's, and 100, as counts say less than z-scores."""


class FixedNullPrior(BaseEstimator):
    """A prior that was known beforehand: oracles, constants and deliberately wrong ones.

    Args:
        alpha: null probability, one number or shape ``(N,)``, chosen without looking at the counts.
        alternative: distribution of counts under the alternative.
    """

    def __init__(self, alpha: Values, alternative: Alternative):
        self.alpha = alpha
        self.alternative = alternative

    def fit(self, data: CountData | MaskedCounts, y: None = None) -> FixedNullPrior:
        """Take the number of hypotheses from the data, nothing else.

        Raises:
            ValueError: when ``alpha`` is outside [0, 1] or does not fit the data.
        """
        alpha = np.asarray(self.alpha, dtype=float)
        if alpha.shape not in ((), (len(data),)) or not ((alpha >= 0) & (alpha <= 1)).all():
            raise ValueError(f"alpha must be one number or {len(data)} numbers in [0, 1], got shape {alpha.shape}")
        self.alpha_ = np.clip(np.broadcast_to(alpha, len(data)), *ALPHA_RANGE)
        self.alternative_ = self.alternative
        return self

    @property
    def fitted_to(self) -> None:
        """Nothing: the prior was fixed beforehand."""
        return

    def lfdr(self, k: Values, n: Values) -> Float[np.ndarray, " hypotheses"]:
        """Local false discovery rate at the counts ``k`` of ``n``, shape ``(N,)``."""
        return local_fdr(np.asarray(k), np.asarray(n), self.alpha_, self.alternative_)


class KernelNullPrior(BaseEstimator):
    """Null probability ``alpha(x)`` in an RKHS, from (masked) counts. Estimator of the sibling paper, on counts.

    Args:
        kernel: a kernel of :mod:`kernel_fdr.kernels`, a list of them (chosen by cross-validation), or
            :class:`Eigenfeatures` that were decomposed at the data's locations beforehand.
        lam: penalty of the squared RKHS norm; ``"cv"`` chooses from :data:`LAMBDA_GRID`, a sequence from its entries.
        alpha0: value that the penalty shrinks to; ``"pooled"`` is the null share estimated without structure.
        alternative: ``"beta"`` or ``"probit"`` fits one to pooled counts; an object such as
            ``BetaBinomialAlternative(0.3, 6)`` is taken as known.
        solver: ``"newton"``, or ``"natural"``: the sibling paper's natural gradient.
        rank: number of eigenfeatures; ``None`` keeps 95 % of the kernel's trace, at most 150.
        bound: penalty of leaving [0, 1] (sibling: 500).
        folds: folds of the cross-validation.
        extend: ``"rkhs"`` extends ``alpha`` to unseen locations by the kernel, ``"logistic"`` by kernel logistic
            regression on the fitted values (sibling's second stage).
        step_size, steps: of the natural gradient.
        random_state: seed of the folds, which never depend on the counts.

    Attributes:
        alpha_: fitted null probabilities, shape ``(N,)``, in [0.01, 0.999].
        alternative_, alpha0_, lam_, kernel_: what was fitted or chosen.
        objective_: minimised objective: penalised negative log-likelihood relative to "all null".
        features_, theta_: eigenfeatures and coefficients, ``alpha = alpha0_ + F theta``.
        cv_scores_: held-out mean log-likelihood ratio of each ``(kernel number, lam)`` tried.
    """

    def __init__(
        self,
        kernel: Kernel | Eigenfeatures | Sequence[Kernel | Eigenfeatures],
        lam: float | str | Sequence[float] = "cv",
        alpha0: float | str = "pooled",
        alternative: Alternative | str = "beta",
        solver: str = "newton",
        rank: int | None = None,
        bound: float = 500.0,
        folds: int = 5,
        extend: str = "rkhs",
        step_size: float = 5e-4,
        steps: int = 5000,
        random_state: int = 0,
    ):
        self.kernel = kernel
        self.lam = lam
        self.alpha0 = alpha0
        self.alternative = alternative
        self.solver = solver
        self.rank = rank
        self.bound = bound
        self.folds = folds
        self.extend = extend
        self.step_size = step_size
        self.steps = steps
        self.random_state = random_state

    @classmethod
    def sibling(cls, kernel: Kernel | Eigenfeatures, graph: bool = False, **changes) -> KernelNullPrior:
        """The sibling paper's configuration: shrinks to 0, penalty 10, natural gradient from ``alpha ~ 1``."""
        settings = {"lam": 10.0, "alpha0": 0.0, "solver": "natural", "bound": 500.0}
        descent = {"step_size": 0.05, "steps": 15_000} if graph else {"step_size": 5e-4, "steps": 5000}
        return cls(kernel, **{**settings, **descent, **changes})

    def fit(self, data: CountData | MaskedCounts, y: None = None) -> KernelNullPrior:
        """Fit alternative, pooled null share, hyper-parameters and ``alpha``.

        Args:
            data: :class:`CountData` shows the counts themselves; a rule hands over :class:`MaskedCounts`.

        Raises:
            ValueError: for settings out of range, or locations that do not fit the kernel.
        """
        self._check_settings()
        counts = data.unmasked() if isinstance(data, CountData) else data
        if isinstance(self.alternative, str):
            pooled = fit_pooled(counts, self.alternative)
            self.alternative_, pooled_share = pooled.alternative, pooled.alpha_bar
            ratio = likelihood_ratio(counts, self.alternative_)
        else:
            self.alternative_ = self.alternative
            ratio = likelihood_ratio(counts, self.alternative_)
            pooled_share = _pooled_share(ratio)
        self.alpha0_ = pooled_share if isinstance(self.alpha0, str) else float(self.alpha0)
        candidates = self._decompose(counts)
        penalties = [self.lam] if isinstance(self.lam, float | int) else self.lam
        penalties = sorted(LAMBDA_GRID if isinstance(penalties, str) else penalties, reverse=True)
        choice, self.lam_ = self._cross_validate(candidates, ratio, penalties)
        self.features_ = candidates[choice]
        self.kernel_ = self.features_.kernel
        self.theta_ = self._solve(self.features_.values, ratio, self.lam_)
        raw = self.alpha0_ + self.features_.values @ self.theta_
        self.alpha_ = np.clip(raw, *ALPHA_RANGE)
        self.objective_ = objective(self.theta_, self.features_.values, ratio, self.alpha0_, self.lam_, self.bound)[0]
        self._counts, self._ratio = counts, ratio
        return self

    @property
    def fitted_to(self) -> MaskedCounts:
        """The (masked) counts it was fitted to."""
        check_is_fitted(self)
        return self._counts

    def lfdr(self, k: Values, n: Values) -> Float[np.ndarray, " hypotheses"]:
        """Local false discovery rate of every fitted hypothesis at the counts ``k`` of ``n``, shape ``(N,)``."""
        check_is_fitted(self)
        return local_fdr(np.asarray(k), np.asarray(n), self.alpha_, self.alternative_)

    def predict_alpha(self, locations: Values) -> Float[np.ndarray, " new"]:
        """Null probability at locations, seen or unseen, shape ``(M,)`` in [0, 1]."""
        check_is_fitted(self)
        features = self.features_.at(locations)
        if self.extend == "logistic":
            return expit(features @ _kernel_logistic(self.features_.values, np.clip(self.alpha_, 0.01, 0.99)))
        return np.clip(self.alpha0_ + features @ self.theta_, 0.0, 1.0)

    def alpha_std(self, locations: Values | None = None) -> Float[np.ndarray, " new"]:
        """Posterior standard deviation of ``alpha`` (Laplace approximation), at the fitted or at other locations.

        ``k_x^T H^-1 k_x`` with ``H = K diag(h) K + 2 lam K`` of the sibling's code, written in feature space.
        """
        check_is_fitted(self)
        values = self.features_.values
        curvature = hessian(self.theta_, values, self._ratio, self.alpha0_, self.lam_, self.bound)
        features = values if locations is None else self.features_.at(locations)
        return np.sqrt(np.einsum("mr,mr->m", features, np.linalg.solve(curvature, features.T).T))

    def _check_settings(self) -> None:
        penalties = [] if self.lam == "cv" else np.atleast_1d(np.asarray(self.lam, dtype=object)).tolist()
        if any(isinstance(value, str) or not value > 0 for value in penalties):
            raise ValueError(f"lam must be 'cv', a positive number or a sequence of them, got {self.lam!r}")
        if self.alpha0 != "pooled" and (isinstance(self.alpha0, str) or not 0 <= self.alpha0 <= 1):
            raise ValueError(f"alpha0 must be 'pooled' or lie in [0, 1], got {self.alpha0!r}")
        if self.solver not in ("newton", "natural"):
            raise ValueError(f"solver must be 'newton' or 'natural', got {self.solver!r}")
        if self.extend not in ("rkhs", "logistic"):
            raise ValueError(f"extend must be 'rkhs' or 'logistic', got {self.extend!r}")
        if self.folds < 2 or self.bound < 0:
            raise ValueError(f"need folds >= 2 and bound >= 0, got {self.folds} and {self.bound}")

    def _decompose(self, counts: MaskedCounts) -> list[Eigenfeatures]:
        several = isinstance(self.kernel, Sequence)
        kernels = list(self.kernel) if isinstance(self.kernel, Sequence) else [self.kernel]
        if several and not kernels:
            raise ValueError("the list of kernels is empty")
        candidates = [
            kernel if isinstance(kernel, Eigenfeatures) else Eigenfeatures.of(kernel, counts.locations, self.rank)
            for kernel in kernels
        ]
        for features in candidates:
            if len(features) != len(counts):
                raise ValueError(f"the kernel has {len(features)} locations for {len(counts)} hypotheses")
        return candidates

    def _cross_validate(
        self, candidates: list[Eigenfeatures], ratio: Float[np.ndarray, " n"], penalties: list[float]
    ) -> tuple[int, float]:
        """Held-out predictive log-likelihood; valid as a score because out-of-fold ``alpha`` is clipped to [0, 1].

        Follows the penalties from the first (strongest) on and stops at the first fall of the score.
        """
        self.cv_scores_ = {}
        if len(candidates) * len(penalties) == 1:
            return 0, float(penalties[0])
        folds = list(KFold(min(self.folds, len(ratio)), shuffle=True, random_state=self.random_state).split(ratio))
        for number, features in enumerate(candidates):
            starts: list[Float[np.ndarray, " r"] | None] = [None] * len(folds)
            previous = -np.inf
            for lam in penalties:
                score = 0.0
                for place, (train, test) in enumerate(folds):
                    starts[place] = theta = self._solve(features.values[train], ratio[train], lam, starts[place], 1e-5)
                    alpha = np.clip(self.alpha0_ + features.values[test] @ theta, *ALPHA_RANGE)
                    score += np.log(alpha + (1 - alpha) * ratio[test]).sum()
                self.cv_scores_[number, float(lam)] = score / len(ratio)
                # Held-out likelihood has one peak along the penalties in practice, and weak penalties cost most.
                if score < previous:
                    break
                previous = score
        return max(self.cv_scores_, key=lambda tried: self.cv_scores_[tried])

    def _solve(
        self,
        values: Float[np.ndarray, "n r"],
        ratio: Float[np.ndarray, " n"],
        lam: float,
        start: Float[np.ndarray, " r"] | None = None,
        tolerance: float = 1e-9,
    ) -> Float[np.ndarray, " r"]:
        if self.solver == "newton":
            return solve_newton(values, ratio, self.alpha0_, lam, self.bound, start, tolerance)
        gram = values @ values.T
        # Sibling: a constant coefficient that puts the average of alpha at 1.
        constant = np.full(len(ratio), (1 - self.alpha0_) / gram.sum(axis=1).mean())
        fit = solve_descent(gram, ratio, self.alpha0_, lam, self.bound, self.step_size, self.steps, start=constant)
        return values.T @ fit.coefficients


def _pooled_share(ratio: Float[np.ndarray, " n"]) -> float:
    """Maximum-likelihood null share of a mixture with a known alternative: a concave problem in one unknown."""
    fit = minimize(
        lambda share: (
            pointwise(np.full(len(ratio), share[0]), ratio, 0.0).loss.sum(),
            pointwise(np.full(len(ratio), share[0]), ratio, 0.0).slope.sum(),
        ),
        [0.8],
        jac=True,
        bounds=[ALPHA_RANGE],
        method="L-BFGS-B",
    )
    return float(fit.x[0])


def _kernel_logistic(
    features: Float[np.ndarray, "n r"], target: Float[np.ndarray, " n"], penalty: float = 0.1
) -> Float[np.ndarray, " r"]:
    """Kernel logistic regression on soft targets (sibling's second stage); gradient ``sigma - target + 2 p c``."""

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        score = features @ weights
        value = np.logaddexp(0, score).sum() - target @ score + penalty * weights @ weights
        return float(value), features.T @ (expit(score) - target) + 2 * penalty * weights

    return minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x


NullPrior = FixedNullPrior | KernelNullPrior
"""What a rule orders by."""
