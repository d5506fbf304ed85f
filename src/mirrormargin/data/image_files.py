"""Files of images: MNIST's format, sprites of CIFAR-10, and a folder of your own.

    animals/cat/1.png  animals/cat/2.png  animals/dog/1.png  ...

Your own folder has a folder for each class, and all images have one size. It is split by a hash of
the pixels within each class: about a tenth for test, a tenth for validation, at least one of each.
Images are grey if all files are, else they have three colours.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.data.dataset import check_label, split_classes
from mirrormargin.data.files import Arrays
from mirrormargin.errors import DataError
from mirrormargin.runs.arrays import FREE_BYTES, check_unpacked

__all__ = [
    "Images",
    "colour",
    "list_images",
    "read_idx",
    "read_image",
    "read_own_images",
    "read_sprite",
]

MOST_PIXELS = 1 << 26  # of one image: 192 MiB in colour
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

Images = NDArray[np.uint8]


def list_images(folder: Path) -> list[Path]:
    """The image files in the folders of the classes, in order.

    Raises:
        DataError: If there are none.
    """
    paths = sorted(
        path
        for path in folder.glob("*/*")
        if path.suffix.lower() in SUFFIXES and not path.parent.name.startswith(".")
    )
    if not paths:
        raise DataError(
            f"{folder} holds no images: there should be a folder for each class in it, with files"
            f" that end in {', '.join(SUFFIXES)}"
        )
    for name in {path.parent.name for path in paths}:
        check_label(name, f"the name of the folder {name!r} in {folder}")
    return paths


def read_own_images(folder: Path, paths: list[Path]) -> tuple[Arrays, str, tuple[str, ...]]:
    """The splits of a folder, a note, and the names of the classes.

    Raises:
        DataError: If a file is no image, of another size or of more than 8 bits, or
            there are too few.
    """
    images = [read_image(path) for path in paths]
    height, width = images[0].shape[:2]
    for path, image in zip(paths, images, strict=True):
        if image.shape[:2] != (height, width):
            raise DataError(
                f"{path} has {image.shape[1]} x {image.shape[0]} pixels, but {paths[0]} {width} x"
                f" {height}: give all images one size"
            )
    if any(image.ndim == 3 for image in images):
        images = [colour(image) for image in images]
    # By digest of the pixels, so that duplicates count once.
    chosen: dict[str, int] = {}
    for number, image in enumerate(images):
        chosen.setdefault(hashlib.sha256(image.tobytes()).hexdigest(), number)
    numbers = list(chosen.values())
    labels = [paths[number].parent.name for number in numbers]
    classes, splits = split_classes(labels, list(chosen), folder)
    arrays: Arrays = {}
    for name, rows in splits.items():
        stack = np.stack([images[numbers[i]] for i in rows])
        stack = stack[:, None] if stack.ndim == 3 else stack.transpose(0, 3, 1, 2)
        arrays[f"{name}/inputs"] = np.ascontiguousarray(stack)
        arrays[f"{name}/labels"] = np.array([classes.index(labels[i]) for i in rows], np.int64)
    note = (
        f"{folder.name}: {len(numbers):,} images of {width} x {height} pixels in {len(classes)}"
        " classes. About a tenth of each class is test, a tenth validation, chosen by a hash of the"
        f" pixels. Dropped: {len(paths) - len(numbers)} images that were there before."
    )
    return arrays, note, classes


def read_image(path: Path) -> Images:
    """(height, width) for grey images, else (height, width, 3).

    Raises:
        DataError: If it is no image, or one of more than 8 bits.
    """
    pillow = _import_pillow()
    try:
        with pillow.open(path) as picture:
            if picture.mode.startswith(("I", "F")):
                raise DataError(
                    f"{path} has more than 8 bits for a pixel (mode {picture.mode}), which would"
                    " be cut off: save it with 8"
                )
            is_grey = picture.mode in ("1", "L")
            if picture.width * picture.height > MOST_PIXELS:
                raise DataError(
                    f"{path} has {picture.width:,} x {picture.height:,} pixels, more than"
                    f" {MOST_PIXELS:,}: make it smaller"
                )
            return np.asarray(picture.convert("L" if is_grey else "RGB"))
    except DataError:
        raise
    # Pillow's decoders raise whatever they stumble over in a damaged file.
    except Exception as error:
        raise DataError(f"{path} cannot be read as an image: {error}") from error


def colour(image: Images) -> Images:
    """With three colours, also if it was grey."""
    return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """MNIST's own format: 0, 0, 8 (bytes), number of axes; their lengths, big-endian; values."""
    try:
        with gzip.open(path) as file:
            contents = file.read(FREE_BYTES + 1)
        check_unpacked(path, len(contents), path.stat().st_size, error=DataError)
        num_axes = contents[3]
        shape = np.frombuffer(contents, ">u4", num_axes, offset=4)
        return np.frombuffer(contents, np.uint8, offset=4 + 4 * num_axes).reshape(shape)
    except (OSError, EOFError, zlib.error, IndexError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def read_sprite(path: Path) -> Images:
    """A batch as one picture of 100 x 100 tiles of 32 x 32 pixels."""
    pixels = colour(read_image(path))
    tiles = pixels.reshape(100, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(10_000, 3, 32, 32)


def _import_pillow() -> Any:
    """What opens images."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("images are read by the package Pillow: pip install pillow") from error
    return Image
