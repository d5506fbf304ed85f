r"""A method: a way to train one configuration, its grid, and how the grid is decided.

Each setting of the grid is trained once, with seed 0, and looked at on validation data only. The
best one is then trained with every seed, and evaluated on test data.

    accuracy   best validation accuracy of the selected epoch
    sparse     mean validation accuracy of the final weights with 90, 95 and 98% of the entries of
               all block matrices removed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mirrormargin.training.config import Seeds, TrainingConfig
from mirrormargin.training.summary import SHARES

__all__ = ["Method", "Run", "choose_setting", "list_runs"]

Records = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Method:
    """How one configuration is trained.

    Attributes:
        config: The configuration's name.
        name: Such as ``MirrorAdam p=1.1``; the same method on other data has the same name.
        grid: Setting -> what is trained, with seed 0.
        seeds: Of the chosen setting's trainings.
        criterion: ``"accuracy"`` or ``"sparse"``.
        shelf: Under whose name the records are kept: two methods that differ in the criterion
            alone share them.
    """

    config: str
    name: str
    grid: Mapping[str, TrainingConfig]
    seeds: tuple[int, ...] = (0, 1, 2)
    criterion: str = "accuracy"
    shelf: str = ""

    @property
    def folder(self) -> str:
        """Where its records are."""
        words = (
            (self.shelf or self.name).lower().replace("=", "").replace("+", "plus").replace("%", "")
        )
        return f"{self.config.replace('/', '-')}/{'-'.join(words.split())}"


@dataclass(frozen=True)
class Run:
    """One training that the campaign needs.

    Attributes:
        key: Where its record is, such as ``imdb-small/adamw/lr0.001-seed0``.
        config: What is trained.
        with_test: Whether it has been chosen, and so is evaluated on test data.
    """

    key: str
    config: TrainingConfig
    with_test: bool

    def is_done(self, records: Records) -> bool:
        """Whether a record has what is asked for; one of a failed training is final."""
        record = records.get(self.key)
        if record is None or record["digest"] != self.config.digest():
            return False
        return "failed" in record or not self.with_test or "test" in record


def list_runs(method: Method, records: Records) -> list[Run]:
    """The runs of a method that can be made now: first the grid, then the chosen setting's."""
    grid = [
        Run(f"{method.folder}/{setting}-seed0", config, with_test=False)
        for setting, config in method.grid.items()
    ]
    if len(grid) > 1:
        is_tried = all(run.is_done(records) for run in grid)
        if not is_tried or all("failed" in records[run.key] for run in grid):
            return grid
    setting = choose_setting(method, records)
    chosen = [
        Run(
            f"{method.folder}/{setting}-seed{seed}",
            replace(method.grid[setting], seeds=Seeds(seed, seed, seed)),
            with_test=True,
        )
        for seed in method.seeds
    ]
    return [run for run in grid if run.key != chosen[0].key] * (len(grid) > 1) + chosen


def choose_setting(method: Method, records: Records) -> str:
    """The best setting of a grid whose records are all there; the first of equals."""
    settings = list(method.grid)
    if len(settings) == 1:
        return settings[0]
    scores = [
        rate(method.criterion, records[f"{method.folder}/{setting}-seed0"]) for setting in settings
    ]
    return settings[int(np.argmax(scores))]


def rate(criterion: str, record: dict[str, Any]) -> float:
    """What a record is worth; a failed training nothing."""
    if "failed" in record:
        return -1.0
    validation = record["validation"]
    if criterion == "accuracy":
        return validation["selected"]
    frontier = dict(zip(SHARES, validation["frontier"]["blocks"], strict=True))
    return float(np.mean([frontier[share] for share in (0.9, 0.95, 0.98)]))
