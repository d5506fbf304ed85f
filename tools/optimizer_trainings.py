"""Train what the pages about the optimizers tell of, and write their tables.

    python tools/optimizer_trainings.py rates language precision [--data-dir FOLDER] [--workers 1]
    python tools/optimizer_trainings.py

The second command trains nothing and writes the tables into the pages of ``docs``.
Each training is one line of ``records/optimizers.jsonl``: its settings, and what it reached on
validation data. One that is there is not made again; one that was stopped is resumed.

rates       for each p, with and without ``scale="rms"``, learning rates by factors of two until the
            best one has a worse one on either side
language    ``shakespeare/char`` at the learning rate that is best with one seed, by factors of two,
            with three seeds; AdamW at the rate of nanoGPT's recipe as well; ``wikitext2/small``
            with one seed
precision   ``shakespeare/char`` with weights, and with state, in float32 and bfloat16
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "records" / "optimizers.jsonl"
RUNS = Path(__file__).parents[1] / "campaign" / "optimizers"
SEEDS = (0, 1, 2)

EXPONENTS = (1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
FIRST_RATE, LEAST_RATE, LARGEST_RATE = 2e-3, 3e-5, 0.3
# Short trainings: a learning rate shows what it is worth early.
RATE_TASKS: dict[str, dict[str, Any]] = {
    "digits/tiny": {},
    "sst2/small": {"data.num_train": 10_000},
    "shakespeare/char": {"epochs": 4},
}
LANGUAGE = (("AdamW", 2.0), ("MirrorAdam", 1.1), ("MirrorAdam", 1.5))
FIRST_LANGUAGE_RATE = 3e-3
RECIPE_RATE = 1e-3  # nanoGPT's, of AdamW
WIKITEXT = (("AdamW", 2.0, 3e-3), ("MirrorAdam", 1.5, 6e-3))
PRECISIONS = (
    ("AdamW", 2.0, "float32", None),
    ("AdamW", 2.0, "bfloat16", None),
    ("MirrorAdam", 1.1, "float32", None),
    ("MirrorAdam", 1.1, "bfloat16", None),
    ("MirrorAdam", 1.1, "bfloat16", "bfloat16"),
    ("MirrorAdam", 2.0, "float32", None),
    ("MirrorAdam", 2.0, "bfloat16", None),
    ("MirrorAdam", 2.0, "bfloat16", "bfloat16"),
)


@dataclass(frozen=True)
class Trial:
    """One training: a configuration's name, and what is changed in it."""

    name: str
    changes: tuple[tuple[str, Any], ...]
    seed: int = 0

    @classmethod
    def make(
        cls, name: str, optimizer: str, p: float, lr: float, seed: int = 0, **options: Any
    ) -> Trial:
        """Block matrices in the geometry of p, everything else at p = 2."""
        scale, state = options.pop("scale", None), options.pop("state_dtype", None)
        changes = {**options, "optimizer.name": optimizer, "optimizer.lr": lr, "optimizer.p": 2.0}
        changes["optimizer.groups"] = []
        if optimizer == "AdamW":
            changes["optimizer.weight_decay"] = 0.1
        elif p != 2:
            matrices = {"p": p} if scale is None else {"p": p, "scale": scale}
            changes["optimizer.groups"] = [
                ["blocks.*norm.weight", {"p": 2.0}],
                ["blocks.*.weight", matrices],
            ]
        if state is not None:
            changes["optimizer.state_dtype"] = state
        return cls(name, tuple((key, json.dumps(value)) for key, value in changes.items()), seed)

    @property
    def key(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.changes)
        return f"{self.name} {settings} seed={self.seed}"


def train(trial: Trial, data_dir: str | None) -> dict[str, Any]:
    """Train, or resume, and say what was reached."""
    import torch

    from mirrormargin.errors import DivergedError
    from mirrormargin.training import find_configuration, load_training_data, train_model

    torch.set_num_threads(1)
    seeds = {f"seeds.{one}": trial.seed for one in ("init", "order", "dropout")}
    changes = {name: json.loads(value) for name, value in trial.changes}
    config = find_configuration(trial.name, changes | seeds)
    data = load_training_data(config, data_dir=data_dir)
    row: dict[str, Any] = {"key": trial.key, "digest": config.digest()}
    try:
        result = train_model(config, data, RUNS / config.digest())
    except DivergedError as error:
        return row | {"failed": str(error)}
    selected = result.epochs[result.selected_epoch - 1]
    row |= {"loss": selected["validation_loss"], "accuracy": selected["validation_accuracy"]}
    row |= {"final_loss": result.epochs[-1]["validation_loss"], "seconds": round(result.seconds, 1)}
    if trial.name == "wikitext2/small":
        from mirrormargin.training import evaluate, load_model
        from mirrormargin.training.evaluation import compute_perplexity

        model = load_model(RUNS / config.digest())
        loss = evaluate(model, data.test).loss
        row |= {"test_loss": loss, "test_perplexity": compute_perplexity(loss, data.test).per_word}
    return row


class Records:
    """What has been trained, one JSON document a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = {row["key"]: row for row in map(json.loads, lines)}

    def add(self, row: dict[str, Any]) -> None:
        self.rows[row["key"]] = row
        text = "".join(json.dumps(self.rows[key]) + "\n" for key in sorted(self.rows))
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        os.replace(beside, self.path)

    def value(self, trial: Trial, measure: str) -> float:
        """A loss, or one less the accuracy: the less, the better; inf if it diverged."""
        row = self.rows[trial.key]
        if "failed" in row:
            return math.inf
        return row["loss"] if measure == "loss" else 100 - row["accuracy"]

    def has(self, trial: Trial) -> bool:
        return trial.key in self.rows


def list_rates(records: Records) -> Iterator[tuple[str, float, str | None, list[Trial], bool]]:
    """For each task, p and scale: the trials so far by rate, and whether the best one is known."""
    for task, changes in RATE_TASKS.items():
        measure = "loss" if task == "shakespeare/char" else "accuracy"
        for p in EXPONENTS:
            for scale in (None,) if p == 2 else (None, "rms"):

                def make(rate: float, task=task, p=p, scale=scale, changes=changes) -> Trial:
                    return Trial.make(task, "MirrorAdam", p, rate, scale=scale, **changes)

                yield task, p, scale, *_search(records, make, measure)


def _search(
    records: Records, make: Callable[[float], Trial], measure: str, first: float = FIRST_RATE
) -> tuple[list[Trial], bool]:
    """Rates around the best so far; True once all of them are trained."""
    done = {0: make(first)}
    while all(map(records.has, done.values())):
        best = min(done, key=lambda k: records.value(done[k], measure))
        around = [k for k in (best - 1, best + 1) if k not in done]
        around = [k for k in around if LEAST_RATE < first * 2.0**k < LARGEST_RATE]
        if not around:
            return [done[k] for k in sorted(done)], True
        done |= {k: make(first * 2.0**k) for k in around}
    return [done[k] for k in sorted(done)], False


def list_language(records: Records) -> list[Trial]:
    trials = _repeat("AdamW", 2.0, RECIPE_RATE)
    for name, p in LANGUAGE:
        tried, rate = find_language_rate(records, name, p)
        trials += tried if rate is None else [*tried, *_repeat(name, p, rate)]
    return trials + [
        Trial.make("wikitext2/small", name, p, lr, epochs=4) for name, p, lr in WIKITEXT
    ]


def find_language_rate(records: Records, name: str, p: float) -> tuple[list[Trial], float | None]:
    """What is tried with one seed, and the best rate once it is known."""

    def make(rate: float) -> Trial:
        return Trial.make("shakespeare/char", name, p, rate)

    tried, is_done = _search(records, make, "loss", FIRST_LANGUAGE_RATE)
    if not is_done:
        return tried, None
    return tried, _read_rate(min(tried, key=lambda trial: records.value(trial, "loss")))


def _repeat(name: str, p: float, lr: float) -> list[Trial]:
    return [Trial.make("shakespeare/char", name, p, lr, seed) for seed in SEEDS]


def list_precision() -> list[Trial]:
    return [
        _lower(name, p, lr, seed, weights, state)
        for seed in SEEDS
        for lr in (1e-3, 1e-4)
        for name, p, weights, state in PRECISIONS
    ]


def _lower(name: str, p: float, lr: float, seed: int, weights: str, state: str | None) -> Trial:
    options: dict[str, Any] = (
        {"epochs": 4} if weights == "float32" else {"epochs": 4, "precision": weights}
    )
    return Trial.make("shakespeare/char", name, p, lr, seed, state_dtype=state, **options)


def list_missing(records: Records, tables: list[str]) -> list[Trial]:
    trials: list[Trial] = []
    if "language" in tables:
        trials += list_language(records)
    if "precision" in tables:
        trials += list_precision()
    if "rates" in tables:
        trials += [one for *_, tried, _ in list_rates(records) for one in tried]
    return [one for one in dict.fromkeys(trials) if not records.has(one)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="rates | language | precision")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.tables) - TABLES.keys():
        parser.error(f"there is no table {', '.join(unknown)}: give some of {', '.join(TABLES)}")
    records = Records(RECORDS)
    with ProcessPoolExecutor(arguments.workers) as pool:
        while missing := list_missing(records, arguments.tables):
            for row in pool.map(train, missing, [arguments.data_dir] * len(missing)):
                records.add(row)
                print({k: v for k, v in row.items() if k != "digest"}, flush=True)
    write_tables(records)


def write_tables(records: Records) -> None:
    """Put the tables of what is there between their marks in the pages."""
    for page in sorted((RECORDS.parents[1] / "docs").glob("*.md")):
        text = page.read_text()
        for name, make in TABLES.items():
            start, end = f"<!-- {name}: written by tools/optimizer_trainings.py -->", "<!-- end -->"
            if start in text and (table := make(records)):
                head, _, rest = text.partition(start)
                _, _, tail = rest.partition(end)
                text = f"{head}{start}\n{table}\n{end}{tail}"
        page.write_text(text)


def tell_rates(records: Records) -> str:
    """The best rate of each p, what it gives, and what AdamW's best rate gives instead."""
    found: dict[tuple[str, float, str | None], tuple[float, float, dict[float, float]]] = {}
    for task, p, scale, trials, is_done in list_rates(records):
        if is_done:
            measure = "loss" if task == "shakespeare/char" else "accuracy"
            values = {_read_rate(one): records.value(one, measure) for one in trials}
            best = min(values, key=lambda rate: values[rate])
            found[task, p, scale] = best, values[best], values
    lines = [
        "| p | scale | " + " | ".join(RATE_TASKS) + " |",
        "|---|---|" + "---|" * len(RATE_TASKS),
    ]
    for p in EXPONENTS:
        for scale in (None,) if p == 2 else (None, "rms"):
            cells = [_tell_rate(found, task, p, scale) for task in RATE_TASKS]
            lines.append(f"| {p:g} | {scale or '-'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) if found else ""


def _tell_rate(found: dict[Any, Any], task: str, p: float, scale: str | None) -> str:
    if (task, p, scale) not in found or (task, 2.0, None) not in found:
        return "-"
    best, value, values = found[task, p, scale]
    usual = found[task, 2.0, None][0]

    def show(x: float) -> str:
        if math.isinf(x):
            return "diverges"
        return f"{x:.3f}" if task == "shakespeare/char" else f"{100 - x:.1f}%"

    there = f"; at {usual:g} {show(values[usual])}" if best != usual and usual in values else ""
    return f"{best:g}: {show(value)}{there}"


def _read_rate(trial: Trial) -> float:
    return float(dict(trial.changes)["optimizer.lr"])


def tell_language(records: Records) -> str:
    rows = [("AdamW, at the recipe's learning rate", "AdamW", 2.0, RECIPE_RATE)]
    for name, p in LANGUAGE:
        _, rate = find_language_rate(records, name, p)
        if rate is not None:
            rows.append((f"{_call(name, p)}, at the best one", name, p, rate))
    lines = ["| | learning rate | validation loss, 3 seeds |", "|---|---|---|"]
    for label, name, p, rate in rows:
        lines.append(f"| {label} | {rate:g} | {_tell_mean(records, _repeat(name, p, rate))} |")
    return "\n".join(lines)


def tell_precision(records: Records) -> str:
    lines = [
        "| | weights | state | loss at 1e-3 | loss at 1e-4 |",
        "|---|---|---|---|---|",
    ]
    for name, p, weights, state in PRECISIONS:
        cells = [
            _tell_mean(records, [_lower(name, p, lr, seed, weights, state) for seed in SEEDS])
            for lr in (1e-3, 1e-4)
        ]
        kept = state or ("bfloat16" if name == "AdamW" and weights == "bfloat16" else "float32")
        lines.append(f"| {_call(name, p)} | {weights} | {kept} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _call(name: str, p: float) -> str:
    return name if name == "AdamW" else f"{name} p = {p:g}"


def _tell_mean(records: Records, trials: list[Trial]) -> str:
    values = [records.value(one, "loss") for one in trials if records.has(one)]
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}" + f" ({len(values)} seeds)" * (len(values) < 3)


TABLES = {"rates": tell_rates, "language": tell_language, "precision": tell_precision}


if __name__ == "__main__":
    main()
