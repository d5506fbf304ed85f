"""The settings of ``mirrormargin train``: options, --set and --resume become a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from mirrormargin.cli.lab.problems import GENERATORS
from mirrormargin.cli.options import Count, Exponent, Number, Positive, Share
from mirrormargin.cli.own_data import is_own
from mirrormargin.errors import DataError, TrainingError
from mirrormargin.training.config import ADAPTIVE, OPTIMIZERS, WITH_EXPONENT, Precision
from mirrormargin.training.configurations import center_configuration, find_configuration
from mirrormargin.training.settings import override, parse_override

if TYPE_CHECKING:
    from mirrormargin.training.config import TrainingConfig
    from mirrormargin.training.trackers import Tracker

__all__ = [
    "COMPUTING",
    "DATA",
    "LENGTH",
    "OPTIMIZER",
    "SettingOptions",
    "TrackerName",
    "make_trackers",
    "read_config",
    "read_kept_config",
    "refuse_others",
]

TrackerName = Literal["tensorboard", "mlflow", "wandb"]
WEIGHT_DECAY = {"AdamW": 0.01}  # torch's default
OPTIMIZER, LENGTH, DATA, COMPUTING = (
    Group(title, sort_key=index)
    for index, title in enumerate(("Optimizer", "Training", "Data", "Computing"), start=10)
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """Options that are short names of settings; None leaves what the configuration says.

    Attributes:
        optimizer: The optimizer to use instead of the configuration's.
        lr: Learning rate.
        momentum: Momentum of MirrorDescent, SGD and SNGD.
        weight_decay: Decoupled for AdamW and MirrorAdam. [default: that of the configuration; 0.01
            with --optimizer AdamW]
        center: Fine-tune by a sparse change: block matrices move from the pretrained weights in the
            geometry of p = 1.1, the head is trained as well, everything else stays. See also
            mirrormargin delta.
        schedule: Learning rate after the warmup.
        warmup: Share of all steps in which the learning rate rises.
        epochs: Passes through the data.
        batch_size: Examples in a step.
        stop_accuracy: Stop at this training accuracy.
        paper_protocol: Evaluate on test data after every epoch.
        sparsity: Share of the block weights that are exactly 0 in the end, such as 0.95: the
            smallest ones are removed while training. For MirrorAdam and MirrorDescent; p = 1.5 is
            a good choice with it. --set sparsifier={...} has more options.
        groups: Remove whole attention heads, hidden units, both, or rows of matrices; --sparsity is
            then the share of those. mirrormargin shrink takes zero ones out of the model.
        seed_init: Seed of initial weights alone.
        seed_order: Seed of the order of the data alone.
        seed_dropout: Seed of dropout and augmentation alone.
        data: Other data: the name of a data set, a file .jsonl, .csv or .tsv of texts, plain or
            with .gz or .xz, or a folder with a folder of images for each class.
        test_data: A second file of texts of your own, all of which is for test; without it, that is
            a tenth of --data.
        vocabulary: Your texts by the word pieces of bert-base-uncased, or by their own words, for
            which nothing is downloaded. [default: wordpiece where it is at hand]
        text_column: Column of the texts in your file. [default: text]
        label_column: Column of the labels in your file. [default: label]
        length: Tokens of a text that are kept.
        num_train: Examples to learn from.
        compile: Compile the model (torch.compile).
        precision: mixed has activations in bfloat16 while training; bfloat16 has weights too.
        by_length: Make batches of texts of similar length: a pretrained encoder trains faster.
    """

    optimizer: Annotated[str | None, Parameter(group=OPTIMIZER, choices=OPTIMIZERS)] = None
    lr: Annotated[Number | None, Parameter(group=OPTIMIZER)] = None
    p: Annotated[Exponent | None, Parameter(group=OPTIMIZER)] = None
    momentum: Annotated[Number | None, Parameter(group=OPTIMIZER)] = None
    weight_decay: Annotated[Number | None, Parameter(group=OPTIMIZER)] = None
    center: Annotated[bool, Parameter(group=OPTIMIZER)] = False
    sparsity: Annotated[Share | None, Parameter(group=OPTIMIZER)] = None
    groups: Annotated[
        Literal["rows", "heads", "units", "heads+units"] | None, Parameter(group=OPTIMIZER)
    ] = None
    schedule: Annotated[
        Literal["constant", "cosine", "linear"] | None, Parameter(group=OPTIMIZER)
    ] = None
    warmup: Annotated[Share | None, Parameter(group=OPTIMIZER)] = None
    epochs: Annotated[Positive | None, Parameter(group=LENGTH)] = None
    batch_size: Annotated[Positive | None, Parameter(group=LENGTH)] = None
    stop_accuracy: Annotated[Share | None, Parameter(group=LENGTH)] = None
    paper_protocol: Annotated[bool, Parameter(group=LENGTH)] = False
    seed_init: Annotated[Count | None, Parameter(group=LENGTH, metavar="SEED")] = None
    seed_order: Annotated[Count | None, Parameter(group=LENGTH, metavar="SEED")] = None
    seed_dropout: Annotated[Count | None, Parameter(group=LENGTH, metavar="SEED")] = None
    data: Annotated[Path | None, Parameter(group=DATA, metavar="FILE")] = None
    test_data: Annotated[Path | None, Parameter(group=DATA, metavar="FILE")] = None
    text_column: Annotated[str | None, Parameter(group=DATA, metavar="NAME")] = None
    label_column: Annotated[str | None, Parameter(group=DATA, metavar="NAME")] = None
    vocabulary: Annotated[Literal["wordpiece", "words"] | None, Parameter(group=DATA)] = None
    length: Annotated[Positive | None, Parameter(group=DATA)] = None
    num_train: Annotated[Positive | None, Parameter(group=DATA)] = None
    compile: Annotated[bool, Parameter(group=COMPUTING)] = False
    precision: Annotated[Precision | None, Parameter(group=COMPUTING)] = None
    by_length: Annotated[bool, Parameter(group=COMPUTING)] = False


# Where each of them is in a configuration.
NAMES = {
    "optimizer": "optimizer.name",
    "lr": "optimizer.lr",
    "p": "optimizer.p",
    "momentum": "optimizer.momentum",
    "weight_decay": "optimizer.weight_decay",
    "center": "optimizer.center",
    "sparsity": "sparsifier",
    "seed_init": "seeds.init",
    "seed_order": "seeds.order",
    "seed_dropout": "seeds.dropout",
    "data": "data.name",
    "test_data": "data.test_data",
    "vocabulary": "data.vocabulary",
    "text_column": "data.text_column",
    "label_column": "data.label_column",
    "length": "data.length",
    "num_train": "data.num_train",
}


def read_config(
    name: str, seed: int | None, assignments: tuple[str, ...], settings: SettingOptions
) -> tuple[TrainingConfig, set[str]]:
    """The configuration with the given settings, and their names.

    Raises:
        TrainingError: If there is no such configuration or setting, one is given twice, or has no
            such value.
    """
    config = _find_configuration(name)
    if settings.center:
        if settings.optimizer not in (None, "MirrorAdam"):
            raise TrainingError(
                f"--center and --optimizer {settings.optimizer} are given, but --center trains by"
                " MirrorAdam: leave out one of the two"
            )
        config = center_configuration(config)
    changes = _read_settings(seed, settings)
    given = [text.partition("=")[0] for text in assignments]
    if settings.optimizer is not None and settings.optimizer != config.optimizer.name:
        config = _change_optimizer(config, settings, "optimizer.lr" in given)
    for text in assignments:
        setting, value = parse_override(text)
        if setting in changes:
            raise TrainingError(f"{setting} is given twice: leave out one of the two")
        changes[setting] = value
    config = override(config, changes)
    for option in ("text_column", "label_column", "test_data", "vocabulary"):
        is_given = changes.get(NAMES[option]) not in (None, "wordpiece")
        if is_given and not Path(config.data.name).is_file() and not _is_misspelt(config):
            raise TrainingError(
                f"--{option.replace('_', '-')} is for a file of your own, but the data is"
                f" {config.data.name}: leave it out, or give --data"
            )
    return config, set(changes)


def _is_misspelt(config: TrainingConfig) -> bool:
    """Whether the data is nothing at all, as loading it says."""
    return is_own(config) and not Path(config.data.name).exists()


def refuse_others(
    configuration: str | None,
    seed: int | None,
    assignments: tuple[str, ...],
    settings: SettingOptions,
    out: Path | None,
    overwrite: bool,
) -> None:
    """With --resume the folder says what is trained: only --epochs may change it.

    Raises:
        TrainingError: If something else is given.
    """
    others: dict[str, Any] = {
        "CONFIGURATION": configuration,
        "--seed": seed,
        "--set": assignments or None,
        "--out": out,
        "--overwrite": overwrite or None,
    }
    for item in fields(settings):
        value = getattr(settings, item.name)
        if item.name != "epochs" and value is not False:
            others[f"--{item.name.replace('_', '-')}"] = value
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise TrainingError(
            f"{' and '.join(given)} and --resume are given, but the folder says what is trained:"
            " leave out one or the other"
        )


def read_kept_config(folder: Path, epochs: int | None) -> TrainingConfig:
    """What is trained in a folder, with more epochs if they are given."""
    from mirrormargin.training.folder import TrainingFolder

    trained = TrainingFolder(folder)
    config = trained.read_config()
    trained.refuse_shrunk()
    if epochs is None:
        return config
    if epochs < config.epochs:
        raise TrainingError(
            f"--epochs is {epochs}, but {folder} is a training of {config.epochs} epochs: give as"
            " many or more, or leave it out"
        )
    return override(config, {"epochs": epochs})


def _find_configuration(name: str) -> TrainingConfig:
    if name in GENERATORS or name.endswith((".npz", ".json")):
        raise TrainingError(
            f"{name} is a problem of the lab: train it with mirrormargin lab train {name}"
        )
    return find_configuration(name)


def _read_settings(seed: int | None, settings: SettingOptions) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if seed is not None:
        changes = dict.fromkeys(("seeds.init", "seeds.order", "seeds.dropout"), seed)
    if settings.groups is not None and settings.sparsity is None:
        raise TrainingError(
            f"--groups {settings.groups} says what --sparsity removes: add --sparsity, such as"
            " --sparsity 0.5"
        )
    for item in fields(settings):
        value = getattr(settings, item.name)
        if value is not None and value is not False and item.name != "groups":
            if item.name in ("data", "test_data"):
                value = _find_path(value, item.name)
            if item.name == "sparsity":
                value = {"kind": "Schedule", "share": value, "groups": settings.groups}
            changes[NAMES.get(item.name, item.name)] = value
    return changes


def _find_path(data: Path, name: str) -> str:
    """The absolute path of your own data, so that results do not depend on the working folder.

    Raises:
        DataError: If it is a path where nothing is, or a file that is none of texts.
    """
    from mirrormargin.data import DATA_SETS
    from mirrormargin.data.text_files import find_format

    path, option = data.expanduser(), f"--{name.replace('_', '-')}"
    if name == "data" and str(data) in DATA_SETS:
        return str(data)
    if path.is_file() and find_format(path) is None:
        raise DataError(f"{option} is {data}: give .csv, .tsv or .jsonl (also .gz, .xz)")
    if path.exists():
        return str(path.resolve())
    if name == "test_data" or path.suffix or len(path.parts) > 1:
        raise DataError(f"{option}: the file {data} does not exist")
    return str(data)  # a misspelt data set, as loading it says


def _change_optimizer(
    config: TrainingConfig, settings: SettingOptions, is_rate_set: bool
) -> TrainingConfig:
    """Another optimizer with its own defaults: options of the configuration's mean nothing to it.

    Raises:
        TrainingError: If it needs a learning rate of its own.
    """
    name = settings.optimizer
    is_alike = {name, config.optimizer.name} <= set(ADAPTIVE)
    if not is_alike and settings.lr is None and not is_rate_set:
        raise TrainingError(
            f"--optimizer {name} needs a learning rate: add --lr, for that of {config.name}"
            f"{' with --center' * config.optimizer.center}, {config.optimizer.lr:g}, is for"
            f" {config.optimizer.name}"
        )
    return override(
        config,
        {
            "optimizer.p": config.optimizer.p if name in WITH_EXPONENT else 2.0,
            "optimizer.momentum": 0.0,
            "optimizer.weight_decay": WEIGHT_DECAY.get(str(name), 0.0),
            "optimizer.scale": None,
            "optimizer.step_rule": "constant",
            "optimizer.max_lr": None,
            "optimizer.center": False,
            "optimizer.beta2": config.optimizer.beta2 if is_alike else None,
            "optimizer.groups": [],
        },
    )


def make_trackers(names: Sequence[TrackerName]) -> list[Tracker]:
    """A tracker for each name, or one if it is given twice.

    Raises:
        MirrorMarginError: If the library of one is not installed.
    """
    trackers: list[Tracker] = []
    for name in dict.fromkeys(names):
        if name == "tensorboard":
            from mirrormargin.training.trackers import TensorBoardTracker

            trackers.append(TensorBoardTracker())
        elif name == "mlflow":
            from mirrormargin.integrations.mlflow import MLflowTracker

            trackers.append(MLflowTracker())
        else:
            from mirrormargin.integrations.wandb import WandbTracker

            trackers.append(WandbTracker())
    return trackers
