"""``mirrormargin prune``: a training's model without its smallest weights, as a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.options import add_output, add_report, describe, read_number
from mirrormargin.cli.trained import add_training, read_training
from mirrormargin.errors import RunError, TrainingError
from mirrormargin.training.folder import PRUNED, TrainingFolder

if TYPE_CHECKING:
    from torch import Tensor

    from mirrormargin.data import DataSet
    from mirrormargin.training.config import TrainingConfig

__all__ = ["add_parser", "run"]

MORE = """\
formats:
  safetensors   each tensor as it is, zeros included; other tools read it
  sparse        matrices as compressed sparse rows, in a safetensors file whose metadata says how;
                mirrormargin.training.tensor_files.load_pruned gives them back dense
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "prune",
        help="remove the smallest weights of a model trained on real data",
        description="Write a trained model with its smallest weights set to zero. Nothing is"
        " trained afterwards.",
        **describe(
            [
                ("prune runs/imdb --share 0.95 --format sparse", "5% of the block matrices stay"),
                ("prune runs/imdb --share 0.9 --evaluate", "and what that costs"),
                ("prune runs/imdb --share 0.5 --matrices 'query|key'", "only some matrices"),
            ],
            more=MORE,
        ),
    )
    add_training(parser)
    parser.add_argument(
        "--share",
        type=read_number,
        required=True,
        metavar="SHARE",
        help="of the entries to remove, between 0 and 1",
    )
    parser.add_argument(
        "--matrices",
        default="blocks",
        metavar="NAME",
        help="blocks, attention (keys, queries and values), or a regular expression for names such"
        " as blocks.0.query.weight (default: blocks)",
    )
    parser.add_argument(
        "--ranking",
        choices=("global", "matrix"),
        default="global",
        help="remove the smallest entries of all matrices, or the same share of each (default:"
        " global)",
    )
    parser.add_argument(
        "--weights",
        choices=("final", "selected"),
        default="final",
        help="those of the last epoch, or of the best on validation data (default: final)",
    )
    parser.add_argument("--format", choices=tuple(PRUNED), default="safetensors", help="see below")
    parser.add_argument(
        "--evaluate", action="store_true", help="measure the accuracy on validation data"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="where data is (default: MIRRORMARGIN_DATA)"
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch the data that it was trained on, if absent"
    )
    add_output(
        parser, "(default: in FOLDER, named by the share)", metavar="FILE", overwrite="a file"
    )
    add_report(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prune, write, read back if it is to be evaluated, and say what it came to."""
    if not 0 < arguments.share < 1:
        raise TrainingError(
            f"--share is {arguments.share:g}: give a number between 0 and 1, such as 0.95"
        )
    config = read_training(arguments.folder)
    out = _find_place(arguments)
    from mirrormargin.training.pruning import prune
    from mirrormargin.training.sparsity import select_matrices
    from mirrormargin.training.tensor_files import measure_file_sizes, save_pruned

    state, _ = TrainingFolder(arguments.folder).read_weights(arguments.weights)
    chosen = select_matrices(state, arguments.matrices)
    report: dict[str, Any] = {
        "folder": str(arguments.folder),
        "weights": arguments.weights,
        "file": str(out),
        "share": arguments.share,
        "matrices": list(chosen),
        "entries": sum(weight.numel() for weight in chosen.values()),
        "zeros_before": sum(int((weight == 0).sum()) for weight in chosen.values()),
        "bytes_before": measure_file_sizes(state)._asdict(),
    }
    original = (
        {name: tensor.clone() for name, tensor in state.items()} if arguments.evaluate else {}
    )
    report["zeros"] = prune(state, arguments.share, arguments.matrices, arguments.ranking)
    report["bytes"] = measure_file_sizes(state)._asdict()
    data = None
    if arguments.evaluate:
        data = _load_data(arguments, config)
    report["bytes_written"] = save_pruned(state, out, arguments.format)
    if data is not None:
        report["accuracy"] = _evaluate(config, data, original, out)
    _print(report, arguments)
    return 0


def _load_data(arguments: argparse.Namespace, config: TrainingConfig) -> DataSet:
    """What the model was trained on.

    Raises:
        TrainingError: If its files are not the same any more.
    """
    from mirrormargin.training.building import load_training_data

    data = load_training_data(config, data_dir=arguments.data_dir, download=arguments.download)
    if not TrainingFolder(arguments.folder).knows(data):
        raise TrainingError(
            f"the files of {data.name} have changed since this training: its model may have learnt"
            " what is now held out, and read words by other numbers; bring them back"
        )
    return data


def _find_place(arguments: argparse.Namespace) -> Path:
    from mirrormargin.cli.destination import check_writable

    folder = TrainingFolder(arguments.folder)
    out: Path = arguments.out or folder.name_pruned(arguments.share, arguments.format)
    if folder.owns(out):
        raise RunError(f"{out} belongs to the training itself: choose another name with --out")
    check_writable(out)
    if not out.parent.is_dir():
        raise RunError(f"{out} cannot be written: there is no folder {out.parent}, make it first")
    if out.exists() and not arguments.overwrite:
        raise RunError(f"{out} exists already: add --overwrite to replace it, or choose another")
    return out


def _evaluate(
    config: TrainingConfig, data: DataSet, original: dict[str, Tensor], out: Path
) -> dict[str, float]:
    """Accuracy on validation data before, and of the file that was written."""
    from mirrormargin.training.building import build_model
    from mirrormargin.training.evaluation import evaluate
    from mirrormargin.training.tensor_files import load_pruned

    model = build_model(config, data)
    accuracy = {}
    for name, state in (("before", original), ("after", load_pruned(out))):
        model.load_state_dict(state)
        accuracy[name] = round(evaluate(model, data.validation)[1], 4)
    return accuracy


def _print(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    from mirrormargin.cli.tables import print_json, print_table

    if arguments.json:
        print_json(report)
        return
    entries, zeros, before = report["entries"], report["zeros"], report["zeros_before"]
    print(
        f"{zeros:,} of {entries:,} entries of {len(report['matrices'])} matrices are zero"
        f" ({zeros / entries:.2%}); {zeros - before:,} of them were not before"
    )
    accuracy = report.get("accuracy", {})
    rows = []
    for name, sizes in (("before", report["bytes_before"]), ("after", report["bytes"])):
        cells = [f"{sizes['dense']:,}", f"{sizes['sparse']:,}"]
        cells += [f"{accuracy[name]:.2f}%"] if accuracy else []
        rows.append([*cells, name])
    names = ["dense bytes", "sparse bytes", *["validation"] * bool(accuracy)]
    print_table([*names, "pruning"], rows)
    if not arguments.quiet:
        print(f"wrote {report['file']}, {report['bytes_written']:,} bytes")
