"""Folders that can be reported on: claims with their evidence, and runs.

DIR/claims.json                        verdicts, each with the folder of its evidence
DIR/run.json                           one run: a training, a flow, a path, or evidence
DIR/summary.json                       a model trained on real data
DIR/**/run.json, DIR/**/claims.json    several, up to four levels down, in the order of their names

A folder is called by its path below the one that was given: runs/flow/seed-1-p-2, given as runs, is
"flow/seed-1-p-2".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mirrormargin.claims.evidence import Evidence, read_evidence
from mirrormargin.dynamics.figures import KINDS, LabRun
from mirrormargin.errors import ReportError, RunError, TrainingError
from mirrormargin.runs import read_run
from mirrormargin.training.folder import SUMMARY, TrainingFolder

__all__ = ["MAX_DEPTH", "ClaimsFolder", "Sources", "find_folders", "name_folders", "read_sources"]

CLAIMS_FORMAT = 1
CLAIMS, RUN = "claims.json", "run.json"
FILES = (CLAIMS, RUN, SUMMARY)
EVIDENCE = "evidence"
MAX_DEPTH = 4  # levels below the folder that was given

T = TypeVar("T")
Found = tuple[Path, int]  # a folder, and how many levels it lies below the one that was given


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

    Each is named by its path below the one given; equal names get more of their parents in front.

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
    named = (claim.get("evidence") for claim in document["claims"])
    for path in dict.fromkeys(path for path in named if path):
        found = _read(lambda path=path: read_evidence(folder / str(path)))
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


def find_folders(path: Path) -> list[Found]:
    """Folders with claims or a run, each with how many levels it lies below the path.

    Hidden folders are passed over, and so is the evidence of claims, which the claims name.

    Raises:
        ReportError: If there is none.
    """
    if path.name in FILES and path.is_file():
        return [(path.parent, 0)]
    if not path.is_dir():
        raise ReportError(
            f"{path} is no folder: give one that mirrormargin reproduce, train or lab wrote"
        )
    found = list(_walk(path, 0))
    if not found:
        raise ReportError(
            f"{path} holds nothing to report on: there is no {', '.join(FILES)} in it or up to"
            f" {MAX_DEPTH} levels below; write one with mirrormargin reproduce, train or lab"
            " --out"
        )
    return found


def _walk(folder: Path, depth: int) -> Iterator[Found]:
    try:
        inside = sorted(folder.iterdir())
        below = [one for one in inside if one.is_dir() and not one.name.startswith(".")]
        files = {one.name for one in inside if one.name in FILES and one.is_file()}
    except OSError as error:
        raise ReportError(f"{folder} cannot be read: {error.strerror}") from error
    if files:
        yield folder, depth
    if depth < MAX_DEPTH:
        for one in below:
            if CLAIMS not in files or one.name != EVIDENCE:
                yield from _walk(one, depth + 1)


def name_folders(found: Sequence[Found]) -> list[tuple[str, Path]]:
    """Each folder once, with a name that no other has.

    Args:
        found: Folders, each with its level: at level 2 the last two parts of the path are the
            name, at level 0 the last one. Equal names get more parts.
    """
    folders: dict[Path, tuple[Path, int]] = {}
    for folder, depth in found:
        folders.setdefault(folder.resolve(), (folder, max(depth, 1)))
    sizes = {full: size for full, (_, size) in folders.items()}
    while True:
        names = {full: "/".join(full.parts[-size:]) for full, size in sizes.items()}
        taken = list(names.values())
        equal = [full for full, name in names.items() if taken.count(name) > 1]
        if not equal:
            return [(names[full], folder) for full, (folder, _) in folders.items()]
        for full in equal:
            sizes[full] += 1
