r"""``mirrormargin lab flow`` and ``path``: two curves of W, for each problem and exponent.

The flow is mirror descent with a small constant rate, over hundreds of decades of steps,

    du/dt = -grad L(W),    k = t / lr = 1 ... 10^decades.

Where it is at least 100 decades long, its divergence D from the max-margin direction is compared
with the proven rate: D / rate in the last third must not exceed what it was in decades 20 to 50.

The path has the least loss on lp balls of growing radius,

    W(R) = argmin L(W)   s.t.   |W|_p <= R,

or, with --joint, the best head and W of each pair of norms. Each point is a certified local
minimiser: a residual of at most tol, and positive curvature.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cyclopts import App

from mirrormargin.cli.lab.kept_runs import NOTES, Destination
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
from mirrormargin.cli.terminal import print_json, print_rows, say
from mirrormargin.errors import ProblemError, SolverError

if TYPE_CHECKING:
    from mirrormargin.attention import AttentionProblem
    from mirrormargin.dynamics.flow_record import FlowRecord

__all__ = ["flow", "flow_app", "path", "path_app"]

FAILED = 1
NUM_RADII = 40
# Title, key and form of each column.
FIRST_COLUMNS = (("seed", "seed", "d"), ("p", "p", "g"))
FLOW_COLUMNS = (
    *FIRST_COLUMNS,
    ("log10 k", "log10_k", "g"),
    ("D", "divergence", ".2e"),
    ("|W|_p", "norm", ".4g"),
    ("proven rate", "claimed_rate", ""),
    ("bound", "bound", ""),
    ("status", "status", ""),
)
PATH_COLUMNS = (
    *FIRST_COLUMNS,
    ("radius", "radius", ".4g"),
    ("D", "divergence", ".1e"),
    ("head D", "head_divergence", ".1e"),
    ("residual", "largest_residual", ".1e"),
    ("curvature", "least_curvature", ".1e"),
    ("selection", "selection", ""),
    ("status", "status", ""),
)
FLOW_LEGEND = """
D      directional divergence of W from the max-margin solution of the tokens it selects
bound  whether D / proven rate in the last third is at most what it was in decades 20 to 50;
       - if the flow has fewer than 100 decades or no settled target"""
PATH_LEGEND = """
radius, D, selection   of the last point; D is the divergence of W from the max-margin solution
residual, curvature    the largest and the least of all points: at most tol, and above 0"""

flow_app = App(
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
path_app = App(
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


@flow_app.default
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
    from mirrormargin.dynamics.flow_record import KIND

    def follow(one: AttentionProblem, p: float, progress: Any) -> tuple[FlowRecord, dict[str, Any]]:
        found = mm.mirror_flow(one, p, decades, lr=lr, tol=tol, record=record, progress=progress)
        return found, _measure_flow(found, decades)

    destination = Destination(out, KIND, problem, overwrite)
    rows = destination.follow_each("flow", problems, p, follow, quiet)
    if json:
        print_json({"problem": problem, "decades": decades, "flows": rows})
    else:
        verdicts = {True: "holds", False: "broken", None: "-"}
        shown = [row | {"bound": verdicts[row["bound_holds"]]} for row in rows]
        print_rows(FLOW_COLUMNS, shown)
        if not quiet:
            say(FLOW_LEGEND)
            destination.say_written()
    return 0 if all(row["ok"] for row in rows) else FAILED


def _measure_flow(record: FlowRecord, decades: float) -> dict[str, Any]:
    import numpy as np

    import mirrormargin as mm
    from mirrormargin.dynamics.flow_record import FlowStatus
    from mirrormargin.dynamics.rates import choose_windows

    name, rate = mm.claimed_rate(record.p)
    holds = None
    if record.status is FlowStatus.FOLLOWED:
        log_k = record.log10_k * np.log(10)
        # A short flow has no windows, and few recorded points may leave one empty: not known then.
        with suppress(ProblemError):
            windows = choose_windows(decades)
            holds = mm.bound_holds(log_k, record.divergence, rate, *windows).holds
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


@path_app.default
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
    if head_radii is not None and not joint:
        raise ProblemError("--head-radii is given without --joint: add it, or leave them out")
    if joint and (radii is None) != (head_radii is None):
        raise ProblemError("--radii and --head-radii belong together: give both or none")
    if radii is not None and num_radii is not None:
        raise ProblemError("--radii and --num-radii are both given: give one of them")
    options: dict[str, Any] = {"radii": radii, "num_radii": num_radii or NUM_RADII, "tol": tol}
    options |= {"head_radii": head_radii} if joint else {}
    options |= {} if starts is None else {"num_starts": starts}
    import mirrormargin as mm
    from mirrormargin.dynamics.paths.joint_regularization_path import KIND as JOINT_KIND
    from mirrormargin.dynamics.paths.regularization_path import KIND

    find_path = mm.joint_regularization_path if joint else mm.regularization_path

    def follow(one: AttentionProblem, p: float, progress: Any) -> tuple[Any, dict[str, Any]]:
        try:
            found = find_path(one, p, **options, raise_on_failure=False, progress=progress)
        except SolverError as error:  # there is no target, so there is no path
            return None, {"p": p, "status": str(error), "ok": False}
        return found, _measure_path(found)

    problems = load_problems(problem, seed)
    destination = Destination(out, JOINT_KIND if joint else KIND, problem, overwrite)
    rows = destination.follow_each("path", problems, p, follow, quiet)
    if json:
        print_json({"problem": problem, "joint": joint, "paths": rows})
    else:
        columns = [one for one in PATH_COLUMNS if joint or one[1] != "head_divergence"]
        shown = [row | {"selection": " ".join(map(str, row.get("selection", "-")))} for row in rows]
        print_rows(columns, shown)
        if not quiet:
            say(PATH_LEGEND)
            destination.say_written()
    return 0 if all(row["ok"] for row in rows) else FAILED


def _measure_path(path: Any) -> dict[str, Any]:
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
