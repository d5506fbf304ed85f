"""What a report shows: claims, figures, and which figure belongs to which claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.dynamics.figures import draw_runs
from mirrormargin.errors import ReportError, RunError
from mirrormargin.figures import Figure
from mirrormargin.report.sources import ClaimsFolder, Sources
from mirrormargin.training.figures import draw_trainings

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
