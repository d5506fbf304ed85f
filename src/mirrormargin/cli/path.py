r"""``mirrormargin path``: the least loss on lp balls of growing radius.

    W(R) = argmin L(W)   s.t.   |W|_p <= R

or, with --joint, the best head and W of each pair of norms. Each point is a certified local
minimiser: a residual of at most tol, and positive curvature.
"""

from __future__ import annotations

import argparse
from typing import Any

from mirrormargin.cli.destination import Destination, name_run
from mirrormargin.cli.options import (
    add_exponents,
    add_output,
    add_problem,
    add_report,
    add_seed,
    describe,
    read_count,
    read_number,
    read_positive,
)
from mirrormargin.cli.problems import KEYS, load_problems
from mirrormargin.cli.progress import Progress
from mirrormargin.cli.tables import format_number, print_json, print_table
from mirrormargin.errors import ProblemError, SolverError

__all__ = ["add_parser", "run"]

NOT_CERTIFIED = 1
NUM_RADII = 40

EXAMPLES = (
    ("path lab/unit_sphere --p 1.5 2 3", "40 radii, the last where the loss gap is 1e-300"),
    ("path problem.npz --radii 1 10 100 --json", "three radii of one's own"),
    ("path lab/joint_toy --joint --out runs/path", "head and W together, kept as a run"),
)
NOTES = """\
--out makes FOLDER a run if there is one path, and holds a folder such as seed-1-p-1.75 for each
one if there are several.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "path",
        help="follow the least loss on lp balls of growing radius",
        description="Follow the regularization path: the least loss on lp balls.",
        **describe(EXAMPLES, "not separable or not certified", f"{KEYS}\n{NOTES}"),
    )
    add_problem(parser)
    group = parser.add_argument_group("path")
    add_exponents(group)
    add_seed(group)
    group.add_argument("--joint", action="store_true", help="minimise over the head too")
    group.add_argument("--radii", type=read_number, nargs="+", metavar="R", help="of W, increasing")
    group.add_argument(
        "--head-radii",
        type=read_number,
        nargs="+",
        metavar="R",
        help="of the head, one for each of --radii; with --joint",
    )
    group.add_argument(
        "--num-radii",
        type=read_positive,
        metavar="N",
        help=f"how many, if they are not given (default: {NUM_RADII})",
    )
    group.add_argument(
        "--starts",
        type=read_count,
        metavar="N",
        help="random starts at each radius (default: 3; 2 with --joint)",
    )
    group.add_argument(
        "--tol",
        type=read_number,
        default=1e-8,
        metavar="RESIDUAL",
        help="largest residual of a certified point (default: 1e-8)",
    )
    group = parser.add_argument_group("output")
    add_output(group, "keep the paths in this folder")
    add_report(group)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Follow each path, keep it if asked, then print the table or the JSON object."""
    options = _read_options(arguments)
    import mirrormargin as mm

    problems = load_problems(arguments.problem, arguments.seed)
    jobs = [(seed, problem, p) for seed, problem in problems for p in arguments.p]
    follow = mm.joint_regularization_path if arguments.joint else mm.regularization_path
    destination = None
    if arguments.out is not None:
        names = [name_run(p, seed) for seed, _, p in jobs]
        kind = _find_kind(arguments.joint)
        destination = Destination(arguments.out, kind, names, arguments.overwrite)
    rows = []
    with Progress(len(jobs), "path", arguments.quiet) as progress:
        for place, (seed, problem, p) in enumerate(jobs):

            def report(done: int, total: int, place: int = place, p: float = p) -> None:
                progress.update(place + done / total, f"p = {p:g}")

            try:
                path = follow(problem, p, **options, raise_on_failure=False, progress=report)
            except SolverError as error:  # there is no target, so there is no path
                rows.append({"seed": seed, "p": p, "status": str(error), "ok": False})
                continue
            if destination is not None:
                about = {"problem": arguments.problem, "seed": seed}
                path.save(destination.find_folder(name_run(p, seed)), about)
            rows.append({"seed": seed, **_measure(path)})
    if destination is not None:
        destination.finish()
    if arguments.json:
        print_json({"problem": arguments.problem, "joint": arguments.joint, "paths": rows})
    else:
        _print(rows, arguments)
    return 0 if all(row["ok"] for row in rows) else NOT_CERTIFIED


def _read_options(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.head_radii is not None and not arguments.joint:
        raise ProblemError("--head-radii is given without --joint: add it, or leave them out")
    if arguments.joint and (arguments.radii is None) != (arguments.head_radii is None):
        raise ProblemError("--radii and --head-radii belong together: give both or none")
    if arguments.radii is not None and arguments.num_radii is not None:
        raise ProblemError("--radii and --num-radii are both given: give one of them")
    options = {
        "radii": arguments.radii,
        "num_radii": arguments.num_radii or NUM_RADII,
        "tol": arguments.tol,
    }
    if arguments.joint:
        options["head_radii"] = arguments.head_radii
    if arguments.starts is not None:
        options["num_starts"] = arguments.starts
    return options


def _find_kind(is_joint: bool) -> str:
    from mirrormargin.dynamics.paths.joint_regularization_path import KIND as JOINT_KIND
    from mirrormargin.dynamics.paths.regularization_path import KIND

    return JOINT_KIND if is_joint else KIND


def _measure(path: Any) -> dict[str, Any]:
    import numpy as np

    row = {
        "p": path.p,
        "radius": float(path.radii[-1]),
        "num_radii": len(path.radii),
        "divergence": float(path.divergence[-1]),
        "largest_residual": float(path.residual.max()),
        "least_curvature": float(path.curvature.min()),
        "num_certified": int(path.is_certified.sum()),
        "selection": path.selection[-1].tolist(),
        "status": str(path.status),
        "ok": bool(path.is_certified.all()),
    }
    if hasattr(path, "head_radii"):
        row["largest_residual"] = float(np.maximum(path.residual, path.head_residual).max())
        row["head_radius"] = float(path.head_radii[-1])
        row["head_divergence"] = float(path.head_divergence[-1])
        row["log10_loss"] = float(path.log_loss[-1] / np.log(10))
    else:
        row["log10_loss_gap"] = float(path.log_loss_gap[-1] / np.log(10))
    return row


def _print(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    columns = [("radius", "radius", ".4g"), ("D", "divergence", ".1e")]
    if arguments.joint:
        columns += [("head D", "head_divergence", ".1e")]
    columns += [("residual", "largest_residual", ".1e"), ("curvature", "least_curvature", ".1e")]
    header = ["seed", "p", *(name for name, _, _ in columns), "selection", "status"]
    lines = []
    for row in rows:
        cells = ["-" if row["seed"] is None else str(row["seed"]), f"{row['p']:g}"]
        cells += [format_number(row.get(key), form) for _, key, form in columns]
        selection = " ".join(map(str, row.get("selection", "-")))
        lines.append([*cells, selection, row["status"]])
    print_table(header, lines)
    if not arguments.quiet:
        print(_LEGEND)
        if arguments.out is not None and any("radius" in row for row in rows):
            print(f"wrote {arguments.out}")


_LEGEND = """
radius, D, selection   of the last point; D is the divergence of W from the max-margin solution
residual, curvature    the largest and the least of all points: at most tol, and above 0"""
