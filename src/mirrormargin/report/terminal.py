"""The verdict table for a terminal: wrapped to its width, plain text, colour only if asked for."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from mirrormargin.report.verdicts import (
    RECALLED,
    VERDICTS,
    count_verdicts,
    describe_published,
    name_paper,
)

__all__ = ["format_verdicts"]

MIN_WIDTH = 40
NARROW = 120  # below it a claim is a card, not a row of narrow columns
GAP = "  "
MEANING = "the statement is known from memory, and is held to its class, not to a published number"

# Mathematics that a terminal without Unicode has to spell.
_SPELLED = str.maketrans(
    {
        "‖": "|", "ₚ": "_p", "₀": "0", "₁": "1", "₂": "2", "₃": "3", "₄": "4", "₅": "5", "₆": "6",
        "₇": "7", "₈": "8", "₉": "9", "⁰": "^0", "¹": "^1", "²": "^2", "³": "^3", "⁻": "^-",
        "≤": "<=", "≥": ">=", "≈": "~", "→": "->", "−": "-", "–": "-", "—": "-", "×": "x",
        "·": "*", "…": "...", "∞": "inf", "√": "sqrt ", "η": "eta", "ψ": "psi", "γ": "gamma",
        "“": '"', "”": '"', "’": "'", "°": " deg",
    }
)  # fmt: skip


def format_verdicts(
    document: dict[str, Any], width: int, color: bool, *, unicode: bool | None = None
) -> str:
    """The claims of a claims.json as a table, grouped by paper, and a line with the counts.

    Args:
        document: What claims.json holds.
        width: Columns of the terminal; no line is longer, down to 40.
        color: Whether to colour the verdicts by escape sequences.
        unicode: Whether symbols beyond ASCII may be used; None asks what stdout can encode.
    """
    if unicode is None:
        unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    width = max(width, MIN_WIDTH)
    claims = [claim for claim in document.get("claims", []) if isinstance(claim, dict)]
    lines: list[str] = []
    for paper in dict.fromkeys(str(claim.get("paper", "")) for claim in claims):
        rows = [claim for claim in claims if str(claim.get("paper", "")) == paper]
        if lines:
            lines.append("")
        lines.append(name_paper(paper))
        if width >= NARROW:
            lines += _lay_out_rows(rows, _find_widths(claims, width), color, bool(unicode))
        else:
            lines += _lay_out_cards(rows, width, color, bool(unicode))
    counts = ", ".join(f"{count} {name}" for name, count in count_verdicts(claims).items() if count)
    lines += [
        "",
        *textwrap.wrap(f"{_count(claims)}: {counts}" if counts else "no claims", width),
    ]
    if any(claim.get("provenance") == "recalled" for claim in claims):
        lines += textwrap.wrap(f"{RECALLED}: {MEANING}", width)
    text = "\n".join(line.rstrip() for line in lines)
    return text if unicode else _spell(text)


def _find_widths(claims: Sequence[dict[str, Any]], width: int) -> tuple[int, ...]:
    """Verdict and numbers get what they need up to a bound, the title the rest."""
    verdict = 2 + max(len(str(claim.get("verdict", ""))) for claim in claims)
    verdict = min(verdict, 24 if width >= 100 else 14)
    number = 24 if width >= 110 else 16
    return verdict, width - verdict - 2 * number - 3 * len(GAP), number, number


def _lay_out_rows(
    claims: Sequence[dict[str, Any]], widths: tuple[int, ...], color: bool, unicode: bool
) -> list[str]:
    verdict, rule = widths[0], sum(widths) + 3 * len(GAP)
    lines = _wrap_row(("verdict", "claim", "published", "measured"), widths)
    lines.append(("─" if unicode else "-") * rule)
    for claim in claims:
        name, mark, paint = _find_verdict(claim, color, unicode)
        heading = f"{claim.get('id', '')}  {claim.get('title', '')}"
        cells = (f"{mark} {name}", heading, describe_published(claim), claim.get("measured") or "-")
        wrapped = _wrap_row([_as_written(cell, unicode) for cell in cells], widths)
        lines += [paint(line[:verdict]) + line[verdict:] for line in wrapped]
        for key, text in _explain(claim).items():
            indent = " " * (verdict + len(GAP))
            wrap = textwrap.TextWrapper(rule, initial_indent=indent, subsequent_indent=indent)
            lines += wrap.wrap(_as_written(f"{key} {text}", unicode))
    return lines


def _count(claims: Sequence[dict[str, Any]]) -> str:
    return "1 claim" if len(claims) == 1 else f"{len(claims)} claims"


def _lay_out_cards(
    claims: Sequence[dict[str, Any]], width: int, color: bool, unicode: bool
) -> list[str]:
    lines = []
    for claim in claims:
        name, mark, paint = _find_verdict(claim, color, unicode)
        label = f"{mark} {name}"
        heading = _as_written(f"{label}  {claim.get('id', '')}  {claim.get('title', '')}", unicode)
        first, *more = textwrap.wrap(heading, width, subsequent_indent="  ")
        lines += [paint(first[: len(label)]) + first[len(label) :], *more]
        details = {
            "published": describe_published(claim),
            "measured": claim.get("measured") or "-",
        } | _explain(claim)
        for key, text in details.items():
            indent = f"    {key:<9}  "
            wrap = textwrap.TextWrapper(
                width, initial_indent=indent, subsequent_indent=" " * len(indent)
            )
            lines += wrap.wrap(_as_written(text, unicode))
    return lines


def _explain(claim: dict[str, Any]) -> dict[str, str]:
    """Why a claim is not simply reproduced."""
    note = str(claim.get("note") or "")
    return {"because": note} if note and claim.get("verdict") != "reproduced" else {}


def _wrap_row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    columns = [textwrap.wrap(cell, size) or [""] for cell, size in zip(cells, widths, strict=True)]
    height = max(map(len, columns))
    return [
        GAP.join(
            (column[i] if i < len(column) else "").ljust(size)
            for column, size in zip(columns, widths, strict=True)
        ).rstrip()
        for i in range(height)
    ]


def _find_verdict(claim: dict[str, Any], color: bool, unicode: bool) -> tuple[str, str, Any]:
    name = str(claim.get("verdict", ""))
    verdict = VERDICTS.get(name)
    if verdict is None:
        return name, "?", str
    mark = verdict.symbol if unicode else verdict.ascii
    if not color:
        return name, mark, str
    return name, mark, lambda text: f"\033[{verdict.ansi}m{text}\033[0m"


def _as_written(text: str, unicode: bool) -> str:
    """The text in the characters it is printed in, so that it is wrapped in their width."""
    return str(text) if unicode else _spell(str(text))


def _spell(text: str) -> str:
    return text.translate(_SPELLED).encode("ascii", "replace").decode()
