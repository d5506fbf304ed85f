"""A part of the training split: the first examples of its shuffled order, so that parts nest."""

from __future__ import annotations

from mirrormargin.errors import DataError

__all__ = ["check_num_train", "describe_subset"]


def check_num_train(num_train: int | None, available: int, name: str) -> None:
    """Refuse to draw more than there is."""
    if num_train is None:
        return
    if not isinstance(num_train, int) or not 1 <= num_train <= available:
        raise DataError(
            f"num_train={num_train!r}: give a whole number from 1 to {available}, the size of the"
            f" training split of {name}"
        )


def describe_subset(num_train: int | None) -> str:
    """What the note of the data set says about it."""
    if num_train is None:
        return ""
    return f" Training is a random subset of {num_train:,}, drawn with seed 0."
