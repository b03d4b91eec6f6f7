"""Waterbirds and WILDS: loaders, and the training of the paper-scale network.

Nothing is downloaded. The Waterbirds folder is the one that WILDS unpacks (``waterbirds_v1.0/`` with ``metadata.csv``
and images).
``torchrun --nproc_per_node 4 -m fisher_glass.waterbirds --root DIR --weights resnet50.pth --out features.npz`` trains a
ResNet-50 data-parallel and writes the penultimate features of all splits, which
``claimlab run fisher-glass --scale paper`` reads.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from fisher_glass.train import GroupWeights, TrainConfig, batch_indices, make_optimiser, train_step

COLUMNS = ("img_id", "img_filename", "y", "split", "place", "place_filename")
SPLITS = {"train": 0, "val": 1, "test": 2}
# ImageNet statistics, which torchvision's ResNet-50 weights expect.
CHANNEL_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
CHANNEL_STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class Waterbirds(Dataset[tuple[Tensor, int, int]]):
    """One split of Waterbirds: ``(image (3, size, size) normalised, label, group)`` with ``group = 2 * label + place``.

    Args:
        root: folder with ``metadata.csv``, or its parent with ``waterbirds_v1.0/`` (the layout of WILDS).
        split: "train", "val" or "test".
        size: side of the square crop, pixels.

    Raises:
        ValueError: no metadata, missing columns, values other than 0/1, an empty or unknown split.
    """

    def __init__(self, root: Path | str, split: str = "train", size: int = 224) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        folder = Path(root)
        folder = folder / "waterbirds_v1.0" if (folder / "waterbirds_v1.0").is_dir() else folder
        table = folder / "metadata.csv"
        if not table.is_file():
            raise ValueError(
                f"{folder} holds no metadata.csv; expected the Waterbirds folder of WILDS (waterbirds_v1.0)"
            )
        metadata = pd.read_csv(table)
        missing = [name for name in COLUMNS if name not in metadata.columns]
        if missing:
            raise ValueError(f"{table} lacks the columns {', '.join(missing)}")
        for name in ("y", "place"):
            if not metadata[name].isin((0, 1)).all():
                raise ValueError(
                    f"{table}: column {name} must hold 0 and 1, got {metadata[name].unique()[:5].tolist()}"
                )
        chosen = metadata[metadata["split"] == SPLITS[split]]
        if chosen.empty:
            raise ValueError(f"{table} has no image of split {split!r}")
        self.folder, self.size = folder, size
        self.files = chosen["img_filename"].tolist()
        self.labels = chosen["y"].to_numpy()
        self.places = chosen["place"].to_numpy()

    @property
    def groups(self) -> np.ndarray:
        """``2 * label + place`` of every image."""
        return 2 * self.labels + self.places

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        with Image.open(self.folder / self.files[index]) as image:
            return image_tensor(image, self.size), int(self.labels[index]), int(self.groups[index])


def image_tensor(image: Image.Image, size: int) -> Tensor:
    """Resize the shorter side to 8/7 of ``size``, crop the centre, normalise by ImageNet's channel statistics."""
    rgb = image.convert("RGB")
    scale = size * 8 / 7 / min(rgb.size)
    rgb = rgb.resize(
        (max(size, round(rgb.width * scale)), max(size, round(rgb.height * scale))), Image.Resampling.BILINEAR
    )
    left, top = (rgb.width - size) // 2, (rgb.height - size) // 2
    pixels = np.asarray(rgb.crop((left, top, left + size, top + size)), dtype=np.float32) / 255
    normalised = (pixels - CHANNEL_MEAN) / CHANNEL_STD
    return torch.from_numpy(np.ascontiguousarray(normalised.transpose(2, 0, 1)))


def wilds_environments(dataset: Any, fields: list[str]) -> np.ndarray:
    """Environment labels of a WILDS dataset or subset: the named metadata columns joined, such as ``"hospital=2"``.

    Args:
        dataset: anything with ``metadata_array`` (n, m) and ``metadata_fields``, as every WILDS dataset and subset has.
        fields: metadata columns that define an environment.

    Raises:
        ValueError: no field, or one that the dataset lacks.
    """
    known = list(dataset.metadata_fields)
    unknown = [name for name in fields if name not in known]
    if unknown or not fields:
        raise ValueError(f"fields must name some of {', '.join(known)}; got {', '.join(unknown) or 'none'}")
    columns = np.asarray(dataset.metadata_array)[:, [known.index(name) for name in fields]]
    return np.array([", ".join(f"{n}={int(v)}" for n, v in zip(fields, row, strict=True)) for row in columns])


@dataclass(frozen=True)
class FeatureSplit:
    """Penultimate features (n, q), labels and places (n,), and the network's p(y = 1) (n,)."""

    features: np.ndarray
    labels: np.ndarray
    places: np.ndarray
    probabilities: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """``2 * label + place``."""
        return 2 * self.labels + self.places


def save_features(path: Path, splits: dict[str, FeatureSplit]) -> None:
    """Write splits "train", "val", "test" to one ``.npz``."""
    arrays = {f"{name}_{key}": value for name, split in splits.items() for key, value in vars(split).items()}
    np.savez_compressed(path, **arrays)


def load_features(path: Path) -> dict[str, FeatureSplit]:
    """Read what :func:`save_features` wrote.

    Raises:
        ValueError: the file is missing or lacks an array.
    """
    keys = ("features", "labels", "places", "probabilities")
    try:
        with np.load(path) as file:
            return {name: FeatureSplit(*(file[f"{name}_{key}"] for key in keys)) for name in SPLITS}
    except (OSError, KeyError) as error:
        raise ValueError(f"{path} is no feature file of fisher_glass.waterbirds: {error}") from None


def resnet50(weights: Path | None) -> nn.Module:
    """torchvision's ResNet-50 with a one-logit ``fc``; ``weights``: an ImageNet state dict on disk.

    Raises:
        ValueError: torchvision is not installed, or the weights do not fit.
    """
    try:
        from torchvision.models import resnet50 as build  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError) as error:
        raise ValueError(
            f"the paper scale needs torchvision (pip install 'fisher-glass[waterbirds]'): {error}"
        ) from None
    model = build(weights=None)
    if weights is not None:
        try:
            model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{weights} is no ResNet-50 state dict: {error}") from None
    model.fc = nn.Linear(model.fc.in_features, 1)
    return model


def train_distributed(
    model: nn.Module,
    dataset: Waterbirds,
    config: TrainConfig,
    seed: int,
    workers: int = 4,
    report: Callable[[str], None] = print,
) -> nn.Module:
    """Train data-parallel over the processes of ``torchrun`` (or alone): every process takes its share of each global
    batch.

    Batches are drawn from the same seed everywhere, so all processes agree on them without talking. GroupDRO weighs
    groups by each process's own part of the batch, as its public code does under data parallelism.
    """
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    model = model.to(device)
    wrapped = model
    if world > 1:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[local] if device.type == "cuda" else None)
    optimiser = make_optimiser(wrapped, config)
    groups = dataset.groups
    weights = GroupWeights(int(groups.max()) + 1, config.group_step_size) if config.method == "groupdro" else None
    rng = np.random.default_rng(seed)
    for epoch in range(config.epochs):
        wrapped.train()
        # A last batch smaller than the number of processes would leave one of them without images.
        batches = [b[rank::world] for b in batch_indices(groups, config, rng) if len(b) >= world]
        order = [int(i) for b in batches for i in b]
        sizes = [len(b) for b in batches]
        loader = DataLoader(Subset(dataset, order), batch_sampler=_consecutive(sizes), num_workers=workers)
        total = 0.0
        for images, labels, group in loader:
            total += train_step(
                wrapped, optimiser, weights, images.to(device), labels.float().to(device), group.to(device)
            )
        if rank == 0:
            report(f"epoch {epoch + 1}/{config.epochs}: loss {total / max(len(batches), 1):.4f}")
    return model.eval()


def _consecutive(sizes: list[int]) -> list[list[int]]:
    ends = np.cumsum(sizes)
    return [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def extract_features(
    model: nn.Module, layer: str, dataset: Waterbirds, batch_size: int = 64, workers: int = 4
) -> FeatureSplit:
    """Inputs of the model's last linear layer and its p(y = 1) for a whole split."""
    from fisher_glass.module import penultimate_features

    device = next(model.parameters()).device
    parts = [
        penultimate_features(model, layer, images.to(device), batch_size)
        for images, _, _ in DataLoader(dataset, batch_size=batch_size, num_workers=workers)
    ]
    features, probabilities = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return FeatureSplit(features, dataset.labels, dataset.places, probabilities)


app = typer.Typer(add_completion=False)


@app.command()
def main(
    root: Annotated[Path, typer.Option(help="Waterbirds folder of WILDS.")],
    out: Annotated[Path, typer.Option(help="Feature file to write (.npz).")],
    weights: Annotated[Path | None, typer.Option(help="ImageNet weights of ResNet-50 (state dict).")] = None,
    method: Annotated[str, typer.Option(help="erm, reweight or groupdro.")] = "erm",
    epochs: int = 300,
    learning_rate: float = 1e-3,
    weight_decay: float = 1e-4,
    batch_size: int = 128,
    workers: int = 4,
    seed: int = 0,
) -> None:
    """Train ResNet-50 on Waterbirds and write its penultimate features (SGD, momentum 0.9; GroupDRO's public
    recipe)."""
    try:
        config = TrainConfig(method, epochs, batch_size, "sgd", learning_rate, weight_decay)  # type: ignore[arg-type]
        datasets = {split: Waterbirds(root, split) for split in SPLITS}
        torch.manual_seed(seed)
        model = resnet50(weights)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    model = train_distributed(model, datasets["train"], config, seed, workers)
    if int(os.environ.get("RANK", 0)) == 0:
        save_features(
            out, {split: extract_features(model, "fc", data, workers=workers) for split, data in datasets.items()}
        )
        print(f"wrote {out}")


if __name__ == "__main__":
    app()
