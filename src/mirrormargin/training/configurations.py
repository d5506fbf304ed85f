"""Configurations by name: ``<data set>/<size>``.

``paper-3``, ``paper-4``, ``paper-6`` and ``cifar10/paper`` follow paper A to the letter, as far as
its authors published it; ``small`` ones are made for two CPU cores and a few minutes, ``tiny`` ones
for many epochs in that time, ``minilm`` ones fine-tune a pretrained encoder as paper B does.
"""

from __future__ import annotations

from mirrormargin.errors import TrainingError
from mirrormargin.training.config import (
    DataConfig,
    EncoderModel,
    ImageModel,
    OptimizerConfig,
    TextModel,
    TrainingConfig,
)

__all__ = ["CONFIGURATIONS", "find_configuration"]

# Learning rates that paper A's authors published for p = 1.1, by the number of layers.
PAPER_LR = {3: 8e-4, 4: 6e-4, 6: 1e-3}


def _imdb_paper(layers: int) -> TrainingConfig:
    return TrainingConfig(
        name=f"imdb/paper-{layers}",
        data=DataConfig("imdb", length=512),
        model=TextModel(width=384, num_layers=layers, num_heads=layers),
        optimizer=OptimizerConfig("MirrorDescent", PAPER_LR[layers], p=1.1),
        epochs=1000,
        reduction="sum",
        stop_accuracy=0.995,
    )


# Both ends of a review say most about it: at 128 tokens that is worth more than its first 128.
_IMDB_SMALL = TrainingConfig(
    name="imdb/small",
    data=DataConfig("imdb", length=128, keep="ends", vocab_size=12_000),
    model=TextModel(64, 2, 4, dropout=0.1, attention_dropout=0.0, init_std=0.02),
    optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
    epochs=3,
    reduction="sum",
    schedule="cosine",
    warmup=0.05,
    frontier_size=5_000,
)

_CONFIGURATIONS = (
    _imdb_paper(3),
    _imdb_paper(4),
    _imdb_paper(6),
    _IMDB_SMALL,
    TrainingConfig(
        name="imdb/tiny",
        data=DataConfig("imdb", length=64, keep="ends", vocab_size=12_000, num_train=10_000),
        model=TextModel(64, 2, 2, dropout=0.1, attention_dropout=0.0),
        optimizer=OptimizerConfig("MirrorDescent", 8e-4, p=1.1),
        epochs=60,
        reduction="sum",
        stop_accuracy=0.995,
        protocol_size=5_000,
        frontier_size=5_000,
    ),
    TrainingConfig(
        name="sst2/small",
        data=DataConfig("sst2", length=32, vocab_size=12_000),
        model=TextModel(64, 2, 4, dropout=0.1, attention_dropout=0.0, init_std=0.02),
        optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
        epochs=3,
        reduction="sum",
        schedule="cosine",
        warmup=0.05,
    ),
    TrainingConfig(
        name="cifar10/paper",
        data=DataConfig("cifar10"),
        model=ImageModel(patch=4, width=512, num_layers=6, num_heads=8, hidden=512, upscale=48),
        optimizer=OptimizerConfig("MirrorDescent", 5e-2, p=1.1),
        epochs=1000,
        augment=True,
    ),
    TrainingConfig(
        name="cifar10/small",
        data=DataConfig("cifar10"),
        model=ImageModel(4, 64, 3, 4, 128, dropout=0.0, init_std=0.02),
        optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
        epochs=6,
        augment=True,
        schedule="cosine",
        warmup=0.05,
    ),
    TrainingConfig(
        name="mnist/small",
        data=DataConfig("mnist"),
        model=ImageModel(7, 64, 2, 4, 128, dropout=0.0, init_std=0.02),
        optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
        epochs=3,
        schedule="cosine",
        warmup=0.05,
    ),
    TrainingConfig(
        name="mnli-subset/minilm",
        data=DataConfig("mnli-subset", length=64),
        model=EncoderModel(),
        optimizer=OptimizerConfig("SNGD", 1e-2),
        epochs=1,
        batch_size=32,
    ),
    TrainingConfig(
        name="civil-subset/minilm",
        data=DataConfig("civil-subset", length=64),
        model=EncoderModel(),
        optimizer=OptimizerConfig("SNGD", 1e-2),
        epochs=1,
        batch_size=32,
    ),
    TrainingConfig(
        name="digits/tiny",
        data=DataConfig("digits"),
        model=ImageModel(2, 32, 2, 4, 64, dropout=0.0, init_std=0.1),
        optimizer=OptimizerConfig("MirrorAdam", 3e-3, p=1.1),
        epochs=30,
        batch_size=50,
        schedule="cosine",
    ),
)

CONFIGURATIONS = {config.name: config for config in _CONFIGURATIONS}


def find_configuration(name: str) -> TrainingConfig:
    """The configuration of that name.

    Raises:
        TrainingError: If there is none; lists all.
    """
    if name not in CONFIGURATIONS:
        raise TrainingError(
            f"there is no configuration {name!r}: there are {', '.join(CONFIGURATIONS)}"
        )
    return CONFIGURATIONS[name]
