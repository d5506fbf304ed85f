"""One HTML file with everything in it: text, styles, scripts, numbers. It needs no network.

    templates/page.html       claims, figures, and how they were made
    templates/page.css        wide and narrow; colours come from figures/palette.py
    templates/plots.js        panels to Plotly
    templates/page.js         filters, legends, sliders, downloads

Jinja escapes all text. Plotly's own script is copied in from the installed package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.claims.claim import Provenance, Verdict
from mirrormargin.claims.claims_file import (
    MARKS,
    PROVENANCES,
    RECALLED,
    Mark,
    count_verdicts,
    group_by_paper,
)
from mirrormargin.errors import ReportError
from mirrormargin.figures.palette import SHADE, SURROUNDINGS
from mirrormargin.report.contents import Contents
from mirrormargin.report.payload import format_payload
from mirrormargin.runs import write_atomically

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["MAX_BYTES", "format_page", "name_anchors", "write_page"]

MAX_BYTES = 6_000_000
TITLE = "What training reached"
LEAD = (
    "What is published about attention trained by mirror descent, and what was measured here:"
    " every claim with its verdict, every verdict with its numbers."
)
LEAD_OF_RUNS = "How attention trained by mirror descent got to where it is."
TEXTS = (
    "id",
    "title",
    "verdict",
    "statement",
    "published",
    "measured",
    "note",
    "source",
    "command",
    "paper",
    "folder",
)
UNKNOWN = Mark("?", "?", "open")


def write_page(contents: Contents, out: Path, title: str | None, command: str | None) -> None:
    """Write the page.

    Raises:
        ReportError: If plotly or jinja2 is not installed, or the page would be too large.
        RunError: If the file cannot be written.
    """
    text = format_page(contents, title, command)
    write_atomically(out, lambda file: file.write(text.encode(errors="replace")))


def format_page(contents: Contents, title: str | None, command: str | None) -> str:
    """The page as text, below ``MAX_BYTES`` in UTF-8."""
    names = [figure.name for figure in contents.figures]
    anchors = dict(zip(names, name_anchors("fig", names), strict=True))
    claims = _describe_claims(contents, anchors)
    shown_by: dict[str, list[tuple[str, str]]] = {}
    for claim, row in zip(claims, contents.claims, strict=True):
        for name in row["figures"]:
            shown_by.setdefault(name, []).append((claim["anchor"], claim["id"]))
    values = {
        "title": title or TITLE,
        "lead": LEAD if claims else LEAD_OF_RUNS,
        "claims": claims,
        "groups": group_by_paper(claims),
        "counts": count_verdicts(claims),
        "marks": MARKS,
        "recalled": RECALLED,
        "figures": contents.figures,
        "anchors": anchors,
        "shown_by": shown_by,
        "facts": [(name.replace("_", " ").capitalize(), text) for name, text in contents.facts],
        "command": command,
        "plotly": _read_plotly(),
        "colors": {"light": _format_colors(0), "dark": _format_colors(1)},
        "css": _read_template("page.css"),
        "plots": _read_template("plots.js"),
        "script": _read_template("page.js"),
    }
    page = _load_template("page.html")
    room = MAX_BYTES - len(page.render(values, data="").encode(errors="replace"))
    return page.render(values, data=format_payload(contents.figures, anchors, room))


def name_anchors(prefix: str, names: Sequence[str]) -> list[str]:
    """An id for each name: letters, digits and hyphens, no two alike."""
    anchors: list[str] = []
    for name in names:
        words = "".join(one if one.isascii() and one.isalnum() else " " for one in name).split()
        base = "-".join([prefix, *words]) if words else f"{prefix}-"
        anchor, number = base, 1
        while anchor in anchors:
            number += 1
            anchor = f"{base}-{number}"
        anchors.append(anchor)
    return anchors


def _describe_claims(contents: Contents, anchors: Mapping[str, str]) -> list[dict[str, Any]]:
    """The claims as the template reads them."""
    targets = {figure.name: (anchors[figure.name], figure.title) for figure in contents.figures}
    names = name_anchors("claim", [claim["id"] for claim in contents.claims])
    rows = []
    for claim, anchor in zip(contents.claims, names, strict=True):
        provenance = str(claim.get("provenance") or "")
        rows.append(
            {
                **{key: str(claim.get(key) or "") for key in TEXTS},
                "anchor": anchor,
                "mark": MARKS.get(claim["verdict"], UNKNOWN),
                "is_recalled": provenance == Provenance.RECALLED,
                "known_from": PROVENANCES.get(provenance, provenance),
                "origin": _describe_origin(claim.get("origin") or {}),
                "figures": [targets[name] for name in claim["figures"] if name in targets],
                "tests": [_describe_test(test) for test in claim.get("tests") or []],
            }
        )
    return rows


def _describe_origin(origin: Mapping[str, Any]) -> str:
    versions = origin.get("versions") or {}
    texts = [
        str(origin.get("kind") or ""),
        f"by {origin['command']}" if origin.get("command") else "",
        f"data sha256 {origin['data_sha256']}" if origin.get("data_sha256") else "",
        " ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    return "; ".join(text for text in texts if text)


def _describe_test(test: Mapping[str, Any]) -> dict[str, Any]:
    ends = [test.get("low"), test.get("high")]
    return {
        "name": str(test["name"]),
        "expected": str(test.get("expected") or ""),
        "value": _format_value(test.get("value")),
        "interval": " to ".join(map(_format_value, ends)) if None not in ends else "–",
        "holds": test["holds"],
        "mark": MARKS[Verdict.REPRODUCED if test["holds"] else Verdict.FAILED],
    }


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.4g}"


def _format_colors(paper: int) -> str:
    """The palette as CSS variables, for light paper (0) or dark (1)."""
    colors = {name: color[paper] for name, color in SURROUNDINGS.items()}
    shade = SHADE[paper]
    colors["shade"] = " ".join(str(int(shade[i : i + 2], 16)) for i in (1, 3, 5))
    return " ".join(f"--{name}: {color};" for name, color in colors.items())


def _load_template(name: str) -> Template:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise ReportError("a report needs jinja2: pip install 'mirrormargin[report]'") from error
    environment = Environment(
        loader=FunctionLoader(_read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _read_plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReportError("a report needs plotly: pip install 'mirrormargin[report]'") from error
    return get_plotlyjs()


def _read_template(name: str) -> str:
    folder = resources.files("mirrormargin.report") / "templates"
    return (folder / name).read_text(encoding="utf-8").strip()
