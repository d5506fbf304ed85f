"""The verdicts of claims on a terminal: a table if it is wide, else a card for each claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.terminal import emit, make_console, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["print_verdicts"]

MIN_WIDTH = 40
NARROW = 120  # below it a claim is a card, not a row of narrow columns
MEANING = "the statement is known from memory, and is held to its class, not to a published number"
STYLES = {"good": "green", "partly": "yellow", "bad": "red", "open": "dim"}

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


def print_verdicts(document: dict[str, Any], console: Console | None = None) -> None:
    """Print the claims of a claims.json, grouped by paper, and a line with the counts.

    Args:
        document: What claims.json holds.
        console: Where; its width, colours and encoding decide how. None for stdout.
    """
    from rich.text import Text

    from mirrormargin.claims.claims_file import RECALLED, count_verdicts, name_paper

    console = console or make_console()
    console.width = max(console.width, MIN_WIDTH)
    show = _Writer(console.encoding.lower().replace("-", "") == "utf8")
    claims = [claim for claim in document.get("claims", []) if isinstance(claim, dict)]
    for paper in dict.fromkeys(str(claim.get("paper", "")) for claim in claims):
        rows = [claim for claim in claims if str(claim.get("paper", "")) == paper]
        emit(console, Text(show.write(name_paper(paper)), style="bold"))
        if console.width >= NARROW:
            emit(console, show.lay_out_table(rows))
        else:
            for claim in rows:
                emit(console, show.lay_out_card(claim))
        emit(console, "")
    counts = ", ".join(f"{count} {name}" for name, count in count_verdicts(claims).items() if count)
    emit(console, show.write(f"{_count(claims)}: {counts}" if counts else "no claims"))
    if any(claim.get("provenance") == "recalled" for claim in claims):
        emit(console, f"{RECALLED}: {MEANING}")


def _count(claims: Sequence[dict[str, Any]]) -> str:
    return "1 claim" if len(claims) == 1 else f"{len(claims)} claims"


class _Writer:
    """Lays out claims in the characters that a terminal has."""

    def __init__(self, has_unicode: bool) -> None:
        self.has_unicode = has_unicode

    def write(self, text: Any) -> str:
        """The text in those characters, before it is wrapped in their width."""
        found = str(text)
        if not self.has_unicode:
            found = found.translate(_SPELLED).encode("ascii", "replace").decode()
        return printable(" ".join(found.split()))

    def lay_out_table(self, claims: Sequence[dict[str, Any]]) -> Table:
        from rich.table import Table
        from rich.text import Text

        from mirrormargin.claims.claims_file import describe_published

        table = Table(
            box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True
        )
        table.add_column("verdict", width=24)
        table.add_column("claim", ratio=1, overflow="fold")
        table.add_column("published", width=24, overflow="fold")
        table.add_column("measured", width=24, overflow="fold")
        for claim in claims:
            label, style = self._find_verdict(claim)
            lines = [f"{claim.get('id', '')}  {claim.get('title', '')}"]
            lines += [f"{key} {text}" for key, text in _explain(claim).items()]
            table.add_row(
                Text(label, style=style),
                "\n".join(map(self.write, lines)),
                self.write(describe_published(claim)),
                self.write(claim.get("measured") or "-"),
            )
        return table

    def lay_out_card(self, claim: dict[str, Any]) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        from mirrormargin.claims.claims_file import describe_published

        label, style = self._find_verdict(claim)
        heading = Text.assemble(
            (label, style), f"  {self.write(claim.get('id', ''))}  ",
            self.write(claim.get("title", "")),
        )  # fmt: skip
        details = {
            "published": describe_published(claim),
            "measured": claim.get("measured") or "-",
        } | _explain(claim)
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(overflow="fold")
        for key, text in details.items():
            grid.add_row(key, self.write(text))
        return Group(heading, Padding(grid, (0, 0, 0, 4)))

    def _find_verdict(self, claim: dict[str, Any]) -> tuple[str, str]:
        """A mark with the verdict's name, and its style."""
        from mirrormargin.claims.claims_file import MARKS

        name = str(claim.get("verdict", ""))
        mark = MARKS.get(name)
        if mark is None:
            return self.write(f"? {name}"), ""
        return f"{mark.symbol if self.has_unicode else mark.ascii} {name}", STYLES[mark.style]


def _explain(claim: dict[str, Any]) -> dict[str, str]:
    """Why a claim is not simply reproduced."""
    note = str(claim.get("note") or "")
    return {"because": note} if note and claim.get("verdict") != "reproduced" else {}
