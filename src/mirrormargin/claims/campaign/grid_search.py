r"""A method: a way to train one configuration, its grid, and how the grid is decided.

Each setting of the grid is trained once, with seed 0, and rated on validation data only. The best
one is then trained with every seed, and evaluated on test data; if a seed falls behind the first by
more than ten points of validation accuracy, the setting is dropped for the next best. (Under the
paper's protocol test accuracies by epoch are in every record; nothing is chosen by them.)

The best one has the best validation accuracy of the selected epoch or, if weights are to be removed
(``Method.removed``), the best mean validation accuracy of the final weights without these shares of
the entries of all block matrices. Where the question is how fast the training loss falls
(``Method.by_training_loss``), the best one has reached the most levels of it, the last of them in
the fewest steps, or, if it has reached none, has the lowest loss in the end. A setting that has not
reached the training accuracy at which it was to stop is chosen only if none has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mirrormargin.training.config import Seeds, TrainingConfig
from mirrormargin.training.summary import SHARES
from mirrormargin.training.tasks import Task, read_task

__all__ = ["Method", "Run", "choose_setting", "describes", "is_at_edge", "list_runs"]

Records = Mapping[str, dict[str, Any]]
NOT_LEARNT = 10.0  # points of validation accuracy behind the first seed, or half a nat of loss


@dataclass(frozen=True)
class Method:
    """How one configuration is trained.

    Attributes:
        config: The configuration's name.
        name: Such as ``MirrorAdam p=1.1``; the same method on other data has the same name.
        grid: Setting -> what is trained, with seed 0.
        seeds: Of the chosen setting's trainings.
        removed: Shares of weights, out of ``SHARES``, that are removed before a setting is rated;
            if empty, it is rated by its accuracy.
        records_of: The method whose records are used: two that differ in ``removed`` alone share
            them. Without a name a method has its own.
        by_training_loss: Whether a setting is rated by how fast its training loss falls.
        trial_epochs: Length of the grid's trainings, if shorter than that of the chosen one.
        tuned: Another method with the same settings, whose choice it takes instead of trying them.
    """

    config: str
    name: str
    grid: Mapping[str, TrainingConfig]
    seeds: tuple[int, ...] = (0, 1, 2)
    removed: tuple[float, ...] = ()
    records_of: str = ""
    by_training_loss: bool = False
    trial_epochs: int | None = None
    tuned: Method | None = None

    @property
    def task(self) -> Task:
        """What its trainings are judged by."""
        return next(iter(self.grid.values())).task

    @property
    def folder(self) -> str:
        """Where its records are."""
        name = (self.records_of or self.name).lower()
        words = name.replace("=", "").replace("+", "plus").replace("%", "")
        return f"{self.config.replace('/', '-')}/{'-'.join(words.split())}"

    def make_trial(self, setting: str) -> Run:
        """The run that a setting is rated by."""
        config = self.grid[setting]
        if self.trial_epochs is None:
            return Run(f"{self.folder}/{setting}-seed0", config, with_test=False)
        key = f"{self.folder}/{setting}-{self.trial_epochs}-epochs-seed0"
        return Run(key, replace(config, epochs=self.trial_epochs), with_test=False)

    def list_seeds(self, setting: str) -> list[Run]:
        """The runs of a setting that was chosen."""
        config = self.grid[setting]
        return [
            Run(
                f"{self.folder}/{setting}-seed{seed}",
                replace(config, seeds=Seeds(seed, seed, seed)),
                with_test=True,
            )
            for seed in self.seeds
        ]


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
        if record is None or not describes(record, self.config):
            return False
        return "failed" in record or not self.with_test or "test" in record


def describes(record: Mapping[str, Any], config: TrainingConfig) -> bool:
    """Whether a record is of this training, in the form that is written now.

    Digests leave out settings with default values, so that a new setting changes none: where a
    default has changed, the settings themselves tell.
    """
    wanted = config.as_dict()
    found, wanted = (json.loads(json.dumps(one)) for one in (record.get("config", wanted), wanted))
    return (
        record["digest"] == config.digest()
        and _agree(found, wanted)
        and record.get("shares", list(SHARES)) == list(SHARES)
    )


def _agree(one: Any, two: Any) -> bool:
    """Whether they are equal in all keys that both have."""
    if isinstance(one, dict) and isinstance(two, dict):
        return all(_agree(one[key], two[key]) for key in one.keys() & two.keys())
    return one == two


def list_runs(method: Method, records: Records) -> list[Run]:
    """The runs of a method that can be made now: first the grid, then the chosen setting's."""
    if method.tuned is not None:
        is_chosen = any(run.with_test for run in list_runs(method.tuned, records))
        return method.list_seeds(choose_setting(method, records)) if is_chosen else []
    grid = [method.make_trial(setting) for setting in method.grid]
    if len(grid) > 1:
        is_tried = all(run.is_done(records) for run in grid)
        if not is_tried or all("failed" in records[run.key] for run in grid):
            return grid
    chosen = method.list_seeds(choose_setting(method, records))
    return [run for run in grid if run.key != chosen[0].key] * (len(grid) > 1) + chosen


def choose_setting(method: Method, records: Records) -> str:
    """The best setting of a grid whose records are all there; the first of equals.

    A setting with which another seed did not learn is passed over for the next best.
    """
    if method.tuned is not None:
        return choose_setting(method.tuned, records)
    if len(method.grid) == 1:
        return next(iter(method.grid))
    first = {setting: records[method.make_trial(setting).key] for setting in method.grid}
    ranked = sorted(first, key=lambda one: _rank(method, one, first[one]), reverse=True)
    for setting in ranked:
        if "failed" in first[setting]:
            break
        level = rate(first[setting]) - NOT_LEARNT * method.task.tolerance
        known = [
            records[run.key]
            for run in method.list_seeds(setting)
            if run.key in records and describes(records[run.key], run.config)
        ]
        if all(rate(record) > level for record in known):
            return setting
    return ranked[0]


def _rank(method: Method, setting: str, record: dict[str, Any]) -> tuple[float, float]:
    """Larger is better; settings that have not reached the accuracy to stop at come last."""
    if method.by_training_loss:
        return rate_training_loss(record)
    enough = method.grid[setting].stop_accuracy
    is_learnt = "failed" not in record and (
        enough is None or record["epochs"][-1]["train_accuracy"] >= 100 * enough
    )
    return is_learnt, rate(record, method.removed)


def rate(record: dict[str, Any], removed: tuple[float, ...] = ()) -> float:
    """What a setting is rated by, larger for a better one: accuracy, or the loss below 0.

    A training that failed comes last.
    """
    if "failed" in record:
        return -np.inf
    validation = record["validation"]
    found = validation["selected"]
    if removed:
        frontier = dict(zip(SHARES, validation["frontier"]["blocks"], strict=True))
        found = float(np.mean([frontier[share] for share in removed]))
    return found if read_task(record.get("config", {})).is_larger_better else -found


def rate_training_loss(record: dict[str, Any]) -> tuple[int, float]:
    """Larger for a loss that falls faster: levels reached, then steps to the last of them."""
    if "failed" in record:
        return -1, 0.0
    levels = record["levels"]
    if not levels:
        return 0, -record["epochs"][-1]["train_loss"]
    return len(levels), -float(max(levels.values()))


def is_at_edge(method: Method, records: Records) -> bool:
    """Whether the chosen setting is the grid's first or last one: a better one may lie beyond."""
    settings = list(method.grid)
    return choose_setting(method, records) in (settings[0], settings[-1])
