"""The folder of a training on real data that has ended, for commands that use its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mirrormargin.cli.watched_training import read_document
from mirrormargin.errors import TrainingError

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training.config import TrainingConfig

__all__ = [
    "Trained",
    "Weights",
    "check_weights",
    "describe_weights",
    "find_command",
    "find_weights",
    "load_unchanged_data",
    "read_training",
]

Trained = Annotated[Path, Parameter(help="Where mirrormargin train worked.")]
Weights = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="selected, of the best epoch on validation data; final, of the last; or a file that"
        " mirrormargin prune wrote.",
    ),
]


def read_training(folder: Path) -> TrainingConfig:
    """What was trained in a folder.

    Raises:
        TrainingError: If nothing was.
    """
    from mirrormargin.training.config import TrainingConfig

    try:
        document = read_document(folder / "config.json") if folder.is_dir() else None
    except OSError:  # a text in its place, longer than any name
        document = None
    if document is None or "config" not in document:
        raise TrainingError(
            f"{folder} holds no training on real data: give a folder that mirrormargin train wrote,"
            " such as that of mirrormargin train digits/tiny"
        )
    return TrainingConfig.from_dict(document["config"])


def find_command(folder: Path) -> str | None:
    """The command that trained in a folder, None if nothing was trained there on real data."""
    document = read_document(folder / "config.json")
    if document is None or "config" not in document:
        return None
    from mirrormargin.training.config import TrainingConfig
    from mirrormargin.training.overrides import format_command

    return format_command(TrainingConfig.from_dict(document["config"]))


def find_weights(folder: Path, name: str) -> Path:
    """The file of the ``final`` or ``selected`` weights.

    Raises:
        TrainingError: If the training has not ended.
    """
    path = folder / f"{name}.safetensors"
    if not path.exists():
        raise TrainingError(
            f"{path} does not exist, for the training has not ended: resume it with"
            " mirrormargin train"
        )
    return path


def check_weights(folder: Path, weights: str) -> None:
    """Raise unless the training has ended and there are such weights.

    Raises:
        TrainingError: If not.
    """
    is_own = weights in ("selected", "final")
    find_weights(folder, weights if is_own else "final")
    if not is_own and not Path(weights).is_file():
        raise TrainingError(
            f"--weights is {weights!r}: give selected, final, or a file of mirrormargin prune"
        )


def describe_weights(weights: str) -> str:
    """A line that names them."""
    meaning = {
        "selected": "the weights of the best epoch on validation data (selected)",
        "final": "the weights of the last epoch (final)",
    }
    return f"by {meaning.get(weights, f'the weights in {weights}')}"


def load_unchanged_data(
    folder: Path, config: TrainingConfig, data_dir: Path | None, download: bool
) -> DataSet:
    """What the model of a folder was trained on.

    Raises:
        TrainingError: If its files are not the same any more.
    """
    from mirrormargin.training.building import load_training_data

    data = load_training_data(config, data_dir=data_dir, download=download)
    document = read_document(folder / "config.json") or {}
    if document.get("data", {}).get("sha256", data.sha256) != data.sha256:
        raise TrainingError(
            f"the files of {data.name} have changed since this training: its model may have learnt"
            " what is now held out, and read words by other numbers; bring them back"
        )
    return data
