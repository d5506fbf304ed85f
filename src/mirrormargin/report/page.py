"""One HTML file with everything in it: text, styles, scripts, numbers. It needs no network.

    page.html   the frame            page.css   light and dark, wide and narrow
    plots.js    panels to Plotly     page.js    filters, legends, sliders, downloads

Plotly's own script is copied in from the installed package.
"""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from mirrormargin.errors import ReportError
from mirrormargin.report.contents import Contents
from mirrormargin.report.payload import format_payload
from mirrormargin.report.sections import (
    format_claims,
    format_colophon,
    format_figures,
    name_anchors,
)
from mirrormargin.runs import write_atomically

__all__ = ["MAX_BYTES", "format_page", "write_page"]

MAX_BYTES = 6_000_000
TITLE = "What training reached"
LEAD = (
    "What is published about attention trained by mirror descent, and what was measured here:"
    " every claim with its verdict, every verdict with its numbers."
)
LEAD_OF_RUNS = "How attention trained by mirror descent got to where it is."


def write_page(contents: Contents, out: Path, title: str | None, command: str | None) -> None:
    """Write the page.

    Raises:
        ReportError: If plotly is not installed, or the page would be too large.
        RunError: If the file cannot be written.
    """
    text = format_page(contents, title, command)
    write_atomically(out, lambda file: file.write(text.encode()))


def format_page(contents: Contents, title: str | None, command: str | None) -> str:
    """The page as text, below ``MAX_BYTES`` in UTF-8."""
    figures = contents.figures
    names = [figure.name for figure in figures]
    anchors = dict(zip(names, name_anchors("fig", names), strict=True))
    claim_anchors = name_anchors("claim", [claim["id"] for claim in contents.claims])
    belongs: dict[str, list[tuple[str, str]]] = {}
    for claim, anchor in zip(contents.claims, claim_anchors, strict=True):
        for name in claim["figures"]:
            belongs.setdefault(name, []).append((anchor, claim["id"]))
    titles = {figure.name: (anchors[figure.name], figure.title) for figure in figures}
    parts = {
        "title": escape(title or TITLE),
        "lead": escape(LEAD if contents.claims else LEAD_OF_RUNS),
        "claims": format_claims(contents.claims, claim_anchors, titles),
        "figures": format_figures(figures, anchors, belongs),
        "colophon": format_colophon(contents.facts, command),
        "plotly": _read_plotly(),
        "css": _read_asset("page.css"),
        "plots": _read_asset("plots.js"),
        "script": _read_asset("page.js"),
    }
    parts["navigation"] = _format_navigation(parts)
    room = MAX_BYTES - sum(len(part.encode()) for part in parts.values()) - 10_000
    parts["data"] = format_payload(figures, anchors, room)
    return Template(_read_asset("page.html")).substitute(parts)


def _format_navigation(parts: dict[str, str]) -> str:
    names = {"claims": "verdicts", "figures": "figures", "colophon": "environment"}
    labels = {"claims": "Verdicts", "figures": "Figures", "colophon": "How it was made"}
    links = [f'<a href="#{names[key]}">{labels[key]}</a>' for key in names if parts[key]]
    return f'<nav class="contents" aria-label="Contents">{"".join(links)}</nav>' if links else ""


def _read_plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReportError("a report needs plotly: pip install 'mirrormargin[report]'") from error
    return get_plotlyjs()


def _read_asset(name: str) -> str:
    return (resources.files("mirrormargin.report") / name).read_text(encoding="utf-8").strip()
