"""Diagnostics and repair of trained networks on groups (label, place): digit on photo, or Waterbirds (specification E5,
E6, E7)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from claimlab import Count, Run, assets, plotting
from claimlab.paper import Scale
from fisher_glass.audit import FisherGlass, Standardiser
from fisher_glass.digits import DigitOnPhoto, DigitSource, ImageSplit, digit_on_photo, load_digit_images
from fisher_glass.fisher import EnvironmentFisher, environment_fishers, logistic_rows
from fisher_glass.influence import Policy, select_repairs
from fisher_glass.module import penultimate_features
from fisher_glass.projection import task_direction, task_frame
from fisher_glass.reproduce.declaration import paper
from fisher_glass.risk import fisher_glass
from fisher_glass.synthetic import logistic_loss
from fisher_glass.train import Method, SmallCNN, TrainConfig, glass_regularised_head, train
from fisher_glass.waterbirds import FeatureSplit, load_features

GROUPS = {0: "3 on temple", 1: "3 on flower", 2: "8 on temple", 3: "8 on flower"}
UNIFORM = np.full(4, 0.25)
POLICIES: dict[str, tuple[Policy, bool]] = {
    "random": ("random", True),
    "loss": ("loss", True),
    "direction": ("direction", True),
    "tti": ("tti", True),
    "tti, one shot": ("tti", False),
}


@dataclass(frozen=True)
class GroupsConfig:
    """Identifiability and loss of trained networks, and their repair by counterfactuals (reconstructed statements)."""

    digits: DigitSource = "mnist"
    train_size: Count = 1132  # images
    test_size: Count = 750  # images, places independent of labels
    correlation: float = 0.95  # P(place = label) in training
    epochs: Count = 15
    alpha: float = 0.5  # tail share over the four groups, which weigh the same
    budget: Count = 60  # counterfactuals to add
    glass_weight: float = 0.1  # mu of the FG-regularised head, in units of loss
    features_folder: Path | None = (
        None  # erm.npz, reweight.npz, groupdro.npz of fisher_glass.waterbirds, instead of digits
    )
    components: Count | None = None  # principal components of the features to keep

    def __post_init__(self) -> None:
        if self.components is not None and self.features_folder is None:
            raise ValueError("components only applies to features read from features_folder")


SMOKE = GroupsConfig(digits="scikit-learn", train_size=220, test_size=120, epochs=10, budget=20)
PAPER = GroupsConfig(features_folder=Path("waterbirds-features"), components=256)
NEEDS: dict[Scale, str] = {
    "laptop": "asset mnist",
    "paper": "features_folder with erm.npz, reweight.npz, groupdro.npz, each written by "
    "`torchrun -m fisher_glass.waterbirds --method ...` from Waterbirds and ImageNet weights of ResNet-50 (GPUs)",
}


@dataclass(frozen=True)
class Splits:
    """Frozen features of one trained network: training, test and candidate pool."""

    train: FeatureSplit
    test: FeatureSplit
    pool: FeatureSplit


def _digit_data(config: GroupsConfig, rng: np.random.Generator) -> DigitOnPhoto:
    archive = assets.path("mnist") if config.digits == "mnist" else None
    images, labels = load_digit_images(config.digits, archive=archive)
    return digit_on_photo(images, labels, rng, config.train_size, config.test_size, config.correlation)


def _trained(config: GroupsConfig, data: DigitOnPhoto | None, method: Method, run: Run) -> Splits:
    """Train a network by ``method`` and freeze its features, or read those of the paper-scale network."""
    if data is None:
        return _from_files(config, method)
    torch.manual_seed(run.seed)
    model = train(
        SmallCNN().to(run.device),
        torch.as_tensor(data.train.images, dtype=torch.float32),
        data.train.labels,
        data.train.groups,
        TrainConfig(method, config.epochs),
        np.random.default_rng(run.seed),
        lambda epochs: run.progress(epochs, f"training, {method}"),
    )

    def freeze(split: ImageSplit) -> FeatureSplit:
        images = torch.as_tensor(split.images, dtype=torch.float32, device=run.device)
        features, probabilities = penultimate_features(model, "head", images)
        return FeatureSplit(features, split.labels, split.places, probabilities)

    return Splits(freeze(data.train), freeze(data.test), freeze(data.pool))


def _from_files(config: GroupsConfig, method: Method) -> Splits:
    """Waterbirds: the balanced validation split is the candidate pool, as it holds what counterfactuals would."""
    assert config.features_folder is not None
    files = load_features(config.features_folder / f"{method}.npz")
    if config.components is not None:
        reduce = PCA(config.components, random_state=0).fit(files["train"].features)
        files = {
            name: FeatureSplit(reduce.transform(s.features), s.labels, s.places, s.probabilities)
            for name, s in files.items()
        }
    return Splits(files["train"], files["test"], files["val"])


@paper.experiment(
    smoke=SMOKE,
    laptop=GroupsConfig(),
    paper=PAPER,
    seeds={"laptop": 5},
    minutes={"laptop": 0.3, "paper": 5},
    needs=NEEDS,
)
def diagnostics(config: GroupsConfig, run: Run) -> None:
    """Is the group with the weakest identifiability also the least accurate one?"""
    data = None if config.features_folder is not None else _digit_data(config, run.rng)
    splits = _trained(config, data, "erm", run)
    glass = FisherGlass(alpha=config.alpha, weights="uniform", seed=run.seed)
    seen, test = splits.train, splits.test
    glass.fit(seen.features, seen.labels, seen.groups, seen.places, seen.probabilities)
    audit = glass.audit(test.features, test.labels, test.groups, test.probabilities)
    by_place = glass.audit(test.features, test.labels, test.places, test.probabilities)
    table = audit.table
    run.table("groups", table.reset_index())
    run.table("places", by_place.table.reset_index())
    run.table("sweep", audit.sweep)
    weakest, least_accurate = table.glass.idxmax(), table.accuracy.idxmin()
    run.measure("weakest_is_not_least_accurate", weakest != least_accurate)
    run.measure("accuracy_of_weakest", table.accuracy.to_numpy()[table.glass.argmax()])
    run.measure("worst_group_accuracy", table.accuracy.min())
    run.measure("average_accuracy", ((seen.probabilities > 0.5) == seen.labels).mean())
    run.measure("share_of_ridges", (audit.sweep.worst_environment != str(least_accurate)).mean())
    run.measure("loss_glass_rank_correlation", spearmanr(table.loss, table.glass).statistic)
    if data is not None:
        run.figure("examples", _examples(data))
    run.figure("audit", audit.figure())


def _examples(data: DigitOnPhoto) -> Figure:
    """Two training images of each group, and the counterfactual of each."""
    shown = [int(i) for g in GROUPS for i in np.flatnonzero(data.train.groups == g)[:2]]
    rows = [np.concatenate([split.images[i] for i in shown], axis=2) for split in (data.train, data.pool)]
    fig, ax = plotting.subplots(figsize=(8.4, 2.4))
    ax.imshow(np.concatenate(rows, axis=1).transpose(1, 2, 0))
    side = data.train.images.shape[-1]
    ax.set_xticks((np.arange(0, len(shown), 2) + 1) * side, GROUPS.values())
    ax.set_yticks([side / 2, 3 * side / 2], ["training image", "counterfactual"])
    ax.grid(False)
    return fig


@paper.figures(diagnostics)
def diagnostics_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Accuracy against glass value, a point a group and seed."""
    groups = tables["groups"]
    fig, ax = plotting.subplots()
    for colour, marker, (group, name) in zip(plotting.COLOURS, "os^D", GROUPS.items(), strict=False):
        part = groups[groups.environment == group]
        ax.plot(part.glass, part.accuracy, marker, color=colour, label=name, markersize=7)
    ax.set(
        xscale="log",
        xlabel="glass value (1 / projected information), larger is weaker",
        ylabel="test accuracy",
        ylim=(0, 1.03),
    )
    ax.legend(loc="lower right")
    return {"diagnostics": fig}


@paper.experiment(
    smoke=SMOKE,
    laptop=GroupsConfig(),
    paper=PAPER,
    seeds={"laptop": 10},
    minutes={"laptop": 1.5, "paper": 10},
    needs=NEEDS,
)
def repair(config: GroupsConfig, run: Run) -> None:
    """Which counterfactuals to add; and how Fisher-Glass and worst-group loss move over training methods and
    repairs."""
    data = None if config.features_folder is not None else _digit_data(config, run.rng)
    models, policies = [], []
    methods: tuple[Method, ...] = ("erm", "reweight", "groupdro")
    heads = {method: _FrozenHead(config, _trained(config, data, method, run), run.rng) for method in methods}
    for method, head in heads.items():
        models.append({"model": method, **head.judge(head.splits.train.probabilities, head.splits.test.probabilities)})
        policies += [{"model": method, "policy": name, **head.repair(name)} for name in ("none", *POLICIES)]
    regularised = heads["erm"].regularised(config.glass_weight)
    models.append({"model": "FG-regularised", **regularised})
    trained, repaired = pd.DataFrame(models), pd.DataFrame(policies)
    run.table("models", trained)
    run.table("policies", repaired)

    erm = repaired[repaired.model == "erm"].set_index("policy")
    glass, loss = erm.glass / erm.glass["none"], erm.worst_group_loss
    run.measure("glass_gain_over_random", glass["random"] - glass["tti"])
    run.measure("loss_gain_over_random", loss["random"] - loss["tti"])
    run.measure("share_of_direction_reduction", (1 - glass["tti"]) / (1 - glass["direction"]))
    run.measure("loss_gain_over_direction", loss["direction"] - loss["tti"])
    run.measure("glass_gain_over_loss", glass["loss"] - glass["tti"])
    run.measure("loss_only_is_worst_in_glass", glass["loss"] >= glass[["direction", "tti", "tti, one shot"]].max())
    run.measure("glass_gain_of_greedy", glass["tti, one shot"] - glass["tti"])
    refit = erm.refit_glass / erm.refit_glass["none"]
    run.measure("refit_glass_gain_over_random", refit["random"] - refit["tti"])
    run.measure("refit_glass_gain_over_loss", refit["loss"] - refit["tti"])
    accuracy = erm.worst_group_accuracy
    run.measure("worst_group_accuracy_change", accuracy["tti"] - accuracy["none"])

    everything = pd.concat([trained, repaired], ignore_index=True)
    run.measure("absolute_rank_correlation", abs(spearmanr(everything.glass, everything.worst_group_loss).statistic))
    run.measure(
        "absolute_rank_correlation_refit", abs(spearmanr(everything.refit_glass, everything.worst_group_loss).statistic)
    )
    run.measure("glass_ratio_at_equal_loss", _largest_ratio_at_equal_loss(everything))
    run.measure("regularised_glass_ratio", regularised["glass"] / heads["erm"].regularised(0.0)["glass"])


class _FrozenHead:
    """Heads on the frozen features of one network: repairs, and how each is judged.

    FG is that of the training data, pooled, with nuisance = complement and groups weighing the same. Its ridge is fixed
    once for the network, by the default rule at the head refitted without additions.
    """

    def __init__(self, config: GroupsConfig, splits: Splits, rng: np.random.Generator) -> None:
        self.config, self.splits, self.rng = config, splits, rng
        scale = Standardiser.of(splits.train.features)
        self.train, self.test, self.pool = (scale(s.features) for s in (splits.train, splits.test, splits.pool))
        self.task = task_direction(self.train, splits.train.labels, splits.train.places)
        self.frame = task_frame(self.task, None, self.train.shape[1])
        self.before = self._refit(np.array([], dtype=int))
        self.fisher = self._fisher(self.before, np.array([], dtype=int))
        self.ridge = self.fisher.default_ridge()

    def repair(self, name: str) -> dict[str, float]:
        """Add the counterfactuals that a policy chooses, refit, judge. ``glass``: with the probabilities before the
        refit."""
        chosen = np.array([], dtype=int)
        glass = self._glass(self.before, chosen)
        if name != "none":
            policy, greedy = POLICIES[name]
            p = expit(self.pool @ self.before)
            chosen, path = select_repairs(
                self.fisher,
                logistic_rows(self.pool, p) / np.sqrt(len(self.train)),
                self.splits.pool.groups,
                logistic_loss(self.pool @ self.before, self.splits.pool.labels.astype(float)),
                self.frame,
                budget=self.config.budget,
                policy=policy,
                greedy=greedy,
                alpha=self.config.alpha,
                ridge=self.ridge,
                rng=self.rng,
            )
            glass = float(path[-1])
        theta = self._refit(chosen)
        judged = self._judge_test(expit(self.test @ theta))
        return {"glass": glass, "refit_glass": self._glass(theta, chosen), **judged}

    def judge(self, train_probabilities: np.ndarray, test_probabilities: np.ndarray) -> dict[str, float]:
        """FG on the training data and test loss of a network's own head (nothing added, so frozen and refit FG are
        one)."""
        fisher = environment_fishers(
            self.train, train_probabilities, self.splits.train.groups, "pooled", weights=UNIFORM
        )
        glass = fisher_glass(fisher, self.frame, alpha=self.config.alpha, ridge=self.ridge).value
        return {"glass": glass, "refit_glass": glass, **self._judge_test(test_probabilities)}

    def regularised(self, weight: float) -> dict[str, float]:
        """The head trained with FG as a regulariser, judged as :meth:`judge`."""
        train = self.splits.train
        per_env = environment_fishers(self.train, expit(self.train @ self.before), train.groups, weights=UNIFORM)
        theta = glass_regularised_head(
            self.train,
            train.labels,
            train.groups,
            self.task,
            weight=weight,
            alpha=self.config.alpha,
            ridge=per_env.default_ridge(),
        )
        return self.judge(expit(self.train @ theta), expit(self.test @ theta))

    def _refit(self, chosen: np.ndarray) -> np.ndarray:
        z = np.concatenate([self.train, self.pool[chosen]])[:, :-1]
        y = np.concatenate([self.splits.train.labels, self.splits.pool.labels[chosen]])
        head = LogisticRegression(C=1.0, max_iter=2000).fit(z, y)
        return np.append(head.coef_[0], head.intercept_[0])

    def _fisher(self, theta: np.ndarray, chosen: np.ndarray) -> EnvironmentFisher:
        z = np.concatenate([self.train, self.pool[chosen]])
        groups = np.concatenate([self.splits.train.groups, self.splits.pool.groups[chosen]])
        return environment_fishers(z, expit(z @ theta), groups, "pooled", weights=UNIFORM)

    def _glass(self, theta: np.ndarray, chosen: np.ndarray) -> float:
        # Pooled normalisation divides by all samples; dividing by those before the additions keeps "added" from looking
        # like "lost".
        fisher = self._fisher(theta, chosen)
        growth = (len(self.train) + len(chosen)) / len(self.train)
        scaled = EnvironmentFisher(
            tuple(f.scaled(growth) for f in fisher.fishers), fisher.weights, fisher.counts, fisher.labels, "pooled"
        )
        return fisher_glass(scaled, self.frame, alpha=self.config.alpha, ridge=self.ridge).value

    def _judge_test(self, probabilities: np.ndarray) -> dict[str, float]:
        test = self.splits.test
        p = np.clip(probabilities, 1e-12, 1 - 1e-12)
        losses = -np.log(np.where(test.labels == 1, p, 1 - p))
        correct = (p > 0.5) == test.labels
        by_group = [(losses[test.groups == g].mean(), correct[test.groups == g].mean()) for g in range(4)]
        return {
            "loss": losses.mean(),
            "accuracy": correct.mean(),
            "worst_group_loss": max(loss for loss, _ in by_group),
            "worst_group_accuracy": min(accuracy for _, accuracy in by_group),
        }


def _largest_ratio_at_equal_loss(models: pd.DataFrame) -> float:
    """Largest ratio of FG among pairs whose worst-group losses differ by at most 5 %."""
    loss, glass = models.worst_group_loss.to_numpy(), models.glass.to_numpy()
    equal = np.abs(loss[:, None] - loss) <= 0.05 * np.minimum(loss[:, None], loss)
    return float(np.max(np.where(equal, glass[:, None] / glass, 1.0)))


@paper.figures(repair)
def repair_figures(tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """Policies in the plane of Fisher-Glass and worst-group loss: means over seeds with their standard errors."""
    policies = tables["policies"]
    erm = policies[policies.model == "erm"].copy()
    before = erm[erm.policy == "none"].set_index("seed")
    fig, ax = plotting.subplots()
    for quantity in ("glass", "worst_group_loss"):
        erm[quantity] = erm[quantity] / before[quantity].reindex(erm.seed).to_numpy()
    for colour, marker, (name, part) in zip(
        plotting.COLOURS, "osD^vP", erm.groupby("policy", sort=False), strict=False
    ):
        x, y = part.glass, part.worst_group_loss
        root = np.sqrt(max(len(part), 1))
        ax.errorbar(
            x.mean(),
            y.mean(),
            xerr=x.std() / root,
            yerr=y.std() / root,
            fmt=marker,
            color=colour,
            label=name,
            markersize=8,
        )
    ax.set(
        xlabel="Fisher-Glass over its value before (frozen Fisher weights)",
        ylabel="worst-group loss over its value before",
    )
    ax.legend(title="counterfactuals chosen by")
    trade, axes = plotting.subplots()
    for colour, marker, (name, part) in zip(
        plotting.COLOURS, "osD^", tables["models"].groupby("model", sort=False), strict=False
    ):
        axes.scatter(part.glass, part.worst_group_loss, color=colour, marker=marker, label=name, s=30)
    axes.set(xscale="log", xlabel="Fisher-Glass of the training data", ylabel="worst-group loss on test data (nats)")
    axes.legend()
    return {"repair": fig, "models": trade}
