r"""What a claim is examined on: the arrays of one experiment, and where they come from.

    evidence/<experiment>-<digest>/        a run folder, the digest of all that shaped its numbers
    records/<experiment>.json              a stored record, which comes with the package

A stored record stands in for a run that takes hours: it says by which command, on which data and
with which versions it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import RunError
from mirrormargin.runs import (
    CHECKSUM,
    check_seal,
    parse_json,
    read_run,
    seal,
    write_atomically,
    write_run,
)

__all__ = [
    "EVIDENCE",
    "Evidence",
    "find_digest",
    "find_record",
    "read_evidence",
    "store_record",
    "write_evidence",
]

EVIDENCE = "evidence"  # the kind of these runs, and the name of the folder that holds them
# Rooms whose code shapes no numbers: when a file of any other room changes, evidence is run again.
OTHER_ROOMS = ("claims", "cli", "deltas", "figures", "integrations", "report", "runs", "sweep")
RUN_NOW, STORED = "run now", "stored record"
ORIGIN = ("command", "data_sha256", "versions")
RECORD_KEYS = ("experiment", *ORIGIN, "settings", "arrays")


@dataclass(frozen=True, eq=False)
class Evidence:
    """The numbers of one experiment.

    Attributes:
        experiment: Its name.
        settings: Sizes and seeds that it was run with.
        arrays: The numbers.
        origin: "run now" or "stored record", and for a record command, data_sha256 and versions.
        seconds: What the run took, on one core.
    """

    experiment: str
    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    origin: dict[str, Any] = field(default_factory=lambda: {"kind": RUN_NOW})
    seconds: float = 0.0

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.arrays:
            raise RunError(
                f"the evidence of {self.experiment} lacks the array {name!r}: run it again with"
                " --fresh, or make the record again"
            )
        return self.arrays[name]


def find_digest(experiment: str, settings: dict[str, Any], sources: Sequence[Path] = ()) -> str:
    """Eight characters that change with all that shapes the numbers.

    Args:
        experiment: Its name.
        settings: Sizes and seeds.
        sources: Files that make the numbers, beside those of the rooms that count.
    """
    own = [hashlib.sha256(file.read_bytes()).hexdigest() for file in sources]
    text = json.dumps([experiment, settings, own, _digest_rooms()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def _digest_rooms() -> str:
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    rooms = {file.parent for file in package.glob("*/__init__.py")}
    for room in sorted(room for room in rooms if room.name not in OTHER_ROOMS):
        for file in sorted(room.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write evidence as a run folder.

    Raises:
        RunError: If it cannot be written.
    """
    names = ("experiment", "settings", "seconds")
    document = {name: getattr(evidence, name) for name in names}
    write_run(folder, EVIDENCE, document, evidence.arrays)


def read_evidence(folder: Path) -> Evidence:
    """Read what :func:`write_evidence` wrote.

    Raises:
        RunError: If there is none, or it is damaged.
    """
    document, arrays = read_run(folder, EVIDENCE)
    try:
        names = ("experiment", "settings", "seconds")
        return Evidence(**{name: document[name] for name in names}, arrays=arrays)
    except KeyError as error:
        raise RunError(f"the evidence in {folder} is damaged: it lacks {error}") from error


def find_record(experiment: str, folder: Path | None = None) -> Evidence | None:
    """The stored record of an experiment, or None.

    Args:
        experiment: Its name.
        folder: Where to look; None for the records that come with the package.

    Raises:
        RunError: If there is a record but it cannot be read.
    """
    where: Any = (
        folder if folder is not None else resources.files("mirrormargin.claims") / "records"
    )
    file = where / f"{experiment}.json"
    if not file.is_file():
        return None
    try:
        record = parse_json(file.read_bytes())
        missing = [key for key in RECORD_KEYS if key not in record]
        if missing:
            raise RunError(f"the record {file} lacks {', '.join(missing)}")
        record = check_seal(str(file), record, silent=True)
        arrays = {name: np.array(value) for name, value in record["arrays"].items()}
        if any(array.dtype.hasobject for array in arrays.values()):
            raise RunError(f"the record {file} holds arrays with rows of unequal length")
    except (ValueError, TypeError, AttributeError) as error:
        raise RunError(f"the record {file} is damaged: {error}") from error
    origin = {key: record[key] for key in ORIGIN}
    return Evidence(experiment, record["settings"], arrays, {"kind": STORED, **origin})


def store_record(folder: Path, evidence: Evidence) -> None:
    """Store evidence as the record of its experiment, which :func:`find_record` finds."""
    origin = {key: evidence.origin[key] for key in ORIGIN}
    document: dict[str, Any] = {
        "experiment": evidence.experiment,
        **origin,
        "settings": evidence.settings,
        "seconds": evidence.seconds,
    }
    numbers = {name: array.tolist() for name, array in evidence.arrays.items()}
    document[CHECKSUM] = seal({**document, "arrays": numbers})[CHECKSUM]
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    arrays = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in numbers.items()
    )
    text = "{\n" + ",\n".join([*lines, '"arrays": {\n' + arrays + "\n}"]) + "\n}\n"
    path = folder / f"{evidence.experiment}.json"
    write_atomically(path, lambda file: file.write(text.encode()))
