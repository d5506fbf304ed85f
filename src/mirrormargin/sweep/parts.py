"""Parquet files with rows of a sweep, each of which says what is in it.

    metadata "mirrormargin.sweep":
        {"sweep": id, "runs": [[first, stop], ...], "failed": 3, "cpu_seconds": ..., ...}

The intervals are of run numbers, ``failed`` is how many of them failed. So a sweep knows what it
has from the ends of its files, without going through rows. Pages have checksums, which are compared
when rows are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.errors import RunError
from mirrormargin.runs import check_seal, parse_json, seal, write_atomically
from mirrormargin.sweep.intervals import Intervals
from mirrormargin.sweep.table import MEASURED, find_schema, import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = ["Part", "join_parts", "read_part", "read_rows", "write_part"]

KEY = b"mirrormargin.sweep"
COMPRESSION = "zstd"
UNIQUE = ("run", "digest", "folder", "settings")
RESUME = "mirrormargin sweep resume computes its runs again"
CONTINUE = "mirrormargin sweep resume computes the rest"


@dataclass(frozen=True)
class Part:
    """A file of rows.

    Attributes:
        path: Where.
        sweep: Which sweep it belongs to.
        runs: The numbers of its runs.
        failed: How many of them failed.
        cpu_seconds: What they took.
        size: Bytes of the file.
        document: What the sweep was when it was written, if the file has that.
    """

    path: Path
    sweep: str
    runs: Intervals
    failed: int
    cpu_seconds: float
    size: int = 0
    document: dict[str, Any] | None = field(default=None, repr=False)


def write_part(
    path: Path,
    table: pa.Table,
    sweep: str,
    runs: Intervals,
    failed: int,
    cpu_seconds: float,
    document: dict[str, Any] | None = None,
) -> Part:
    """Write rows to a file, whole or not at all; see :class:`Part` for the arguments.

    Raises:
        RunError: If it cannot be written.
    """
    pa = import_pyarrow()
    note: dict[str, Any] = {
        "sweep": sweep,
        "runs": runs.pairs,
        "failed": failed,
        "cpu_seconds": round(cpu_seconds, 3),
    }
    if document is not None:
        note["document"] = document
    marked = table.replace_schema_metadata({KEY: json.dumps(seal(note))})
    # Numbers that hardly ever repeat: their bytes are compressed by place, not as a dictionary.
    split = [name for name in table.column_names if name in MEASURED]
    others = [name for name in table.column_names if name not in (*split, *UNIQUE)]
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(
        marked,
        sink,
        compression=COMPRESSION,
        use_dictionary=others,
        use_byte_stream_split=split,
        write_page_checksum=True,
    )
    contents = sink.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(contents))
    except (RunError, OSError) as error:
        reason = (
            f"{path} cannot be written: {error.strerror}" if isinstance(error, OSError) else error
        )
        raise RunError(f"{reason}; what is done is kept: make room, and {CONTINUE}") from error
    return Part(path, sweep, runs, failed, note["cpu_seconds"], contents.size, document)


def read_part(path: Path) -> Part:
    """What is in a file, from its end.

    Raises:
        FileNotFoundError: If it is gone.
        RunError: If it is damaged, or was not written by a sweep.
    """
    pa = import_pyarrow()
    try:
        size = path.stat().st_size
        metadata = pa.parquet.read_metadata(path)
        if KEY not in (metadata.metadata or {}):
            raise RunError(f"{path} was not written by a sweep: move it elsewhere")
        note = check_seal(path, parse_json(metadata.metadata[KEY]))
        runs = Intervals((int(first), int(stop)) for first, stop in note["runs"])
        if len(runs) != metadata.num_rows:
            raise ValueError(f"it has {metadata.num_rows:,} rows, and says {len(runs):,}")
        return Part(
            path,
            str(note["sweep"]),
            runs,
            int(note["failed"]),
            float(note["cpu_seconds"]),
            size,
            note.get("document"),
        )
    except FileNotFoundError:
        raise
    except RunError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise _blame(path, error) from error


def read_rows(kind: str, parts: Iterable[Part], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of several files, in the order of their run numbers.

    Args:
        kind: "lab" or "training".
        parts: The files.
        columns: Names; None for all.

    Raises:
        RunError: If one is damaged.
    """
    pa = import_pyarrow()
    schema = find_schema(kind)
    names = schema.names if columns is None else list(columns)
    wanted = pa.schema([schema.field(name) for name in names])
    read = ["run", *(name for name in names if name != "run")]
    tables = [
        _read_table(part.path, pa.schema([schema.field(name) for name in read])) for part in parts
    ]
    if not tables:
        return wanted.empty_table()
    ordered = pa.concat_tables(tables).unify_dictionaries().sort_by("run").select(names)
    # Categories in the order of the rows, and not of the files, which depends on who was first.
    arrays = [
        column.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(column.type)
        else column
        for column in ordered.combine_chunks().columns
    ]
    return pa.table(arrays, schema=wanted)


def join_parts(parts: Sequence[Part]) -> tuple[Intervals, int, float]:
    """The runs, how many failed, and the processor time of several files together."""
    runs = Intervals(pair for part in parts for pair in part.runs.pairs)
    return runs, sum(part.failed for part in parts), sum(part.cpu_seconds for part in parts)


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    pa = import_pyarrow()
    try:
        with pa.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(columns=schema.names).replace_schema_metadata()
        if table.schema != schema:
            raise ValueError("its columns are not those of a sweep")
        return table
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise _blame(path, error) from error


def _blame(path: Path, error: Exception) -> RunError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return RunError(
        f"{path} is damaged ({reason}): restore a copy of it, or remove it, and {RESUME}"
    )
