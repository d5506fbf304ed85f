"""``mirrormargin evaluate``: how often a trained model is right, on its data or on a file."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.options import DataFolder, Download, Json, Quiet, show_examples
from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.cli.trained import (
    Trained,
    Weights,
    check_weights,
    describe_weights,
    load_unchanged_data,
    read_training,
)

__all__ = ["app", "evaluate"]

app = App(
    name="evaluate",
    **show_examples(
        (
            ("evaluate runs/imdb", "on the validation data of the training"),
            ("evaluate runs/imdb --split test", "on its test data"),
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
    split: Annotated[
        Literal["validation", "test"], Parameter(metavar="NAME", help="Part of the data.")
    ] = "validation",
    weights: Weights = "selected",
    data_dir: DataFolder | None = None,
    download: Download = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure the loss and the accuracy of a trained model."""
    config = read_training(folder)
    check_weights(folder, weights)
    from mirrormargin.training import evaluation
    from mirrormargin.training.building import load_model

    data = load_unchanged_data(folder, config, data_dir, download)
    part = data.validation if split == "validation" else data.test
    model = load_model(folder, data, weights)
    loss, accuracy = evaluation.evaluate(model, part)
    if json:
        print_json(
            {
                "folder": str(folder),
                "weights": weights,
                "data": data.name,
                "split": split,
                "examples": len(part),
                "loss": loss,
                "accuracy": accuracy,
            }
        )
        return 0
    row = [f"{accuracy:.2f}%", f"{loss:.4f}", f"{len(part):,}", f"{data.name}, {split}"]
    print_table(["accuracy", "loss", "examples", "data"], [row])
    if not quiet:
        say(f"\n{describe_weights(weights)}")
    return 0
