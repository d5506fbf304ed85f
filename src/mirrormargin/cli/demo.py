"""``mirrormargin demo``: every claim that needs no data set, in about a minute, and a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mirrormargin.cli.options import add_report, describe
from mirrormargin.cli.reproduce import add_place, judge, print_verdicts, run_claims
from mirrormargin.errors import ReportError

__all__ = ["add_parser", "run"]

FOLDER = Path("mirrormargin-demo")

INTRODUCTION = """\
Training attention with mirror descent, and where it ends: what the papers claim, run now on
small problems, judged from the numbers. It takes about a minute.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="run every claim that needs no data set, and write a page about it",
        description="Run every claim of the papers that needs no data set, print the verdicts and"
        " write a page with figures.",
        **describe(
            [
                ("demo", "verdicts on the terminal, and mirrormargin-demo/report.html"),
                ("demo --seed 1 --out other", "the same on other problems"),
            ],
            failed="a claim that should hold does not",
        ),
    )
    add_place(parser, FOLDER)
    add_report(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run, print the table and write the page."""
    if not arguments.quiet and not arguments.json:
        print(INTRODUCTION, flush=True)
    document = run_claims(["all"], "quick", arguments)
    if not arguments.json:
        print_verdicts(document)
    page = _write_page(arguments)
    if arguments.json:
        from mirrormargin.cli.tables import print_json

        print_json(document | {"page": None if page is None else str(page)})
    elif page is not None:
        print(f"\nThe page with all figures: {page.resolve()}")
    if not arguments.quiet and not arguments.json:
        print(
            "It has what each claim says and how it is checked; mirrormargin reproduce lists them."
        )
    return judge(document)


def _write_page(arguments: argparse.Namespace) -> Path | None:
    """The page, or None where what draws it is not installed: the verdicts are there without it."""
    from mirrormargin.report import write_report

    command = f"mirrormargin demo --seed {arguments.seed}"
    try:
        return write_report([arguments.out], arguments.out / "report.html", command=command)
    except ReportError as error:
        print(f"mirrormargin: no page: {error}", file=sys.stderr)
        return None
