"""Images of your own: a folder with a folder for each class, all images of one size.

    animals/cat/1.png  animals/cat/2.png  animals/dog/1.png  ...

Splits are by a hash of the pixels within each class: about a tenth for test, a tenth for
validation, one of each at least. Images are grey if all files are, else of three colours.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from mirrormargin.data.image_sets import Images, import_pillow
from mirrormargin.data.prepared import Arrays
from mirrormargin.data.splitting import split_classes
from mirrormargin.errors import DataError

__all__ = ["colour", "list_images", "read_image", "read_own_images"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


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
    # By digest of the pixels: what is there twice counts once.
    chosen: dict[str, int] = {}
    for number, image in enumerate(images):
        chosen.setdefault(hashlib.sha256(image.tobytes()).hexdigest(), number)
    numbers = list(chosen.values())
    labels = [paths[number].parent.name for number in numbers]
    classes, places = split_classes(labels, list(chosen), folder)
    arrays: Arrays = {}
    for name, rows in places.items():
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
    pillow = import_pillow()
    try:
        with pillow.open(path) as picture:
            if picture.mode.startswith(("I", "F")):
                raise DataError(
                    f"{path} has more than 8 bits for a pixel (mode {picture.mode}), which would"
                    " be cut off: save it with 8"
                )
            is_grey = picture.mode in ("1", "L")
            return np.asarray(picture.convert("L" if is_grey else "RGB"))
    # What Pillow raises on files that are damaged, or of more pixels than it deems safe.
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as an image: {error}") from error


def colour(image: Images) -> Images:
    """With three colours, also if it was grey."""
    return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)
