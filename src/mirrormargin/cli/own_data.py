"""Data of your own: settings that fit it, and what was done to it.

A configuration's sizes were chosen for another data set.

With n examples to learn from, and unless the user says otherwise,

    num_train    all of them
    batch size   halved until an epoch has 20 steps, but no less than 8
    epochs       doubled until there are 300 steps in all
    vocabulary   the words of the file where the WordPiece vocabulary is not at hand

Batches below 32 are trained on one core: where others computed as well, two took four times as long
(42 s against 10 s for 400 texts by sst2/small).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.language_models import describe_windows
from mirrormargin.training.config import EncoderModel, TrainingConfig
from mirrormargin.training.settings import override

if TYPE_CHECKING:
    from mirrormargin.data import DataSet

__all__ = ["describe_data", "describe_texts", "fit_to_own_data", "has_small_batches", "is_own"]

STEPS_OF_EPOCH = 20
STEPS = 300
LEAST_BATCH = 8
SMALL_BATCH = 32
WHOLE = 0.95  # share of texts that the suggested length does not cut
WORTH = 0.02  # share of texts that the suggested length keeps whole besides
LONGEST = 512  # tokens, as load_data keeps at most by itself
SHARE = 0.8  # of images, about: the rest is for validation and test


def is_own(config: TrainingConfig) -> bool:
    """Whether the data is a file or folder of the user's."""
    from mirrormargin.training.configurations import CONFIGURATIONS

    if config.name in CONFIGURATIONS and config.data == CONFIGURATIONS[config.name].data:
        return False  # known without importing torch, for --show
    from mirrormargin.data import DATA_SETS

    return config.data.name not in DATA_SETS


def has_small_batches(config: TrainingConfig) -> bool:
    """Whether steps on the user's data are so short that cores would mostly wait for each other."""
    return is_own(config) and config.batch_size < SMALL_BATCH


def fit_to_own_data(
    config: TrainingConfig, given: Collection[str], data_dir: Path | None, download: bool
) -> TrainingConfig:
    """The configuration with sizes for the data that it names, if that is the user's own.

    Args:
        config: With the settings that were given.
        given: Names of these settings: they stay as they are.
        data_dir: Where the vocabulary may be.
        download: Whether it will be downloaded if it is absent.

    Raises:
        DataError: If the file cannot be read.
    """
    path = Path(config.data.name)
    if not is_own(config) or not path.exists():
        return config
    changes: dict[str, Any] = {"data.num_train": None}
    num_examples = _count_examples(config)
    if "data.num_train" in given and config.data.num_train is not None:
        num_examples = min(num_examples, config.data.num_train)
    batch = config.batch_size
    if "batch_size" not in given:
        while batch // 2 >= LEAST_BATCH and num_examples // batch < STEPS_OF_EPOCH:
            batch //= 2
        changes["batch_size"] = batch
    if "epochs" not in given:
        epochs = config.epochs
        while epochs * max(1, num_examples // batch) < STEPS:
            epochs *= 2
        changes["epochs"] = epochs
    if path.is_file() and not isinstance(config.model, EncoderModel) and not download:
        from mirrormargin.data.published import has_vocabulary

        if not has_vocabulary(data_dir):
            changes["data.vocabulary"] = "words"
    return override(config, {name: new for name, new in changes.items() if name not in given})


def _count_examples(config: TrainingConfig) -> int:
    """How many examples there are to learn from."""
    from mirrormargin.data.image_files import list_images
    from mirrormargin.data.text_files import find_format, read_own_texts

    path, data = Path(config.data.name), config.data
    if path.is_dir():
        return int(SHARE * len(list_images(path)))
    if find_format(path) is None:
        return config.batch_size * STEPS  # no file of texts, as loading it is going to say
    test = None if data.test_data is None else Path(data.test_data)
    if test is not None and not test.is_file():
        test = None  # said when it is loaded
    own = read_own_texts(path, data.text_column, data.label_column, test)
    return len(own.splits["train"].labels)


def describe_data(config: TrainingConfig, data: DataSet) -> str:
    """How many examples there are for what."""
    if data.kind == "language":
        return describe_windows(data)
    sizes = [len(split) for split in (data.train, data.validation, data.test)]
    whole = f"{sum(sizes):,} {data.kind}s: " if is_own(config) else ""
    name = Path(data.name).name if is_own(config) else data.name
    return (
        f"{name}: {whole}{sizes[0]:,} to learn from, {sizes[1]:,} to validate, {sizes[2]:,} to"
        f" test; {len(data.classes)} classes"
    )


def describe_texts(config: TrainingConfig, data: DataSet) -> dict[str, str]:
    """What was dropped and cut, and by which words texts are read."""
    rows, has_words = {}, config.data.vocabulary == "words"
    if data.dropped:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in data.dropped.items())
        rows["dropped"] = reasons
    if data.token_counts is not None:
        length = data.shape[0]
        share = float((data.token_counts > length).double().mean())
        if share > 0:
            rows["cut"] = _describe_cut(data, length, share, "words" if has_words else "pieces")
    if has_words and data.vocabulary is not None:
        rows["words"] = f"{len(data.vocabulary):,} of the texts themselves, [PAD] and such included"
    return rows


def _describe_cut(data: DataSet, length: int, share: float, unit: str) -> str:
    assert data.token_counts is not None
    what = f"{_show_share(share)} of texts are cut at {length} {unit}"
    counts = data.token_counts.double()
    enough = math.ceil(float(counts.quantile(WHOLE)) / 16) * 16
    enough = min(max(enough, 2 * length), LONGEST)
    if enough <= length:
        return what
    kept = float((counts <= enough).double().mean())
    if kept < 1 - share + WORTH:
        return what
    return f"{what}; --length {enough} keeps {_show_share(kept)} whole"


def _show_share(share: float) -> str:
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{share:.0%}" if 0.01 <= share < 0.995 else f"{share:.1%}"
