"""The verdicts as Markdown tables, one for each paper: for a README or a pull request.

Of texts with shaded words there is a table of the word of largest weight.
"""

from __future__ import annotations

from pathlib import Path

from mirrormargin.claims.claim import Verdict
from mirrormargin.claims.claims_file import (
    MARKS,
    count_verdicts,
    describe_published,
    group_by_paper,
)
from mirrormargin.errors import ReportError
from mirrormargin.figures.highlights import HighlightedTexts
from mirrormargin.report.contents import Contents
from mirrormargin.runs import write_atomically

__all__ = ["format_markdown", "write_markdown"]


def write_markdown(contents: Contents, out: Path, title: str | None, command: str | None) -> None:
    """Write the tables.

    Raises:
        ReportError: If there are no claims, for runs have no verdicts.
    """
    if not contents.claims:
        raise ReportError(f"{out.name} would hold verdicts, but there are no claims: give .html")
    text = format_markdown(contents, title or "Verdicts", command)
    write_atomically(out, lambda file: file.write(text.encode(errors="replace")))


def format_markdown(contents: Contents, title: str, command: str | None) -> str:
    """Counts, then a table for each paper with published and measured numbers."""
    counts = count_verdicts(contents.claims)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    number = len(contents.claims)
    noun = "claim" if number == 1 else "claims"
    lines = [f"# {_escape(title)}", "", f"{number} {noun}: {summary}.", ""]
    if command is not None:
        lines += [f"Made by `{command}`.", ""]
    for heading, claims in group_by_paper(contents.claims).items():
        lines += [f"## {_escape(heading)}", "", "| claim | published | measured | verdict |"]
        lines.append("|---|---|---|---|")
        for claim in claims:
            name = str(claim["verdict"])
            verdict = f"{MARKS[name].symbol} {name}" if name in MARKS else name
            if name != Verdict.REPRODUCED and claim.get("note"):
                verdict += f": {claim['note']}"
            name_and_title = f"`{claim['id']}` {claim['title']}"
            cells = (
                name_and_title,
                describe_published(claim),
                claim.get("measured") or "-",
                verdict,
            )
            lines.append("| " + " | ".join(map(_escape, cells)) + " |")
        lines.append("")
    for figure in contents.figures:
        if figure.texts is not None:
            lines += [f"## {_escape(figure.title)}", "", *_list_top_words(figure.texts), ""]
    return "\n".join(lines)


def _list_top_words(texts: HighlightedTexts) -> list[str]:
    rows = [("text", *texts.columns)]
    for row in texts.rows:
        text = row[0].join_words() if row else ""
        rows.append((text, *(one.find_top() for one in row)))
    head, *body = ("| " + " | ".join(map(_escape, row)) + " |" for row in rows)
    return [
        f"{_escape(texts.title)}: the word of largest weight.",
        "",
        head,
        "|---" * len(rows[0]) + "|",
        *body,
    ]


def _escape(text: str) -> str:
    """A bar would end the cell, an angle bracket or asterisk is markup."""
    for mark in ("\\", "|", "<", "*", "_"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
