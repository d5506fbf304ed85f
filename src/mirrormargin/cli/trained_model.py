"""A trained model as the commands that use one find it: its weights, and the data it has seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mirrormargin.errors import TrainingError

if TYPE_CHECKING:
    from torch import nn

    from mirrormargin.data import DataSet, InputForm
    from mirrormargin.training import TrainingFolder

__all__ = [
    "DeltaFile",
    "Trained",
    "Weights",
    "describe_weights",
    "find_weights",
    "load_asked",
    "load_unchanged_data",
]

# The arguments of all commands that use a trained model.
Trained = Annotated[
    Path,
    Parameter(help="The folder of a training, from mirrormargin train, or of a shrunk model."),
]
Weights = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="selected, of the best epoch on validation data; final, of the last; or a file that"
        " mirrormargin prune wrote.",
    ),
]
DeltaFile = Annotated[
    Path,
    Parameter(
        metavar="FILE",
        help="Use the pretrained model with the changes that mirrormargin delta wrote, instead of"
        " the weights of the training.",
    ),
]


def load_asked(
    folder: TrainingFolder, form: InputForm, weights: str, delta: Path | None
) -> nn.Module:
    """The model with the weights, or the base with the delta, that a command was given.

    Raises:
        TrainingError: If both are given.
    """
    from mirrormargin.training import load_model

    if delta is None:
        return load_model(folder, form, weights)
    if weights != "selected":
        raise TrainingError("--weights and --delta are both given: leave out one of the two")
    from mirrormargin.training.fine_tuning import apply_delta

    return apply_delta(folder, delta)


def find_weights(folder: TrainingFolder, weights: str) -> str:
    """The name or the file of the weights, which may be named as it is in the folder.

    Raises:
        TrainingError: If the training has not ended, or there are no such weights.
    """
    folder.read_config()
    is_own = weights in ("selected", "final")
    folder.find_weights(weights if is_own else "selected")
    if is_own or Path(weights).is_file():
        return weights
    inside = folder.path / weights
    if inside.is_file():
        return str(inside)
    raise TrainingError(
        f"--weights is {weights!r}, which does not exist, nor does {inside}: give selected, final,"
        " or a file of mirrormargin prune"
    )


def describe_weights(folder: str | Path, weights: str, delta: Path | None = None) -> str:
    """A line that says which weights of a folder were used."""
    from mirrormargin.training import TrainingFolder

    if delta is not None:
        return f"by the pretrained model with the changes in {delta}"
    meaning = {
        "selected": "the weights of the best epoch on validation data (selected)",
        "final": "the weights of the last epoch (final)",
    }
    origin = TrainingFolder(folder).shrunk_from
    if origin is not None and weights in meaning:
        return f"by a model that was shrunk from {origin}"
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
