r"""A run is a folder: ``run.json`` says what it is, and names the file with its arrays.

    run.json              kind, format, what the writer put in, name and sha256 of the arrays, and
                          its own checksum
    arrays-<digest>.npz   the arrays, without pickles

The arrays are written first, under a name made from their contents, then ``run.json`` is replaced.
So a folder can be written again at any time, and a reader finds the old run or the new one.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mirrormargin.arguments import check_path
from mirrormargin.errors import RunError
from mirrormargin.runs.arrays import pack_arrays, read_arrays
from mirrormargin.runs.documents import check_seal, read_json, seal
from mirrormargin.runs.files import write_atomically

__all__ = ["RUN_FILE", "read_run", "write_run"]

FORMAT = 1
RUN_FILE = "run.json"


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
        RunError: If the folder cannot be written, or an array holds other things.
    """
    folder = Path(check_path("folder", folder, error=RunError))
    for key, array in arrays.items():
        if array.dtype.hasobject:
            raise RunError(f"array {key!r} holds Python objects: give numbers or strings")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}") from error
    contents = pack_arrays(arrays)
    digest = hashlib.sha256(contents).hexdigest()
    name = f"arrays-{digest[:16]}.npz"
    write_atomically(folder / name, lambda file: file.write(contents))
    whole = {"kind": kind, "format": FORMAT, **document, "arrays": {"file": name, "sha256": digest}}
    text = json.dumps(seal(whole), indent=2, allow_nan=False)
    write_atomically(folder / RUN_FILE, lambda file: file.write(text.encode() + b"\n"))
    for old in folder.glob("arrays-*.npz"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_run(folder: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The document and the arrays of a run.

    Raises:
        RunError: If there is no run, one of another kind or format, or a damaged one.
    """
    folder = Path(check_path("folder", folder, error=RunError))
    try:
        document = read_json(folder / RUN_FILE)
        found, version = document["kind"], document["format"]
        name, digest = Path(document["arrays"]["file"]).name, document["arrays"]["sha256"]
    except FileNotFoundError:
        raise RunError(f"{folder} holds no run: there is no {RUN_FILE} in it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / RUN_FILE} is damaged: {error!r}") from error
    if found != kind or version != FORMAT:
        raise RunError(
            f"{folder} holds a run of kind {found!r} (format {version}), not {kind!r} (format"
            f" {FORMAT}): read it with what wrote it"
        )
    document = check_seal(folder / RUN_FILE, document)
    try:
        contents = (folder / name).read_bytes()
        if hashlib.sha256(contents).hexdigest() != digest:
            raise RunError(f"{folder / name} is damaged: its sha256 is not that of {RUN_FILE}")
    except OSError as error:
        raise RunError(f"{folder / name} cannot be read: {error.strerror}") from error
    return document, read_arrays(folder / name, contents)
