"""``mirrormargin reproduce``: run what a claim of the papers says, and judge it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from mirrormargin.cli.options import add_report, describe, read_count, read_positive
from mirrormargin.cli.progress import Progress
from mirrormargin.errors import ClaimError

__all__ = ["add_parser", "add_place", "judge", "print_verdicts", "run", "run_claims"]

FAILED = 1
FOLDER = Path("mirrormargin-claims")

RECORDS = Path("records")

MORE = """\
profiles:
  quick   everything that needs no data set, about a minute on two cores
  full    all seeds and sizes, some minutes
  paper   as full, and the published sizes of text transformers, for days without a GPU

Claims on real data are judged on stored records in the quick profile. The others train what has no
record in --records, minutes to hours each; see also mirrormargin campaign.

The folder keeps the evidence of each experiment: a command that was stopped, even killed, goes on
where it was, and the same seed gives the same claims.json apart from time and machine.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="run claims of the papers and judge them",
        description="Run what claims of the papers say, and judge each from the numbers. Without a"
        " name, list all claims.",
        **describe(
            [
                ("reproduce", "list the claims"),
                ("reproduce A.thm.rate", "one claim: the rates of paper A over 300 decades"),
                ("reproduce A B --profile full --out full", "both papers with all seeds"),
                ("reproduce A.tab.imdb --profile full", "trains on IMDB what has no record"),
                ("reproduce all && mirrormargin report mirrormargin-claims", "all, then a page"),
            ],
            failed="a claim that should hold does not",
            more=MORE,
        ),
    )
    parser.add_argument(
        "claims",
        nargs="*",
        metavar="CLAIM",
        help="all, a paper such as A, the beginning of a name such as A.thm, or a name",
    )
    parser.add_argument(
        "--profile",
        choices=("quick", "full", "paper"),
        default="quick",
        help="how many seeds and steps, see below (default: quick)",
    )
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="records of trainings that need not be made again (default: records, if it is there)",
    )
    parser.add_argument(
        "--no-training",
        action="store_true",
        help="examine the records of trainings that are there, and make no new ones",
    )
    add_place(parser, FOLDER)
    add_report(parser)
    parser.set_defaults(run=run)


def add_place(parser: argparse.ArgumentParser, folder: Path) -> None:
    """The options of all commands that run claims."""
    parser.add_argument(
        "--seed",
        type=read_count,
        default=0,
        metavar="SEED",
        help="other problems and starts; 0 has the published ones (default: 0)",
    )
    parser.add_argument(
        "--out", type=Path, default=folder, metavar="FOLDER", help=f"(default: {folder})"
    )
    parser.add_argument(
        "--workers", type=read_positive, metavar="N", help="processes to use (default: all cores)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="run again what the folder holds already"
    )


def run(arguments: argparse.Namespace) -> int:
    """List, or run and judge."""
    if not arguments.claims:
        _print_list(arguments.json)
        return 0
    document = run_claims(arguments.claims, arguments.profile, arguments)
    if arguments.json:
        from mirrormargin.cli.tables import print_json

        print_json(document)
    else:
        print_verdicts(document)
        if not arguments.quiet:
            print(f"\nwrote {arguments.out / 'claims.json'}; for a page with figures:")
            print(f"  mirrormargin report {shlex.quote(str(arguments.out))}")
    return judge(document)


def run_claims(names: list[str], profile: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run claims with a line of progress; what an interrupt leaves is used by the next call.

    What is returned has the rows of these claims alone, whatever else the folder knows.
    """
    from mirrormargin.claims import find_claims, reproduce
    from mirrormargin.cli.destination import check_writable
    from mirrormargin.geometry.sharing import count_cores

    claims = find_claims(names)
    check_writable(arguments.out / "claims.json")
    with Progress(1, "reproduce", arguments.quiet) as progress:

        def show(done: int, total: int, text: str) -> None:
            progress.total = total
            progress.update(done, text)

        try:
            document = reproduce(
                claims,
                arguments.out,
                profile=profile,
                seed=arguments.seed,
                workers=arguments.workers or count_cores(),
                fresh=arguments.fresh,
                records=_find_records(getattr(arguments, "records", None)),
                train=not getattr(arguments, "no_training", False),
                progress=show,
            )
        except KeyboardInterrupt:
            progress.close()
            print(
                f"mirrormargin: {arguments.out} keeps what is done; the same command"
                + " without --fresh" * arguments.fresh
                + " goes on",
                file=sys.stderr,
            )
            raise
    asked = {claim.id for claim in claims}
    return document | {"claims": [row for row in document["claims"] if row["id"] in asked]}


def _find_records(folder: Path | None) -> Path | None:
    """The folder that was given, or the one that a checkout has."""
    if folder is None:
        return RECORDS if RECORDS.is_dir() else None
    if not folder.is_dir():
        raise ClaimError(f"there is no folder {folder} with records")
    return folder


def print_verdicts(document: dict[str, Any]) -> None:
    from mirrormargin.report import format_verdicts

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(format_verdicts(document, shutil.get_terminal_size().columns, color))


def judge(document: dict[str, Any]) -> int:
    """The exit code: 1 if a claim that should hold does not."""
    failed = [
        claim["id"]
        for claim in document["claims"]
        if claim["should_hold"] and claim["verdict"] == "not reproduced"
    ]
    if failed:
        print(f"mirrormargin: should hold, but does not: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


def _print_list(as_json: bool) -> None:
    from mirrormargin.claims import CLAIMS, PAPERS

    if as_json:
        from mirrormargin.cli.tables import print_json

        keys = ("id", "title", "statement", "source", "provenance", "published", "experiment")
        rows = [{key: str(getattr(claim, key)) for key in keys} for claim in CLAIMS]
        print_json({"papers": PAPERS, "claims": rows})
        return
    width = max(len(claim.id) for claim in CLAIMS)
    for paper, title in PAPERS.items():
        print(f"{paper}  {title}")
        for claim in CLAIMS:
            if claim.paper == paper:
                needs = f" [needs {claim.needs}]" * bool(claim.needs)
                print(f"  {claim.id:<{width}}  {claim.title}{needs}")
        print()
    print("mirrormargin reproduce NAME runs one, reproduce A a paper's, reproduce all everything.")
