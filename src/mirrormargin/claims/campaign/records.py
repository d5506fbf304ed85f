r"""Records of trainings: one small JSON file each, and how those that are missing are made.

key          where the file is, without .json
command      what makes the same training
digest       of the configuration; a record of another one counts as absent
config, data (name, note, sha256 of every file), environment, threads
epochs, steps, selected_epoch, seconds, validation, test, weights, selection
             see mirrormargin.training.summary
levels       training loss -> the first step at which the mean over an epoch's number of batches
             had fallen to it
attention    step, entropy and largest weight by layer, if they were measured; or
failed       why the training ended early, such as a loss that is not finite
checksum     of all the rest; records of earlier versions have none

Any number of processes can make records, without a master. Each looks for the first run without a
record that nobody holds, trains it (or resumes what was interrupted), writes its record, and looks
again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mirrormargin.claims.campaign.grid_search import Method, Run, list_runs
from mirrormargin.errors import ClaimError, DivergedError, RunError
from mirrormargin.runs import check_seal, hold_lock, read_json, seal, write_atomically
from mirrormargin.training.building import load_training_data
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model
from mirrormargin.training.summary import describe_origin, summarize_training

__all__ = [
    "do_campaign",
    "find_missing",
    "make_record",
    "read_record",
    "read_records",
    "write_record",
]

Report = Callable[[Run, int, int, dict[str, Any]], None]


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """All records below a folder, by key.

    Raises:
        ClaimError: If one is damaged.
    """
    records = {}
    for path in sorted(folder.glob("*/*/*.json")):
        record = read_record(path)
        records[record["key"]] = record
    return records


def read_record(path: Path) -> dict[str, Any]:
    """One record.

    Raises:
        ClaimError: If it is damaged.
    """
    try:
        record = check_seal(path, read_json(path), silent=True)
        if not all(isinstance(record[name], str) for name in ("key", "digest")):
            raise TypeError("its key or digest is no text")
        return record
    except (OSError, RunError, KeyError, TypeError) as error:
        raise ClaimError(
            f"the record {path} is damaged: remove it, and it is made again"
        ) from error


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write a record to the file that its key names, atomically."""
    path = folder / f"{record['key']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # One line a part: small, and still readable in a diff.
    whole = seal(record)
    parts = (f" {json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in whole.items())
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    write_atomically(path, lambda file: file.write(text.encode()))


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

    On a GPU if there is one; on the CPU with one thread, so that sums have the same order
    everywhere and several processes can share the cores.

    Args:
        methods: In order of importance.
        records: Folder of the records.
        runs: Folder of the trainings under way and of their weights.
        data_dir: Where data is.
        on_step: Called after every step with the run, the step, the number of steps and metrics.
        on_record: Called with every new record.
    """
    runs.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        _make_missing(methods, records, runs, data_dir, on_step, on_record)
    finally:
        torch.set_num_threads(threads)


def _make_missing(
    methods: Sequence[Method],
    records: Path,
    runs: Path,
    data_dir: str | Path | None,
    on_step: Report | None,
    on_record: Callable[[dict[str, Any]], None] | None,
) -> None:
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
                record = make_record(run, runs, data_dir, on_step)
                write_record(records, record)
                if on_record is not None:
                    on_record(record)
            held.clear()


def make_record(
    run: Run, runs: Path, data_dir: str | Path | None = None, on_step: Report | None = None
) -> dict[str, Any]:
    """Train in a folder below ``runs``, evaluate, and describe both."""
    config = run.config
    # A setting that means something else now must not meet what it meant before.
    folder = TrainingFolder(runs / f"{run.key}-{config.digest()[:8]}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = load_training_data(config, data_dir=data_dir)
    report = None if on_step is None else partial(on_step, run)
    try:
        training = train_model(config, data, folder, device=device, on_step=report)
    except DivergedError as error:
        return {"key": run.key, **describe_origin(config, data, device), "failed": str(error)}
    summary = summarize_training(training, data, with_test=run.with_test, device=device)
    curves = {"steps": _list_columns(folder, "steps", "train_loss")}
    if config.attention_size is not None:
        curves["attention"] = _list_columns(folder, "attention", "entropy", "largest")
    levels = {f"{row['train_loss']:g}": row["step"] for row in folder.read_metrics("level")}
    return {"key": run.key, **summary, **curves, "levels": levels}


def _list_columns(folder: TrainingFolder, kind: str, *names: str) -> dict[str, list[Any]]:
    rows = folder.read_metrics(kind)
    return {name: [row[name] for row in rows] for name in ("step", *names)}
