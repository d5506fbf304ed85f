"""What a report shows: claims, figures, and which figure belongs to which claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from mirrormargin.errors import ReportError
from mirrormargin.figures import Figure
from mirrormargin.report.figures import FIGURES
from mirrormargin.report.figures.runs import build_run_figures
from mirrormargin.report.sources import EVIDENCE, ClaimsFolder, Evidence, Sources

__all__ = ["Contents", "arrange_contents"]


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
        built = _build_figures(folder.evidence, folder.folder)
        if heading:
            built = [replace(figure, title=f"{heading}: {figure.title}") for figure in built]
            facts.append(("claims from", heading))
        names = _add(figures, built)
        claims += [
            {**claim, "figures": _choose(claim, names), "folder": heading}
            for claim in folder.claims
        ]
        facts += _list_facts(folder)
    for run in sources.runs:
        if run.kind == EVIDENCE:
            experiment = str(run.document.get("experiment", run.name))
            evidence = {experiment: (run.document, run.arrays)}
            _add(figures, _build_figures(evidence, run.name))
    runs = [run for run in sources.runs if run.kind != EVIDENCE]
    _add(figures, _guard(lambda: build_run_figures(runs), "a run folder"))
    return Contents(tuple(claims), tuple(figures), tuple(facts))


def _build_figures(evidence: Evidence, folder: object) -> list[Figure]:
    built = (
        _guard(lambda build=build: build(evidence), f"the evidence for {name!r} in {folder}")
        for name, build in FIGURES.items()
    )
    return [figure for figure in built if figure is not None]


def _guard(build: Any, what: str) -> Any:
    try:
        return build()
    except (KeyError, IndexError, TypeError, ValueError) as error:
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
