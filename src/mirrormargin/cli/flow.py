r"""``mirrormargin flow``: mirror descent with a small constant rate, over hundreds of decades.

    du/dt = -grad L(W),    k = t / lr = 1 ... 10^decades

for each problem and exponent. Where a flow is at least 100 decades long, its divergence D from the
max-margin direction is held against the proven rate: D / rate in the last third must not exceed
what it was in decades 20 to 50.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.destination import Destination, name_run
from mirrormargin.cli.options import (
    add_exponents,
    add_output,
    add_problem,
    add_report,
    add_seed,
    describe,
    read_number,
)
from mirrormargin.cli.problems import KEYS, load_problems
from mirrormargin.cli.progress import Progress
from mirrormargin.cli.tables import format_number, print_json, print_table

if TYPE_CHECKING:
    from mirrormargin.dynamics.flow import FlowRecord

__all__ = ["add_parser", "run"]

FAILED = 1
EARLY = (20.0, 50.0)  # decades
LEAST_DECADES = 100.0  # of a flow whose rate is checked

EXAMPLES = (
    ("flow lab/unit_sphere --p 1.75 2 3 --decades 300", "one problem to 10^300 steps"),
    ("flow lab/unit_sphere --seed 1-10 --out runs/flow", "ten problems, each kept as a run"),
    ("flow problem.json --decades 20 --record 5 --json", "5 points a decade, as JSON"),
)
NOTES = """\
--out makes FOLDER a run if there is one flow, and holds a folder such as seed-1-p-1.75 for each
one if there are several.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "flow",
        help="follow mirror descent to 10^100 steps and beyond",
        description="Follow mirror descent with a small constant rate in the logarithm of time.",
        **describe(EXAMPLES, "a flow stopped early or broke its bound", f"{KEYS}\n{NOTES}"),
    )
    add_problem(parser)
    group = parser.add_argument_group("flow")
    add_exponents(group)
    add_seed(group)
    group.add_argument(
        "--decades",
        type=read_number,
        default=100.0,
        metavar="N",
        help="log10 of the number of steps (default: 100)",
    )
    group.add_argument(
        "--lr",
        type=read_number,
        default=1.0,
        metavar="RATE",
        help="learning rate, which only names the steps, k = t / lr (default: 1)",
    )
    group.add_argument(
        "--tol",
        type=read_number,
        default=1e-5,
        metavar="ERROR",
        help="largest error of one step, in logits, 1e-9 to 0.01 (default: 1e-5)",
    )
    group.add_argument(
        "--record",
        type=read_number,
        metavar="N",
        help="recorded points in each decade (default: 300 points in all)",
    )
    group = parser.add_argument_group("output")
    add_output(group, "keep the flows in this folder")
    add_report(group)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Follow each flow, keep it if asked, then print the table or the JSON object."""
    problems = load_problems(arguments.problem, arguments.seed)
    import mirrormargin as mm
    from mirrormargin.dynamics.flow import KIND

    jobs = [(seed, problem, p) for seed, problem in problems for p in arguments.p]
    destination = None
    if arguments.out is not None:
        names = [name_run(p, seed) for seed, _, p in jobs]
        destination = Destination(arguments.out, KIND, names, arguments.overwrite)
    rows = []
    with Progress(len(jobs), "flow", arguments.quiet) as progress:
        for place, (seed, problem, p) in enumerate(jobs):
            record = mm.mirror_flow(
                problem,
                p,
                arguments.decades,
                lr=arguments.lr,
                tol=arguments.tol,
                record=arguments.record,
                progress=lambda done, total, place=place, p=p: progress.update(
                    place + done / total, f"p = {p:g}"
                ),
            )
            if destination is not None:
                about = {"problem": arguments.problem, "seed": seed}
                record.save(destination.find_folder(name_run(p, seed)), about)
            rows.append({"seed": seed, **_measure(record, arguments.decades)})
    if destination is not None:
        destination.finish()
    if arguments.json:
        print_json({"problem": arguments.problem, "decades": arguments.decades, "flows": rows})
    else:
        _print(rows, arguments)
    return 0 if all(row["ok"] for row in rows) else FAILED


def _measure(record: FlowRecord, decades: float) -> dict[str, Any]:
    import numpy as np

    import mirrormargin as mm
    from mirrormargin.dynamics.flow import FlowStatus
    from mirrormargin.errors import ProblemError

    name, rate = mm.claimed_rate(record.p)
    holds = None
    if decades >= LEAST_DECADES and record.status is FlowStatus.FOLLOWED:
        late = (decades * 2 / 3, decades)
        log_k = record.log10_k * np.log(10)
        # So few points may be recorded that a window holds none: then nothing is known.
        try:
            holds = mm.bound_holds(log_k, record.divergence, rate, EARLY, late).holds
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


def _print(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
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
    if not arguments.quiet:
        print(_LEGEND)
        if arguments.out is not None:
            print(f"wrote {arguments.out}")


_LEGEND = """
D      directional divergence of W from the max-margin solution of the tokens it selects
bound  whether D / proven rate in the last third is at most what it was in decades 20 to 50;
       - if the flow has fewer than 100 decades or no settled target"""
