"""A data set as tensors: three splits of inputs and labels, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["DataSet", "Split"]


@dataclass(frozen=True)
class Split:
    """Examples in a fixed, shuffled order.

    Attributes:
        inputs: Text: int32 (N, T), numbers of word pieces, 0 where a text has ended. Images: uint8
            (N, C, H, W).
        labels: int64 (N,), numbers of classes.
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """What :func:`mirrormargin.data.load_data` gives.

    Attributes:
        name: As it was asked for.
        kind: ``text`` or ``image``.
        classes: Their names, by number.
        train: To learn from.
        validation: To choose by.
        test: To report.
        vocabulary: Word pieces by number, for text. The first input of each text is ``[CLS]``.
        mean: Per channel, of the training images scaled to [0, 1]; for images.
        std: As ``mean``.
        sha256: Digest of every source file, by its name.
        note: In words: what it is, how it was split, what was dropped.
    """

    name: str
    kind: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    vocabulary: tuple[str, ...] | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    sha256: dict[str, str]
    note: str
