"""``mirrormargin campaign``: all trainings on real data that claims rest on, as records.

imdb-small/adamw/lr0.001-seed0  validation 84.12%  test 83.70%  312 s
"""

from __future__ import annotations

import argparse
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
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.options import describe, read_positive
from mirrormargin.cli.progress import ERASE, Progress
from mirrormargin.errors import ClaimError, MirrorMarginError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from mirrormargin.claims.campaign.method import Method, Run

__all__ = ["add_parser", "run"]

PAUSE = 5.0  # seconds between two looks for what others have finished
USER_ERROR = 2
MORE = """\
A method's settings are trained once each, with seed 0, and compared on validation data; the best
one is trained with every seed and evaluated on test data. A record that is there is not made
again: a command that was stopped, even killed, goes on where it was.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "campaign",
        help="make the records that claims on real data rest on",
        description="Train on real data whatever has no record yet, for hours if all are missing.",
        **describe(
            [
                ("campaign --list", "which records are there, and the test accuracy they give"),
                ("campaign --only 'imdb-small/*'", "those of one configuration"),
                ("campaign --workers 1 --quiet", "all, one after the other"),
            ],
            more=MORE,
        ),
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PATTERN",
        help="methods whose folder matches, such as 'imdb-*' or '*/adamw*' (default: all); those of"
        " the published sizes only with a pattern such as 'imdb-paper-3/*'",
    )
    parser.add_argument(
        "--workers",
        type=read_positive,
        default=2,
        metavar="N",
        help="processes, of one thread each (default: 2)",
    )
    parser.add_argument(
        "--records",
        type=Path,
        default=Path("records"),
        metavar="FOLDER",
        help="where the records are (default: records)",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("campaign"),
        metavar="FOLDER",
        help="where trainings keep their weights (default: campaign)",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="where data is (default: MIRRORMARGIN_DATA)"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FOLDER",
        help="write what claims are examined on there, from the records that are complete",
    )
    parser.add_argument("--list", action="store_true", help="say what is there and train nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List, or make what is missing."""
    from mirrormargin.claims.campaign import methods

    # Those of the published sizes would take days: only who names them gets them.
    is_named = any("paper" in pattern for pattern in arguments.only or ())
    published = (*methods.PAPER, *methods.PAPER_VIT) if is_named else ()
    everything = (*methods.METHODS, *published)
    chosen = choose_methods(everything, arguments.only)
    if arguments.list:
        _print_list(chosen, arguments.records)
        return 0
    from mirrormargin.claims.campaign.work import find_missing
    from mirrormargin.cli.destination import check_writable

    for folder in (arguments.records, arguments.runs):
        check_writable(folder / "record.json")
    try:
        if find_missing(chosen, arguments.records):
            _make_records(chosen, arguments)
        else:
            print(f"nothing is missing in {arguments.records}")
    finally:  # what is complete is worth storing after an interrupt too
        if arguments.store is not None:
            _store(arguments.records, arguments.store)
    return 0


def _make_records(chosen: Sequence[Method], arguments: argparse.Namespace) -> None:
    place = (chosen, arguments.records, arguments.runs, arguments.data_dir)
    children = [_start_child(place) for _ in range(arguments.workers - 1)]
    try:
        _work(*place, is_quiet=arguments.quiet)
        for child in children:
            child.join()
    except KeyboardInterrupt:
        print(
            f"{ERASE * sys.stderr.isatty()}mirrormargin: {arguments.runs} keeps what is done; the"
            " same command goes on",
            file=sys.stderr,
        )
        raise
    finally:
        for child in children:
            child.terminate()
            child.join()


def _store(records: Path, folder: Path) -> None:
    from mirrormargin.claims.campaign.tables import store_tables

    names = store_tables(records, folder)
    print(f"stored in {folder}: {', '.join(names) or 'nothing, no experiment is complete'}")


def choose_methods(methods: Sequence[Method], patterns: list[str] | None) -> list[Method]:
    """Those whose folder matches one of the patterns, all without patterns.

    Raises:
        ClaimError: If a pattern matches nothing.
    """
    for pattern in patterns or ():
        if not any(fnmatchcase(method.folder, pattern) for method in methods):
            folders = ", ".join(method.folder for method in methods)
            raise ClaimError(f"{pattern!r} matches no method: there are {folders}")
    return [
        method
        for method in methods
        if patterns is None or any(fnmatchcase(method.folder, pattern) for pattern in patterns)
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
    from mirrormargin.claims.campaign.work import do_campaign, find_missing

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
    """What is on the terminal: a line for each record, below it the run that is under way."""

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
        # The line may be that of another process.
        if sys.stderr is not None and sys.stderr.isatty():
            print(ERASE, end="", file=sys.stderr, flush=True)
        print(_describe(record), flush=True)

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


def _start_child(place: tuple[Any, ...]) -> SpawnProcess:
    child = multiprocessing.get_context("spawn").Process(target=_do_child, args=place, daemon=True)
    child.start()
    return child


def _do_child(*place: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(*place, is_quiet=True)
    except MirrorMarginError as error:
        text = " ".join(str(error).split())
        print(f"mirrormargin: error: a worker ended: {text}", file=sys.stderr)
        sys.exit(USER_ERROR)


def _end_with_parent() -> None:
    """Also if it was killed and could not say so."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _print_list(methods: Sequence[Method], folder: Path) -> None:
    from mirrormargin.claims.campaign.collect import find_final_records
    from mirrormargin.claims.campaign.method import choose_setting, list_runs
    from mirrormargin.claims.campaign.records import read_records
    from mirrormargin.cli.tables import print_table

    records = read_records(folder)
    rows = []
    for method in methods:
        runs = list_runs(method, records)
        is_chosen = any(run.with_test for run in runs)
        done = sum(run.is_done(records) for run in runs)
        # As long as the grid is not decided, the chosen setting's seeds come on top.
        needed = len(runs)
        if not is_chosen and done < needed:
            needed += len({0, *method.seeds}) - 1
        setting = choose_setting(method, records) if is_chosen else "-"
        finals = find_final_records(method, records) or []
        test = f"{fmean(r['test']['selected'] for r in finals):.2f}" if finals else "-"
        if done == needed and not finals:
            test = "diverged"
        # Two methods that share their records are told apart by their names.
        shared = f" ({method.name})" if method.shelf not in ("", method.name) else ""
        rows.append(
            [f"{done}/{needed}", str(len(method.grid)), setting, test, method.folder + shared]
        )
    print_table(["records", "settings", "chosen", "test %", "method"], rows)
    if not folder.is_dir():
        print(f"there is no folder {folder}: a checkout has one, --records names another")
