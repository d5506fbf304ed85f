"""A trained model as the commands that use one find it: its weights, and the data it has seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mirrormargin.errors import TrainingError

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training import TrainingFolder

__all__ = ["Trained", "Weights", "describe_weights", "find_weights", "load_unchanged_data"]

# The arguments of all commands that use a trained model.
Trained = Annotated[Path, Parameter(help="The folder of a training, from mirrormargin train.")]
Weights = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="selected, of the best epoch on validation data; final, of the last; or a file that"
        " mirrormargin prune wrote.",
    ),
]


def find_weights(folder: TrainingFolder, weights: str) -> str:
    """The name or the file of the weights, which may be named as it is in the folder.

    Raises:
        TrainingError: If the training has not ended, or there are no such weights.
    """
    folder.read_config()
    is_own = weights in ("selected", "final")
    folder.find_weights(weights if is_own else "final")
    if is_own or Path(weights).is_file():
        return weights
    inside = folder.path / weights
    if inside.is_file():
        return str(inside)
    raise TrainingError(
        f"--weights is {weights!r}, which does not exist, nor does {inside}: give selected, final,"
        " or a file of mirrormargin prune"
    )


def describe_weights(weights: str) -> str:
    """A line that says which weights were used."""
    meaning = {
        "selected": "the weights of the best epoch on validation data (selected)",
        "final": "the weights of the last epoch (final)",
    }
    return f"by {meaning.get(weights, f'the weights in {weights}')}"


def load_unchanged_data(folder: TrainingFolder, data_dir: Path | None, download: bool) -> DataSet:
    """The data that the model of a folder was trained on.

    Raises:
        TrainingError: If its files have changed.
    """
    from mirrormargin.training.building import load_training_data

    inputs = folder.read_inputs() if folder.is_finished else None
    data = load_training_data(
        folder.read_config(), data_dir=data_dir, download=download, inputs=inputs
    )
    if not folder.knows(data):
        raise TrainingError(
            f"the files of {data.name} have changed since this training: its model may have learnt"
            " what is now held out, and read words by other numbers; bring them back"
        )
    return data
