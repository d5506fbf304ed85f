r"""``mirrormargin lab flow``: mirror descent with a small constant rate, over hundreds of decades.

    du/dt = -grad L(W),    k = t / lr = 1 ... 10^decades

for each problem and exponent. Where a flow is at least 100 decades long, its divergence D from the
max-margin direction is compared with the proven rate: D / rate in the last third must not exceed
what it was in decades 20 to 50.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mirrormargin.cli.lab.destination import NOTES, Destination, name_run
from mirrormargin.cli.lab.problems import KEYS, Problem, load_problems
from mirrormargin.cli.options import (
    Exponents,
    FolderOut,
    Json,
    Number,
    Overwrite,
    Quiet,
    Seeds,
    show_examples,
)
from mirrormargin.cli.terminal import Progress, format_number, print_json, print_table, say

if TYPE_CHECKING:
    from mirrormargin.dynamics.flow import FlowRecord

__all__ = ["app", "flow"]

FAILED = 1

app = App(
    name="flow",
    **show_examples(
        (
            ("lab flow unit_sphere --p 1.75 2 3 --decades 300", "one problem to 10^300 steps"),
            ("lab flow unit_sphere --seed 1-10 --out runs/flow", "ten problems, each kept"),
            ("lab flow problem.json --decades 20 --record 5 --json", "5 points a decade, as JSON"),
        ),
        "a flow stopped early or broke its bound",
        f"{KEYS}\n{NOTES}",
    ),
)


@app.default
def flow(
    problem: Problem,
    /,
    *,
    p: Exponents = (2.0,),
    seed: Seeds | None = None,
    decades: Annotated[Number, Parameter(help="log10 of the number of steps.")] = 100.0,
    lr: Annotated[
        Number,
        Parameter(help="Learning rate; it only names the steps, k = t / lr."),
    ] = 1.0,
    tol: Annotated[
        Number, Parameter(help="Largest error of one step, in logits, 1e-9 to 0.01.")
    ] = 1e-5,
    record: Annotated[
        Number | None,
        Parameter(help="Recorded points in each decade.", show_default="300 points in all"),
    ] = None,
    out: FolderOut | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Follow mirror descent to 10^100 steps and beyond.

    The steps are those of a small constant rate, followed in the logarithm of time.
    """
    problems = load_problems(problem, seed)
    import mirrormargin as mm
    from mirrormargin.dynamics.flow import KIND

    jobs = [(number, one, exponent) for number, one in problems for exponent in p]
    destination = None
    if out is not None:
        names = [name_run(exponent, number) for number, _, exponent in jobs]
        destination = Destination(out, KIND, names, overwrite)
    rows = []
    with Progress(len(jobs), "flow", quiet) as progress:
        for index, (number, one, exponent) in enumerate(jobs):
            followed = mm.mirror_flow(
                one,
                exponent,
                decades,
                lr=lr,
                tol=tol,
                record=record,
                progress=lambda done, total, index=index, exponent=exponent: progress.update(
                    index + done / total, f"p = {exponent:g}"
                ),
            )
            if destination is not None:
                about = {"problem": problem, "seed": number}
                followed.save(destination.find_folder(name_run(exponent, number)), about)
            rows.append({"seed": number, **_measure(followed, decades)})
    if destination is not None:
        destination.finish()
    if json:
        print_json({"problem": problem, "decades": decades, "flows": rows})
    else:
        _print(rows, quiet)
        if out is not None and not quiet:
            say(f"wrote {out}")
    return 0 if all(row["ok"] for row in rows) else FAILED


def _measure(record: FlowRecord, decades: float) -> dict[str, Any]:
    import numpy as np

    import mirrormargin as mm
    from mirrormargin.dynamics.flow import FlowStatus
    from mirrormargin.dynamics.rates import LEAST_DECADES, choose_windows
    from mirrormargin.errors import ProblemError

    name, rate = mm.claimed_rate(record.p)
    holds = None
    if decades >= LEAST_DECADES and record.status is FlowStatus.FOLLOWED:
        log_k, windows = record.log10_k * np.log(10), choose_windows(decades)
        # So few points may be recorded that a window holds none: then nothing is known.
        try:
            holds = mm.bound_holds(log_k, record.divergence, rate, *windows).holds
        except ProblemError:
            holds = None
    followed = record.status in (FlowStatus.FOLLOWED, FlowStatus.UNSETTLED)
    has_points = record.log10_k.size > 0
    return {
        "p": record.p,
        "log10_k": float(record.log10_k[-1]) if has_points else None,
        "divergence": float(record.divergence[-1]) if has_points else None,
        "norm": float(record.norm[-1]) if has_points else None,
        "log10_loss_gap": float(record.log_loss_gap[-1] / np.log(10)) if has_points else None,
        "selection": record.target_selection.tolist(),
        "claimed_rate": name,
        "bound_holds": holds,
        "steps": record.num_steps,
        "status": str(record.status),
        "ok": bool(followed and holds is not False),
    }


def _print(rows: list[dict[str, Any]], quiet: bool) -> None:
    header = ("seed", "p", "log10 k", "D", "|W|_p", "proven rate", "bound", "status")
    verdicts = {True: "holds", False: "broken", None: "-"}
    lines = [
        (
            "-" if row["seed"] is None else str(row["seed"]),
            f"{row['p']:g}",
            format_number(row["log10_k"], "g"),
            format_number(row["divergence"], ".2e"),
            format_number(row["norm"], ".4g"),
            row["claimed_rate"],
            verdicts[row["bound_holds"]],
            row["status"],
        )
        for row in rows
    ]
    print_table(header, lines)
    if not quiet:
        say(_LEGEND)


_LEGEND = """
D      directional divergence of W from the max-margin solution of the tokens it selects
bound  whether D / proven rate in the last third is at most what it was in decades 20 to 50;
       - if the flow has fewer than 100 decades or no settled target"""
