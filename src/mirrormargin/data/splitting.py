"""Splits that are the same on every machine: by a hash of what must stay together.

share(key) = sha256(key) / 2^256, in [0, 1)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import DataError

__all__ = ["compute_share", "normalize", "shuffle", "split_classes"]


def compute_share(key: str) -> float:
    """A number in [0, 1) that looks drawn, and depends on the key alone."""
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def normalize(text: str) -> str:
    """What two texts share that differ in capital letters and blanks only."""
    return "".join(text.lower().split())


def shuffle(rows: Iterable[int]) -> NDArray[np.int64]:
    """The rows in an order drawn with seed 0."""
    return np.random.default_rng(0).permutation(np.fromiter(rows, np.int64))


def split_classes(
    labels: list[str], keys: list[str], source: Path
) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """A tenth of each class for test, a tenth for validation, one of each at least.

    Args:
        labels: Of each row, the name of its class.
        keys: Of each row, by whose hash it is placed.
        source: For messages.

    Returns:
        The names of the classes in order, and the shuffled rows of each split.

    Raises:
        DataError: If there are fewer than two classes, or fewer than three rows of one.
    """
    classes = tuple(sorted(set(labels), key=_order))
    if len(classes) < 2:
        raise DataError(
            f"{source} has {len(classes)} class{'' if len(classes) == 1 else 'es'}"
            f" ({', '.join(classes) or 'no rows'}): give two at least"
        )
    rows: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for name in classes:
        members = [row for row, label in enumerate(labels) if label == name]
        if len(members) < 3:
            raise DataError(
                f"{source} has {len(members)} of the class {name!r}: give three at least, one for"
                " each of training, validation and test"
            )
        members.sort(key=lambda row: compute_share(keys[row]))
        num_held = max(1, round(len(members) / 10))
        rows["test"] += members[:num_held]
        rows["validation"] += members[num_held : 2 * num_held]
        rows["train"] += members[2 * num_held :]
    return classes, {name: shuffle(members) for name, members in rows.items()}


def _order(name: str) -> tuple[int, str]:
    """Numbers by their value, before words."""
    return (int(name), name) if name.isdecimal() else (2**63, name)
