r"""claims.json: what was found about each claim, and the words in which it is shown.

kind, format            "claims", 1
profile, seed           what all claims were run with
claims                  one row for each: texts, verdict, note, tests, evidence, command
environment, seconds    the only parts that differ between two runs of one seed
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mirrormargin.claims.claim import Claim, Provenance, Verdict, decide
from mirrormargin.claims.evidence import Evidence
from mirrormargin.errors import RunError
from mirrormargin.runs import check_seal, read_json, seal, write_atomically

__all__ = [
    "CLAIMS_FILE",
    "MARKS",
    "PROVENANCES",
    "RECALLED",
    "Mark",
    "count_verdicts",
    "describe_claim",
    "describe_published",
    "group_by_paper",
    "name_paper",
    "read_claims",
    "write_claims",
]

CLAIMS_FILE = "claims.json"
KIND, FORMAT = "claims", 1


class Mark(NamedTuple):
    """How a verdict is shown: a symbol besides the colour, for those who do not see the colour."""

    symbol: str
    ascii: str
    style: str


MARKS: dict[str, Mark] = {
    Verdict.REPRODUCED: Mark("✓", "+", "good"),
    Verdict.DIFFERENTLY: Mark("≈", "~", "partly"),
    Verdict.UNDECIDED: Mark("?", "?", "partly"),
    Verdict.FAILED: Mark("✗", "x", "bad"),
    Verdict.NOT_RUN: Mark("○", "o", "open"),
}
RECALLED = "rate class, recalled"
PROVENANCES: dict[str, str] = {
    Provenance.SEEN: "seen in the paper, its code or its figures",
    Provenance.DERIVED: "derived from the paper's statements",
    Provenance.RECALLED: RECALLED,
    Provenance.OWN: "measured here, not published elsewhere",
}


def describe_claim(claim: Claim, evidence: Evidence | None) -> dict[str, Any]:
    """The row of a claim: examined on the evidence, or "not run" if there is none."""
    row: dict[str, Any] = {
        "id": claim.id,
        "paper": claim.paper,
        "title": claim.title,
        "statement": claim.statement,
        "source": claim.source,
        "provenance": str(claim.provenance),
        "published": claim.published,
        "measured": "",
        "verdict": str(Verdict.NOT_RUN),
        "note": f"needs {claim.needs}; no record of such a run is stored",
        "origin": {"kind": "none"},
        "experiment": claim.experiment,
        "figures": list(claim.figures),
        "should_hold": claim.should_hold,
        "tests": [],
    }
    if evidence is None:
        return row
    finding = claim.examine(evidence)
    verdict, note = decide(finding.checks)
    return row | {
        "measured": finding.measured,
        "verdict": str(verdict),
        "note": ". ".join(text for text in (note, finding.remark) if text),
        "origin": evidence.origin,
        "tests": [check.to_document() for check in finding.checks],
    }


def write_claims(folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Write a folder's claims.json, and return all that it holds.

    Raises:
        RunError: If it cannot be written.
    """
    document = {"kind": KIND, "format": FORMAT, **document}
    text = json.dumps(seal(document), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomically(folder / CLAIMS_FILE, lambda file: file.write(text.encode() + b"\n"))
    return document


def read_claims(folder: Path) -> dict[str, Any]:
    """Read a folder's claims.json.

    Raises:
        RunError: If it cannot be read, is damaged, or has another format.
    """
    file = folder / CLAIMS_FILE
    try:
        document = read_json(file)
        found = document["kind"], document["format"]
        rows = document["claims"] if found == (KIND, FORMAT) else []
        for row in rows:
            for key in ("id", "title", "verdict"):
                if not isinstance(row[key], str):
                    raise TypeError(f"{key} is not a text")
            for test in row.get("tests") or []:
                if not {"name", "holds"} <= test.keys():
                    raise KeyError("name and holds of a test")
            _check_inside(folder, row.get("evidence"))
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{file} is damaged ({error!r}): write it again with mirrormargin reproduce"
        ) from error
    if found != (KIND, FORMAT):
        raise RunError(
            f"{file} is of kind {found[0]!r}, format {found[1]}: {KIND!r}, format {FORMAT} can be"
            " read"
        )
    return check_seal(file, document)


def _check_inside(folder: Path, evidence: Any) -> None:
    """Evidence lies below the folder: a file from a stranger points to nothing else."""
    if evidence is None:
        return
    if not isinstance(evidence, str):
        raise TypeError("evidence is not a path")
    try:
        is_inside = (folder / evidence).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise ValueError(f"evidence {evidence!r} cannot be found") from error
    if not is_inside:
        raise ValueError(f"evidence {evidence!r} is outside of the folder")


def count_verdicts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict, in the order of ``Verdict``, then any others."""
    names = [str(row.get("verdict", "")) for row in rows]
    return {name: names.count(name) for name in dict.fromkeys([*map(str, Verdict), *names])}


def describe_published(row: dict[str, Any]) -> str:
    """The published text; a recalled one says that it is not a number from the paper."""
    published = str(row.get("published") or "")
    if row.get("provenance") == Provenance.RECALLED:
        return f"{published} ({RECALLED})" if published else RECALLED
    return published or "-"


def group_by_paper(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The claims under a heading for each paper, of each folder if they are from several."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        heading, folder = name_paper(str(row.get("paper", ""))), str(row.get("folder", ""))
        if folder:
            heading = f"{folder}: {heading[0].lower()}{heading[1:]}"
        groups.setdefault(heading, []).append(row)
    return groups


def name_paper(paper: str) -> str:
    """The heading above a paper's claims; "M" stands for claims of this library."""
    if paper == "M":
        return "Our own"
    return f"Paper {paper}" if paper else "Claims"
