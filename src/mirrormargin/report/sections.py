"""The page's HTML: the verdict table, the figures' frames and the end. All text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mirrormargin.figures import Figure, Table
from mirrormargin.report.verdicts import RECALLED, VERDICTS, count_verdicts, name_paper

__all__ = ["format_claims", "format_colophon", "format_figures", "name_anchors"]

PROVENANCE = {
    "seen": "seen in the paper, its code or its figures",
    "derived": "derived from the paper's statements",
    "recalled": RECALLED,
    "own": "measured here, not published elsewhere",
}


def name_anchors(prefix: str, names: Sequence[str]) -> list[str]:
    """An id for each name: letters, digits and hyphens, no two alike."""
    anchors: list[str] = []
    for name in names:
        base = f"{prefix}-{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}"
        anchor, number = base, 1
        while anchor in anchors:
            number += 1
            anchor = f"{base}-{number}"
        anchors.append(anchor)
    return anchors


def format_claims(
    claims: Sequence[dict[str, Any]],
    anchors: Sequence[str],
    figures: Mapping[str, tuple[str, str]],
) -> str:
    """The verdicts: chips that filter, then the claims of each folder and paper.

    Args:
        claims: As in claims.json.
        anchors: The id of each.
        figures: From a figure's name to its anchor and title.
    """
    if not claims:
        return ""
    chips = [_format_chip("", "all", len(claims))]
    chips += [_format_chip(name, name, count) for name, count in count_verdicts(claims).items()]
    keys = [(str(claim.get("folder", "")), str(claim.get("paper", ""))) for claim in claims]
    groups = []
    for folder, paper in dict.fromkeys(keys):
        rows = [
            _format_claim(claim, anchor, figures)
            for claim, anchor, key in zip(claims, anchors, keys, strict=True)
            if key == (folder, paper)
        ]
        heading = escape(name_paper(paper))
        if folder:
            heading = f"{escape(folder)}: {heading[0].lower()}{heading[1:]}"
        groups.append(
            f'<section class="paper"><h3>{heading}</h3><div class="claims">'
            '<div class="row head" aria-hidden="true"><span>Claim</span><span>Published</span>'
            "<span>Measured</span><span>Verdict</span></div>\n"
            + "\n".join(rows)
            + "</div></section>"
        )
    return (
        '<section id="verdicts"><h2>Verdicts</h2><div class="chips" role="group"'
        f' aria-label="Show claims by verdict">{"".join(chips)}</div>'
        '<p class="shown" id="shown" role="status"></p>' + "\n".join(groups) + "</section>"
    )


def _format_chip(verdict: str, name: str, count: int) -> str:
    known = VERDICTS.get(verdict)
    symbol = (
        f'<span class="{known.style}" aria-hidden="true">{known.symbol}</span>' if known else ""
    )
    pressed = "true" if verdict == "" else "false"
    return (
        f'<button type="button" class="chip" data-verdict="{escape(verdict)}"'
        f' aria-pressed="{pressed}">{symbol}{escape(name)} <b>{count}</b></button>'
    )


def _format_claim(
    claim: dict[str, Any], anchor: str, figures: Mapping[str, tuple[str, str]]
) -> str:
    verdict = claim["verdict"]
    known = VERDICTS.get(verdict)
    style, symbol = (known.style, known.symbol) if known else ("open", "?")
    recalled = claim.get("provenance") == "recalled"
    tag = f'<span class="tag">{RECALLED}</span>' if recalled else ""
    published = escape(str(claim.get("published") or "")) or ("" if recalled else "–")
    measured = escape(str(claim.get("measured") or "")) or "–"
    return (
        f'<details class="claim" id="{anchor}" data-verdict="{escape(verdict)}">'
        '<summary class="row">'
        f'<span><span class="id">{escape(claim["id"])}</span>{escape(claim["title"])}</span>'
        f'<span class="number"><span class="name">Published</span>{published}{tag}</span>'
        f'<span class="number"><span class="name">Measured</span>{measured}</span>'
        f'<span><span class="badge {style}"><span aria-hidden="true">{symbol}</span>'
        f"{escape(verdict)}</span></span></summary>"
        f'<div class="body">{_format_body(claim, figures)}</div></details>'
    )


def _format_body(claim: dict[str, Any], figures: Mapping[str, tuple[str, str]]) -> str:
    origin = claim.get("origin") or {}
    links = ", ".join(
        f'<a href="#{figures[name][0]}">{escape(figures[name][1])}</a>'
        for name in claim.get("figures") or []
        if name in figures
    )
    provenance = str(claim.get("provenance") or "")
    facts = (
        ("Note", escape(str(claim.get("note") or ""))),
        ("Figures", links),
        ("Source", escape(str(claim.get("source") or ""))),
        ("Known from", escape(PROVENANCE.get(provenance, provenance))),
        ("Origin", _format_origin(origin)),
    )
    parts = [f"<p>{escape(str(claim.get('statement') or ''))}</p>", _format_tests(claim)]
    parts.append(_format_facts(facts))
    if claim.get("command"):
        parts.append(_format_command(str(claim["command"])))
    return "".join(parts)


def _format_origin(origin: dict[str, Any]) -> str:
    versions = origin.get("versions") or {}
    texts = [
        str(origin.get("kind") or ""),
        f"by {origin['command']}" if origin.get("command") else "",
        f"data sha256 {origin['data_sha256']}" if origin.get("data_sha256") else "",
        " ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    return escape("; ".join(text for text in texts if text))


def _format_tests(claim: dict[str, Any]) -> str:
    rows = []
    for test in claim.get("tests") or []:
        ends = [test.get("low"), test.get("high")]
        interval = " to ".join(map(_format_value, ends)) if None not in ends else "–"
        known = VERDICTS["reproduced" if test["holds"] else "not reproduced"]
        rows.append(
            (
                escape(str(test["name"])),
                escape(str(test.get("expected") or "")),
                escape(_format_value(test.get("value"))),
                escape(interval),
                f'<span class="{known.style} holds">{known.symbol}'
                f" {'yes' if test['holds'] else 'no'}</span>",
            )
        )
    if not rows:
        return ""
    return _format_cells(("test", "expected", "measured", "95% interval", "holds"), rows)


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.4g}"


def format_figures(
    figures: Sequence[Figure],
    anchors: Mapping[str, str],
    claims: Mapping[str, Sequence[tuple[str, str]]],
) -> str:
    """Frames for the script to draw in.

    Args:
        figures: What will be drawn.
        anchors: From a figure's name to its id.
        claims: From a figure's name to the claims it shows, each as anchor and text.
    """
    if not figures:
        return ""
    parts = []
    for figure in figures:
        anchor = anchors[figure.name]
        back = ", ".join(
            f'<a href="#{claim}">{escape(text)}</a>' for claim, text in claims.get(figure.name, ())
        )
        panels = "".join(
            f'<div class="{"panel wide" if panel.is_wide else "panel"}">'
            f'<h4>{escape(panel.title)}</h4><div class="plot" role="group"'
            f' aria-label="{escape(panel.title or figure.title)}: {escape(panel.y.label)} against'
            f' {escape(panel.x.label)}"></div></div>'
            for panel in figure.panels
        )
        columns = min(max(figure.columns, 1), 3)
        downloads = "".join(
            f'<button type="button" class="quiet" data-format="{form}" aria-label="Download the'
            f' numbers of {escape(figure.title)} as {form.upper()}">{form.upper()}</button>'
            for form in ("csv", "json")
        )
        parts.append(
            f'<section class="figure" id="{anchor}" aria-labelledby="{anchor}-title">'
            f'<h3 id="{anchor}-title">{escape(figure.title)}</h3>'
            + (f'<p class="back">Belongs to {back}</p>' if back else "")
            + '<div class="legend" role="group" aria-label="What is shown"></div>'
            + '<div class="player"></div>'
            + f'<div class="panels columns-{columns}">{panels}</div>'
            + ('<div class="texts"></div>' if figure.texts else "")
            + f'<p class="caption">{escape(figure.caption)}</p>'
            + (_format_table(figure.table) if figure.table else "")
            + (f'<div class="downloads">{downloads}</div>' if figure.panels else "")
            + "</section>"
        )
    return '<section id="figures"><h2>Figures</h2>' + "\n".join(parts) + "</section>"


def format_colophon(facts: Sequence[tuple[str, str]], command: str | None) -> str:
    """The end of the page: seeds, versions, and the command that made it."""
    rows = [(name.replace("_", " ").capitalize(), escape(value)) for name, value in facts]
    text = _format_facts(rows) if rows else ""
    made = f"<p>This page was made by</p>{_format_command(command)}" if command else ""
    if not text and not made:
        return ""
    return f'<section id="environment"><h2>How it was made</h2>{text}{made}</section>'


def _format_facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in facts if value)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def _format_command(command: str) -> str:
    return (
        f'<div class="command"><code>{escape(command)}</code><button type="button"'
        ' class="quiet copy" aria-label="Copy the command">Copy</button></div>'
    )


def _format_table(table: Table) -> str:
    return _format_cells(
        tuple(map(escape, table.columns)), [tuple(map(escape, row)) for row in table.rows]
    )


def _format_cells(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{body}</tbody></table></div>"
    )
