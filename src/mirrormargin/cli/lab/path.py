r"""``mirrormargin lab path``: the least loss on lp balls of growing radius.

    W(R) = argmin L(W)   s.t.   |W|_p <= R

or, with --joint, the best head and W of each pair of norms. Each point is a certified local
minimiser: a residual of at most tol, and positive curvature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cyclopts import App

from mirrormargin.cli.lab.destination import NOTES, Destination
from mirrormargin.cli.lab.problems import KEYS, Problem, load_problems
from mirrormargin.cli.options import (
    Count,
    Exponents,
    FolderOut,
    Json,
    Number,
    Numbers,
    Overwrite,
    Positive,
    Quiet,
    Seeds,
    show_examples,
)
from mirrormargin.cli.terminal import format_number, print_json, print_table, say
from mirrormargin.errors import ProblemError, SolverError

if TYPE_CHECKING:
    from mirrormargin.attention import AttentionProblem

__all__ = ["app", "path"]

NOT_CERTIFIED = 1
NUM_RADII = 40

app = App(
    name="path",
    **show_examples(
        (
            ("lab path unit_sphere --p 1.5 2 3", "40 radii, to where the loss gap is 1e-300"),
            ("lab path problem.npz --radii 1 10 100 --json", "three radii of your own"),
            ("lab path joint_toy --joint --out runs/path", "head and W together, kept as a run"),
        ),
        "not separable or not certified",
        f"{KEYS}\n{NOTES}",
    ),
)


@app.default
def path(
    problem: Problem,
    /,
    *,
    p: Exponents = (2.0,),
    seed: Seeds | None = None,
    joint: bool = False,
    radii: Numbers | None = None,
    head_radii: Numbers | None = None,
    num_radii: Positive | None = None,
    starts: Count | None = None,
    tol: Number = 1e-8,
    out: FolderOut | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Follow the regularization path.

    It has the least loss on lp balls of growing radius, each point certified.

    Args:
        joint: Minimise over the head too.
        radii: Norms of W, increasing.
        head_radii: Norms of the head, one for each of --radii; with --joint.
        num_radii: How many radii, if they are not given. [default: 40]
        starts: Random starts at each radius. [default: 3; 2 with --joint]
        tol: Largest residual of a certified point.
    """
    options = _read_options(joint, radii, head_radii, num_radii)
    options["tol"] = tol
    if starts is not None:
        options["num_starts"] = starts
    import mirrormargin as mm

    find_path = mm.joint_regularization_path if joint else mm.regularization_path

    def follow(one: AttentionProblem, p: float, progress: Any) -> tuple[Any, dict[str, Any]]:
        try:
            found = find_path(one, p, **options, raise_on_failure=False, progress=progress)
        except SolverError as error:  # there is no target, so there is no path
            return None, {"p": p, "status": str(error), "ok": False}
        return found, _measure(found)

    problems = load_problems(problem, seed)
    destination = Destination(out, _find_kind(joint), problem, overwrite)
    rows = destination.follow_each("path", problems, p, follow, quiet)
    if json:
        print_json({"problem": problem, "joint": joint, "paths": rows})
    else:
        _print(rows, joint, quiet)
        if out is not None and not quiet and any("radius" in row for row in rows):
            say(f"wrote {out}")
    return 0 if all(row["ok"] for row in rows) else NOT_CERTIFIED


def _read_options(
    joint: bool,
    radii: tuple[float, ...] | None,
    head_radii: tuple[float, ...] | None,
    num_radii: int | None,
) -> dict[str, Any]:
    if head_radii is not None and not joint:
        raise ProblemError("--head-radii is given without --joint: add it, or leave them out")
    if joint and (radii is None) != (head_radii is None):
        raise ProblemError("--radii and --head-radii belong together: give both or none")
    if radii is not None and num_radii is not None:
        raise ProblemError("--radii and --num-radii are both given: give one of them")
    options: dict[str, Any] = {"radii": radii, "num_radii": num_radii or NUM_RADII}
    return options | {"head_radii": head_radii} if joint else options


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


def _print(rows: list[dict[str, Any]], joint: bool, quiet: bool) -> None:
    columns = [("radius", "radius", ".4g"), ("D", "divergence", ".1e")]
    if joint:
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
    if not quiet:
        say(_LEGEND)


_LEGEND = """
radius, D, selection   of the last point; D is the divergence of W from the max-margin solution
residual, curvature    the largest and the least of all points: at most tol, and above 0"""
