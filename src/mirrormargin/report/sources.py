"""Folders that can be reported on: claims with their evidence, and runs.

DIR/claims.json                        verdicts, each with the folder of its evidence
DIR/run.json                           one run: a training, a flow, a path, or evidence
DIR/summary.json                       a model trained on real data
DIR/**/run.json, DIR/**/claims.json    several, up to four levels down, in the order of their names
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import ReportError, RunError, TrainingError
from mirrormargin.report.folders import CLAIMS, EVIDENCE, RUN, SUMMARY, find_folders, name_folders
from mirrormargin.runs import read_run
from mirrormargin.training.folder import TrainingFolder

__all__ = ["KINDS", "ClaimsFolder", "Evidence", "RunFolder", "Sources", "read_sources"]

CLAIMS_FORMAT = 1
TRAINING, FLOW = "attention training", "mirror flow"
PATH, JOINT_PATH = "regularization path", "joint regularization path"
KINDS = (TRAINING, FLOW, PATH, JOINT_PATH, EVIDENCE)
MODEL = "model training"

Arrays = dict[str, NDArray[Any]]
Evidence = dict[str, tuple[dict[str, Any], Arrays]]  # by experiment


@dataclass(frozen=True, eq=False)
class ClaimsFolder:
    """Claims, and the evidence that they name, by experiment.

    Attributes:
        name: How the folder is called on the page.
        folder: Where it is.
        document: What claims.json holds.
        evidence: From the experiment's name to its document and arrays.
    """

    name: str
    folder: Path
    document: dict[str, Any]
    evidence: Evidence

    @property
    def claims(self) -> list[dict[str, Any]]:
        return self.document["claims"]


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run: the name of its folder on the page, where it is, its kind, and what is in it."""

    name: str
    folder: Path
    kind: str
    document: dict[str, Any]
    arrays: Arrays

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    @property
    def stem(self) -> str:
        """The name as a part of a file's name."""
        return self.name.replace("/", "-")

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
    """Read every claims folder and run folder among the paths and up to four levels below them.

    Each is named by its place below the path; equal names get more of their parents in front.

    Raises:
        ReportError: If there is none, or a damaged one.
    """
    if not paths:
        raise ReportError("no folder was given: name one that reproduce, train or lab wrote")
    claims: list[ClaimsFolder] = []
    runs: list[RunFolder] = []
    for name, folder in name_folders([one for path in paths for one in find_folders(Path(path))]):
        if (folder / CLAIMS).is_file():
            claims.append(_read_claims(name, folder))
        if (folder / RUN).is_file():
            runs.append(_read_any_run(name, folder))
        if (folder / SUMMARY).is_file():
            runs.append(_read_summary(name, folder))
    return Sources(tuple(claims), tuple(runs))


def _read_claims(name: str, folder: Path) -> ClaimsFolder:
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
            for key in ("id", "title", "verdict"):
                if not isinstance(claim[key], str):
                    raise TypeError(f"{key} is no text")
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
    places = (claim.get("evidence") for claim in document["claims"])
    for place in dict.fromkeys(place for place in places if place):
        content, arrays = _read(folder / str(place), EVIDENCE)
        evidence.setdefault(str(content.get("experiment", place)), (content, arrays))
    return ClaimsFolder(name, folder, document, evidence)


def _read_any_run(name: str, folder: Path) -> RunFolder:
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
    return RunFolder(name, folder, kind, document, arrays)


def _read_summary(name: str, folder: Path) -> RunFolder:
    try:
        document = TrainingFolder(folder).read_summary() or {}
    except TrainingError as error:
        raise ReportError(f"{error}; remove it, mirrormargin train writes it again") from error
    for key in ("command", "config", "epochs", "shares", "validation", "weights"):
        if key not in document:
            raise ReportError(
                f"{folder / SUMMARY} is damaged, it has no {key!r}: remove it, mirrormargin train"
                " writes it again"
            )
    return RunFolder(name, folder, MODEL, document, {})


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    try:
        return read_run(folder, kind)
    except RunError as error:
        raise ReportError(f"{error}; write the folder again") from error
