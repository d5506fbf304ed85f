"""Folders that can be reported on: claims with their evidence, and runs.

DIR/claims.json                        verdicts, each with the folder of its evidence
DIR/run.json                           one run: a training, a flow, a path, or evidence
DIR/summary.json                       a model trained on real data
DIR/**/run.json, DIR/**/claims.json    several, up to four levels down, in the order of their names
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mirrormargin.claims.evidence import Evidence, read_evidence
from mirrormargin.dynamics.figures import KINDS, LabRun
from mirrormargin.errors import ReportError, RunError, TrainingError
from mirrormargin.report.folders import CLAIMS, EVIDENCE, RUN, SUMMARY, find_folders, name_folders
from mirrormargin.runs import read_run
from mirrormargin.training.folder import TrainingFolder

__all__ = ["ClaimsFolder", "Sources", "read_sources"]

CLAIMS_FORMAT = 1

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ClaimsFolder:
    """Claims, and the evidence that they name.

    Attributes:
        name: How the folder is called on the page.
        folder: Where it is.
        document: What claims.json holds.
        evidence: By the name of the experiment.
    """

    name: str
    folder: Path
    document: dict[str, Any]
    evidence: dict[str, Evidence]

    @property
    def claims(self) -> list[dict[str, Any]]:
        return self.document["claims"]


@dataclass(frozen=True, eq=False)
class Sources:
    """All that was found.

    Attributes:
        claims: Folders of claims.
        evidence: Evidence that was given without its claims, by the name of its folder.
        runs: Runs of the lab.
        trainings: The summaries of models trained on real data, by the name of their folder.
    """

    claims: tuple[ClaimsFolder, ...]
    evidence: dict[str, Evidence]
    runs: tuple[LabRun, ...]
    trainings: dict[str, dict[str, Any]]


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read every claims folder and run folder among the paths and up to four levels below them.

    Each is named by its place below the path; equal names get more of their parents in front.

    Raises:
        ReportError: If there is none, or a damaged one.
    """
    if not paths:
        raise ReportError("no folder was given: name one that reproduce, train or lab wrote")
    claims: list[ClaimsFolder] = []
    evidence: dict[str, Evidence] = {}
    runs: list[LabRun] = []
    trainings: dict[str, dict[str, Any]] = {}
    for name, folder in name_folders([one for path in paths for one in find_folders(Path(path))]):
        if (folder / CLAIMS).is_file():
            claims.append(_read_claims(name, folder))
        if (folder / RUN).is_file():
            run = _read_any_run(name, folder)
            if isinstance(run, Evidence):
                evidence[name] = run
            else:
                runs.append(run)
        if (folder / SUMMARY).is_file():
            trainings[name] = _read_summary(folder)
    return Sources(tuple(claims), evidence, tuple(runs), trainings)


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
    evidence: dict[str, Evidence] = {}
    places = (claim.get("evidence") for claim in document["claims"])
    for place in dict.fromkeys(place for place in places if place):
        found = _read(lambda place=place: read_evidence(folder / str(place)))
        evidence.setdefault(found.experiment, found)
    return ClaimsFolder(name, folder, document, evidence)


def _read_any_run(name: str, folder: Path) -> LabRun | Evidence:
    try:
        kind = json.loads((folder / RUN).read_bytes())["kind"]
    except OSError as error:
        raise ReportError(f"{folder / RUN} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{folder / RUN} is damaged: {error!r}") from error
    if kind == EVIDENCE:
        return _read(lambda: read_evidence(folder))
    if kind not in KINDS:
        raise ReportError(
            f"{folder} holds a run of kind {kind!r}, which has no figures: give one of"
            f" {', '.join((*KINDS, EVIDENCE))}"
        )
    document, arrays = _read(lambda: read_run(folder, kind))
    return LabRun(name, folder, kind, document, arrays)


def _read_summary(folder: Path) -> dict[str, Any]:
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
    return document


def _read(read: Callable[[], T]) -> T:
    try:
        return read()
    except RunError as error:
        raise ReportError(f"{error}; write the folder again") from error
