"""Configurations by name: ``<data set>/<size>``.

``imdb/paper-3``, ``-4``, ``-6`` and ``cifar10/paper`` are paper A's models and recipes, as its
authors published them. The data differ: a tenth of the training films, and of the training images,
is kept for validation, reviews that are in both official parts are dropped, line breaks in reviews
are blanks, and images are scaled by the standard deviation of the training set (0.25) rather than
by the commonly copied one (0.20). ``small`` ones are made for two CPU cores and a few minutes,
``tiny`` ones for many epochs in that time, ``minilm`` ones fine-tune a pretrained encoder: MNLI and
Civil Comments as paper B does, tasks of GLUE as is common. ``fitted`` ones are those on a fixed
subset that is small enough to be fitted entirely, with constant steps and without dropout or
augmentation: their loss can vanish. ``cifar10/converged`` is one of them with more epochs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mirrormargin.errors import TrainingError
from mirrormargin.training.config import (
    DataConfig,
    EncoderModel,
    ImageModel,
    LanguageModel,
    OptimizerConfig,
    TextModel,
    TrainingConfig,
)
from mirrormargin.training.settings import describe_unknown, list_changes, override

__all__ = [
    "CONFIGURATIONS",
    "PAPER_RATES",
    "center_configuration",
    "find_configuration",
    "format_command",
    "list_overrides",
]

# Learning rates that paper A's authors published, by p and the number of layers.
PAPER_RATES = {
    1.1: {3: 8e-4, 4: 6e-4, 6: 1e-3},
    2.0: {3: 4e-4, 4: 4e-4, 6: 1e-3},
    3.0: {3: 4e-6, 4: 6e-6, 6: 1e-5},
}


def _imdb_paper(layers: int) -> TrainingConfig:
    return TrainingConfig(
        name=f"imdb/paper-{layers}",
        data=DataConfig("imdb", length=512),
        model=TextModel(384, num_layers=layers, num_heads=layers, embedding_dropout=0.0),
        optimizer=OptimizerConfig("MirrorDescent", PAPER_RATES[1.1][layers], p=1.1),
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

_MNIST = TrainingConfig(
    name="mnist/small",
    data=DataConfig("mnist"),
    model=ImageModel(7, 64, 2, 4, 128, dropout=0.0, init_std=0.02),
    optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
    epochs=3,
    schedule="cosine",
    warmup=0.05,
)

# nanoGPT's recipe for a CPU: 2,000 steps, evaluated after every 250. The embedding is the head too,
# and norms are factors near 1, so only block matrices have the geometry of p.
_SHAKESPEARE = TrainingConfig(
    name="shakespeare/char",
    data=DataConfig("shakespeare", length=64),
    model=LanguageModel(128, 4, 4),
    optimizer=OptimizerConfig(
        "MirrorAdam",
        3e-3,
        p=1.1,
        beta2=0.99,
        groups=(
            ("embedding.*", {"p": 2.0}),
            ("position.*", {"p": 2.0}),
            ("*norm.*", {"p": 2.0}),
        ),
    ),
    epochs=8,
    batch_size=12,
    schedule="cosine",
    warmup=0.05,
    final_rate=0.1,
    clip=1.0,
    epoch_steps=250,
    frontier_size=400,
)


def _fine_tune(task: str, data: DataConfig, epochs: int) -> TrainingConfig:
    """A task of GLUE with a few hundred steps: BERT's recipe, at a rate for a small encoder."""
    return TrainingConfig(
        name=f"{task}/minilm",
        data=data,
        model=EncoderModel(),
        optimizer=OptimizerConfig("AdamW", 1e-4, weight_decay=0.01),
        epochs=epochs,
        batch_size=32,
        schedule="linear",
        warmup=0.1,
        frontier_size=200,
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
        epochs=40,
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
        model=ImageModel(4, 512, 6, 8, 512, upscale=48, attention_dropout=0.0, hidden_dropout=0.1),
        optimizer=OptimizerConfig("MirrorDescent", 5e-2, p=1.1),
        epochs=1000,
        augment=True,
    ),
    TrainingConfig(
        name="cifar10/small",
        data=DataConfig("cifar10"),
        model=ImageModel(8, 64, 3, 4, 128, dropout=0.0, init_std=0.02),
        optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
        epochs=8,
        augment=True,
        schedule="cosine",
        warmup=0.05,
    ),
    _MNIST,
    replace(_MNIST, name="fashion/small", data=DataConfig("fashion")),
    TrainingConfig(
        name="mnli-subset/minilm",
        data=DataConfig("mnli-subset", length=48),
        model=EncoderModel(),
        optimizer=OptimizerConfig("SNGD", 1e-2),
        epochs=1,
        batch_size=32,
        frontier_size=200,
    ),
    TrainingConfig(
        name="civil-subset/minilm",
        data=DataConfig("civil-subset", length=64),
        model=EncoderModel(),
        optimizer=OptimizerConfig("SNGD", 1e-2),
        epochs=1,
        batch_size=32,
        frontier_size=200,
    ),
    _fine_tune("sst2", DataConfig("sst2-sentences", length=48, num_train=6_400), epochs=2),
    _fine_tune("mrpc", DataConfig("mrpc", length=80), epochs=4),
    _fine_tune("rte", DataConfig("rte", length=128), epochs=5),
    _fine_tune("cola", DataConfig("cola", length=32), epochs=2),
    TrainingConfig(
        name="digits/tiny",
        data=DataConfig("digits"),
        model=ImageModel(2, 32, 2, 4, 64, dropout=0.0, init_std=0.1),
        optimizer=OptimizerConfig("MirrorAdam", 3e-3, p=1.1),
        epochs=30,
        batch_size=50,
        schedule="cosine",
    ),
    _SHAKESPEARE,
    replace(
        _SHAKESPEARE,
        name="wikitext2/small",
        data=DataConfig("wikitext2", length=64, vocab_size=4_096),
        epochs=10,
        batch_size=32,
        epoch_steps=1_000,
        validation_size=1_000,
        frontier_size=500,
    ),
)


def _fit(base: str, num_train: int, length: int | None = None, **changes: Any) -> TrainingConfig:
    """A configuration on a subset, until its training loss has fallen to 0.001."""
    config = next(one for one in _CONFIGURATIONS if one.name == base)
    usual: dict[str, Any] = {
        "name": f"{config.data.name}/fitted",
        "schedule": "constant",
        "warmup": 0.0,
        "augment": False,
        "stop_loss": 1e-3,
        "attention_size": 100,
    }
    return replace(
        config,
        data=replace(config.data, num_train=num_train, length=length or config.data.length),
        model=replace(config.model, dropout=0.0),
        **(usual | changes),
    )


_FITTED = (
    # As many epochs as paper A allows, to its training accuracy, from its initial weights.
    _fit(
        "imdb/tiny",
        1_000,
        epochs=1_000,
        batch_size=25,
        stop_loss=None,
        validation_size=200,
        protocol_size=500,
        frontier_size=1_000,
    ),
    _fit("mnist/small", 5_000, epochs=150, validation_size=1_000, frontier_size=500),
    _fit("cifar10/small", 5_000, epochs=200, validation_size=1_000, frontier_size=500),
    # Where plain mirror descent too passes a training accuracy of 95%.
    _fit(
        "cifar10/small",
        2_000,
        name="cifar10/converged",
        epochs=400,
        stop_loss=1e-2,
        validation_size=1_000,
        frontier_size=500,
    ),
    *(
        _fit(
            base,
            1_000,
            epochs=20,
            validation_size=200,
            attention_size=50,
            length=48,
            precision="mixed",
            by_length=True,
        )
        for base in ("civil-subset/minilm", "mnli-subset/minilm")
    ),
)

CONFIGURATIONS = {config.name: config for config in (*_CONFIGURATIONS, *_FITTED)}


def center_configuration(config: TrainingConfig) -> TrainingConfig:
    """The same fine-tuning by a sparse change: matrices centred at the pretrained weights, p = 1.1.

    The head is trained at p = 2, and everything else stays as it is.

    Raises:
        TrainingError: If the model is not pretrained.
    """
    if not isinstance(config.model, EncoderModel):
        raise TrainingError(
            f"{config.name} trains a model from the start, with nothing to centre its weights at:"
            " choose a configuration that fine-tunes, such as sst2/minilm"
        )
    head = {"p": 2.0, "lr": 1e-3, "weight_decay": 0.0, "center": False}
    return replace(
        config,
        optimizer=OptimizerConfig(
            "MirrorAdam", 1e-2, p=1.1, center=True, groups=(("head.*", head),)
        ),
        schedule="cosine",
        warmup=0.1,
        trainable=("blocks", "head.*"),
    )


def find_configuration(
    name: str, changes: Mapping[str, Any] | Iterable[str] = ()
) -> TrainingConfig:
    """The configuration of that name, with some settings changed.

    Args:
        name: Such as ``imdb/small``.
        changes: As in :func:`mirrormargin.training.override`.

    Raises:
        TrainingError: If there is no such configuration or setting (suggests the nearest, and
            lists all), or a setting takes no such value.

    Example:
        >>> find_configuration("digits/tiny", {"epochs": 10, "optimizer.p": 1.05}).epochs
        10
    """
    if name not in CONFIGURATIONS:
        raise TrainingError(describe_unknown("configuration", name, CONFIGURATIONS))
    return override(CONFIGURATIONS[name], changes)


def list_overrides(config: TrainingConfig) -> dict[str, Any]:
    """In what a configuration differs from the one of its name."""
    base = CONFIGURATIONS[config.name]
    document, changes = config.as_dict(), {}
    for name in list_changes(base, config):
        value: Any = document
        for key in name.split("."):
            value = value[key]
        changes[name] = value
    return changes


def format_command(config: TrainingConfig) -> str:
    """The command that makes the same training."""
    if config.name not in CONFIGURATIONS:
        return "mirrormargin.training.train_model with this configuration"
    changes = (f"{name}={json.dumps(value)}" for name, value in list_overrides(config).items())
    options = "".join(f" --set {shlex.quote(change)}" for change in changes)
    return f"mirrormargin train {shlex.quote(config.name)}{options}"
