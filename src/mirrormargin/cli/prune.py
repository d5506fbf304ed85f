"""``mirrormargin prune``: a training's model without its smallest weights, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.options import (
    Count,
    DataFolder,
    Download,
    FileOut,
    Json,
    Overwrite,
    Positive,
    Quiet,
    Share,
    show_examples,
)
from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.cli.trained_model import Trained, describe_weights, load_unchanged_data
from mirrormargin.cli.training_summary import describe_failure
from mirrormargin.errors import ModelError, RunError, TrainingError
from mirrormargin.training.tasks import LANGUAGE, Task, read_task

if TYPE_CHECKING:
    from torch import Tensor

    from mirrormargin.data import DataSet
    from mirrormargin.training import TrainingConfig, TrainingFolder

__all__ = ["app", "find_share", "prune"]

FORMATS = """\
formats:
  safetensors   each tensor as it is, zeros included; other tools read it
  sparse        matrices as compressed sparse rows, in a safetensors file whose
                metadata says how; mirrormargin.training.load_pruned
                gives them back dense
"""

app = App(
    name="prune",
    **show_examples(
        (
            ("prune runs/imdb --share 0.95 --format sparse", "5% of the block matrices stay"),
            ("prune runs/imdb --share 0.9 --evaluate", "and what that costs"),
            ("prune runs/imdb --share 0.5 --matrices 'query|key'", "only some matrices"),
            ("prune runs/imdb --share 0.5 --matrices all", "embeddings and the head too"),
            ("prune runs/imdb --share 0.5 --criterion wanda", "by the inputs of weights as well"),
        ),
        more=FORMATS,
    ),
)


@app.default
def prune(
    folder: Trained,
    /,
    *,
    share: Share | None = None,
    matrices: Annotated[str, Parameter(metavar="NAME")] = "blocks",
    criterion: Literal["magnitude", "wanda"] = "magnitude",
    ranking: Literal["global", "matrix", "row"] | None = None,
    calibration: Positive | None = None,
    seed: Count | None = None,
    weights: Literal["selected", "final"] = "selected",
    format: Literal["safetensors", "sparse"] = "safetensors",
    evaluate: bool = False,
    data_dir: DataFolder | None = None,
    download: Download = False,
    out: FileOut | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Set the smallest weights of a trained model to zero.

    The matrices of the blocks are pruned; embeddings and the head stay as they are, unless
    --matrices says otherwise. The result is written to a file. Nothing is trained again.

    Args:
        share: Share of the entries to remove, between 0 and 1; without it, the message says which
            one this model stands.
        matrices: blocks (attention and perceptrons), attention (keys, queries and values), all
            (embeddings, positions and the head too), or a regular expression for names such as
            blocks.0.query.weight.
        criterion: What is smallest: magnitude, |w|; or wanda, |w| times the norm of the input that
            the weight meets, over examples of the training data (Sun et al., 2023).
        ranking: Remove the smallest entries of all matrices, the same share of each, or the same
            share of each row. [default: global; row with wanda]
        calibration: How many training examples wanda sees. [default: 128]
        seed: Of the draw of these examples. [default: 0]
        weights: selected, of the best epoch on validation data; or final, of the last.
        format: See below.
        evaluate: Measure the accuracy, or the loss of a language model, on validation data before
            and after.
        out: Where to write it. [default: in FOLDER, named by the share]
    """
    if share is not None and not 0 < share < 1:
        raise TrainingError(f"--share is {share:g}: give a number between 0 and 1, such as 0.95")
    for name, value in (("--calibration", calibration), ("--seed", seed)):
        if criterion == "magnitude" and value is not None:
            raise TrainingError(f"{name} is for --criterion wanda: leave it out, or add that")
    from mirrormargin.training import TrainingFolder

    trained = TrainingFolder(folder)
    trained.read_config()
    if share is None:
        raise TrainingError(f"--share is missing: {_suggest_share(trained, weights)}")
    file = _check_file(trained, out or trained.name_pruned(share, format))
    from mirrormargin.training import pruning
    from mirrormargin.training.building import build_model
    from mirrormargin.training.input_norms import NUM_EXAMPLES, draw_calibration, measure_inputs
    from mirrormargin.training.tensor_files import measure_file_sizes, save_pruned

    state, config = trained.read_weights(weights)
    report: dict[str, Any] = {
        "folder": str(folder),
        "weights": weights,
        "file": str(file),
        "share": share,
        "criterion": criterion,
        **_describe_choice(state, matrices),
        "bytes_before": measure_file_sizes(state)._asdict(),
    }
    needs_data = evaluate or criterion == "wanda"
    data = load_unchanged_data(trained, data_dir, download) if needs_data else None
    original = {name: tensor.clone() for name, tensor in state.items()} if evaluate else {}
    norms = None
    if data is not None and criterion == "wanda":
        examples = draw_calibration(data.train, calibration or NUM_EXAMPLES, seed or 0)
        report |= {"calibration": len(examples), "seed": seed or 0}
        model = build_model(config, data, trained.read_architecture())
        model.load_state_dict(state)
        norms = measure_inputs(model, examples, matrices)
    report["zeros"] = pruning.prune(
        state, share, matrices, ranking, criterion=criterion, calibration=norms
    )
    if not overwrite:
        _refuse_loss(state, file)
    report["bytes"] = measure_file_sizes(state)._asdict()
    report["bytes_written"] = save_pruned(state, file, format)
    if data is not None and evaluate:
        report[config.task.measure] = _evaluate(trained, config, data, original, file)
    print_json(report) if json else _print(report, config.task, quiet)
    return 0


def find_share(summary: dict[str, Any]) -> tuple[float, float] | None:
    """The largest share that costs the last epoch's weights at most a point, and their accuracy.

    For a language model, at most 0.05 nats per token, and their loss.

    None if there is none, or the model has not learnt anything that pruning could lose.
    """
    if describe_failure(summary):
        return None
    task, part = read_task(summary["config"]), summary["validation"]
    pairs = zip(summary["shares"], part["frontier"]["blocks"], strict=True)
    kept = [pair for pair in pairs if task.is_kept(pair[1], part["unpruned"])]
    return max(kept, default=None)


def _suggest_share(folder: TrainingFolder, weights: str) -> str:
    """What to give, by the summary, which has pruned the weights of the last epoch."""
    summary = folder.read_summary()
    if summary is None:
        return "give the share of the weights to remove, such as 0.9"
    if failure := describe_failure(summary):
        return f"give one such as 0.9, but this model {failure[0]}"
    found, task = find_share(summary), read_task(summary["config"])
    most = "0.05 nats" if task is LANGUAGE else "a point"
    is_measured = weights == "final" or summary["selected_epoch"] == len(summary["epochs"])
    if found is None:
        whose = "this model loses" if is_measured else "the last epoch's weights lose"
        return f"{whose} more than {most} at {summary['shares'][0]:g} already, so give less"
    (share, after), before = found, summary["validation"]["unpruned"]
    if task is LANGUAGE:
        kept = f"has a loss of {task.format(after)} instead of {task.format(before)}"
    else:
        kept = f"keeps {task.format(after)} of {task.format(before)}"
    text = f"--share {share:g} {kept} on validation data"
    if is_measured:
        return f"{text}, more costs over {most}"
    return (
        f"{text} of the last epoch's weights, more costs over {most}: use it with --weights final,"
        f" or see with --evaluate what it costs those of epoch {summary['selected_epoch']}"
    )


def _check_file(folder: TrainingFolder, out: Path) -> Path:
    """The file, if it can be written and is not one of the training's own."""
    from mirrormargin.runs import check_writable

    if folder.owns(out):
        raise RunError(f"{out} belongs to the training itself: choose another name with --out")
    check_writable(out)
    return out


def _refuse_loss(state: dict[str, Tensor], out: Path) -> None:
    """A file that holds these weights may be written again; any other needs --overwrite."""
    from mirrormargin.training import load_pruned

    if not out.exists():
        return
    try:
        found = load_pruned(out)
    except ModelError:
        found = {}
    is_same = found.keys() == state.keys() and all(
        found[name].equal(tensor) for name, tensor in state.items()
    )
    if not is_same:
        raise RunError(
            f"{out} exists already and holds something else: add --overwrite to replace it, or"
            " choose another name with --out"
        )


def _describe_choice(state: dict[str, Tensor], matrices: str) -> dict[str, Any]:
    """Which matrices are pruned, and which are not."""
    from mirrormargin.training.sparsity import select_matrices

    chosen, every = select_matrices(state, matrices), select_matrices(state, "all")
    return {
        "chosen": matrices,
        "matrices": list(chosen),
        "others": [name for name in every if name not in chosen],
        "entries": sum(weight.numel() for weight in chosen.values()),
        "entries_of_all": sum(weight.numel() for weight in every.values()),
        "zeros_before": sum(int((weight == 0).sum()) for weight in chosen.values()),
    }


def _evaluate(
    folder: TrainingFolder,
    config: TrainingConfig,
    data: DataSet,
    original: dict[str, Tensor],
    out: Path,
) -> dict[str, float]:
    """Accuracy or loss on validation data before, and of the file that was written."""
    from mirrormargin.training.building import build_model
    from mirrormargin.training.evaluation import evaluate
    from mirrormargin.training.tensor_files import load_pruned

    model = build_model(config, data, folder.read_architecture())
    measured = {}
    for name, state in (("before", original), ("after", load_pruned(out))):
        model.load_state_dict(state)
        measured[name] = round(getattr(evaluate(model, data.validation), config.task.measure), 4)
    return measured


def _print(report: dict[str, Any], task: Task, quiet: bool) -> None:
    entries, zeros, before = report["entries"], report["zeros"], report["zeros_before"]
    if not quiet:
        _print_choice(report)
    say(
        f"{zeros:,} of {entries:,} entries of {len(report['matrices'])} matrices are zero"
        f" ({zeros / entries:.2%}); {zeros - before:,} of them were not before"
    )
    measured = report.get(task.measure, {})
    rows = []
    for name, sizes in (("before", report["bytes_before"]), ("after", report["bytes"])):
        cells = [name, f"{sizes['dense']:,}", f"{sizes['sparse']:,}"]
        rows.append([*cells, *([task.format(measured[name])] if measured else [])])
    header = [f"{report['weights']} weights", "dense bytes", "sparse bytes"]
    print_table([*header, *["validation"] * bool(measured)], rows, text_column=0)
    if not quiet:
        say(f"wrote {report['file']}, {report['bytes_written']:,} bytes")
        say(describe_weights(report["folder"], report["weights"]))


def _print_choice(report: dict[str, Any]) -> None:
    """What was chosen, what stays as it is, and by what entries were compared."""
    entries, total, others = report["entries"], report["entries_of_all"], report["others"]
    count = f"{len(report['matrices'])} of {len(report['matrices']) + len(others)} matrices"
    text = f"{report['chosen']}: {count}, {entries:,} of {total:,} entries"
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        text += (
            f"; {', '.join(others[:3])}{more} keep their {total - entries:,} entries: --matrices"
            " all prunes them too"
        )
    say(text)
    if report["criterion"] == "wanda":
        say(
            "wanda: by |w| times the norm of its input, over"
            f" {report['calibration']:,} examples of the training data (seed {report['seed']})"
        )
