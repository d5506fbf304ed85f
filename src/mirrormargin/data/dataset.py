"""A data set as tensors: three splits of inputs and labels, and the batches of an epoch.

Splits are the same on every machine: an example goes where a hash of what must stay together (its
text, its film, its premise) tells,

    share(key) = sha256(key) / 2^256, in [0, 1).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.arguments import check_count
from mirrormargin.errors import DataError

__all__ = [
    "DataSet",
    "InputForm",
    "Split",
    "augment_images",
    "check_encodable",
    "check_label",
    "check_num_train",
    "compute_share",
    "describe_subset",
    "normalize",
    "order_epoch",
    "shuffle",
    "split_classes",
]

MOST_LABEL = 1000  # characters of the name of a class
SHIFT = 4  # pixels, as in paper A
SORTED = 10  # batches: texts of one stretch are sorted by length


@dataclass(frozen=True, repr=False)
class Split:
    """Examples in a fixed, shuffled order.

    Attributes:
        inputs: Text: int32 (N, T), numbers of word pieces; where a text has ended 0, or what the
            tokenizer of a pretrained encoder pads with. Images: uint8 (N, C, H, W). Language:
            int64 (N, T), windows of a text.
        labels: int64 (N,), numbers of classes. Language: int64 (N, T), the token after each.
        num_words: Of the text that the windows of a language split cover, if they are known.
    """

    inputs: Tensor
    labels: Tensor
    num_words: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Split({len(self)} examples of shape {tuple(self.inputs.shape[1:])})"


@dataclass(frozen=True, kw_only=True, repr=False)
class InputForm:
    """What a model knows of its inputs and classes; kept with its weights, it reads new ones.

    Attributes:
        name: Of the data set.
        kind: ``text``, ``image`` or ``language``.
        classes: Their names, by number; none for language.
        shape: Of one input: (T,), or (C, H, W).
        vocabulary: Word pieces by number, for text. The first input of each text is ``[CLS]``. For
            language, tokens by number.
        wordpieces: All that texts are taken apart into; those not in ``vocabulary`` are ``[UNK]``.
        num_texts: In one input: 2 for pairs.
        keep: Which part of a long text, as in :func:`mirrormargin.data.load_data`.
        mean: Per channel, of the training images scaled to [0, 1]; for images.
        std: As ``mean``.
        tokenizer: For language, ``characters`` or ``pairs``.
        encoder_tokenizer: For text that a pretrained encoder reads by a tokenizer of its own: that
            one, as JSON of the package ``tokenizers``. There are no ``vocabulary`` and
            ``wordpieces`` then.
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
    tokenizer: str | None = None
    encoder_tokenizer: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._summarize()})"

    def _summarize(self) -> str:
        return f"{self.name!r}, {self.kind}, {len(self.classes)} classes, shape={self.shape}"

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
            form = InputForm(**parts)
            form._check()
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"this describes no inputs of a model: {error}") from error
        return form

    def _check(self) -> None:
        """Raise a ValueError unless every part is of its kind: the file may be anybody's."""
        for name in ("name", "kind", "keep"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is no text")
        if self.kind not in ("text", "image", "language") or self.num_texts not in (1, 2):
            raise ValueError("kind or num_texts is unknown")
        for name in ("classes", "vocabulary", "wordpieces"):
            given = getattr(self, name)
            if given is None and name != "classes":
                continue
            if not isinstance(given, tuple) or not all(isinstance(one, str) for one in given):
                raise ValueError(f"{name} is no list of texts")
            is_classless = name == "classes" and self.kind == "language"
            if len(set(given)) < len(given) or bool(given) is is_classless:
                raise ValueError(f"{name} is empty, or has a text twice")
            for one in given:
                check_encodable(one, name)
        sides = 3 if self.kind == "image" else 1
        counts = self.shape if isinstance(self.shape, tuple) else ()
        if len(counts) != sides or not all(type(one) is int and 0 < one < 2**20 for one in counts):
            raise ValueError("shape is no size of an input")
        if self.encoder_tokenizer is not None:
            has_words = self.vocabulary is not None or self.wordpieces is not None
            is_text = isinstance(self.encoder_tokenizer, str) and self.kind == "text"
            if has_words or not is_text or self.keep not in ("head", "ends"):
                raise ValueError("encoder_tokenizer, vocabulary and keep do not fit together")
        elif self.kind == "text":
            pieces = self.vocabulary or ()
            if self.keep not in ("head", "ends") or not set(pieces) <= set(self.wordpieces or ()):
                raise ValueError("vocabulary, wordpieces and keep do not fit together")
            if not {"[PAD]", "[UNK]", "[CLS]", "[SEP]"} <= set(pieces):
                raise ValueError("vocabulary lacks a special token")
        if self.kind == "language":
            if self.tokenizer not in ("characters", "pairs") or "\n" not in (self.vocabulary or ()):
                raise ValueError("tokenizer is unknown, or vocabulary lacks the end of a line")
            if self.tokenizer == "pairs" and " <unk>" not in (self.vocabulary or ()):
                raise ValueError("vocabulary lacks <unk>")
        for name in ("mean", "std"):
            given = getattr(self, name)
            if self.kind == "image" and given is not None:
                numbers = given if isinstance(given, tuple) else ()
                if len(numbers) != self.shape[0] or not all(
                    type(one) in (int, float) and math.isfinite(one) for one in numbers
                ):
                    raise ValueError(f"{name} is not one number for each channel")


@dataclass(frozen=True, kw_only=True, repr=False)
class DataSet(InputForm):
    """What :func:`mirrormargin.data.load_data` gives.

    Attributes:
        train: To learn from.
        validation: To choose by.
        test: To report.
        sha256: Digest of every source file, by its name.
        note: In words: what it is, how it was split, what was dropped.
        token_counts: Tokens of each training text before it was cut, ``[CLS]`` and ``[SEP]``
            included; None for images.
        dropped: With a file of your own: why rows were dropped, and how many.
    """

    train: Split
    validation: Split
    test: Split
    sha256: dict[str, str]
    note: str
    token_counts: Tensor | None = None
    dropped: dict[str, int] = field(default_factory=dict)

    def _summarize(self) -> str:
        sizes = f"train={len(self.train)}, validation={len(self.validation)}, test={len(self.test)}"
        return f"{super()._summarize()}, {sizes}"


def order_epoch(
    seed: int, epoch: int, size: int, batch_size: int, lengths: Tensor | None = None
) -> Tensor:
    """Indices (batches, batch_size) of one epoch; a last, smaller batch is left out.

    The order follows from the seed and the epoch's number alone, so a training that is resumed
    finds it without drawing what came before.

    Args:
        seed: Of the order.
        epoch: Its number.
        size: How many examples there are.
        batch_size: Examples in a batch.
        lengths: (size,), of each example. If given, every stretch of ``SORTED`` batches is sorted
            by length before it is cut into batches, and the batches are shuffled: texts of one
            batch then have about the same length, and little of it is padding.
    """
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    batch_size = min(batch_size, size)
    order = torch.randperm(size, generator=generator)
    order = order[: size // batch_size * batch_size]
    if lengths is None:
        return order.view(-1, batch_size)
    stretches = order.split(SORTED * batch_size)
    order = torch.cat([part[lengths[part].argsort(stable=True)] for part in stretches])
    batches = order.view(-1, batch_size)
    return batches[torch.randperm(len(batches), generator=generator)]


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


def compute_share(key: str) -> float:
    """A number in [0, 1) that looks drawn, and depends on the key alone."""
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def check_label(label: str, where: str) -> str:
    """The name of a class, once it is short enough and can be written to a file.

    Raises:
        DataError: If it is not. ``where`` begins the message.
    """
    if len(label) > MOST_LABEL:
        raise DataError(
            f"{where} has {len(label):,} characters: the name of a class has at most"
            f" {MOST_LABEL}; is this the column of the classes?"
        )
    check_encodable(label, where)
    return label


def check_encodable(text: str, where: str) -> None:
    """Refuse halves of characters, which no file can hold, before anything is trained on them.

    Raises:
        DataError: If there is one. ``where`` begins the message.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise DataError(
            f"{where} holds {half} at character {error.start + 1}, half of a character (a lone"
            " surrogate): write the whole one, or remove it"
        ) from None


def normalize(text: str) -> str:
    """What two texts share that differ in capital letters and blanks only."""
    return "".join(text.lower().split())


def shuffle(rows: Iterable[int]) -> NDArray[np.int64]:
    """The rows in an order drawn with seed 0."""
    return np.random.default_rng(0).permutation(np.fromiter(rows, np.int64))


def split_classes(
    labels: list[str], keys: list[str], source: Path, *, with_test: bool = True
) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """A tenth of each class for test, a tenth for validation, one of each at least.

    Args:
        labels: Of each row, the name of its class.
        keys: Of each row, by whose hash it is placed.
        source: For messages.
        with_test: Whether a tenth is for test; without, that part is absent.

    Returns:
        The names of the classes in order, and the shuffled rows of each split.

    Raises:
        DataError: If there are fewer than two classes, or fewer than three rows of one.
    """
    classes = tuple(sorted(set(labels), key=_sort_key))
    if len(classes) < 2:
        raise DataError(
            f"{source} has {len(classes)} class{'' if len(classes) == 1 else 'es'}"
            f" ({', '.join(classes) or 'no rows'}): give two at least"
        )
    parts = ("test", "validation") if with_test else ("validation",)
    least = len(parts) + 1
    rows: dict[str, list[int]] = {"train": [], **{part: [] for part in parts}}
    for name in classes:
        members = [row for row, label in enumerate(labels) if label == name]
        if len(members) < least:
            raise DataError(
                f"{source} has {len(members)} of the class {name!r}: give"
                f" {'three' if with_test else 'two'} at least, one for each of training,"
                f" validation{' and test' if with_test else ''}"
            )
        members.sort(key=lambda row: compute_share(keys[row]))
        num_held = max(1, round(len(members) / 10))
        for index, part in enumerate(parts):
            rows[part] += members[index * num_held : (index + 1) * num_held]
        rows["train"] += members[len(parts) * num_held :]
    return classes, {name: shuffle(members) for name, members in rows.items()}


def _sort_key(name: str) -> tuple[int, str]:
    """Numbers by their value, before words."""
    return (int(name), name) if name.isdecimal() else (2**63, name)


def check_num_train(num_train: int | None, available: int, name: str) -> None:
    """Refuse to draw more than there is.

    A part of the training split is the first examples of its shuffled order, so that parts nest.
    """
    if num_train is not None:
        hint = f"the size of the training split of {name}"
        check_count("num_train", num_train, most=available, hint=hint, error=DataError)


def describe_subset(num_train: int | None) -> str:
    """What the note of the data set says about it."""
    if num_train is None:
        return ""
    return f" Training is a random subset of {num_train:,}, drawn with seed 0."
