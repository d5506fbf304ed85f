"""A data set as tensors: three splits of inputs and labels, and the batches of an epoch."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from mirrormargin.errors import DataError

__all__ = ["DataSet", "InputForm", "Split", "augment_images", "order_epoch"]

SHIFT = 4  # pixels, as in paper A


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


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """What a model knows of its inputs and classes; kept with its weights, it reads new ones.

    Attributes:
        name: Of the data set.
        kind: ``text`` or ``image``.
        classes: Their names, by number.
        shape: Of one input: (T,), or (C, H, W).
        vocabulary: Word pieces by number, for text. The first input of each text is ``[CLS]``.
        wordpieces: All that texts are taken apart into; those not in ``vocabulary`` are ``[UNK]``.
        num_texts: In one input: 2 for pairs.
        keep: Which part of a long text, as in :func:`mirrormargin.data.load_data`.
        mean: Per channel, of the training images scaled to [0, 1]; for images.
        std: As ``mean``.
    """

    name: str
    kind: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    vocabulary: tuple[str, ...] | None = None
    wordpieces: tuple[str, ...] | None = None
    num_texts: int = 1
    keep: str = "head"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def describe_form(self) -> dict[str, Any]:
        """Itself without anything that a subclass adds, for JSON."""
        return asdict(
            InputForm(**{item.name: getattr(self, item.name) for item in fields(InputForm)})
        )

    @classmethod
    def read_form(cls, document: dict[str, Any]) -> InputForm:
        """Inverse of :meth:`describe_form`.

        Raises:
            DataError: If something is missing or unknown.
        """
        parts: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in document.items()
        }
        try:
            return InputForm(**parts)
        except TypeError as error:
            raise DataError(f"this describes no inputs of a model: {error}") from error


@dataclass(frozen=True, kw_only=True)
class DataSet(InputForm):
    """What :func:`mirrormargin.data.load_data` gives.

    Attributes:
        train: To learn from.
        validation: To choose by.
        test: To report.
        sha256: Digest of every source file, by its name.
        note: In words: what it is, how it was split, what was dropped.
    """

    train: Split
    validation: Split
    test: Split
    sha256: dict[str, str]
    note: str


def order_epoch(seed: int, epoch: int, size: int, batch_size: int) -> Tensor:
    """Indices (batches, batch_size) of one epoch; a last, smaller batch is left out.

    The order follows from the seed and the epoch's number alone, so a training that is resumed
    finds it without drawing what came before.
    """
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    batch_size = min(batch_size, size)
    order = torch.randperm(size, generator=generator)
    return order[: size // batch_size * batch_size].view(-1, batch_size)


def augment_images(images: Tensor) -> Tensor:
    """Shift each image by up to 4 pixels (zeros come in) and mirror half of them."""
    size, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (SHIFT,) * 4)
    top, left = torch.randint(0, 2 * SHIFT + 1, (2, size, 1), device=images.device)
    rows = top + torch.arange(height, device=images.device)
    columns = left + torch.arange(width, device=images.device)
    is_mirrored = torch.rand(size, 1, device=images.device) < 0.5
    columns = torch.where(is_mirrored, columns.flip(1), columns)
    index = torch.arange(size, device=images.device)
    # (size, height, width, channels) comes out of indexing around a slice.
    return padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )
