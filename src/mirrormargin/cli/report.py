"""``mirrormargin report``: one page about what reproduce, train, flow and path wrote.

The page is a single HTML file that needs no network; ``--figures`` also writes each figure as SVG,
PDF and PNG, and its numbers as CSV and JSON. Nothing is trained.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from mirrormargin.cli.options import add_report, describe
from mirrormargin.cli.tables import print_json

__all__ = ["add_parser", "run"]

EXAMPLES = (
    ("report out", "a page about the claims in out, as report.html"),
    ("report out --out page.html --figures figures", "the same, and every figure as files"),
    ("report out --out verdicts.md", "the verdicts as Markdown tables"),
    ("report runs/sphere runs/flow --title 'Two runs'", "a page about run folders"),
)
NOTES = """\
SOURCE is a folder that reproduce, train, flow or path wrote, or one that holds such folders, up to
four levels down. The page needs plotly and the figures need matplotlib: pip install
'mirrormargin[report]'.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make one self-contained page of claims and runs, and figures for papers",
        description="Show claims, runs and their figures on one HTML page that needs no network.",
        **describe(EXAMPLES, more=NOTES),
    )
    parser.add_argument(
        "sources", nargs="+", type=Path, metavar="SOURCE", help="folders with claims or runs"
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page, or verdicts as .md (default: report.html)",
    )
    group.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="also write every figure and its numbers"
    )
    group.add_argument("--title", metavar="TEXT", help="heading of the page")
    add_report(group)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from mirrormargin.report import write_report

    page = write_report(
        arguments.sources,
        arguments.out,
        arguments.figures,
        arguments.title,
        command=_describe_command(arguments),
    )
    figures = None if arguments.figures is None else str(arguments.figures)
    if arguments.json:
        print_json({"page": str(page), "bytes": page.stat().st_size, "figures": figures})
    elif arguments.quiet:
        print(page)
    else:
        print(f"wrote {page} ({page.stat().st_size / 1000:,.0f} kB)")
        if figures is not None:
            print(f"wrote the figures to {figures}")
    return 0


def _describe_command(arguments: argparse.Namespace) -> str:
    words = ["mirrormargin", "report", *map(str, arguments.sources), "--out", str(arguments.out)]
    if arguments.figures is not None:
        words += ["--figures", str(arguments.figures)]
    if arguments.title is not None:
        words += ["--title", arguments.title]
    return shlex.join(words)
