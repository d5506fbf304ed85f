"""``mirrormargin delta``: the few changes of a fine-tuning that matter, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.options import (
    DataFolder,
    Download,
    FileOut,
    Json,
    Number,
    Overwrite,
    Positive,
    Quiet,
    Share,
    show_examples,
)
from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.cli.trained_model import (
    Trained,
    Weights,
    describe_weights,
    find_weights,
    load_unchanged_data,
)
from mirrormargin.errors import RunError, TrainingError

if TYPE_CHECKING:
    from torch import nn

    from mirrormargin.data.dataset import Split
    from mirrormargin.training import TrainingFolder
    from mirrormargin.training.tasks import Task

__all__ = ["app", "delta"]

FILES = """\
A delta holds the largest differences between the fine-tuned and the pretrained
weights, and the head. Use it with predict --delta and evaluate --delta, or in
Python: mirrormargin.SparseDelta.load(file).apply(model).
"""

app = App(
    name="delta",
    **show_examples(
        (
            ("train sst2/minilm --center --out runs/sst2", "a training that changes few weights"),
            ("delta runs/sst2 --keep 2000 --evaluate", "its 2,000 largest changes"),
            ("delta runs/sst2 --tolerance 0.5", "as few as cost half a point on validation data"),
            ("evaluate runs/sst2 --delta runs/sst2/delta-2000.safetensors", "the base and a delta"),
        ),
        more=FILES,
    ),
)


@app.default
def delta(
    folder: Trained,
    /,
    *,
    keep: Positive | None = None,
    share: Share | None = None,
    tolerance: Annotated[Number | None, Parameter(metavar="POINTS")] = None,
    weights: Weights = "selected",
    evaluate: bool = False,
    split: Literal["validation", "test"] | None = None,
    data_dir: DataFolder | None = None,
    download: Download = False,
    out: FileOut | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write the largest changes that a fine-tuning has made to a small file.

    Give one of --keep, --share and --tolerance.

    Args:
        keep: How many changes are kept, of all tensors together.
        share: How many of all weights of the encoder, as a share.
        tolerance: Keep as few as cost at most so many points on validation data.
        evaluate: Measure the model with all changes, and the base with those in the file.
        split: What --evaluate measures on. [default: validation]
        out: Where to write it. [default: in FOLDER, named by the number]
    """
    if sum(one is not None for one in (keep, share, tolerance)) != 1:
        raise TrainingError(
            "give one of --keep NUMBER, --share SHARE and --tolerance POINTS, such as --keep 2000"
        )
    if split is not None and not evaluate:
        raise TrainingError("--split is for --evaluate: add it, or leave out --split")
    from mirrormargin import training
    from mirrormargin.training.fine_tuning import apply_delta, extract_delta, read_fine_tuning

    trained = training.TrainingFolder(folder)
    config, weights = read_fine_tuning(trained), find_weights(trained, weights)
    if out is not None:  # before what takes long
        _check_file(trained, out, overwrite)
    task, split = config.task, split or "validation"
    needs_data = evaluate or tolerance is not None
    data = load_unchanged_data(trained, data_dir, download) if needs_data else None
    part = None
    if evaluate and data is not None:
        part = data.validation if split == "validation" else data.test
        if not len(part):
            raise TrainingError(f"{data.name} has no {split} part: leave out --split")
    score = None
    if tolerance is not None and data is not None:
        validation = data.validation
        score = lambda model: _measure(model, validation, task)[task.measure]  # noqa: E731
    found = extract_delta(
        trained, weights=weights, keep=keep, share=share, tolerance=tolerance, evaluate=score
    )
    file = out or trained.name_delta(found.num_values)
    _check_file(trained, file, overwrite)
    report: dict[str, Any] = {
        "folder": str(folder),
        "configuration": config.name,
        "weights": weights,
        "file": str(file),
        "numbers": found.num_values,
        "of": found.space.size,
        "bytes_written": found.save(file),
        "bytes_per_number": round(found.bytes_per_value, 3),
    }
    if part is not None:
        report["split"] = split
        report["all"] = _measure(training.load_model(folder, weights=weights), part, task)
        report["kept"] = _measure(apply_delta(folder, file), part, task)
    print_json(report) if json else _print(report, task, quiet)
    return 0


def _check_file(folder: TrainingFolder, file: Path, overwrite: bool) -> None:
    """Raise unless the file can be written, and nothing is lost by that."""
    from mirrormargin.runs import check_writable

    if folder.owns(file):
        raise RunError(f"{file} belongs to the training itself: choose another name with --out")
    if file.exists() and not overwrite:
        raise RunError(
            f"{file} exists already: add --overwrite to replace it, or choose another name with"
            " --out"
        )
    check_writable(file)


def _measure(model: nn.Module, part: Split, task: Task) -> dict[str, float]:
    """All that the task measures, and what it is judged by."""
    from mirrormargin.training import evaluate

    found = evaluate(model, part)
    return {name: round(float(getattr(found, name)), 4) for name in task.measures}


def _print(report: dict[str, Any], task: Task, quiet: bool) -> None:
    say(
        f"{report['numbers']:,} of {report['of']:,} weights change:"
        f" {report['bytes_written']:,} bytes with the head"
    )
    if "all" in report:
        names = list(report["all"])
        rows = [
            [label, *(task.format_measure(name, report[key][name]) for name in names)]
            for label, key in (("all changes", "all"), ("those in the file", "kept"))
        ]
        print_table([report["split"], *names], rows, text_column=0)
    if not quiet:
        say(f"wrote {report['file']}")
        say(describe_weights(report["folder"], report["weights"]))
