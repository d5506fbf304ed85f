"""Folders that can be reported on: claims with their evidence, and runs.

DIR/claims.json                        verdicts, each with the folder of its evidence
DIR/run.json                           one run: a training, a flow, a path, or evidence
DIR/*/run.json, DIR/*/claims.json      several, taken in the order of their names
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import ReportError, RunError
from mirrormargin.runs import read_run

__all__ = ["KINDS", "ClaimsFolder", "Evidence", "RunFolder", "Sources", "read_sources"]

CLAIMS, RUN = "claims.json", "run.json"
CLAIMS_FORMAT = 1
EVIDENCE = "evidence"
TRAINING, FLOW = "attention training", "mirror flow"
PATH, JOINT_PATH = "regularization path", "joint regularization path"
KINDS = (TRAINING, FLOW, PATH, JOINT_PATH, EVIDENCE)

Arrays = dict[str, NDArray[Any]]
Evidence = dict[str, tuple[dict[str, Any], Arrays]]  # by experiment


@dataclass(frozen=True, eq=False)
class ClaimsFolder:
    """Claims, and the evidence that they name, by experiment."""

    folder: Path
    document: dict[str, Any]
    evidence: Evidence

    @property
    def claims(self) -> list[dict[str, Any]]:
        return self.document["claims"]


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run: the name of its folder, its kind, and what is in it."""

    name: str
    kind: str
    document: dict[str, Any]
    arrays: Arrays

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    @property
    def exponents(self) -> tuple[float, ...]:
        """The exponents p of the run, from wherever its kind keeps them."""
        found = self.arrays.get("p", self.document.get("p"))
        if found is None:
            found = self.document["settings"]["p"]
        return tuple(float(p) for p in np.ravel(np.asarray(found, dtype=np.float64)))


@dataclass(frozen=True, eq=False)
class Sources:
    """All that was found."""

    claims: tuple[ClaimsFolder, ...]
    runs: tuple[RunFolder, ...]


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read every claims folder and run folder among the paths and one level below them.

    Raises:
        ReportError: If there is none, or a damaged one.
    """
    if not paths:
        raise ReportError("no folder was given: name one that reproduce, train, flow or path wrote")
    claims: list[ClaimsFolder] = []
    runs: list[RunFolder] = []
    for folder in dict.fromkeys(folder for path in paths for folder in _find_folders(Path(path))):
        if (folder / CLAIMS).is_file():
            claims.append(_read_claims(folder))
        else:
            runs.append(_read_any_run(folder))
    return Sources(tuple(claims), tuple(runs))


def _find_folders(path: Path) -> list[Path]:
    if path.name in (CLAIMS, RUN) and path.is_file():
        path = path.parent
    if not path.is_dir():
        raise ReportError(
            f"{path} is no folder: give one that mirrormargin reproduce, train, flow or path wrote"
        )
    if _is_source(path):
        return [path]
    try:
        below = sorted(folder for folder in path.iterdir() if folder.is_dir())
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    found = [folder for folder in below if _is_source(folder)]
    if not found:
        raise ReportError(
            f"{path} holds nothing to report on: there is no {CLAIMS} and no {RUN} in it or in a"
            " folder of it; write one with mirrormargin reproduce, train, flow or path --out"
        )
    return found


def _is_source(folder: Path) -> bool:
    return (folder / CLAIMS).is_file() or (folder / RUN).is_file()


def _read_claims(folder: Path) -> ClaimsFolder:
    file = folder / CLAIMS
    try:
        document = json.loads(file.read_bytes())
        found = document["kind"], document["format"]
        if found != ("claims", CLAIMS_FORMAT):
            raise ReportError(
                f"{file} is of kind {found[0]!r}, format {found[1]}: 'claims', format"
                f" {CLAIMS_FORMAT} can be read"
            )
        for claim in document["claims"]:
            for name in ("id", "title", "verdict"):
                if not isinstance(claim[name], str):
                    raise TypeError(f"{name} is no text")
            for test in claim.get("tests") or []:
                if not {"name", "holds"} <= test.keys():
                    raise KeyError("name and holds of a test")
    except OSError as error:
        raise ReportError(f"{file} cannot be read: {error.strerror}") from error
    except ReportError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(
            f"{file} is damaged ({error!r}): write it again with mirrormargin reproduce"
        ) from error
    evidence: Evidence = {}
    names = (claim.get("evidence") for claim in document["claims"])
    for name in dict.fromkeys(name for name in names if name):
        content, arrays = _read(folder / str(name), EVIDENCE)
        evidence.setdefault(str(content.get("experiment", name)), (content, arrays))
    return ClaimsFolder(folder, document, evidence)


def _read_any_run(folder: Path) -> RunFolder:
    try:
        kind = json.loads((folder / RUN).read_bytes())["kind"]
    except OSError as error:
        raise ReportError(f"{folder / RUN} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{folder / RUN} is damaged: {error!r}") from error
    if kind not in KINDS:
        raise ReportError(
            f"{folder} holds a run of kind {kind!r}, which has no figures: give one of"
            f" {', '.join(KINDS)}"
        )
    document, arrays = _read(folder, kind)
    return RunFolder(folder.resolve().name, kind, document, arrays)


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    try:
        return read_run(folder, kind)
    except RunError as error:
        raise ReportError(f"{error}; write the folder again") from error
