"""``mirrormargin evaluate``: how often a trained model is right, on its data or on a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.options import DataFolder, Download, Json, Quiet, show_examples
from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.errors import TrainingError

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training import TrainingFolder

__all__ = [
    "Trained",
    "Weights",
    "app",
    "check_weights",
    "describe_weights",
    "evaluate",
    "load_unchanged_data",
]

# The arguments of all commands that use a trained model.
Trained = Annotated[Path, Parameter(help="Where mirrormargin train worked.")]
Weights = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="selected, of the best epoch on validation data; final, of the last; or a file that"
        " mirrormargin prune wrote.",
    ),
]

app = App(
    name="evaluate",
    **show_examples(
        (
            ("evaluate runs/imdb", "on the validation data of the training"),
            ("evaluate runs/imdb --split test", "on its test data"),
            ("evaluate runs/imdb --data more.csv", "on a labelled file of your own"),
            (
                "evaluate runs/imdb --weights runs/imdb/pruned-0.95.safetensors",
                "a pruned model",
            ),
        )
    ),
)


@app.default
def evaluate(
    folder: Trained,
    /,
    *,
    split: Literal["validation", "test"] | None = None,
    data: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    text_column: Annotated[str | None, Parameter(metavar="NAME")] = None,
    label_column: Annotated[str | None, Parameter(metavar="NAME")] = None,
    weights: Weights = "selected",
    data_dir: DataFolder | None = None,
    download: Download = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure the loss and the accuracy of a trained model.

    Args:
        split: Part of the data that was trained on. [default: validation]
        data: Labelled data instead: a file .jsonl, .csv or .tsv of texts, or a folder with a folder
            of images for each class.
        text_column: In that file. [default: as in training]
        label_column: In that file. [default: as in training]
    """
    from mirrormargin import training

    trained = training.TrainingFolder(folder)
    check_weights(trained, weights)
    if data is None:
        if text_column is not None or label_column is not None:
            raise TrainingError("--text-column and --label-column are for --data: leave them out")
        whole = load_unchanged_data(trained, data_dir, download)
        form, name, split = whole, whole.name, split or "validation"
        part = whole.validation if split == "validation" else whole.test
    else:
        if split is not None:
            raise TrainingError("--split and --data are both given: leave out one of the two")
        from mirrormargin.data import encode_labelled

        form, name, known = trained.read_inputs(), str(data), trained.read_config().data
        part = encode_labelled(
            data, form, text_column or known.text_column, label_column or known.label_column
        )
    loss, accuracy = training.evaluate(training.load_model(folder, form, weights), part)
    if json:
        print_json(
            {
                "folder": str(folder),
                "weights": weights,
                "data": name,
                "split": split,
                "examples": len(part),
                "loss": loss,
                "accuracy": accuracy,
            }
        )
        return 0
    where = f"{name}, {split}" if data is None else name
    row = [f"{accuracy:.2f}%", f"{loss:.4f}", f"{len(part):,}", where]
    print_table(["accuracy", "loss", "examples", "data"], [row])
    if not quiet:
        say(f"\n{describe_weights(weights)}")
    return 0


def check_weights(folder: TrainingFolder, weights: str) -> None:
    """Make sure that something was trained, to its end, and that there are such weights.

    Raises:
        TrainingError: If not.
    """
    folder.read_config()
    is_own = weights in ("selected", "final")
    folder.find_weights(weights if is_own else "final")
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


def load_unchanged_data(folder: TrainingFolder, data_dir: Path | None, download: bool) -> DataSet:
    """What the model of a folder was trained on.

    Raises:
        TrainingError: If its files are not the same any more.
    """
    from mirrormargin.training.building import load_training_data

    data = load_training_data(folder.read_config(), data_dir=data_dir, download=download)
    if not folder.knows(data):
        raise TrainingError(
            f"the files of {data.name} have changed since this training: its model may have learnt"
            " what is now held out, and read words by other numbers; bring them back"
        )
    return data
