"""The folder of a sweep: what is to be run, and the table of what has been.

    sweep.json                what is run: kind, products of settings in the order of their runs
    table/part-*.parquet      rows, in files of many tasks each: what pandas and polars read
    fresh/<first>.parquet     rows of single tasks, until they become a part of the table
    runs/                     folders of trainings on real data
    .lock                     while somebody computes

What is done is what the files say that they hold: there is no second record that could disagree. A
task's rows are on disk once their file has its name. Merging writes the part first and removes the
fresh files then, so the table never has a run twice, at whatever moment a process is killed; fresh
files whose runs are in the table are what a killed process left, and are removed. Runs keep their
numbers for ever: more runs are more products, behind those that are there.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.arguments import check_path
from mirrormargin.environment import list_versions
from mirrormargin.errors import RunError, SweepError, suggest
from mirrormargin.runs import check_seal, hold_folder, read_json, seal, write_atomically
from mirrormargin.sweep.axes import Product, find_missing
from mirrormargin.sweep.intervals import Intervals
from mirrormargin.sweep.parts import Part, join_parts, read_part, read_rows, write_part
from mirrormargin.sweep.table import DONE, count_failed, find_schema, import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = ["SWEEP", "SweepFolder", "read_table"]

SWEEP, TABLE, FRESH = "sweep.json", "table", "fresh"
KIND, FORMAT = "sweep", 1
NAMES = {TABLE: re.compile(r"part-\d{6}\.parquet"), FRESH: re.compile(r"\d+\.parquet")}
FRESH_ROWS, FRESH_FILES = 1 << 17, 256  # that are merged into a part
PATIENCE = 2.0  # seconds to wait for a process that looks at the folder


class SweepFolder:
    """A sweep that is kept in a folder, which need not exist yet.

    Args:
        path: Where.

    Raises:
        RunError: If it holds something else, or is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(check_path("folder", path, error=RunError))
        self.kind, self.id = "", ""
        self.products: list[Product] = []
        self.versions: dict[str, str] = {}
        self.table: list[Part] = []
        self.fresh: list[Part] = []
        self._merged: list[Part] = []  # fresh ones that the table has
        self.done, self.failed = Intervals(), 0
        if self.exists:
            self.read()

    def __repr__(self) -> str:
        return f"SweepFolder({str(self.path)!r}, {len(self.done):,} of {self.size:,} runs done)"

    @property
    def exists(self) -> bool:
        """Whether there is a sweep."""
        return (self.path / SWEEP).is_file() or any(self._list_files(TABLE))

    @property
    def size(self) -> int:
        """How many runs it has, done or not."""
        return sum(product.size for product in self.products)

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the runs that are done."""
        return sum(part.cpu_seconds for part in (*self.table, *self.fresh))

    @property
    def num_bytes(self) -> int:
        """Bytes of the table."""
        return sum(part.size for part in (*self.table, *self.fresh))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only one who writes to it.

        Raises:
            RunError: If another process does, or the folder cannot be made.
        """
        with hold_folder(self.path, wait=PATIENCE):
            if self.exists:
                self.read()
                if not (self.path / SWEEP).is_file():
                    self.write_document()
            yield

    def read(self) -> None:
        """Look at what is there, while somebody else may write.

        Raises:
            RunError: If something is damaged, or does not belong to this sweep.
        """
        while True:
            with suppress(FileNotFoundError):  # merged in between
                # Fresh ones first: what is merged after that is seen in the table as well.
                fresh = [read_part(path) for path in self._list_files(FRESH)]
                table = [read_part(path) for path in self._list_files(TABLE)]
                break
        self._read_document(table)
        self.done, self.failed = Intervals(), 0
        self.table, self.fresh, self._merged = [], [], []
        for part in table:
            self._take(part, self.table)
        for part in fresh:
            is_left = all(not any(self.done.gaps(*pair)) for pair in part.runs.pairs)
            if is_left:  # by a process that was killed after it had merged them
                self._merged.append(part)
            else:
                self._take(part, self.fresh)

    def _take(self, part: Part, parts: list[Part]) -> None:
        """Count in the runs of a file."""
        if part.sweep != self.id:
            raise RunError(f"{part.path} belongs to another sweep: move it elsewhere")
        for first, stop in part.runs.pairs:
            if stop > self.size:
                raise RunError(
                    f"{part.path} holds runs up to number {stop - 1:,}, and {self.path / SWEEP} has"
                    f" {self.size:,}: remove {SWEEP}, and it is made again from the table"
                )
            if self.done.overlaps(first, stop):
                raise RunError(
                    f"{part.path} holds runs that another file beside it holds too: remove one of"
                    " the two, such as a copy"
                )
        for first, stop in part.runs.pairs:
            self.done.add(first, stop)
        self.failed += part.failed
        parts.append(part)

    # -- what is to be run

    def extend(
        self, kind: str, products: Sequence[Product], find_default: Callable[[Product, str], Any]
    ) -> None:
        """Add runs, in memory alone; those that the sweep has already are the same runs.

        Raises:
            SweepError: If the sweep is of another kind.
        """
        if self.kind and self.kind != kind:
            raise SweepError(
                f"{self.path} holds a sweep of {self.kind} runs, and these are {kind} runs: choose"
                " another folder"
            )
        if not self.kind:
            self.kind, self.id = kind, secrets.token_hex(8)
            self.versions = list_versions()
        for product in products:
            self.products += find_missing(product, self.products, find_default)

    def write_document(self) -> None:
        """Keep what is to be run.

        Raises:
            RunError: If it cannot be written.
        """
        text = json.dumps(seal({"kind": KIND, "format": FORMAT, **self._describe()}), indent=2)
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / SWEEP, lambda file: file.write(text.encode() + b"\n"))

    def _describe(self) -> dict[str, Any]:
        """What each part of the table keeps, too."""
        return {
            "id": self.id,
            "runs": self.kind,
            "products": [product.to_document() for product in self.products],
            "versions": self.versions,
        }

    def _read_document(self, table: Sequence[Part]) -> None:
        path = self.path / SWEEP
        try:
            if path.is_file():
                document = check_seal(path, read_json(path))
            else:
                known = [part.document for part in table if part.document is not None]
                document = max(known, key=lambda one: len(one["products"]))
                document |= {"kind": KIND, "format": FORMAT}
            if (document["kind"], document["format"]) != (KIND, FORMAT):
                raise ValueError(f"it holds a {document['kind']}, format {document['format']}")
            self.products = [Product.from_document(one) for one in document["products"]]
            self.kind, self.id = str(document["runs"]), str(document["id"])
            self.versions = dict(document["versions"])
        except (RunError, ValueError, KeyError, TypeError) as error:
            remedy = "restore a copy"
            if any(part.document for part in table):
                remedy += ", or remove it: it is made again from the table"
            reason = str(error).removeprefix(f"{path} is damaged").lstrip(":, ")
            raise RunError(f"{path} is damaged: {reason}; {remedy}") from error

    # -- what has been run

    def add(self, first: int, stop: int, rows: pa.Table, cpu_seconds: float) -> None:
        """Keep the rows of the runs ``first <= number < stop``.

        Raises:
            RunError: If they cannot be written.
        """
        if rows["run"].to_pylist() != list(range(first, stop)) or self.done.overlaps(first, stop):
            raise SweepError(f"the rows are not those of the runs {first} to {stop - 1}")
        failed = count_failed(rows)
        path = self.path / FRESH / f"{first}.parquet"
        runs = Intervals([(first, stop)])
        self._take(write_part(path, rows, self.id, runs, failed, cpu_seconds), self.fresh)
        many = sum(len(part.runs) for part in self.fresh) >= FRESH_ROWS
        if many or len(self.fresh) >= FRESH_FILES:
            self.merge()

    def merge(self) -> None:
        """Make the fresh files a part of the table.

        Raises:
            RunError: If it cannot be written; the fresh files then stay.
        """
        if self.fresh:
            numbers = [int(path.stem.partition("-")[2]) for path in self._list_files(TABLE)]
            path = self.path / TABLE / f"part-{max(numbers, default=-1) + 1:06d}.parquet"
            rows = read_rows(self.kind, self.fresh)
            merged = join_parts(self.fresh)
            self.table.append(write_part(path, rows, self.id, *merged, self._describe()))
            self._merged += self.fresh
            self.fresh = []
        for part in self._merged:
            with suppress(OSError):
                part.path.unlink()
        self._merged = []
        with suppress(OSError):
            (self.path / FRESH).rmdir()

    def forget_failed(self) -> int:
        """Remove the rows of runs that failed, so that they are run again; returns how many."""
        pc = import_pyarrow().compute

        self.merge()
        count = self.failed
        for part in [one for one in self.table if one.failed]:
            rows = read_rows(self.kind, [part])
            kept = rows.filter(pc.equal(rows["status"].cast("string"), DONE))
            runs = Intervals((run, run + 1) for run in kept["run"].to_pylist())
            if len(runs):
                about = (self.id, runs, 0, part.cpu_seconds, self._describe())
                write_part(part.path, kept, *about)
            else:
                part.path.unlink()
        self.read()
        return count

    def read_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, in the order of the runs.

        Raises:
            RunError: If a file is damaged.
        """
        while True:
            with suppress(FileNotFoundError):  # merged in between
                return read_rows(self.kind, [*self.table, *self.fresh], columns)
            self.read()

    def count_errors(self) -> dict[str, int]:
        """What failed runs raised, the most frequent first.

        Raises:
            RunError: If a file is damaged.
        """
        parts = [part for part in (*self.table, *self.fresh) if part.failed]
        errors = read_rows(self.kind, parts, ["error"])["error"].drop_null() if parts else ()
        return dict(Counter(map(str, errors)).most_common())

    def _list_files(self, name: str) -> list[Path]:
        """The files of the table, or the fresh ones, in the order of their numbers."""
        folder = self.path / name
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(path for path in found if NAMES[name].fullmatch(path.name))


def read_table(folder: str | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a sweep, in the order of its runs, even while it is running.

    The files in its folder ``table`` are read by anything that reads Parquet; while a sweep runs,
    the newest rows are not there yet.

    Args:
        folder: Where :func:`run_sweep` kept it.
        columns: Names; None for all.

    Raises:
        RunError: If there is no sweep, or a file is damaged.
    """
    sweep = SweepFolder(folder)
    if not sweep.exists:
        raise RunError(f"{folder} holds no sweep: give a folder that mirrormargin sweep run wrote")
    if columns is not None:
        known = find_schema(sweep.kind).names
        for name in columns:
            if name not in known:
                raise RunError(f"the table has no column {name!r}: {suggest(name, known)}")
    return sweep.read_table(columns)
