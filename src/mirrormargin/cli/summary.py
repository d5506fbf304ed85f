"""A training on real data as text: its settings, its epochs, and what came out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.terminal import format_number, print_pairs, print_table, say

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training.config import TrainingConfig

__all__ = ["describe_epoch", "print_settings", "print_summary", "print_training"]

FEW_STEPS = 30
GROUPS = {
    "key": "keys",
    "query": "queries",
    "value": "values",
    "all": "keys, queries and values",
    "blocks": "all matrices of the blocks",
}


def print_settings(config: TrainingConfig) -> None:
    """Every setting by the name that ``--set`` takes."""
    say(config.name)
    rows: dict[str, Any] = {}
    for key, value in config.as_dict().items():
        if isinstance(value, dict):
            rows |= {f"{key}.{name}": one for name, one in value.items() if name != "kind"}
        elif key != "name":
            rows[key] = value
    print_pairs({key: json.dumps(value) for key, value in rows.items()})


def print_training(config: TrainingConfig, data: DataSet, folder: Path) -> None:
    """What is trained, on a few lines, without what is as always."""
    model = _list_options(vars(config.model))
    batch = min(config.batch_size, len(data.train))
    steps = len(data.train) // batch
    optimizer = {key: value for key, value in vars(config.optimizer).items() if key != "name"}
    rows = {
        "data": f"{data.name}: {len(data.train):,} to learn from, {len(data.validation):,} to"
        f" choose by, {len(data.test):,} to test, {len(data.classes)} classes",
        "model": f"{type(config.model).__name__} {model}",
        "optimizer": f"{config.optimizer.name} {_list_options(optimizer)}",
        "training": f"{config.epochs} epochs of {steps:,} steps, batches of {batch},"
        f" {config.schedule} learning rate, warmup {config.warmup:g}",
        "seeds": _list_options(vars(config.seeds), keep_all=True),
        "folder": str(folder),
    }
    if config.sparsifier is not None:
        options = _list_options(vars(config.sparsifier))
        rows["sparsifier"] = f"{type(config.sparsifier).__name__} {options}"
    if config.epochs * steps < FEW_STEPS:
        rows["warning"] = f"only {config.epochs * steps} steps in all: try a smaller --batch-size"
    say(config.name)
    print_pairs(rows)


def _list_options(options: dict[str, Any], keep_all: bool = False) -> str:
    parts = []
    for key, value in options.items():
        if keep_all or value not in (None, 0, (), "constant"):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(f"{key} {text}")
    return ", ".join(parts)


def describe_epoch(row: dict[str, Any], epochs: int) -> str:
    """One line."""
    parts = [
        f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}",
        f"loss {row['train_loss']:.4f}",
        f"accuracy {row['train_accuracy']:.2f}%",
        f"validation {row['validation_accuracy']:.2f}%",
    ]
    if "test_accuracy" in row:
        parts.append(f"test {row['test_accuracy']:.2f}%")
    return "  ".join(parts)


def print_summary(summary: dict[str, Any]) -> None:
    """Accuracies, weights, what is left when most of them are removed, token selection."""
    parts = [name for name in ("validation", "test") if name in summary]
    rows = []
    for name in parts:
        accuracy = summary[name]
        rows.append([name, f"{accuracy['last']:.2f}%", f"{accuracy['selected']:.2f}%"])
    best = f"epoch {summary['selected_epoch']}, best on validation"
    print_table(["accuracy", "last epoch", best], rows, text_column=0)
    if "best" in summary.get("test", {}):
        size = summary["config"]["protocol_size"]
        where = "test data" if size is None else f"the first {size:,} test examples"
        say(
            f"best epoch chosen on {where}, as the paper does: {summary['test']['best']:.2f}%, not"
            " to be compared with the others"
        )
    say()
    _print_weights(summary["weights"])
    say()
    _print_frontier(summary, parts)
    if "selection" in summary:
        say()
        _print_selection(summary["selection"])


def _print_weights(weights: dict[str, Any]) -> None:
    rows = []
    for key, name in GROUPS.items():
        row = weights[key]
        rows.append(
            [
                name,
                f"{row['entries']:,}",
                format_number(row["l1_l2"], ".3f"),
                f"{row['above'] / row['entries']:.1%}",
                f"{row['zeros'] / row['entries']:.1%}",
            ]
        )
    above = f"above {weights['blocks']['threshold']:g}"
    print_table(["weights", "entries", "l1/l2", above, "zeros"], rows, text_column=0)
    if weights["underflowed"]:
        say(f"{weights['underflowed']:,} weights are zero only because float32 ends there")


def _print_frontier(summary: dict[str, Any], parts: list[str]) -> None:
    curves = {
        f"{part}, {matrices}": (summary[part]["unpruned"], *curve)
        for part in parts
        for matrices, curve in summary[part]["frontier"].items()
    }
    rows = [
        [f"{100 * share:g}%", *(f"{accuracy:.2f}%" for accuracy in line)]
        for share, *line in zip((0.0, *summary["shares"]), *curves.values(), strict=True)
    ]
    print_table(["removed", *curves], rows, text_column=0)


def _print_selection(selection: dict[str, Any]) -> None:
    """Attention of [CLS] on the word that decides, scaled from 0 to 1; see token_selection."""
    count, untrained = len(selection["scaled"]), selection["untrained"]
    top, right = sum(selection["is_top_word"]), sum(selection["is_right"])
    say(f"token selection {selection['score']:.3f} (untrained {_mean(untrained):.3f})")
    say(f"{top} of {count} short reviews: the word that decides is attended to most")
    say(f"{right} of {count} short reviews: classified rightly")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
