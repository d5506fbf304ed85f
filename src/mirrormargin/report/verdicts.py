"""The four verdicts, how each is shown, and what a claim may say of the published number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = [
    "RECALLED",
    "VERDICTS",
    "Verdict",
    "count_verdicts",
    "describe_published",
    "group_by_paper",
    "name_paper",
]

RECALLED = "rate class, recalled"


class Verdict(NamedTuple):
    """A symbol besides the colour, for those who do not see the colour."""

    symbol: str
    ascii: str
    style: str


VERDICTS = {
    "reproduced": Verdict("✓", "+", "good"),
    "reproduced differently": Verdict("≈", "~", "partly"),
    "not reproduced": Verdict("✗", "x", "bad"),
    "not run": Verdict("○", "o", "open"),
}


def count_verdicts(claims: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict, in the order of ``VERDICTS``, then any others."""
    names = [str(claim.get("verdict", "")) for claim in claims]
    return {name: names.count(name) for name in dict.fromkeys([*VERDICTS, *names])}


def describe_published(claim: dict[str, Any]) -> str:
    """The published text; a recalled one says that it is no number from the paper."""
    published = str(claim.get("published") or "")
    if claim.get("provenance") == "recalled":
        return f"{published} ({RECALLED})" if published else RECALLED
    return published or "-"


def group_by_paper(claims: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The claims under a heading for each paper, of each folder if they are from several."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        heading, folder = name_paper(str(claim.get("paper", ""))), str(claim.get("folder", ""))
        if folder:
            heading = f"{folder}: {heading[0].lower()}{heading[1:]}"
        groups.setdefault(heading, []).append(claim)
    return groups


def name_paper(paper: str) -> str:
    """The heading above a paper's claims; "M" stands for claims of this library."""
    if paper == "M":
        return "Our own"
    return f"Paper {paper}" if paper else "Claims"
