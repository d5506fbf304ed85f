"""``mirrormargin shrink``: a training's model without heads and hidden units, smaller and dense."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.options import (
    OUTPUT,
    DataFolder,
    Download,
    Json,
    Overwrite,
    Positive,
    Quiet,
    Share,
    show_examples,
)
from mirrormargin.cli.terminal import Progress, print_json, print_table, say
from mirrormargin.cli.trained_model import Trained, load_unchanged_data
from mirrormargin.errors import RunError, TrainingError

if TYPE_CHECKING:
    from torch import nn

    from mirrormargin.data import InputForm, Split
    from mirrormargin.training import TrainingFolder
    from mirrormargin.training.shrinking import LayerChange
    from mirrormargin.training.tasks import Task

__all__ = ["app", "shrink"]

PARTS = """\
Without --heads and --units, exactly those are removed that are zero, as they
are after train --sparsity SHARE --groups heads (or units). Each layer keeps
one of each. The folder that is written is used like that of a training, by
evaluate, predict and prune.
"""

app = App(
    name="shrink",
    **show_examples(
        (
            (
                "train imdb/small --sparsity 0.5 --groups units --out runs/imdb",
                "a training that ends with half of its hidden units at zero",
            ),
            ("shrink runs/imdb --evaluate", "without them: the same answers, sooner"),
            ("shrink runs/sst2 --heads 0.25 --units 0.5", "without the weakest, zero or not"),
            ("evaluate runs/imdb-shrunk --split test", "the smaller model"),
        ),
        more=PARTS,
    ),
)


@app.default
def shrink(
    folder: Trained,
    /,
    *,
    heads: Share | None = None,
    units: Share | None = None,
    scope: Literal["global", "layer"] = "global",
    weights: Literal["selected", "final"] = "selected",
    evaluate: bool = False,
    batch: Positive = 32,
    length: Annotated[
        Positive | None, Parameter(show_default="128, or what the model reads if that is less")
    ] = None,
    data_dir: DataFolder | None = None,
    download: Download = False,
    out: Annotated[
        Path | None,
        Parameter(metavar="FOLDER", group=OUTPUT, show_default="FOLDER-shrunk, with the shares"),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Take attention heads and hidden units out of a trained model, and make it smaller.

    The smaller model is written to a folder, and timed next to the one it came from. Nothing is
    trained again.

    Args:
        heads: Share of the attention heads to remove, the weakest. [default: those that are zero]
        units: Share of the hidden units to remove, the weakest. [default: those that are zero]
        scope: Rank those of all layers together, or remove the share of each layer.
        weights: selected, of the best epoch on validation data; or final, of the last.
        evaluate: Measure both models on validation data.
        batch: Inputs that are timed together.
        length: Tokens of a text that is timed.
        out: Write the smaller model to this folder.
    """
    for option, share in (("heads", heads), ("units", units)):
        if share is not None and not 0 <= share < 1:
            raise TrainingError(f"--{option} is {share:g}: give a share below 1, such as 0.5")
    from mirrormargin.training import TrainingFolder, load_model
    from mirrormargin.training.shrinking import shrink as shrink_model
    from mirrormargin.training.speed import make_inputs

    trained = TrainingFolder(folder)
    config, file = trained.read_config(), trained.find_weights(weights)
    form = trained.read_inputs()
    inputs = make_inputs(form, batch, length)
    shares = {"heads": heads, "units": units}
    named = [f"{name}{share:g}" for name, share in shares.items() if share is not None]
    target = TrainingFolder(out or trained.name_shrunk(*named))
    _check_target(target, trained, overwrite)
    whole = load_model(trained, form, weights)
    shrunk = shrink_model(whole, heads, units, scope=scope)
    if not shrunk.num_removed("heads") + shrunk.num_removed("units"):
        raise TrainingError(_describe_nothing(folder, shares))
    data = load_unchanged_data(trained, data_dir, download) if evaluate else None
    with target.hold():
        target.clear()
        architecture = shrunk.describe_architecture()
        target.write_shrunk(trained, weights, shrunk.model.state_dict(), architecture)
    report: dict[str, Any] = {
        "folder": str(folder),
        "weights": weights,
        "out": str(target.path),
        "parameters": {"before": shrunk.parameters_before, "after": shrunk.parameters_after},
        "bytes": {
            "before": file.stat().st_size,
            "after": target.find_weights("selected").stat().st_size,
        },
        "heads": _list_layers(shrunk.heads),
        "units": _list_layers(shrunk.units),
    }
    smaller = load_model(target, form)
    if data is not None:
        report |= _evaluate(whole, smaller, data.validation, config.task, quiet or json)
    report["speed"] = _time(whole, smaller, inputs, form, quiet or json)
    print_json(report) if json else _print(report, config.task, quiet)
    return 0


def _check_target(target: TrainingFolder, source: TrainingFolder, overwrite: bool) -> None:
    """Raise unless the folder can be written, and nothing is lost by that."""
    from mirrormargin.runs import check_writable

    if target.path.resolve() == source.path.resolve():
        raise RunError(f"{target.path} is the folder to shrink: choose another one with --out")
    if target.status not in ("empty", "shrunk"):
        raise RunError(
            f"{target.path} holds other things than a shrunk model, which are not replaced: choose"
            " another folder with --out"
        )
    if target.is_finished and not overwrite:
        raise RunError(
            f"{target.path} holds a shrunk model already: add --overwrite to replace it, or choose"
            " another folder with --out"
        )
    check_writable(target.path / "config.json", make_folders=True)


def _describe_nothing(folder: Path, shares: dict[str, float | None]) -> str:
    reasons = [
        f"it has no zero {name} to remove"
        if share is None
        else f"--{name} {share:g} is less than one of them"
        for name, share in shares.items()
    ]
    return (
        f"nothing is removed from {folder}: {' and '.join(reasons)}; name a larger share, such as"
        " --units 0.5, or train with --sparsity 0.5 --groups units"
    )


def _list_layers(layers: tuple[LayerChange, ...]) -> list[dict[str, Any]]:
    return [
        {"layer": one.name, "before": one.before, "after": one.after, "removed": [*one.removed]}
        for one in layers
    ]


def _evaluate(
    whole: nn.Module, smaller: nn.Module, part: Split, task: Task, quiet: bool
) -> dict[str, dict[str, float]]:
    """What the task measures, and the loss, of both models on validation data."""
    from mirrormargin.training import evaluate

    found = {}
    with Progress(2, "evaluate", quiet) as progress:
        for number, (when, model) in enumerate((("before", whole), ("after", smaller))):
            progress.update(number, when)
            found[when] = evaluate(model, part)
    return {
        name: {when: round(getattr(one, name), 4) for when, one in found.items()}
        for name in dict.fromkeys((*task.measures, "loss"))
    }


def _time(
    whole: nn.Module, smaller: nn.Module, inputs: Any, form: InputForm, quiet: bool
) -> dict[str, Any]:
    """Seconds for a batch, and inputs and tokens a second, of both models."""
    import torch

    from mirrormargin.training.speed import ROUNDS, measure_speed_up

    with Progress(ROUNDS, "time", quiet) as progress:
        found = measure_speed_up(
            whole, smaller, inputs, progress=lambda done, _: progress.update(done)
        )
    seconds = {"before": found.before, "after": found.after}
    rates = {"examples": len(inputs)}
    if form.kind != "image":
        rates["tokens"] = inputs.numel()
    return {
        "ratio": found.ratio,
        "interval": [found.low, found.high],
        "batch": list(inputs.shape),
        "threads": torch.get_num_threads(),
        "rounds": ROUNDS,
        "seconds": seconds,
        **{
            f"{name}_per_second": {when: count / one for when, one in seconds.items()}
            for name, count in rates.items()
        },
    }


def _print(report: dict[str, Any], task: Task, quiet: bool) -> None:
    rows = []
    for name, key in (("parameters", "parameters"), ("bytes on disk", "bytes")):
        rows.append([name, *(f"{report[key][when]:,}" for when in ("before", "after"))])
    for name, key in (("attention heads", "heads"), ("hidden units", "units")):
        sums = (sum(layer[when] for layer in report[key]) for when in ("before", "after"))
        rows.append([name, *(f"{one:,}" for one in sums)])
    for name in dict.fromkeys((*task.measures, "loss")):
        if name in report:
            form = task.format_measure if name != "loss" else lambda _, value: f"{value:.4f}"
            rows.append([name, *(form(name, one) for one in report[name].values())])
    speed = report["speed"]
    rows.append(["ms a batch", *(f"{1e3 * one:.1f}" for one in speed["seconds"].values())])
    for name in ("examples", "tokens"):
        if (rates := speed.get(f"{name}_per_second")) is not None:
            rows.append([f"{name} a second", *(f"{one:,.0f}" for one in rates.values())])
    print_table([f"{report['weights']} weights", "before", "after"], rows, text_column=0)
    say()
    pairs = enumerate(zip_longest(report["heads"], report["units"]))
    layers = [[str(number), *map(_describe_layer, pair)] for number, pair in pairs]
    print_table(["layer", "heads left", "units left"], layers, text_column=0)
    say()
    size = " x ".join(map(str, speed["batch"]))
    low, high = speed["interval"]
    say(
        f"{speed['ratio']:.2f} times as fast [{low:.2f}, {high:.2f}]: median of {speed['rounds']}"
        f" rounds in turn with its 95% interval, batches of {size},"
        f" {speed['threads']} {'thread' if speed['threads'] == 1 else 'threads'}"
    )
    if not quiet:
        say(f"wrote {report['out']}, for evaluate, predict and prune")


def _describe_layer(layer: dict[str, Any] | None) -> str:
    return "-" if layer is None else f"{layer['after']:,} of {layer['before']:,}"
