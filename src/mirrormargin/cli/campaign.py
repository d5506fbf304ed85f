"""``mirrormargin campaign``: records of all trainings on real data that claims rest on.

imdb-small/adamw/lr0.001-seed0  validation 84.12%  test 83.70%  312 s
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mirrormargin.arguments import show
from mirrormargin.cli.options import (
    OUTPUT,
    DataFolder,
    Positive,
    Quiet,
    show_examples,
)
from mirrormargin.cli.terminal import Progress, print_table, say, warn
from mirrormargin.errors import ClaimError, MirrorMarginError, suggest

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from mirrormargin.claims.campaign.grid_search import Method, Run

__all__ = ["app", "campaign"]

PAUSE = 5.0  # seconds between two looks for what others have finished
USER_ERROR = 2
MORE = (
    "A method's settings are trained once each, with seed 0, and compared on validation data; the"
    " best one is trained with every seed and evaluated on test data. A record that is there is not"
    " made again: the same command resumes one that was stopped, even killed."
)

app = App(
    name="campaign",
    **show_examples(
        (
            ("campaign --list", "which records are there, and the test accuracy they give"),
            ("campaign --dry-run", "what would be trained now"),
            ("campaign --only 'imdb-small/*'", "those of one configuration"),
            ("campaign --workers 1 --quiet", "all, one after the other"),
        ),
        more=MORE,
    ),
)


@app.default
def campaign(
    *,
    only: Annotated[tuple[str, ...], Parameter(consume_multiple=1, metavar="PATTERN...")] = (),
    workers: Positive = 2,
    data_dir: DataFolder | None = None,
    list_: Annotated[bool, Parameter(name="--list")] = False,
    dry_run: bool = False,
    records: Annotated[Path, Parameter(metavar="FOLDER", group=OUTPUT)] = Path("records"),
    runs: Annotated[Path, Parameter(metavar="FOLDER", group=OUTPUT)] = Path("campaign"),
    store: Annotated[Path | None, Parameter(metavar="FOLDER", group=OUTPUT)] = None,
    quiet: Quiet = False,
) -> int:
    """Make the records of trainings that claims rest on.

    Everything that has no record yet is trained on real data, for hours if all are missing.

    Args:
        only: Methods whose folder matches, such as 'imdb-*' or '*/adamw*'; those of the published
            sizes only with a pattern such as 'imdb-paper-3/*'. [default: all]
        workers: Number of processes, of one thread each.
        list_: List the records that are there, and train nothing.
        dry_run: List what is missing, and train nothing.
        records: Where the records are.
        runs: Where trainings keep their weights.
        store: Also write there the tables that claims are examined on, from complete records.
    """
    from mirrormargin.claims.campaign import compared_methods, fitted, league

    # Those of the published sizes would take days: they are made only if they are named.
    is_named = any("paper" in pattern for pattern in only)
    published = (*compared_methods.PAPER, *compared_methods.PAPER_VIT) if is_named else ()
    small = (*compared_methods.METHODS, *fitted.METHODS, *league.METHODS)
    chosen = _choose_methods((*small, *published), only)
    if list_:
        _print_list(chosen, records)
        return 0
    from mirrormargin.claims.campaign.records import find_missing

    missing = find_missing(chosen, records)
    if dry_run:
        for run in missing:
            say(run.key)
        say(f"{len(missing)} to train" if missing else f"nothing is missing in {records}")
        return 0
    from mirrormargin.runs import check_writable

    for folder in (records, runs):
        check_writable(folder / "record.json", make_folders=True)
    try:
        if missing:
            _make_records(chosen, records, runs, data_dir, workers, quiet)
        else:
            say(f"nothing is missing in {records}")
    finally:  # what is complete is worth storing after an interrupt too
        if store is not None:
            _store(records, store)
    return 0


def _make_records(
    chosen: Sequence[Method],
    records: Path,
    runs: Path,
    data_dir: Path | None,
    workers: int,
    quiet: bool,
) -> None:
    job = (chosen, records, runs, data_dir)
    children = [_start_child(job) for _ in range(workers - 1)]
    try:
        _work(*job, is_quiet=quiet)
        for child in children:
            child.join()
    except KeyboardInterrupt:
        warn(f"{runs} keeps what is done; the same command resumes")
        raise
    finally:
        for child in children:
            child.terminate()
            child.join()


def _store(records: Path, folder: Path) -> None:
    from mirrormargin.claims.trainings import store_tables

    names = store_tables(records, folder)
    say(f"stored in {folder}: {', '.join(names) or 'nothing, no experiment is complete'}")


def _choose_methods(methods: Sequence[Method], patterns: Sequence[str]) -> list[Method]:
    """Those whose folder matches one of the patterns, all without patterns.

    Raises:
        ClaimError: If a pattern matches nothing.
    """
    folders = list(dict.fromkeys(method.folder for method in methods))
    for pattern in patterns:
        if not any(fnmatchcase(folder, pattern) for folder in folders):
            raise ClaimError(f"{show(pattern)} matches no method: {suggest(pattern, folders)}")
    return [
        method
        for method in methods
        if not patterns or any(fnmatchcase(method.folder, pattern) for pattern in patterns)
    ]


def _work(
    methods: Sequence[Method],
    records: Path,
    runs: Path,
    data_dir: Path | None,
    *,
    is_quiet: bool,
) -> None:
    """Make records until all are there, those that others are making included."""
    from mirrormargin.claims.campaign.records import do_campaign, find_missing

    shown = _Shown(is_quiet)
    try:
        while True:
            do_campaign(
                methods,
                records,
                runs,
                data_dir=data_dir,
                on_step=shown.show_step,
                on_record=shown.print_record,
            )
            if not find_missing(methods, records):
                return
            # Another process holds the rest. If it is the last of a grid, more follows; and if
            # that process dies, the rest is ours.
            time.sleep(PAUSE)
    finally:
        shown.close()


class _Shown:
    """What is on the terminal: a line for each record, and below them the run that is under way."""

    def __init__(self, is_quiet: bool) -> None:
        self.is_quiet = is_quiet
        self._progress: Progress | None = None

    def show_step(self, run: Run, step: int, steps: int, metrics: dict[str, Any]) -> None:
        if self._progress is None or self._progress.label != run.key:
            self.close()
            self._progress = Progress(steps, run.key, self.is_quiet)
        self._progress.update(step, f"epoch {metrics['epoch']}  loss {metrics['train_loss']:.4f}")

    def print_record(self, record: dict[str, Any]) -> None:
        self.close()
        say(_describe(record))

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
        self._progress = None


def _describe(record: dict[str, Any]) -> str:
    if "failed" in record:
        return f"{record['key']}  failed: {record['failed']}"
    parts = [
        f"{name} {record[name]['selected']:.2f}%"
        for name in ("validation", "test")
        if name in record
    ]
    return "  ".join([record["key"], *parts, f"{record['seconds']:.0f} s"])


def _start_child(job: tuple[Any, ...]) -> SpawnProcess:
    child = multiprocessing.get_context("spawn").Process(target=_do_child, args=job, daemon=True)
    child.start()
    return child


def _do_child(*job: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(*job, is_quiet=True)
    except MirrorMarginError as error:
        text = " ".join(str(error).split())
        warn(f"error: a worker ended: {text}")
        sys.exit(USER_ERROR)


def _end_with_parent() -> None:
    """End when the parent ends, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _print_list(methods: Sequence[Method], folder: Path) -> None:
    from mirrormargin.claims.campaign.grid_search import choose_setting, list_runs
    from mirrormargin.claims.campaign.records import read_records
    from mirrormargin.claims.campaign.training_table import find_final_records

    records = read_records(folder)
    rows = []
    for method in methods:
        runs = list_runs(method, records)
        is_chosen = any(run.with_test for run in runs)
        done = sum(run.is_done(records) for run in runs)
        # Until a setting is chosen from the grid, its other seeds are still to come.
        needed = len(runs)
        if not is_chosen and done < needed:
            needed += len({0, *method.seeds}) - 1
        setting = choose_setting(method, records) if is_chosen else "-"
        finals = find_final_records(method, records) or []
        test = f"{fmean(r['test']['selected'] for r in finals):.2f}" if finals else "-"
        if done == needed and not finals:
            test = "diverged"
        # Two methods that share their records are told apart by their names.
        shared = f" ({method.name})" if method.records_of not in ("", method.name) else ""
        rows.append(
            [f"{done}/{needed}", str(len(method.grid)), setting, test, method.folder + shared]
        )
    print_table(["records", "settings", "chosen", "test %", "method"], rows)
    if not folder.is_dir():
        say(f"there is no folder {folder}: a checkout has one, --records names another")
