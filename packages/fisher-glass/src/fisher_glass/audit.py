"""`FisherGlass`: audit a classifier head on one's own arrays, and rank candidate samples that would repair it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression

from fisher_glass.certificate import Certificate, ridge_certificate
from fisher_glass.fisher import (
    EnvironmentFisher,
    environment_fishers,
    environment_weights,
    group_rows,
    head_rows,
    logistic_rows,
    require_finite,
)
from fisher_glass.influence import Policy, glass_decrease, select_repairs, tail_transverse_influence
from fisher_glass.projection import TaskFrame, projected_information, softmax_task, task_direction, task_frame
from fisher_glass.risk import SATURATED, FisherGlassReport, fisher_glass, ridge_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALLEST_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Standardiser:
    """Centres and scales features by the statistics of the data it was made from, drops constant ones, appends the
    constant 1."""

    mean: np.ndarray
    scale: np.ndarray
    kept: np.ndarray

    @classmethod
    def of(cls, features: Float[np.ndarray, "n q"]) -> Standardiser:
        """Statistics of training features.

        Raises:
            ValueError: not (n >= 2, q), NaN, or every feature constant.
        """
        z = _features(features)
        if len(z) < 2:
            raise ValueError(f"standardising needs at least two samples, got {len(z)}")
        mean, scale = z.mean(axis=0), z.std(axis=0)
        kept = scale > 1e-9 * np.maximum(np.abs(mean), 1e-30)
        if not kept.any():
            raise ValueError("every feature is constant: there is nothing to audit")
        return cls(mean, scale, kept)

    def __call__(self, features: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n r"]:
        """Standardised features with the constant last."""
        z = _features(features)
        if z.shape[1] != len(self.mean):
            raise ValueError(f"expected {len(self.mean)} features, got {z.shape[1]}")
        scaled = (z[:, self.kept] - self.mean[self.kept]) / self.scale[self.kept]
        return np.hstack([scaled, np.ones((len(z), 1))])

    def lift(self, directions: Float[np.ndarray, "c ..."], blocks: int) -> Float[np.ndarray, "d k"]:
        """Directions over the input features (``blocks`` free classes stacked) as directions of the head's
        parameters."""
        columns = np.asarray(directions, dtype=float)
        columns = columns[:, None] if columns.ndim == 1 else columns
        if columns.ndim != 2 or len(columns) != blocks * len(self.mean):
            raise ValueError(f"a direction needs {blocks * len(self.mean)} entries, got shape {np.shape(directions)}")
        stacked = columns.reshape(blocks, len(self.mean), -1)[:, self.kept]
        return np.concatenate([stacked, np.zeros((blocks, 1, columns.shape[1]))], axis=1).reshape(-1, columns.shape[1])


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        table: one row an environment: ``samples, weight, accuracy, loss, raw_information`` (``t^T F t``),
            ``smallest_eigenvalue`` (of F), ``projected_information``, ``glass`` (its inverse, with ridge),
            ``lower, upper`` (certificate), ``saturation``, ``tail_weight``. Information is per sample; with several
            task directions the worst is shown.
        report: the Fisher-Glass value and its parts.
        certificate: interval for the population FG at this ridge.
        sweep: FG over ridges and tail shares.
        environment_fisher: the matrices behind it.
    """

    table: pd.DataFrame
    report: FisherGlassReport
    certificate: Certificate
    sweep: pd.DataFrame
    environment_fisher: EnvironmentFisher

    def __str__(self) -> str:
        saturated = int((self.report.saturation > SATURATED).sum())
        note = f"; {saturated} environment(s) as good as non-identified at this ridge" if saturated else ""
        c = self.certificate
        if not c.informative.all():
            note += (
                f"; some upper bounds are only 1 / ridge: more samples or a larger ridge tell more (radius {c.eps:.3g})"
            )
        return (
            f"{self.table.to_string(float_format=lambda x: f'{x:.4g}')}\n"
            f"Fisher-Glass (CVaR {self.report.alpha:g}, ridge {c.ridge:.3g}): {c.estimate:.4g}, "
            f"{c.level:.0%} certificate [{c.lower:.4g}, {c.upper:.4g}]{note}"
        )

    def figure(self) -> Figure:
        """Glass values with certificates beside accuracy and loss, worst environment on top."""
        from claimlab import plotting

        table = self.table.sort_values("glass")
        rows = np.arange(len(table))
        height = max(2.4, 0.42 * len(table) + 1.2)
        fig, (left, middle, right) = plotting.subplots(1, 3, sharey=True, figsize=(9.6, height), width_ratios=(2, 1, 1))
        error = np.stack([table["glass"] - table["lower"], table["upper"] - table["glass"]])
        left.errorbar(table["glass"], rows, xerr=np.maximum(error, 0), fmt="o", capsize=3, color=plotting.COLOURS[0])
        left.axvline(1 / self.report.ridge, color=plotting.COLOURS[1], linestyle="--", label="1 / ridge: nothing known")
        left.set_xscale("log")
        left.set_xlabel("glass value (1 / information per sample)")
        left.set_yticks(rows, [str(name) for name in table.index])
        left.legend(loc="lower right", fontsize=8)
        middle.barh(rows, table["accuracy"], color=plotting.COLOURS[2])
        middle.set_xlim(0, 1)
        middle.set_xlabel("accuracy")
        right.barh(rows, table["loss"], color=plotting.COLOURS[4])
        right.set_xlabel("mean loss (nats)")
        return fig


class FisherGlass:
    """Audit of a classifier's last layer by environment.

    ``fit`` standardises the features, trains a logistic (softmax) head unless the model's own probabilities are given,
    estimates the task direction and audits the data. ``audit`` repeats it on held-out data with the same scaling, head,
    direction and ridge.

    Args:
        alpha: tail share of the CVaR, in (0, 1].
        ridge: "auto" (1e-3 of the mean eigenvalue) or a positive number.
        task: directions over the input features, (q,) or (q, k) on the standardised scale; default: class-mean
            differences within the attribute values (:func:`task_direction`).
        nuisance: directions to project out, (q,) or (q, m); default: everything orthogonal to the task, the constant
            included.
        weights: "share" (of samples), "uniform", or an array over the sorted environments.
        level: confidence of the certificates, simultaneous over environments.
        certificate: "bootstrap" or "bernstein".
        regularisation: C of scikit-learn's logistic regression.
        seed: of the certificate's bootstrap.

    Attributes:
        audit_: :class:`Audit` of the data given to ``fit``; ``table_`` is its table.
        task_: task basis (d, k) in the head's parameters.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        ridge: float | int | Literal["auto"] = "auto",
        task: np.ndarray | None = None,
        nuisance: np.ndarray | None = None,
        weights: Literal["share", "uniform"] | Sequence[float] | np.ndarray = "share",
        level: float = 0.9,
        certificate: Literal["bootstrap", "bernstein"] = "bootstrap",
        regularisation: float = 1.0,
        seed: int = 0,
    ) -> None:
        if not isinstance(ridge, str) and not ridge > 0:
            raise ValueError(f"an audit needs a positive ridge or 'auto', got {ridge}")
        if isinstance(weights, str) and weights not in ("share", "uniform"):
            raise ValueError(f"weights must be 'share', 'uniform' or numbers, got {weights!r}")
        self.alpha = alpha
        self.ridge: float | int | Literal["auto"] = ridge
        self.task, self.nuisance, self.weights = task, nuisance, weights
        self.level = level
        self.certificate: Literal["bootstrap", "bernstein"] = certificate
        self.regularisation, self.seed = regularisation, seed

    def fit(
        self,
        features: Float[np.ndarray, "n q"],
        labels: np.ndarray,
        environments: np.ndarray,
        attributes: np.ndarray | None = None,
        probabilities: Float[np.ndarray, "n ..."] | None = None,
    ) -> FisherGlass:
        """Set scaling, head, task direction and ridge from these data, and audit them.

        Args:
            features: what the head sees, without constant.
            labels: class of each sample; any sortable values.
            environments: environment of each sample.
            attributes: values within which classes are compared to find the task direction; default: the environments.
            probabilities: p(second class) (n,) or all class probabilities (n, c) of the user's model; default: a head
                is trained.

        Raises:
            ValueError: shapes that differ, NaN, one class only, no attribute value that holds both classes.
        """
        self.standardiser_ = Standardiser.of(features)
        z = self.standardiser_(features)
        labels, environments = _column("labels", labels, len(z)), _column("environments", environments, len(z))
        self.classes_, y = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"labels must hold at least two classes, got only {self.classes_.tolist()}")
        self.head_ = None
        if probabilities is None:
            self.head_ = LogisticRegression(C=self.regularisation, max_iter=2000).fit(z[:, :-1], y)
        self.frame_ = self._frame(
            z, y, environments if attributes is None else _column("attributes", attributes, len(z))
        )
        self.ridge_: float | None = None
        self.audit_ = self.audit(features, labels, environments, probabilities)
        self.ridge_ = self.audit_.report.ridge
        return self

    @property
    def table_(self) -> pd.DataFrame:
        """Table of the fitted data, one row an environment."""
        return self._fitted().table

    @property
    def task_(self) -> Float[np.ndarray, "d k"]:
        """Task basis in the head's parameters (standardised features, constant last; free classes stacked)."""
        self._fitted()
        return self.frame_.task

    def audit(
        self,
        features: Float[np.ndarray, "n q"],
        labels: np.ndarray,
        environments: np.ndarray,
        probabilities: Float[np.ndarray, "n ..."] | None = None,
    ) -> Audit:
        """Audit data (held out, say) with the scaling, head, direction and ridge of ``fit``.

        Raises:
            ValueError: not fitted, shapes that differ, NaN, labels that were not in ``fit``.
        """
        if not hasattr(self, "frame_"):
            raise ValueError("call fit first")
        z, p = self._model(features, probabilities)
        y = self._class_index(labels, len(z))
        env = _column("environments", environments, len(z))
        names = np.unique(env)
        if isinstance(self.weights, str):
            weights = None if self.weights == "share" else environment_weights(None, len(names))
        else:
            weights = environment_weights(self.weights, len(names))
        fisher = environment_fishers(z, p, env, labels=names.tolist(), weights=weights)
        losses, correct = _losses(p, y), _predictions(p) == y
        groups = [env == name for name in names]
        mean_loss = np.array([losses[g].mean() for g in groups])
        ridge = self.ridge if self.ridge_ is None else self.ridge_
        report = fisher_glass(fisher, self.frame_, alpha=self.alpha, ridge=ridge, losses=mean_loss)
        certificate = ridge_certificate(
            list(group_rows(head_rows(z, p), env).values()),
            self.frame_,
            alpha=self.alpha,
            ridge=report.ridge,
            weights=fisher.weights,
            level=self.level,
            method=self.certificate,
            rng=np.random.default_rng(self.seed),
        )
        informations = [projected_information(f, self.frame_, ridge=report.ridge) for f in fisher.fishers]
        table = pd.DataFrame(
            {
                "samples": fisher.counts,
                "weight": fisher.weights,
                "accuracy": [correct[g].mean() for g in groups],
                "loss": mean_loss,
                "raw_information": [_smallest(f.quadratic(self.frame_.task)) for f in fisher.fishers],
                "smallest_eigenvalue": [_smallest(f.dense()) for f in fisher.fishers],
                "projected_information": [_smallest(information) for information in informations],
                "glass": report.per_env,
                "lower": certificate.lower_per_env,
                "upper": certificate.upper_per_env,
                "saturation": report.saturation,
                "tail_weight": report.tail_weights,
            },
            index=pd.Index(names, name="environment"),
        )
        sweep = ridge_sweep(fisher, self.frame_, alphas=sorted({self.alpha, 0.1, 0.25, 0.5, 1.0}))
        return Audit(table, report, certificate, sweep, fisher)

    def rank_repairs(
        self,
        features: Float[np.ndarray, "n q"],
        environments: np.ndarray,
        labels: np.ndarray | None = None,
        probabilities: Float[np.ndarray, "n ..."] | None = None,
        policy: Policy = "tti",
        budget: int | None = None,
    ) -> pd.DataFrame:
        """Rank candidate samples by how much they would repair the audited (fitted) data; two-class heads with one task
        direction.

        Args:
            features: of the candidates, as in ``fit``.
            environments: the fitted environment each candidate would join.
            labels: of the candidates; without them the present loss is unknown and only direction counts.
            probabilities: of the user's model, where ``fit`` was given them.
            policy: "tti", "direction", "loss" or "random".
            budget: choose that many greedily, each given the ones before, and return those in order; default: score all
                at once.

        Returns:
            Indexed by candidate, best first: ``environment, influence`` (before any choice), ``gain`` (exact decrease
                of its
            environment's glass value), ``loss``; with a budget also ``fisher_glass`` after each choice.

        Raises:
            ValueError: not fitted, more than two classes, an environment that was not audited, bad shapes or budget.
        """
        audited = self._fitted()
        if len(self.classes_) != 2:
            raise ValueError(f"repairs are ranked for two-class heads, got {len(self.classes_)} classes")
        z, p = self._model(features, probabilities)
        env = _column("environments", environments, len(z))
        p = p if p.ndim == 1 else p[:, 1]
        losses = None if labels is None else _losses(p, self._class_index(labels, len(z)))
        # What counts is the information added to what is there, so both are taken as totals over the data set.
        pooled = audited.environment_fisher.pooled()
        rows = logistic_rows(z, p) / np.sqrt(pooled.counts.sum())
        ridge = pooled.default_ridge(audited.report.ridge / audited.environment_fisher.default_ridge(1.0))
        influence = tail_transverse_influence(pooled, rows, env, losses, self.frame_, alpha=self.alpha, ridge=ridge)
        ranked = pd.DataFrame(
            {
                "environment": env,
                "influence": influence,
                "gain": glass_decrease(pooled, rows, env, self.frame_, ridge=ridge),
                "loss": np.nan if losses is None else losses,
            },
            index=pd.RangeIndex(len(z), name="candidate"),
        )
        chosen, path = select_repairs(
            pooled,
            rows,
            env,
            losses,
            self.frame_,
            budget=len(z) if budget is None else budget,
            policy=policy,
            greedy=budget is not None,
            alpha=self.alpha,
            ridge=ridge,
            rng=np.random.default_rng(self.seed),
        )
        ranked = ranked.loc[chosen]
        return ranked if budget is None else ranked.assign(fisher_glass=path[1:])

    def _frame(self, z: np.ndarray, y: np.ndarray, attributes: np.ndarray) -> TaskFrame:
        blocks = len(self.classes_) - 1
        if self.task is not None:
            task = self.standardiser_.lift(self.task, blocks)
        elif blocks == 1:
            task = task_direction(z, y, attributes)
        else:
            task = softmax_task(z, y, len(self.classes_), attributes)
        nuisance = None if self.nuisance is None else self.standardiser_.lift(self.nuisance, blocks)
        return task_frame(task, nuisance, blocks * z.shape[1])

    def _model(self, features: np.ndarray, probabilities: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        z = self.standardiser_(features)
        if probabilities is not None:
            p = np.asarray(probabilities, dtype=float)
        elif self.head_ is not None:
            p = self.head_.predict_proba(z[:, :-1])
        else:
            raise ValueError("fit was given the model's probabilities, so give those of these samples too")
        if p.ndim == 2 and p.shape[1] != len(self.classes_):
            raise ValueError(f"expected probabilities of {len(self.classes_)} classes, got {p.shape[1]}")
        if p.ndim == 2 and p.shape[1] == 2:
            p = p[:, 1]
        if len(p) != len(z) or (p.ndim == 1 and len(self.classes_) != 2):
            raise ValueError(
                f"probabilities of shape {p.shape} do not fit {len(z)} samples of {len(self.classes_)} classes"
            )
        return z, p

    def _class_index(self, labels: np.ndarray, n: int) -> np.ndarray:
        y = _column("labels", labels, n)
        index = np.clip(np.searchsorted(self.classes_, y), 0, len(self.classes_) - 1)
        unknown = self.classes_[index] != y
        if unknown.any():
            raise ValueError(f"labels must be among {self.classes_.tolist()}, got {y[unknown][0]!r}")
        return index

    def _fitted(self) -> Audit:
        if not hasattr(self, "audit_"):
            raise ValueError("call fit first")
        return self.audit_


def _losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    chosen = np.where(y == 1, p, 1 - p) if p.ndim == 1 else np.take_along_axis(p, y[:, None], axis=1)[:, 0]
    return -np.log(np.maximum(chosen, SMALLEST_PROBABILITY))


def _predictions(p: np.ndarray) -> np.ndarray:
    return (p > 0.5).astype(int) if p.ndim == 1 else p.argmax(axis=1)


def _smallest(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[0])


def _features(features: np.ndarray) -> np.ndarray:
    z = np.asarray(features, dtype=float)
    if z.ndim != 2:
        raise ValueError(f"features must be (samples, features), got shape {z.shape}")
    require_finite("features", z)
    return z


def _column(name: str, values: np.ndarray, n: int) -> np.ndarray:
    column = np.asarray(values)
    if column.shape != (n,):
        raise ValueError(f"expected {name} for {n} samples, got shape {column.shape}")
    if pd.isna(column).any():
        raise ValueError(f"{name} must not be missing, got NaN at index {int(np.argmax(pd.isna(column)))}")
    return column
