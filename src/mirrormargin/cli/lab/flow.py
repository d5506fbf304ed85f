r"""``mirrormargin lab flow``: mirror descent with a small constant rate, over hundreds of decades.

    du/dt = -grad L(W),    k = t / lr = 1 ... 10^decades

for each problem and exponent. Where a flow is at least 100 decades long, its divergence D from the
max-margin direction is compared with the proven rate: D / rate in the last third must not exceed
what it was in decades 20 to 50.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cyclopts import App

from mirrormargin.cli.lab.destination import NOTES, Destination
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
from mirrormargin.cli.terminal import format_number, print_json, print_table, say

if TYPE_CHECKING:
    from mirrormargin.attention import AttentionProblem
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
    decades: Number = 100.0,
    lr: Number = 1.0,
    tol: Number = 1e-5,
    record: Number | None = None,
    out: FolderOut | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Follow mirror descent to 10^100 steps and beyond.

    The steps are those of a small constant rate, followed in the logarithm of time.

    Args:
        decades: log10 of the number of steps.
        lr: Learning rate; it only names the steps, k = t / lr.
        tol: Largest error of one step, in logits, 1e-9 to 0.01.
        record: Recorded points in each decade. [default: 300 points in all]
    """
    problems = load_problems(problem, seed)
    import mirrormargin as mm
    from mirrormargin.dynamics.flow import KIND

    def follow(one: AttentionProblem, p: float, progress: Any) -> tuple[FlowRecord, dict[str, Any]]:
        found = mm.mirror_flow(one, p, decades, lr=lr, tol=tol, record=record, progress=progress)
        return found, _measure(found, decades)

    destination = Destination(out, KIND, problem, overwrite)
    rows = destination.follow_each("flow", problems, p, follow, quiet)
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
    from mirrormargin.dynamics.rates import choose_windows
    from mirrormargin.errors import ProblemError

    name, rate = mm.claimed_rate(record.p)
    holds = None
    if record.status is FlowStatus.FOLLOWED:
        log_k = record.log10_k * np.log(10)
        # A short flow has no windows, and few recorded points may leave one empty: who knows then?
        with suppress(ProblemError):
            early, late = choose_windows(decades)
            holds = mm.bound_holds(log_k, record.divergence, rate, early, late).holds
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
