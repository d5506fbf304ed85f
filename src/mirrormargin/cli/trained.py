"""The folder of a training on real data that has ended, for commands that go on from it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.real_training import read_document
from mirrormargin.errors import TrainingError

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training.config import TrainingConfig

__all__ = ["add_training", "find_weights", "load_trained_data", "read_training"]


def add_training(parser: Any) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of mirrormargin train")
    parser.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="where data is (default: MIRRORMARGIN_DATA)"
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch the data that it was trained on, if absent"
    )


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


def find_weights(folder: Path, name: str) -> Path:
    """The file of the ``final`` or ``selected`` weights.

    Raises:
        TrainingError: If the training has not ended.
    """
    path = folder / f"{name}.safetensors"
    if not path.exists():
        raise TrainingError(
            f"{path} does not exist, for the training has not ended: go on with mirrormargin train"
        )
    return path


def load_trained_data(arguments: argparse.Namespace, config: TrainingConfig) -> DataSet:
    """What the model was trained on.

    Raises:
        TrainingError: If its files are not the same any more.
    """
    from mirrormargin.training.building import load_training_data

    data = load_training_data(config, data_dir=arguments.data_dir, download=arguments.download)
    document = read_document(arguments.folder / "config.json") or {}
    if document.get("data", {}).get("sha256", data.sha256) != data.sha256:
        raise TrainingError(
            f"the files of {data.name} have changed since this training: its model may have learnt"
            " what is now held out, and read words by other numbers; bring them back"
        )
    return data
