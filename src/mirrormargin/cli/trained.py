"""The folder of a training on real data that has ended, for commands that go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.real_training import read_document
from mirrormargin.errors import TrainingError

if TYPE_CHECKING:
    from mirrormargin.training.config import TrainingConfig

__all__ = ["add_training", "find_weights", "read_training"]


def add_training(parser: Any) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of mirrormargin train")


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
