"""The named data sets of images: uint8 (N, C, H, W), labels, and how they are split."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.data.prepared import Arrays
from mirrormargin.data.splitting import shuffle
from mirrormargin.errors import DataError

__all__ = ["IMAGE_SETS", "ImageSet", "Images", "import_pillow", "read_digits"]

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

NUM_HELD = 5_000
DIGITS = tuple("0123456789")
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


def read_mnist(paths: list[Path]) -> tuple[Arrays, str]:
    """Handwritten digits, 1 x 28 x 28."""
    images, labels, test_images, test_labels = (_read_idx(path) for path in paths)
    arrays = _hold_out(
        images[:, None], labels.astype(np.int64), test_images[:, None], test_labels.astype(np.int64)
    )
    return arrays, _describe("MNIST (LeCun et al. 1998)", len(test_labels))


def read_cifar10(paths: list[Path]) -> tuple[Arrays, str]:
    """Photographs of ten kinds of things, 3 x 32 x 32."""
    if paths[0].suffix == ".webp":
        batches = [_read_sprite(path) for path in paths[:6]]
        with np.load(paths[6], allow_pickle=False) as file:
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
        raise DataError("the digits come with scikit-learn: pip install scikit-learn") from error
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
    places = {
        "test": order[:num_test],
        "validation": order[num_test : num_test + num_validation],
        "train": order[num_test + num_validation :],
    }
    arrays: Arrays = {}
    for name, rows in places.items():
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


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """MNIST's own format: 0, 0, 8 (bytes), number of axes; their lengths, big-endian; values."""
    try:
        with gzip.open(path) as file:
            contents = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    num_axes = contents[3]
    shape = np.frombuffer(contents, ">u4", num_axes, offset=4)
    return np.frombuffer(contents, np.uint8, offset=4 + 4 * num_axes).reshape(shape)


def _read_sprite(path: Path) -> Images:
    """A batch as one picture of 100 x 100 tiles of 32 x 32 pixels."""
    with import_pillow().open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    tiles = pixels.reshape(100, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(10_000, 3, 32, 32)


def import_pillow() -> Any:
    """What opens images."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("images are read by the package Pillow: pip install pillow") from error
    return Image


IMAGE_SETS: dict[str, ImageSet] = {
    "mnist": ImageSet(DIGITS, read_mnist),
    "cifar10": ImageSet(CIFAR_CLASSES, read_cifar10),
}
