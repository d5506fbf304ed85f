"""``mirrormargin reproduce`` and ``demo``: run the experiments of the papers' claims, and judge."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from mirrormargin.cli.options import (
    OUTPUT,
    Count,
    Json,
    Positive,
    Quiet,
    show_examples,
)
from mirrormargin.cli.terminal import Progress, print_json, print_pairs, say, warn
from mirrormargin.cli.verdicts import print_verdicts
from mirrormargin.errors import ClaimError, ReportError

__all__ = ["app", "demo", "demo_app", "judge", "reproduce"]

FAILED = 1
RECORDS = Path("records")

PROFILES = """\
profiles:
  quick   everything that needs no data set, about a minute on two cores
  full    all seeds and sizes, some minutes
  paper   full and the published sizes of text transformers, days without a GPU

""" + (
    "Claims on real data are judged on stored records in the quick profile. The others train what"
    " has no record in --records, minutes to hours each; see also mirrormargin campaign.\n\n"
    "The folder keeps the evidence of each experiment: the same command resumes one that was"
    " stopped, even killed, and the same seed gives the same claims.json apart from time and"
    " machine."
)

# What both commands take.
Seed = Annotated[
    Count,
    Parameter(
        metavar="SEED",
        help="0 gives the published problems and starts, any other seed different ones.",
    ),
]
Workers = Annotated[Positive, Parameter(help="Processes.", show_default="all cores")]
Fresh = Annotated[bool, Parameter(help="Run everything again, even what the folder holds.")]
Folder = Annotated[
    Path, Parameter(metavar="FOLDER", group=OUTPUT, help="Where evidence and verdicts go.")
]

app = App(
    name="reproduce",
    usage="mirrormargin reproduce [OPTIONS] [CLAIM...]",
    **show_examples(
        (
            ("reproduce", "list the claims"),
            ("reproduce A.thm.rate", "one claim: the rates of paper A over 300 decades"),
            ("reproduce A B --profile full --out full", "both papers with all seeds"),
            ("reproduce A.tab.imdb --profile full", "trains on IMDB what has no record"),
            ("reproduce all && mirrormargin report mirrormargin-claims", "all, then a page"),
        ),
        failed="a claim that should hold does not",
        more=PROFILES,
    ),
)


@app.default
def reproduce(
    *claims: Annotated[str, Parameter(name="CLAIM")],
    profile: Literal["quick", "full", "paper"] = "quick",
    records: Annotated[Path | None, Parameter(metavar="FOLDER")] = None,
    no_training: bool = False,
    published: Annotated[tuple[Path, Path] | None, Parameter(metavar="FILE FILE")] = None,
    seed: Seed = 0,
    workers: Workers | None = None,
    fresh: Fresh = False,
    out: Folder = Path("mirrormargin-claims"),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Check claims of the papers: run their experiments and judge the numbers.

    Without a name, list all claims.

    Args:
        claims: all, a paper such as A, the beginning of a name such as A.thm, or a name.
        profile: How many seeds and steps, see below.
        records: Folder with records of trainings, which are not repeated. [default: records, if it
            exists]
        no_training: Use only the records that are there, and train nothing.
        published: Paper A's own models, results/1.1/6/1.pt and results/2/6/1.pt of its repository:
            judge A.fig.imdb-weights and A.tab.attention on these. Nothing in the files is run.
    """
    if not claims:
        _print_list(json)
        return 0
    document = _run_claims(
        claims,
        profile,
        out,
        seed=seed,
        workers=workers,
        fresh=fresh,
        records=records,
        train=not no_training,
        published=published or (),
        quiet=quiet,
    )
    if json:
        print_json(document)
    else:
        print_verdicts(document)
        _print_accuracies(document)
        if not quiet:
            from mirrormargin.claims.claims_file import CLAIMS_FILE

            say(f"\nwrote {out / CLAIMS_FILE}; for a page with figures:")
            say(f"  mirrormargin report {shlex.quote(str(out))}")
    return judge(document)


INTRODUCTION = """\
Training attention with mirror descent, and where it ends: what the papers claim, run now on
small problems, judged from the numbers. It takes about a minute.
"""

# The digits, their model's files, and the page.
DEMO_LIBRARIES = {
    "scikit-learn": "sklearn",
    "safetensors": "safetensors",
    "Jinja": "jinja2",
    "Plotly": "plotly",
}

demo_app = App(
    name="demo",
    **show_examples(
        (
            ("demo", "verdicts on the terminal, and mirrormargin-demo/report.html"),
            ("demo --seed 1 --out other", "the same on other problems"),
        ),
        failed="a claim that should hold does not",
    ),
)


@demo_app.default
def demo(
    *,
    seed: Seed = 0,
    workers: Workers | None = None,
    fresh: Fresh = False,
    out: Folder = Path("mirrormargin-demo"),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Run every claim that needs no data set, in about a minute.

    Prints the verdicts and writes a page with figures.
    """
    _check_installed()
    if not quiet and not json:
        say(INTRODUCTION)
    document = _run_claims(
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


def _check_installed() -> None:
    """Raise at once, not after a minute, if a library of the demo is missing."""
    missing = [name for name, module in DEMO_LIBRARIES.items() if find_spec(module) is None]
    if missing:
        raise ClaimError(
            f"the demo needs {' and '.join(missing)}, which this Python does not have:"
            " pip install 'mirrormargin[demo]'; without it, mirrormargin reproduce A gives verdicts"
        )


def _write_page(out: Path, seed: int) -> Path | None:
    """The page; None if the libraries that draw it are missing, for verdicts need none."""
    from mirrormargin.report import write_report

    command = f"mirrormargin demo --seed {seed}"
    try:
        return write_report([out], out / "report.html", command=command)
    except ReportError as error:
        warn(f"no page: {error}")
        return None


def _run_claims(
    names: tuple[str, ...],
    profile: str,
    out: Path,
    *,
    seed: int,
    workers: int | None,
    fresh: bool,
    records: Path | None = None,
    train: bool = True,
    published: tuple[Path, ...] = (),
    quiet: bool,
) -> dict[str, Any]:
    """Run claims with a progress bar; after an interrupt, the next call uses what is done.

    The result has the rows of these claims alone; the folder may hold others.
    """
    from mirrormargin import claims as library
    from mirrormargin.claims.claims_file import CLAIMS_FILE
    from mirrormargin.geometry.threads import count_cores
    from mirrormargin.runs import check_writable

    chosen = library.find_claims(names)
    check_writable(out / CLAIMS_FILE, make_folders=True)
    with Progress(1, "reproduce", quiet) as progress:

        def show(done: int, total: int, text: str) -> None:
            progress.total = total
            progress.update(done, text)

        try:
            document = library.reproduce(
                chosen,
                out,
                profile=profile,
                seed=seed,
                workers=workers or count_cores(),
                fresh=fresh,
                records=_find_records(records),
                train=train,
                published=published,
                progress=show,
            )
        except KeyboardInterrupt:
            progress.close()
            again = "the same command" + " without --fresh" * fresh
            warn(f"{out} keeps what is done; {again} resumes")
            raise
    asked = {claim.id for claim in chosen}
    return document | {"claims": [row for row in document["claims"] if row["id"] in asked]}


def _print_accuracies(document: dict[str, Any]) -> None:
    """Of published models, which are judged by what is in them, not by our trainings."""
    found = [row["origin"]["accuracy"] for row in document["claims"] if "accuracy" in row["origin"]]
    for name, row in (found[0] if found else {}).items():
        ours = row.get("test_accuracy")
        measured = f"{ours:g}% of test reviews here" if ours is not None else "IMDB is not here"
        say(f"published model, {name}: {measured}, {row['stored_accuracy']:g}% by its own curve")


def _find_records(folder: Path | None) -> Path | None:
    """The folder that was given, or the one that a checkout has."""
    if folder is None:
        return RECORDS if RECORDS.is_dir() else None
    if not folder.is_dir():
        raise ClaimError(f"there is no folder {folder} with records")
    return folder


def judge(document: dict[str, Any]) -> int:
    """The exit code: 1 if a claim that should hold does not."""
    failed = [
        claim["id"]
        for claim in document["claims"]
        if claim["should_hold"] and claim["verdict"] in ("not reproduced", "undecided")
    ]
    if failed:
        warn(f"should hold, but does not: {', '.join(failed)}")
    return FAILED if failed else 0


def _print_list(as_json: bool) -> None:
    from mirrormargin.claims import CLAIMS, PAPERS

    if as_json:
        keys = ("id", "title", "statement", "source", "provenance", "published", "experiment")
        rows = [{key: str(getattr(claim, key)) for key in keys} for claim in CLAIMS]
        print_json({"papers": PAPERS, "claims": rows})
        return
    for paper, title in PAPERS.items():
        say(f"{paper}  {title}")
        lines = {}
        for claim in CLAIMS:
            if claim.paper == paper:
                needs = f" [needs {claim.needs}]" * bool(claim.needs)
                lines[claim.id] = f"{claim.title}{needs}"
        print_pairs(lines)
        say()
    say("mirrormargin reproduce NAME runs one, reproduce A a paper's, reproduce all everything.")
