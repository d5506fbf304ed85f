"""What is trained: every method's grid on SST-2, then the best of it on every task and seed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.delta_trainings.methods import METHODS, Method

__all__ = [
    "NAMES",
    "RECORDS",
    "TASKS",
    "Records",
    "Trial",
    "find_full",
    "find_method",
    "list_missing",
]

RECORDS = Path(__file__).parents[2] / "records" / "deltas.jsonl"
CHOSEN_AT = 10_000  # numbers: where settings are compared
TUNED_ON = "sst2"


@dataclass(frozen=True)
class Task:
    """A configuration, how many steps are taken, and with which seeds."""

    configuration: str
    num_steps: int
    seeds: tuple[int, ...] = (0,)


TASKS = {
    "sst2": Task("sst2/minilm", 400, (0, 1, 2)),
    "mrpc": Task("mrpc/minilm", 420, (0, 1, 2)),
    "cola": Task("cola/minilm", 480),
    "rte": Task("rte/minilm", 325),
    "civil": Task("civil-subset/minilm", 300),
}


def _pair(name: str, *values: Any, **fixed: Any) -> list[dict[str, Any]]:
    """Each of three values with and without dropout."""
    return [{**fixed, name: value, "dropout": rate} for value in values for rate in (0.0, 0.1)]


# Six settings of each method that is tuned, as many trainings for each.
GRIDS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "head": ("head", [{}]),
    "full": ("full", _pair("lr", 6e-5, 1e-4, 2e-4, weight_decay=0.01)),
    f"center-{CHOSEN_AT}": (
        "center",
        [
            {"lr": lr, "p": p, "dropout": dropout, "count": CHOSEN_AT}
            for lr, p, dropout in (
                (1e-2, 1.1, 0.0),
                (1e-2, 1.1, 0.1),
                (7e-3, 1.1, 0.0),
                (8e-3, 1.13, 0.0),
                (1e-2, 1.08, 0.0),
                (1.2e-2, 1.1, 0.0),
            )
        ],
    ),
    f"switched-{CHOSEN_AT}": (
        "center",
        [
            {"lr": lr, "p": p, "dropout": 0.0, "count": CHOSEN_AT, "then_lr": then_lr, **more}
            for lr, p, then_lr, more in (
                (7e-3, 1.1, 1e-3, {}),
                (7e-3, 1.1, 3e-3, {}),
                (7e-3, 1.1, 1e-2, {}),
                (8e-3, 1.13, 1e-2, {}),
                (1e-2, 1.13, 1e-2, {"end": 0.4}),
                (1e-2, 1.13, 3e-2, {"end": 0.4}),
            )
        ],
    ),
    "lora-8": ("lora", _pair("lr", 1e-3, 2e-3, 4e-3, r=8)),
    "bitfit": ("bitfit", _pair("lr", 1e-3, 2e-3, 4e-3)),
    "l1": (
        "l1",
        [
            {"lr": lr, "strength": strength, "dropout": 0.0}
            for lr in (3e-4, 1e-3)
            for strength in (0.3, 0.6, 0.9)
        ],
    ),
    **{
        f"{name}-{CHOSEN_AT}": (name, _pair("lr", 3e-3, 1e-2, 3e-2, count=CHOSEN_AT))
        for name in ("fisher", "lottery")
    },
    "adabreg": (
        "adabreg",
        [
            {"lr": lr, "strength": strength, "dropout": 0.0}
            for lr in (3e-4, 1e-3)
            for strength in (0.01, 0.03, 0.1)
        ],
    ),
    **{
        f"{name}-1": (name, _pair("lr", 1e-3, 1e-2, 1e-1, r=1))
        for name in ("shira-random", "shira-gradient")
    },
}

# The same methods of other sizes, at the settings that were found for the first one.
SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "center": (f"center-{CHOSEN_AT}", {"count": 0}),  # pruned in the end
    "lora-4": ("lora-8", {"r": 4}),
    "lora-1": ("lora-8", {"r": 1}),
    "shira-random-2": ("shira-random-1", {"r": 2}),
    "shira-gradient-2": ("shira-gradient-1", {"r": 2}),
    **{
        f"{name}-{count}": (f"{name}-{CHOSEN_AT}", {"count": count})
        for name in ("center", "switched", "fisher", "lottery")
        for count in (2_000, 50_000)
    },
}
NAMES = (*GRIDS, *SIZES)


@dataclass(frozen=True)
class Trial:
    """One training: a task, a method's name and settings, a seed; and where it is scored."""

    task: str
    name: str
    settings: tuple[tuple[str, Any], ...]
    seed: int = 0
    is_final: bool = False

    @classmethod
    def make(cls, task: str, name: str, settings: dict[str, Any], **more: Any) -> Trial:
        return cls(task, name, tuple(sorted(settings.items())), **more)

    @property
    def method(self) -> str:
        return GRIDS[SIZES.get(self.name, (self.name,))[0]][0]

    @property
    def configuration(self) -> str:
        return TASKS[self.task].configuration

    @property
    def num_steps(self) -> int:
        return TASKS[self.task].num_steps

    @property
    def parts(self) -> tuple[str, ...]:
        return ("validation", "test") if self.is_final else ("validation",)

    @property
    def key(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings)
        end = "final" if self.is_final else "trial"
        return f"{self.task} {self.name} {settings} seed={self.seed} {end}".replace("  ", " ")

    def name_full(self) -> str:
        """The file of the full fine-tuning of this task and seed."""
        return f"{self.task}-{self.seed}"


def find_method(trial: Trial, folder: Path) -> Method:
    """The method with the trial's settings."""
    from tools.delta_trainings import peft_methods

    kinds: dict[str, type[Method]] = {
        **METHODS,
        "lora": peft_methods.Lora,
        "shira-random": peft_methods.ShiraRandom,
        "shira-gradient": peft_methods.ShiraGradient,
    }
    method: Any = kinds[trial.method](**dict(trial.settings))
    method.full = folder / f"{trial.name_full()}.safetensors"
    return method


def find_full(trial: Trial, records: Records) -> Trial:
    """The full fine-tuning of the same task and seed, which LT-SFT begins with."""
    best = records.find_best("full")
    assert best is not None
    return Trial.make(trial.task, "full", best, seed=trial.seed, is_final=True)


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

    def find_best(self, name: str) -> dict[str, Any] | None:
        """The settings with the best validation score at CHOSEN_AT numbers, if all are trained."""
        if name in SIZES:
            tuned, size = SIZES[name]
            best = self.find_best(tuned)
            return None if best is None else best | size
        trials = [Trial.make(TUNED_ON, name, one) for one in GRIDS[name][1]]
        if not all(trial.key in self.rows for trial in trials):
            return None
        return dict(max(trials, key=self.score).settings)

    def score(self, trial: Trial) -> float:
        """On validation data with so many numbers, or all where there are no such.

        Full fine-tuning is what others are compared with: it is rated with all of its numbers.
        """
        label = "all" if trial.method == "full" else str(CHOSEN_AT)
        scores = self.rows[trial.key]["scores"]
        chosen = next((s for s in scores if s["label"] == label), scores[-1])
        return next(iter(chosen["validation"].values()))


def list_missing(records: Records, tasks: list[str], names: list[str]) -> Iterator[Trial]:
    """What can be trained now, method by method: the grid first, then its best setting."""
    for name in names:
        if name.startswith("lottery") and records.find_best("full") is None:
            continue  # its masks come from full fine-tuning
        best = records.find_best(name)
        if best is None and name in SIZES:
            continue
        if best is None:
            trials = [Trial.make(TUNED_ON, name, one) for one in GRIDS[name][1]]
        else:
            trials = [
                Trial.make(task, name, best, seed=seed, is_final=True)
                for task in tasks
                for seed in TASKS[task].seeds
            ]
        yield from (trial for trial in trials if trial.key not in records.rows)
