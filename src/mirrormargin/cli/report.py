"""``mirrormargin report``: one page about what reproduce, train, lab and sweep wrote.

The page is a single HTML file that needs no network; ``--figures`` also writes each figure as SVG,
PDF and PNG, and its numbers as CSV and JSON. Nothing is trained.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from mirrormargin.cli.options import OUTPUT, FileOut, Json, Quiet, show_examples
from mirrormargin.cli.terminal import print_json, say, warn

__all__ = ["app", "report"]

NOTES = (
    "SOURCE is a folder that reproduce, train, lab or sweep wrote, or one that"
    " holds such folders, up to four levels down. The page needs plotly and the figures need"
    " matplotlib: pip install 'mirrormargin[report]'."
)

app = App(
    name="report",
    **show_examples(
        (
            ("report out", "a page about the claims in out, as report.html"),
            ("report out --out page.html --figures figures", "the same, and every figure as files"),
            ("report out --out verdicts.md", "the verdicts as Markdown tables"),
            ("report runs/sphere runs/flow --title 'Two runs'", "a page about run folders"),
        ),
        more=NOTES,
    ),
)


@app.default
def report(
    *sources: Annotated[Path, Parameter(name="SOURCE", required=True)],
    out: FileOut = Path("report.html"),
    figures: Annotated[Path | None, Parameter(metavar="FOLDER", group=OUTPUT)] = None,
    title: Annotated[str | None, Parameter(metavar="TEXT", group=OUTPUT)] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Show claims and runs on one HTML page that needs no network.

    Args:
        sources: Folders with claims or runs.
        out: The page, or verdicts as .md.
        figures: Also write every figure and its numbers here.
        title: Heading of the page.
    """
    from mirrormargin.report import write_report
    from mirrormargin.report.contents import describe_unfinished, find_unfinished

    words = ["mirrormargin", "report", *map(str, sources), "--out", str(out)]
    words += [] if figures is None else ["--figures", str(figures)]
    words += [] if title is None else ["--title", title]
    page = write_report(list(sources), out, figures, title, command=shlex.join(words))
    unfinished = [one for source in sources if source.is_dir() for one in find_unfinished(source)]
    if unfinished:
        warn(f"left out: {describe_unfinished(unfinished)}")
    size = page.stat().st_size
    if json:
        folder = None if figures is None else str(figures)
        print_json({"page": str(page), "bytes": size, "figures": folder})
    elif quiet:
        say(str(page))
    else:
        say(f"wrote {page} ({size / 1000:,.0f} kB)")
        if figures is not None:
            say(f"wrote the figures to {figures}")
    return 0
