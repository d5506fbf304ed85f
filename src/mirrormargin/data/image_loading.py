"""From images to a data set: tensors, and the mean and deviation of each channel."""

from __future__ import annotations

import numpy as np
import torch

from mirrormargin.data.dataset import DataSet, Split
from mirrormargin.data.image_sets import Images
from mirrormargin.data.prepared import Arrays
from mirrormargin.data.subset import check_num_train, describe_subset

__all__ = ["make_image_set"]

BLOCK = 500  # images at a time: memory that is used again is faster than new memory


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
