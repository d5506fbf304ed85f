"""``mirrormargin demo``: every claim that needs no data set, in about a minute, and a page."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from mirrormargin.cli.options import Json, Quiet, show_examples
from mirrormargin.cli.reproduce import Fresh, Place, Seed, Workers, judge, run_claims
from mirrormargin.cli.terminal import print_json, say, warn
from mirrormargin.cli.verdicts import print_verdicts
from mirrormargin.errors import ReportError

__all__ = ["app", "demo"]

FOLDER = Path("mirrormargin-demo")
INTRODUCTION = """\
Training attention with mirror descent, and where it ends: what the papers claim, run now on
small problems, judged from the numbers. It takes about a minute.
"""

app = App(
    name="demo",
    **show_examples(
        (
            ("demo", "verdicts on the terminal, and mirrormargin-demo/report.html"),
            ("demo --seed 1 --out other", "the same on other problems"),
        ),
        failed="a claim that should hold does not",
    ),
)


@app.default
def demo(
    *,
    seed: Seed = 0,
    workers: Workers | None = None,
    fresh: Fresh = False,
    out: Place = FOLDER,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Run every claim that needs no data set, in about a minute.

    Prints the verdicts and writes a page with figures.
    """
    if not quiet and not json:
        say(INTRODUCTION)
    document = run_claims(
        ("all",), "quick", out, seed=seed, workers=workers, fresh=fresh, quiet=quiet
    )
    if not json:
        print_verdicts(document)
    page = _write_page(out, seed)
    if json:
        print_json(document | {"page": None if page is None else str(page)})
    elif page is not None:
        say(f"\nThe page with all figures: {page.resolve()}")
    if not quiet and not json:
        say("It has what each claim says and how it is checked; mirrormargin reproduce lists them.")
    return judge(document)


def _write_page(out: Path, seed: int) -> Path | None:
    """The page, or None where what draws it is not installed: the verdicts are there without it."""
    from mirrormargin.report import write_report

    command = f"mirrormargin demo --seed {seed}"
    try:
        return write_report([out], out / "report.html", command=command)
    except ReportError as error:
        warn(f"no page: {error}")
        return None
