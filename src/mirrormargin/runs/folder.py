r"""A run is a folder: ``run.json`` says what it is, and names the file with its arrays.

    run.json              kind, format, what the writer put in, name and sha256 of the arrays, and
                          its own checksum
    arrays-<digest>.npz   the arrays, without pickles
    .lock                 while somebody writes; it names the arrays that come and those that go

A new version is published in one step. Its arrays are written first, under a name made from their
contents, then ``run.json`` is replaced, then the arrays that it named before are removed. Writers
take turns (:func:`mirrormargin.runs.hold_folder`). A reader needs no lock: if the arrays are gone
by the time that it opens them, there is a newer ``run.json`` to read.

Nothing is removed that no ``run.json`` or ``.lock`` has named, so that other files may lie in the
same folder, whatever they are called.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mirrormargin.arguments import check_path
from mirrormargin.errors import RunError
from mirrormargin.runs.arrays import pack_arrays, read_arrays
from mirrormargin.runs.documents import check_seal, read_json, seal
from mirrormargin.runs.files import write_atomically
from mirrormargin.runs.locks import LOCK, hold_folder

__all__ = ["RUN_FILE", "is_arrays_name", "read_run", "remove_run", "write_run"]

FORMAT = 1
RUN_FILE = "run.json"
ARRAYS = re.compile(r"arrays-[0-9a-f]{16}\.npz")
PATIENCE = 60.0  # seconds to wait for another writer


def is_arrays_name(name: str) -> bool:
    """Whether a file is called as the arrays of a run are."""
    return ARRAYS.fullmatch(name) is not None


def write_run(
    folder: str | Path, kind: str, document: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> None:
    """Write a run; one that is there already is replaced.

    Args:
        folder: Where; made if it does not exist.
        kind: What sort of run, checked on reading.
        document: Whatever JSON can hold.
        arrays: Of numbers or strings.

    Raises:
        RunError: If the folder cannot be written, another process keeps writing to it, or an array
            holds other things.
    """
    folder = Path(check_path("folder", folder, error=RunError))
    for key, array in arrays.items():
        if array.dtype.hasobject:
            raise RunError(f"array {key!r} holds Python objects: give numbers or strings")
    contents = pack_arrays(arrays)
    digest = hashlib.sha256(contents).hexdigest()
    name = f"arrays-{digest[:16]}.npz"
    whole = {"kind": kind, "format": FORMAT, **document, "arrays": {"file": name, "sha256": digest}}
    text = json.dumps(seal(whole), indent=2, allow_nan=False)
    with hold_folder(folder, wait=PATIENCE):
        before = _find_arrays(folder)
        _remove_unnamed(folder, before)
        _note(folder, f"{name} {before}")
        try:
            write_atomically(folder / name, lambda file: file.write(contents))
            write_atomically(folder / RUN_FILE, lambda file: file.write(text.encode() + b"\n"))
        except BaseException:
            _remove_unnamed(folder, _find_arrays(folder))
            raise
        if before not in (None, name):
            _remove(folder / str(before))


def read_run(folder: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The document and the arrays of a run, even while it is replaced.

    Raises:
        RunError: If there is no run, one of another kind or format, or a damaged one.
    """
    folder = Path(check_path("folder", folder, error=RunError))
    while True:
        document = _read_document(folder, kind)
        try:
            return document, _read_arrays(folder, document["arrays"])
        except RunError:
            # Were they replaced, or are they damaged?
            if _read_document(folder, kind) == document:
                raise


def remove_run(folder: Path) -> None:
    """Remove a run, and its folder if nothing else is in it."""
    with hold_folder(folder, wait=PATIENCE):
        name = _find_arrays(folder)
        _remove_unnamed(folder, name)
        _remove(folder / RUN_FILE)
        if name is not None:
            _remove(folder / name)
    with suppress(OSError):  # it holds something else, which stays
        folder.rmdir()


def _read_document(folder: Path, kind: str) -> dict[str, Any]:
    try:
        document = read_json(folder / RUN_FILE)
        found, version = document["kind"], document["format"]
        named = document["arrays"]["file"], document["arrays"]["sha256"]
        if not all(isinstance(one, str) for one in named):
            raise TypeError("the name or the sha256 of the arrays is no text")
    except FileNotFoundError:
        raise RunError(f"{folder} holds no run: there is no {RUN_FILE} in it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / RUN_FILE} is damaged: {error!r}") from error
    if found != kind or version != FORMAT:
        raise RunError(
            f"{folder} holds a run of kind {found!r} (format {version}), not {kind!r} (format"
            f" {FORMAT}): read it with what wrote it"
        )
    return check_seal(folder / RUN_FILE, document)


def _read_arrays(folder: Path, named: dict[str, str]) -> dict[str, NDArray[Any]]:
    path = folder / Path(named["file"]).name
    try:
        contents = path.read_bytes()
        if hashlib.sha256(contents).hexdigest() != named["sha256"]:
            raise RunError(
                f"{path} is damaged: its sha256 is not that of {RUN_FILE}; restore a copy, or make"
                " the run again"
            )
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    return read_arrays(path, contents)


def _find_arrays(folder: Path) -> str | None:
    """The arrays that ``run.json`` names, if it does."""
    with suppress(OSError, RunError, KeyError, TypeError):
        name = read_json(folder / RUN_FILE)["arrays"]["file"]
        return name if is_arrays_name(name) else None
    return None


def _note(folder: Path, names: str) -> None:
    """Say in the lock file which arrays come and which go, in case we are killed in between."""
    with suppress(OSError):
        file = os.open(folder / LOCK, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0))
        try:
            os.write(file, names.encode())
        finally:
            os.close(file)


def _remove_unnamed(folder: Path, named: str | None) -> None:
    """Remove what a writer that was stopped has left: the new arrays, or else the old ones."""
    if named is None and (folder / RUN_FILE).exists():
        return  # it cannot be read: a copy of it may name either
    with suppress(OSError, ValueError):
        file = os.open(folder / LOCK, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            names = os.read(file, 100).decode().split()
        finally:
            os.close(file)
        for name in names:
            if is_arrays_name(name) and name != named:
                _remove(folder / name)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
