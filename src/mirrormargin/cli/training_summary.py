"""What a training came to, as ``mirrormargin train`` prints it, and whether it has learnt."""

from __future__ import annotations

import math
from typing import Any

from mirrormargin.cli.language_models import describe_unlearnt, print_perplexities
from mirrormargin.cli.terminal import format_number, print_table, say
from mirrormargin.training.tasks import CORRELATION, LANGUAGE, read_task

__all__ = ["describe_failure", "print_summary"]

MEMORIZED = 20.0  # points above chance on training data


def print_summary(summary: dict[str, Any]) -> None:
    """Print accuracies or losses, weights, the same after pruning, and token selection."""
    task = read_task(summary["config"])
    parts = [name for name in ("validation", "test") if name in summary]
    rows: list[list[str]] = []
    for name in parts:
        found = summary[name]
        rows.append([name, task.format(found["last"]), task.format(found["selected"])])
    best = f"epoch {summary['selected_epoch']}, best on validation"
    print_table([task.measure, "last epoch", best], rows, text_column=0)
    for name in parts if task.others else ():
        found = summary[name]["others"]
        measured = (f"{other} {task.format_measure(other, found[other])}" for other in task.others)
        say(f"{name} of epoch {summary['selected_epoch']}: {', '.join(measured)}")
    if task is LANGUAGE:
        print_perplexities(summary, parts)
    if "best" in summary.get("test", {}):
        size = summary["config"]["protocol_size"]
        where = "test data" if size is None else f"the first {size:,} test examples"
        say(
            f"best epoch chosen on {where}, as the paper does: {summary['test']['best']:.2f}%, not"
            " to be compared with the others"
        )
    for line in describe_failure(summary):
        say(line)
    say()
    _print_weights(summary["weights"])
    say()
    _print_frontier(summary, parts)
    if "selection" in summary:
        say()
        _print_selection(summary["selection"])


def describe_failure(summary: dict[str, Any]) -> list[str]:
    """A line if the model is no better than always saying the most frequent class.

    Better means by two standard errors of an accuracy on so many examples, or of a correlation of
    0. A language model must be better than the frequencies of tokens.
    """
    if "chance" not in summary:
        return []
    if read_task(summary["config"]) is LANGUAGE:
        return describe_unlearnt(summary)
    chance, count = summary["chance"]["accuracy"], summary["chance"]["examples"]
    error = math.sqrt(chance * (100 - chance) / count)
    selected = summary["validation"]["selected"]
    if read_task(summary["config"]) is CORRELATION:
        if selected > 2 * 100 / math.sqrt(count):
            return []
        always = (
            f"its answers have a correlation of {selected:.2f}% with the labels of validation data,"
            " and those of chance have 0"
        )
    else:
        if selected > chance + 2 * error:
            return []
        always = f"always saying the most frequent class gets {chance:.2f}% on validation data"
    lr, learnt = summary["config"]["optimizer"]["lr"], summary["epochs"][-1]["train_accuracy"]
    if learnt > chance + 2 * error + MEMORIZED:
        return [
            f"has learnt its training data ({learnt:.2f}%), but nothing that helps with others:"
            f" {always}; give more data, or fewer --epochs"
        ]
    return [f"has not learnt: {always}; try another --lr than {lr:g}, or more --epochs"]


def _print_weights(weights: dict[str, Any]) -> None:
    from mirrormargin.figures.weights import KINDS

    groups = {kind: f"{kind} matrices" for kind in KINDS} | {
        "all": "these three together",
        "blocks": "all matrices of the blocks",
    }
    rows = []
    for key, name in groups.items():
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
        say(
            f"{weights['underflowed']:,} weights underflowed to zero in float32; their dual values"
            " are not zero"
        )


def _print_frontier(summary: dict[str, Any], parts: list[str]) -> None:
    task = read_task(summary["config"])
    curves = {
        f"{part}, {matrices}": (summary[part]["unpruned"], *curve)
        for part in parts
        for matrices, curve in summary[part]["frontier"].items()
    }
    rows = [
        [f"{100 * share:g}%", *(task.format(value) for value in line)]
        for share, *line in zip((0.0, *summary["shares"]), *curves.values(), strict=True)
    ]
    print_table(["removed, last epoch", *curves], rows, text_column=0)


def _print_selection(selection: dict[str, Any]) -> None:
    """Attention of [CLS] on the word that decides, scaled from 0 to 1; see token_selection."""
    count, untrained = len(selection["scaled"]), selection["untrained"]
    top, right = sum(selection["is_top_word"]), sum(selection["is_right"])
    say(f"token selection {selection['score']:.3f} (untrained {_mean(untrained):.3f})")
    say(f"{top} of {count} short reviews: the word that decides is attended to most")
    say(f"{right} of {count} short reviews: classified rightly")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
