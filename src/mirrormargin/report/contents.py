"""What a report shows: folders are read, their figures drawn, and each claim gets its figures.

DIR/claims.json                        verdicts, each with the folder of its evidence
DIR/run.json                           one run: a training, a flow, a path, or evidence
DIR/summary.json                       a model trained on real data
DIR/sweep.json                         a sweep, whose trainings are in its table
DIR/**/run.json, DIR/**/claims.json    several, up to four levels down, in the order of their names

The page names a folder by its path relative to the one that was given: if that is runs, the folder
runs/flow/seed-1-p-2 is called "flow/seed-1-p-2".
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mirrormargin.claims.claims_file import CLAIMS_FILE, read_claims
from mirrormargin.claims.evidence import EVIDENCE, Evidence, read_evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.dynamics.figures import KINDS, LabRun, draw_runs
from mirrormargin.errors import ReportError, RunError, TrainingError
from mirrormargin.figures import Figure
from mirrormargin.runs import RUN_FILE, read_json, read_run
from mirrormargin.sweep.figures import draw_sweep
from mirrormargin.sweep.folder import SWEEP
from mirrormargin.training.figures import draw_trainings
from mirrormargin.training.folder import CONFIG, SUMMARY, TrainingFolder

__all__ = [
    "MAX_DEPTH",
    "ClaimsFolder",
    "Contents",
    "Sources",
    "arrange_contents",
    "describe_unfinished",
    "find_folders",
    "find_unfinished",
    "name_folders",
    "read_sources",
]

FILES = (CLAIMS_FILE, RUN_FILE, SUMMARY, SWEEP)
MAX_DEPTH = 4  # levels below the folder that was given

T = TypeVar("T")
Found = tuple[Path, int]  # a folder, and how many levels it lies below the one that was given


@dataclass(frozen=True, eq=False)
class Contents:
    """All of a report, in its order.

    Attributes:
        claims: As in claims.json, with ``figures`` as they are named here; ``folder`` says which
            folder they are from if there are several, else it is empty.
        figures: Each with its own name.
        facts: Seeds, versions and the like, in words, for the end of the page.
    """

    claims: tuple[dict[str, Any], ...] = ()
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str], ...] = field(default=())


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
        sweeps: The folders of sweeps, by their names.
    """

    claims: tuple[ClaimsFolder, ...]
    evidence: dict[str, Evidence]
    runs: tuple[LabRun, ...]
    trainings: dict[str, dict[str, Any]]
    sweeps: dict[str, Path]


def arrange_contents(sources: Sources) -> Contents:
    """Build the figures of everything that was read.

    Raises:
        ReportError: If a folder lacks an array that its figure needs.
    """
    claims: list[dict[str, Any]] = []
    figures: list[Figure] = []
    facts: list[tuple[str, str]] = []
    for folder in sources.claims:
        heading = _describe_folder(folder) if len(sources.claims) > 1 else ""
        built = _draw_stories(folder.evidence, folder.folder)
        if heading:
            built = [replace(figure, title=f"{heading}: {figure.title}") for figure in built]
            facts.append(("claims from", heading))
        names = _add(figures, built)
        claims += [
            {**claim, "figures": _choose(claim, names), "folder": heading}
            for claim in folder.claims
        ]
        facts += _list_facts(folder)
    for name, evidence in sources.evidence.items():
        _add(figures, _draw_stories({evidence.experiment: evidence}, name))
    if sources.trainings:
        _add(figures, _guard(lambda: draw_trainings(sources.trainings), "a training's folder"))
    _add(figures, _guard(lambda: draw_runs(sources.runs), "a run folder"))
    for name, path in sources.sweeps.items():
        _add(figures, _guard(lambda name=name, path=path: draw_sweep(name, path), str(path)))
    return Contents(tuple(claims), tuple(figures), tuple(facts))


def _draw_stories(evidence: Mapping[str, Evidence], folder: object) -> list[Figure]:
    """The figures of all stories that have evidence; those of one name become one."""
    drawn: dict[str, Figure] = {}
    for name, story in STORIES.items():
        for draw in story.draw if name in evidence else ():
            what = f"the evidence for {name!r} in {folder}"
            figure = _guard(lambda draw=draw, name=name: draw(evidence[name]), what)
            if figure is not None and figure.name in drawn:
                first = drawn[figure.name]
                figure = replace(first, panels=first.panels + figure.panels)
            if figure is not None:
                drawn[figure.name] = figure
    return list(drawn.values())


def _guard(build: Any, what: str) -> Any:
    try:
        return build()
    except (KeyError, IndexError, TypeError, ValueError, RunError) as error:
        if isinstance(error, ReportError):
            raise
        raise ReportError(f"{what} is damaged ({error!r}): write it again") from error


def _add(figures: list[Figure], more: Iterable[Figure]) -> dict[str, str]:
    """Append figures under names that are not taken, and say which."""
    names = {}
    for figure in more:
        taken, name, number = {one.name for one in figures}, figure.name, 1
        while name in taken:
            number += 1
            name = f"{figure.name}-{number}"
        names[figure.name] = name
        figures.append(replace(figure, name=name))
    return names


def _choose(claim: dict[str, Any], names: dict[str, str]) -> list[str]:
    """The figures that a claim names; if none of them is there, that of its experiment."""
    wanted = [name for name in claim.get("figures") or [] if name in names]
    experiment = str(claim.get("experiment") or "")
    if not wanted and experiment in names:
        wanted = [experiment]
    return [names[name] for name in wanted]


def _describe_folder(folder: ClaimsFolder) -> str:
    known = ((name, folder.document.get(name)) for name in ("profile", "seed"))
    return ", ".join(
        [folder.name, *(f"{name} {value}" for name, value in known if value is not None)]
    )


def _list_facts(folder: ClaimsFolder) -> list[tuple[str, str]]:
    document = folder.document
    facts = [("profile", str(document.get("profile", ""))), ("seed", str(document.get("seed", "")))]
    environment, seconds = (
        value if isinstance(value, dict) else {}
        for value in (document.get("environment"), document.get("seconds"))
    )
    facts += [(name, _describe(value)) for name, value in environment.items()]
    times = [f"{name} {_describe(value)} s" for name, value in seconds.items() if value]
    facts.append(("time taken on one core", ", ".join(times)))
    return [(name, value) for name, value in facts if value]


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_describe(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_describe, value))
    return str(value)


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read every claims folder and run folder among the paths and up to four levels below them.

    Each is named by its path below the one given; equal names get more of their parents in front.

    Raises:
        ReportError: If there is none, or a damaged one.
    """
    if not paths:
        raise ReportError("no folder was given: name one that reproduce, train, lab or sweep wrote")
    claims: list[ClaimsFolder] = []
    evidence: dict[str, Evidence] = {}
    runs: list[LabRun] = []
    trainings: dict[str, dict[str, Any]] = {}
    sweeps: dict[str, Path] = {}
    for name, folder in name_folders([one for path in paths for one in find_folders(Path(path))]):
        if (folder / CLAIMS_FILE).is_file():
            claims.append(_read_claims(name, folder))
        if (folder / RUN_FILE).is_file():
            run = _read_any_run(name, folder)
            if isinstance(run, Evidence):
                evidence[name] = run
            else:
                runs.append(run)
        if (folder / SUMMARY).is_file():
            trainings[name] = _read_summary(folder)
        if (folder / SWEEP).is_file():
            sweeps[name] = folder
    return Sources(tuple(claims), evidence, tuple(runs), trainings, sweeps)


def _read_claims(name: str, folder: Path) -> ClaimsFolder:
    try:
        document = read_claims(folder)
    except RunError as error:
        raise ReportError(str(error)) from error
    evidence: dict[str, Evidence] = {}
    named = (claim.get("evidence") for claim in document["claims"])
    for path in dict.fromkeys(path for path in named if path):
        found = _read(lambda path=path: read_evidence(folder / str(path)))
        evidence.setdefault(found.experiment, found)
    return ClaimsFolder(name, folder, document, evidence)


def _read_any_run(name: str, folder: Path) -> LabRun | Evidence:
    try:
        kind = read_json(folder / RUN_FILE, error=ReportError)["kind"]
    except OSError as error:
        raise ReportError(f"{folder / RUN_FILE} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise ReportError(f"{folder / RUN_FILE} is damaged: it has no {error}") from error
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
        return TrainingFolder(folder).read_whole_summary()
    except TrainingError as error:
        raise ReportError(f"{error}; remove it, mirrormargin train writes it again") from error


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
            f"{path} is no folder: give one that mirrormargin reproduce, train, lab or sweep wrote"
        )
    found = list(_walk(path, 0))
    if not found and (unfinished := find_unfinished(path)):
        raise ReportError(describe_unfinished(unfinished))
    if not found:
        raise ReportError(
            f"{path} holds nothing to report on: there is no {', '.join(FILES)} in it or up to"
            f" {MAX_DEPTH} levels below; write one with mirrormargin reproduce, train, lab"
            " or sweep --out"
        )
    return found


def find_unfinished(path: Path) -> list[Path]:
    """Folders of trainings on real data, at the path or below, that have no summary yet."""
    levels = (path.glob("*/" * depth + CONFIG) for depth in range(MAX_DEPTH + 1))
    folders = (file.parent for level in levels for file in sorted(level))
    return [
        one
        for one in folders
        if not any(part.startswith(".") for part in one.relative_to(path).parts)
        and not (one.parent.parent / SWEEP).is_file()
        and not (one / SUMMARY).is_file()
        and TrainingFolder(one).status in ("begun", "resumable", "finished")
    ]


def describe_unfinished(folders: Sequence[Path]) -> str:
    """A line that names them, and says how the first one is resumed."""
    verb, which = ("has", "it") if len(folders) == 1 else ("have", "the first")
    command = f"mirrormargin train --resume {shlex.quote(str(folders[0]))}"
    return f"{', '.join(map(str, folders))} {verb} not ended: resume {which} with {command}"


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
            is_part = SWEEP in files or (CLAIMS_FILE in files and one.name == EVIDENCE)
            if not is_part:
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
