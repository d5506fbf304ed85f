"""The named data sets of images: uint8 (N, C, H, W), labels, and how they are split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mirrormargin.data.dataset import DataSet, Split, check_num_train, describe_subset, shuffle
from mirrormargin.data.files import Arrays
from mirrormargin.data.image_files import Images, read_idx, read_sprite
from mirrormargin.errors import DataError
from mirrormargin.runs import read_arrays

__all__ = ["DIGITS", "IMAGE_SETS", "ImageSet", "make_image_set", "read_digits"]

Labels = NDArray[np.int64]

NUM_HELD = 5_000
BLOCK = 500  # images at a time: memory that is used again is faster than new memory
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)
CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


@dataclass(frozen=True)
class ImageSet:
    """A named data set of images.

    Attributes:
        classes: Names by number.
        read: From the paths of its files to ``<split>/inputs`` and ``<split>/labels``, and a note.
    """

    classes: tuple[str, ...]
    read: Callable[[list[Path]], tuple[Arrays, str]]


def read_mnist(paths: list[Path], what: str = "MNIST (LeCun et al. 1998)") -> tuple[Arrays, str]:
    """Handwritten digits, or anything in the same format: 1 x 28 x 28."""
    images, labels, test_images, test_labels = (read_idx(path) for path in paths)
    arrays = _hold_out(
        images[:, None], labels.astype(np.int64), test_images[:, None], test_labels.astype(np.int64)
    )
    return arrays, _describe(what, len(test_labels))


def read_cifar10(paths: list[Path]) -> tuple[Arrays, str]:
    """Photographs of ten kinds of things, 3 x 32 x 32."""
    if paths[0].suffix == ".webp":
        batches = [read_sprite(path) for path in paths[:6]]
        file = read_arrays(paths[6], error=DataError)
        labels = np.concatenate([file["y_train"], file["y_test"]]).astype(np.int64)
    else:
        records = [np.fromfile(path, np.uint8).reshape(-1, 3073) for path in paths]
        batches = [record[:, 1:].reshape(-1, 3, 32, 32) for record in records]
        labels = np.concatenate([record[:, 0] for record in records]).astype(np.int64)
    images = np.concatenate(batches[:5])
    arrays = _hold_out(images, labels[: len(images)], batches[5], labels[len(images) :])
    return arrays, _describe("CIFAR-10 (Krizhevsky 2009)", len(batches[5]))


def read_digits() -> tuple[Arrays, str, Path]:
    """The small handwritten digits that come with scikit-learn, 1 x 8 x 8, and their file."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn: pip install 'mirrormargin[demo]'"
        ) from error
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    pixels = np.round(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    arrays = _draw(pixels, labels.astype(np.int64), (250, 250))
    note = (
        "Handwritten digits of 8 x 8 pixels (Alpaydin and Kaynak 1998) that come with scikit-learn,"
        " values 0..16 stretched to 0..255. Test and validation are 250 each, drawn with seed 0,"
        " not balanced by class."
    )
    folder = Path(sklearn.datasets.__file__).parent
    return arrays, note, folder / "data" / "digits.csv.gz"


def _draw(images: Images, labels: Labels, held: tuple[int, int]) -> Arrays:
    """Draw a test and a validation split of the given sizes."""
    order = shuffle(range(len(labels)))
    num_test, num_validation = held
    splits = {
        "test": order[:num_test],
        "validation": order[num_test : num_test + num_validation],
        "train": order[num_test + num_validation :],
    }
    arrays: Arrays = {}
    for name, rows in splits.items():
        arrays[f"{name}/inputs"], arrays[f"{name}/labels"] = images[rows], labels[rows]
    return arrays


def _hold_out(images: Images, labels: Labels, test_images: Images, test_labels: Labels) -> Arrays:
    arrays = _draw(images, labels, (0, NUM_HELD))
    order = shuffle(range(len(test_labels)))
    return {**arrays, "test/inputs": test_images[order], "test/labels": test_labels[order]}


def _describe(what: str, num_test: int) -> str:
    return (
        f"{what}, complete. Test is the official test part ({num_test:,}). Validation is"
        f" {NUM_HELD:,} images of the official training part, drawn with seed 0, not balanced by"
        " class."
    )


IMAGE_SETS: dict[str, ImageSet] = {
    "mnist": ImageSet(DIGITS, read_mnist),
    "fashion": ImageSet(
        CLOTHES, partial(read_mnist, what="Fashion-MNIST (Xiao, Rasul and Vollgraf 2017)")
    ),
    "cifar10": ImageSet(CIFAR_CLASSES, read_cifar10),
}


def make_image_set(
    name: str,
    classes: tuple[str, ...],
    arrays: Arrays,
    num_train: int | None,
    sha256: dict[str, str],
    note: str,
) -> DataSet:
    """Make a data set of ``<split>/inputs`` and ``<split>/labels``."""
    check_num_train(num_train, len(arrays["train/labels"]), name)
    splits = []
    for split in ("train", "validation", "test"):
        chosen = slice(num_train if split == "train" else None)
        inputs, labels = arrays[f"{split}/inputs"][chosen], arrays[f"{split}/labels"][chosen]
        splits.append(
            Split(
                torch.from_numpy(np.ascontiguousarray(inputs)),
                torch.from_numpy(labels.astype(np.int64)),
            )
        )
    mean, std = _measure(splits[0].inputs.numpy())
    note += describe_subset(num_train)
    train, validation, test = splits
    return DataSet(
        name=name,
        kind="image",
        classes=classes,
        shape=tuple(train.inputs.shape[1:]),
        mean=mean,
        std=std,
        train=train,
        validation=validation,
        test=test,
        sha256=sha256,
        note=note,
    )


def _measure(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, exactly, by counting the 256 values."""
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        counts = np.zeros(256)
        for start in range(0, len(images), BLOCK):
            block = images[start : start + BLOCK, channel]
            counts += np.bincount(block.ravel(), minlength=256)
        mean = float(counts @ values / counts.sum())
        means.append(mean)
        deviations.append(float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum())))
    return tuple(means), tuple(deviations)
