"""``mirrormargin sweep``: many runs from a grid, here or on a cluster, and their table.

run       everything that a grid asks for and the folder does not have
status    what is done, what failed and what is left
resume    what is left, without the grid
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from mirrormargin.cli import interrupts
from mirrormargin.cli.options import (
    OUTPUT,
    Count,
    DataFolder,
    Json,
    Number,
    Positive,
    Quiet,
    show_examples,
)
from mirrormargin.cli.terminal import Progress, print_json, print_pairs, say, warn
from mirrormargin.errors import SweepError

if TYPE_CHECKING:
    from mirrormargin.sweep import SweepFolder, SweepProgress

__all__ = ["resume_app", "run_app", "status_app"]

LINE_EVERY = 60.0  # seconds between lines about progress, where there is no terminal
MOST_ERRORS = 5
FAILED = "some runs failed"
COMPUTE = Group("Where it is computed", sort_key=50)
FILES = """\
GRID is a .toml file, or a .py file with a variable GRID:
  [lab]                           [training]
  seed = "1-1000"                 configuration = "digits/tiny"
  p = [1.75, 2, 3]                seed = "0-4"
  lr = [0.03, 0.1]                optimizer.p = [1.1, 2]
a list is tried value by value, in every combination with the others.
The table is in FOLDER/table: pandas.read_parquet("FOLDER/table").
"""

run_app = App(
    name="run",
    **show_examples(
        (
            ("sweep run grid.toml", "run it on all cores, into sweeps/grid"),
            ("sweep run grid.toml --engine ray --address auto", "on a Ray cluster"),
            ("sweep run grid.toml --dry-run", "how many runs it has, and what they would take"),
        ),
        failed=FAILED,
        more=FILES,
    ),
)
status_app = App(
    name="status", **show_examples((("sweep status sweeps/grid", "how far it is"),), failed=FAILED)
)
resume_app = App(
    name="resume",
    **show_examples(
        (
            ("sweep resume sweeps/grid", "run what is left"),
            ("sweep resume sweeps/grid --retry-failed", "and what failed before"),
        ),
        failed=FAILED,
    ),
)

Folder = Annotated[Path, Parameter(help="Where the sweep is kept.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Computing:
    """Where and how runs are computed; it does not change their rows.

    Attributes:
        engine: Processes on this machine, or a Ray cluster.
        workers: Processes, or most tasks at a time; 0 for this process itself. [default: all cores]
        address: Of the Ray cluster, such as HOST:6379.
        gpus: GPUs that each training gets, or a share of one.
        batch: Runs of a task in the lab. [default: about ten seconds of them]
        retry_failed: Run those again that failed before.
    """

    engine: Annotated[Literal["local", "ray"], Parameter(group=COMPUTE)] = "local"
    workers: Annotated[Count | None, Parameter(group=COMPUTE)] = None
    address: Annotated[str, Parameter(group=COMPUTE)] = "auto"
    gpus: Annotated[Number, Parameter(group=COMPUTE)] = 0.0
    batch: Annotated[Positive | None, Parameter(group=COMPUTE)] = None
    data_dir: Annotated[DataFolder | None, Parameter(group=COMPUTE)] = None
    retry_failed: Annotated[bool, Parameter(group=COMPUTE)] = False

    def as_options(self) -> dict[str, Any]:
        """The arguments of the library's functions."""
        return {
            "engine": self.engine,
            "workers": self.workers,
            "address": self.address,
            "gpus": self.gpus,
            "most": self.batch,
            "data_dir": self.data_dir,
            "retry_failed": self.retry_failed,
        }


@run_app.default
def run(
    grid: Annotated[Path, Parameter(help="What to run, see below.")],
    /,
    *,
    computing: Computing = Computing(),
    out: Annotated[
        Path | None,
        Parameter(
            metavar="FOLDER",
            group=OUTPUT,
            help="Where the table is kept.",
            show_default="sweeps/GRID",
        ),
    ] = None,
    dry_run: Annotated[bool, Parameter(group=OUTPUT)] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Run everything that a grid asks for and that is not done yet.

    Args:
        dry_run: Count the runs and estimate their time, and run nothing.
    """
    folder = Path("sweeps") / grid.stem if out is None else out
    from mirrormargin.sweep import read_grids, run_sweep

    grids = read_grids(grid)
    if dry_run:
        return _estimate(grids, folder, json)

    def start(**options: Any) -> SweepFolder:
        return run_sweep(grids, folder, **options)

    return _compute(start, folder, computing, json, quiet)


@resume_app.default
def resume(
    folder: Folder,
    /,
    *,
    computing: Computing = Computing(),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Run what is left of a sweep."""
    from mirrormargin.sweep import resume_sweep

    def start(**options: Any) -> SweepFolder:
        return resume_sweep(folder, **options)

    return _compute(start, folder, computing, json, quiet)


@status_app.default
def status(folder: Folder, /, *, json: Json = False) -> int:
    """Show how far a sweep is, while it runs or not."""
    from mirrormargin.sweep import SweepFolder

    sweep = SweepFolder(folder)
    if not sweep.exists:
        raise SweepError(f"{folder} holds no sweep: begin one with mirrormargin sweep run")
    return _show(sweep, json, quiet=False)


def _compute(
    start: Callable[..., SweepFolder], folder: Path, computing: Computing, json: bool, quiet: bool
) -> int:
    signals = interrupts.NotedSignals()
    with Progress(1.0, "sweep", quiet or json) as bar, signals.listen():
        watch = _Watch(bar, signals, quiet or json)
        try:
            sweep = start(progress=watch, **computing.as_options())
        except KeyboardInterrupt:
            bar.close()
            known = watch.last
            done = "" if known is None else f" after {known.done:,} of {known.total:,} runs"
            warn(f"{interrupts.describe()}{done}, which {folder / 'table'} keeps")
            warn(f"to resume: mirrormargin sweep resume {shlex.quote(str(folder))}")
            return interrupts.exit_code()
    return _show(sweep, json, quiet)


class _Watch:
    """The callback: shows progress, and stops on a signal."""

    def __init__(self, bar: Progress, signals: interrupts.NotedSignals, quiet: bool) -> None:
        self.bar, self.signals, self.quiet = bar, signals, quiet
        self.last: SweepProgress | None = None
        self._begun = self._said = time.monotonic()
        self._first = 0.0

    def __call__(self, progress: SweepProgress) -> None:
        if self.last is None:
            self._first = progress.share
        self.last = progress
        self.bar.update(progress.share, _describe(progress))
        now = time.monotonic()
        if not (self.quiet or self.bar.is_shown) and now - self._said >= LINE_EVERY:
            self._said = now
            say(f"{_describe(progress)}{self._describe_rest(progress.share, now)}")
        if self.signals.have_come:
            raise KeyboardInterrupt

    def _describe_rest(self, share: float, now: float) -> str:
        """How long the rest will take, once there is something to judge by."""
        gained = share - self._first
        if gained <= 0:
            return ""
        return f", about {_describe_time((now - self._begun) * (1 - share) / gained)} left"


def _describe(progress: SweepProgress) -> str:
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{progress.done:,} of {progress.total:,} runs{failed}"


def _describe_time(seconds: float) -> str:
    """Roughly, in the unit that suits it."""
    units = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0), ("seconds", 1.0))
    unit, size = next((one for one in units if seconds >= 2 * one[1]), ("ms", 1e-3))
    count = seconds / size
    return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.2g} {unit}"


def _estimate(grids: list[Any], folder: Path, json: bool) -> int:
    """What a grid would take."""
    from mirrormargin.sweep import plan_sweep

    plan = plan_sweep(grids, folder)
    if json:
        print_json({"folder": str(folder), **vars(plan)})
        return 0
    text = f"{plan.total:,} runs, {plan.done:,} of them done in {folder}"
    if plan.cpu_seconds:
        text += f"; the others take about {_describe_time(plan.cpu_seconds)} of a core"
    say(text)
    return 0


def _show(sweep: SweepFolder, json: bool, quiet: bool) -> int:
    """What a sweep has; returns the exit code."""
    done = len(sweep.done)
    left, each = sweep.size - done, max(done, 1)
    errors = sweep.count_errors()
    if json:
        print_json(
            {
                "folder": str(sweep.path),
                "kind": sweep.kind,
                "runs": sweep.size,
                "done": done,
                "failed": sweep.failed,
                "left": left,
                "bytes": sweep.num_bytes,
                "cpu_seconds": sweep.cpu_seconds,
                "errors": [{"error": error, "runs": count} for error, count in errors.items()],
            }
        )
        return 1 if sweep.failed else 0
    say(f"{sweep.path}: {done:,} of {sweep.size:,} {sweep.kind} runs, {sweep.failed:,} failed")
    if done and not quiet:
        print_pairs(
            {
                "table": f"{sweep.path / 'table'}, {sweep.num_bytes / 1e6:,.1f} MB,"
                f" {sweep.num_bytes / each:,.0f} bytes a run",
                "computing": f"{_describe_time(sweep.cpu_seconds)} of a core,"
                f" {_describe_time(sweep.cpu_seconds / each)} a run",
            }
        )
    for error, count in list(errors.items())[:MOST_ERRORS]:
        say(f"  {count:,} x {error}")
    quoted = shlex.quote(str(sweep.path))
    if left:
        say(f"{left:,} are left: mirrormargin sweep resume {quoted}")
    if sweep.failed:
        say(f"to run those again that failed: mirrormargin sweep resume {quoted} --retry-failed")
    return 1 if sweep.failed else 0
