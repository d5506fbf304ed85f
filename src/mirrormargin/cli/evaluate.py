"""``mirrormargin evaluate``: how often is a trained model right, how well does it predict text?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.language_models import print_evaluation, refuse_class_options
from mirrormargin.cli.options import DataFolder, Download, Json, Quiet, show_examples
from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.cli.trained_model import (
    Trained,
    Weights,
    describe_weights,
    find_weights,
    load_asked,
    load_unchanged_data,
)
from mirrormargin.errors import TrainingError

__all__ = ["app", "evaluate"]

app = App(
    name="evaluate",
    **show_examples(
        (
            ("evaluate runs/imdb", "on the validation data of the training"),
            ("evaluate runs/imdb --split test", "on its test data"),
            ("evaluate runs/imdb --data more.csv.gz", "on a labelled file of your own"),
            ("evaluate runs/shakespeare --data hamlet.txt", "the loss and perplexity of a text"),
            (
                "evaluate runs/imdb --weights runs/imdb/pruned-0.95.safetensors",
                "a pruned model",
            ),
            ("evaluate runs/sst2 --delta a.safetensors b.safetensors", "a base with deltas"),
        )
    ),
)


@app.default
def evaluate(
    folder: Trained,
    /,
    *,
    split: Literal["validation", "test", "train"] | None = None,
    data: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    text_column: Annotated[str | None, Parameter(metavar="NAME")] = None,
    label_column: Annotated[str | None, Parameter(metavar="NAME")] = None,
    weights: Weights = "selected",
    delta: Annotated[
        tuple[Path, ...],
        Parameter(metavar="FILE", consume_multiple=True),
    ] = (),
    data_dir: DataFolder | None = None,
    download: Download = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure the loss and the accuracy of a trained model, the perplexity of a language model.

    Args:
        split: Which part of the data of the training. [default: validation]
        data: Labelled data instead: a file .jsonl, .csv or .tsv of texts, plain or with .gz or .xz,
            or a folder with a folder of images for each class. For a language model, any text.
        text_column: Column of the texts in that file. [default: as in training]
        label_column: Column of the labels in that file. [default: as in training]
        delta: Measure the pretrained model with the changes in each of these files, which
            mirrormargin delta wrote, instead of the weights of the training.
    """
    from mirrormargin import training
    from mirrormargin.data.language_sets import read_text, thin_windows

    trained = training.TrainingFolder(folder)
    weights = find_weights(trained, weights)
    num_empty = 0
    if data is None:
        if text_column is not None or label_column is not None:
            raise TrainingError("--text-column and --label-column are for --data: leave them out")
        whole = load_unchanged_data(trained, data_dir, download)
        form, name, split = whole, whole.name, split or "validation"
        part = {"validation": whole.validation, "test": whole.test, "train": whole.train}[split]
        if whole.kind == "language" and split == "train":
            part = thin_windows(part)
        if not len(part):
            raise TrainingError(f"{name} has no {split} part: leave out --split, or give another")
    else:
        if split is not None:
            raise TrainingError("--split and --data are both given: leave out one of the two")
        from mirrormargin.data import encode_labelled
        from mirrormargin.data.text_files import number_labelled_texts

        form, name, known = trained.read_inputs(), str(data), trained.read_config().data
        columns = text_column or known.text_column, label_column or known.label_column
        is_text = form.kind == "language"
        if is_text:
            given = {"--text-column": text_column, "--label-column": label_column}
            refuse_class_options(given)
        part = read_text(data, form) if is_text else encode_labelled(data, form, *columns)
        if form.kind == "text":
            num_empty = sum(not text for _, text, _ in number_labelled_texts(data, *columns))
    files: list[Path | None] = [*delta] or [None]
    measured = [training.evaluate(load_asked(trained, form, weights, one), part) for one in files]
    found = measured[0]
    loss, accuracy = found
    short = Path(name).name if os.path.isabs(name) else name
    where = f"{short}, {split}" if data is None else name
    if form.kind == "language":
        report = {"folder": str(folder), "weights": weights, "data": name, "split": split}
        print_evaluation(loss, accuracy, part, report, json=json, where=where)
        if not (json or quiet):
            say(f"\n{describe_weights(folder, weights)}")
        return 0
    task = trained.read_config().task
    more = [name for name in task.measures if name not in ("accuracy", "loss")]
    rows, reports = [], []
    for file, one in zip(files, measured, strict=True):
        others = {name: getattr(one, name) for name in more}
        label = [] if file is None else [file.name]
        shown = [task.format_measure(name, value) for name, value in others.items()]
        cells = [f"{one.accuracy:.2f}%", *shown, f"{one.loss:.4f}", f"{len(part):,}", where]
        rows.append([*label, *cells])
        reports.append({"loss": one.loss, "accuracy": one.accuracy, **others})
    if json:
        known = {
            "folder": str(folder),
            "weights": weights,
            "data": name,
            "split": split,
            "examples": len(part),
            "empty": num_empty,
        }
        if delta:
            of_files = zip(delta, reports, strict=True)
            print_json(known | {"deltas": [{"file": str(f), **one} for f, one in of_files]})
        else:
            print_json(known | reports[0])
        return 0
    header = ["accuracy", *more, "loss", "examples", "data"]
    print_table([*["delta"] * bool(delta), *header], rows)
    if not quiet:
        base = "by the pretrained model with the changes in each file"
        say(f"\n{base if delta else describe_weights(folder, weights)}")
        if num_empty:
            say(f"left out: {num_empty:,} without a text")
    return 0
