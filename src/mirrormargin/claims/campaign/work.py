r"""Doing the campaign: make every record that is missing, with any number of processes.

Processes need no master. Each looks for the first run without a record that nobody holds, trains
it (or goes on where it was interrupted), writes its record, and looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mirrormargin.claims.campaign.method import Method, Run, list_runs
from mirrormargin.claims.campaign.records import read_records, write_record
from mirrormargin.data import DataSet, make_encoder
from mirrormargin.environment import describe_environment
from mirrormargin.errors import DivergedError, RunError
from mirrormargin.runs import hold_lock
from mirrormargin.training.building import load_training_data
from mirrormargin.training.loop import train_model
from mirrormargin.training.metrics import read_metrics
from mirrormargin.training.overrides import format_command
from mirrormargin.training.summary import summarize_training

__all__ = ["do_campaign", "find_missing", "make_record"]

Report = Callable[[Run, int, int, dict[str, Any]], None]


def find_missing(methods: Sequence[Method], folder: Path) -> list[Run]:
    """Runs that have no record yet and can be made now, in the order of the methods."""
    records = read_records(folder)
    return [
        run for method in methods for run in list_runs(method, records) if not run.is_done(records)
    ]


def do_campaign(
    methods: Sequence[Method],
    records: Path,
    runs: Path,
    *,
    data_dir: str | Path | None = None,
    on_step: Report | None = None,
    on_record: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Make records until none is missing that another process does not hold already.

    Args:
        methods: In order of importance.
        records: Folder of the records.
        runs: Folder of the trainings under way and of their weights.
        data_dir: Where data is.
        on_step: Called after every step with the run, the step, the number of steps and metrics.
        on_record: Called with every new record.
    """
    runs.mkdir(parents=True, exist_ok=True)
    held: set[str] = set()
    while True:
        missing = [run for run in find_missing(methods, records) if run.key not in held]
        if not missing:
            return
        run = missing[0]
        lock = runs / (run.key.replace("/", "--") + ".lock")
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(lock, wait=False))
            except RunError:
                held.add(run.key)
                continue
            # It may have been made between the look and the lock.
            if not run.is_done(read_records(records)):
                record = make_record(run, runs / run.key, data_dir, on_step)
                write_record(records, record)
                if on_record is not None:
                    on_record(record)
            held.clear()


def make_record(
    run: Run, folder: Path, data_dir: str | Path | None = None, on_step: Report | None = None
) -> dict[str, Any]:
    """Train, evaluate, and describe both."""
    config = run.config
    data = load_training_data(config, data_dir=data_dir)
    record: dict[str, Any] = {
        "key": run.key,
        "command": format_command(config),
        "digest": config.digest(),
        "config": config.as_dict(),
        "data": {"name": data.name, "note": data.note, "sha256": data.sha256},
        "environment": describe_environment(),
        "threads": torch.get_num_threads(),
    }
    report = None if on_step is None else partial(on_step, run)
    try:
        training = train_model(config, data, folder, on_step=report)
    except DivergedError as error:
        return record | {"failed": str(error)}
    encode = None
    if _is_reviewed(data):
        assert data.vocabulary is not None
        encode = make_encoder(data.vocabulary, data_dir=data_dir)
    summary = summarize_training(training, data, with_test=run.with_test, encode=encode)
    rows = [row for row in read_metrics(folder) if row["kind"] == "steps"]
    summary["steps"] = {key: [row[key] for row in rows] for key in ("step", "train_loss")}
    return record | summary


def _is_reviewed(data: DataSet) -> bool:
    """Whether its models read reviews, so that their selection of tokens can be measured."""
    return data.name in ("imdb", "sst2")
