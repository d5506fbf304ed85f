"""The folder of a training on real data that has ended, for commands that go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.training.folder import TrainingFolder

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
    return TrainingFolder(folder).read_config()


def find_weights(folder: Path, name: str) -> Path:
    """The file of the ``final`` or ``selected`` weights.

    Raises:
        TrainingError: If the training has not ended.
    """
    return TrainingFolder(folder).find_weights(name)
