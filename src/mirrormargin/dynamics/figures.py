r"""Pictures of what the lab ran: trainings, flows and regularisation paths.

The proven class of a flow's divergence D after k steps is, up to a factor,

    p < 2:  (log k)^-(p - 1)        p = 2:  log log k / log k        p > 2:  1 / log k.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.descent.record import KIND as TRAINING
from mirrormargin.dynamics.flow import KIND as FLOW
from mirrormargin.dynamics.paths.joint_regularization_path import KIND as JOINT_PATH
from mirrormargin.dynamics.paths.regularization_path import KIND as PATH
from mirrormargin.dynamics.rates import claimed_rate
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.maps import choose_frames, draw_map
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["KINDS", "LabRun", "draw_bound", "draw_runs"]

Array = NDArray[np.float64]
KINDS = (TRAINING, FLOW, PATH, JOINT_PATH)
FIRST_DECADE = 3.0  # before it the start of a flow is seen, not its rate
MAX_MAPS = 3
RUNNING = 0  # to the end, or as far as it was planned
MISSING = "–"
OWN = "own"  # the target is the solution for the tokens that the run itself selects
ENDS = {RUNNING: "all steps", 1: "zero gradient", 2: "diverged", 3: "out of reach"}


@dataclass(frozen=True, eq=False)
class LabRun:
    """A run that was read back: how it is called, where it is, its kind, and what is in it."""

    name: str
    folder: Path
    kind: str
    document: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    @property
    def stem(self) -> str:
        """The name as a part of a file's name."""
        return self.name.replace("/", "-")

    @property
    def exponents(self) -> tuple[float, ...]:
        """The exponents p of the run, from wherever its kind keeps them."""
        found = self.arrays.get("p", self.document.get("p"))
        if found is None:
            found = self.document["settings"]["p"]
        return tuple(float(p) for p in np.ravel(np.asarray(found, dtype=np.float64)))


def draw_runs(runs: Sequence[LabRun]) -> list[Figure]:
    """Trainings have figures of their own; flows share one, and so do paths of one kind."""
    figures = [one for run in runs if run.kind == TRAINING for one in draw_training(run)]
    for kind, draw in ((FLOW, draw_flows), (PATH, draw_paths), (JOINT_PATH, draw_joint_paths)):
        chosen = [run for run in runs if run.kind == kind]
        if chosen:
            figures.append(draw(chosen))
    return figures


def draw_training(run: LabRun) -> list[Figure]:
    """Curves of all runs of a record, and the attention maps of the first one if W was kept."""
    quantities = [
        ("divergence", "direction", Axis("D", "log"), 1.0),
        ("head_divergence", "direction of the head", Axis("D of the head", "log"), 1.0),
        ("norm", "norm", Axis("‖W‖ₚ", "log"), 1.0),
        ("log_loss_gap", "loss", Axis("log₁₀ of the loss gap"), 1 / np.log(10)),
    ]
    panels = tuple(
        Panel(title, Axis("step", "log"), axis, _draw_curves(run, factor * run[name]))
        for name, title, axis, factor in quantities
        if name in run.arrays
    )
    count = run["norm"].shape[0] * run["norm"].shape[2]
    rule = run.document["settings"]["step_rule"]
    figures = [
        Figure(
            f"training-{run.stem}",
            f"Training {run.name}",
            f"{rule.capitalize()} steps; {count} run{'s' if count > 1 else ''} at each p: the"
            " median with the least and the largest.",
            panels,
            columns=3 if len(panels) == 3 else 2,
            table=_list_ends(run),
        )
    ]
    if "path" in run.arrays:
        figures.append(_draw_maps(run))
    return figures


def _draw_curves(run: LabRun, values: Array) -> tuple[Series, ...]:
    series = []
    for j, p in enumerate(run.exponents):
        one = values[:, j].reshape(-1, values.shape[-1])
        steps = run["steps"][:, j].reshape(-1, values.shape[-1])
        # Runs that ended early repeat their last step: the longest one has them all.
        x = steps[steps[:, -1].argmax()].astype(np.float64)
        again = np.append(False, np.diff(x) == 0)
        one = np.where(np.isfinite(one), one, np.nan)
        keep = ~again & ~np.isnan(one).all(axis=0)
        group = name_exponent(p)
        series.append(Series(group, x[keep], *find_median(one[:, keep]), group=group))
    return tuple(series)


def _list_ends(run: LabRun) -> Table:
    rows = []
    optimal = _find_optimal(run)
    interrupted = run["planned"].shape[-1] > run["steps"].shape[-1]
    for j, p in enumerate(run.exponents):
        selected = run["selection"][:, j, :, -1]
        ends = run["end"][:, j].ravel().tolist()
        names = [
            f"{ends.count(code)} {name}"
            for code, name in ENDS.items()
            if code in ends and not (interrupted and code == RUNNING)
        ]
        divergence = _format_ends(run, "divergence", j, ".3g")
        if interrupted and divergence == MISSING and run.document["settings"]["target"] == OWN:
            divergence = "needs the tokens selected in the end"
        if interrupted:
            done, total = int(run["steps"][:, j].max()), int(run["planned"][j, -1])
            resume = shlex.join(["mirrormargin", "lab", "train", "--resume", str(run.folder)])
            names.append(f"interrupted at step {done} of {total}; resume it with {resume}")
        shares = f"{(selected == optimal[:, None]).mean():.1%}"
        norm, gap = _format_ends(run, "norm", j, ".4g"), run["log_loss_gap"][:, j, :, -1]
        loss = f"{np.median(gap) / np.log(10):.4g}"
        steps = str(int(run["steps"][:, j].max()))
        rows.append((f"{p:g}", steps, divergence, norm, loss, shares, ", ".join(names)))
    columns = ("p", "steps", "D", "‖W‖ₚ", "log₁₀ loss gap", "at optimal tokens", "ends")
    return Table(columns, tuple(rows))


def _find_optimal(run: LabRun) -> NDArray[np.intp]:
    """The tokens of the highest score y v.x in each sequence, (P, n)."""
    tokens, labels, head = (run[f"problem.{name}"] for name in ("tokens", "labels", "head"))
    return (labels[..., None] * np.einsum("pntd,pd->pnt", tokens, head)).argmax(axis=-1)


def _format_ends(run: LabRun, name: str, j: int, form: str) -> str:
    if name not in run.arrays:
        return MISSING
    last = run[name][:, j, :, -1]
    known = last[np.isfinite(last)]
    return f"{np.median(known):{form}}" if known.size else MISSING


def _draw_maps(run: LabRun) -> Figure:
    tokens, queries = run["problem.tokens"][0], run["problem.queries"][0]
    steps, path = run["steps"][0, :, 0], run["path"][0, :, 0]
    shown = range(min(len(run.exponents), MAX_MAPS))
    frames = choose_frames(steps, int(steps.max()))
    return Figure(
        f"attention-{run.stem}",
        f"Attention along training {run.name}",
        "Attention of the first problem from the first start. Outlined cells are the optimal"
        " tokens.",
        tuple(
            draw_map(
                name_exponent(run.exponents[j]),
                steps[j],
                _attend(tokens, queries, path[j]),
                _find_optimal(run)[0],
                frames,
            )
            for j in shown
        ),
        columns=min(len(shown), 3),
    )


def _attend(tokens: Array, queries: Array, path: Array) -> Array:
    """softmax(X W z) for each recorded W, (R, n, T)."""
    logits = np.einsum("ntd,rde,ne->rnt", tokens, path, queries)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def draw_flows(runs: Sequence[LabRun]) -> Figure:
    """One line for each flow, and one bound for each exponent."""
    lines: list[Series] = []
    norms: list[Series] = []
    rows = []
    for run in runs:
        (p,) = run.exponents
        x, divergence, group = run["log10_k"], run["divergence"], name_exponent(p)
        # Where D is zero to rounding there is nothing to show on a log axis.
        lines.append(Series(group, x, np.where(divergence > 0, divergence, np.nan), group=group))
        norms.append(Series(group, x, run["norm"], group=group))
        end = f"{divergence[-1]:.3g}" if divergence.size else "–"
        norm = f"{run['norm'][-1]:.4g}" if divergence.size else "–"
        rows.append((run.name, f"{p:g}", end, norm, str(run.document.get("status", ""))))
    for p in sorted({run.exponents[0] for run in runs}):
        flows = [run for run in runs if run.exponents[0] == p]
        longest = max(flows, key=lambda run: run["log10_k"].size)
        size = longest["log10_k"].size
        same = [run["divergence"] for run in flows if run["log10_k"].size == size]
        lines.append(draw_bound(longest["log10_k"], np.max(same, axis=0), p))
    return Figure(
        "flows",
        "How the direction settles along the flow",
        "Divergence D from the max-margin direction, and the norm of W, after k steps of mirror"
        " descent with a small constant rate. Dashed: the proven class, scaled to touch the largest"
        " D from above.",
        (
            Panel("direction", Axis("log₁₀ k", "log"), Axis("D", "log"), tuple(lines)),
            Panel("norm", Axis("log₁₀ k", "log"), Axis("‖W‖ₚ", "log"), tuple(norms)),
        ),
        table=Table(("run", "p", "last D", "‖W‖ₚ", "status"), tuple(rows)),
    )


def draw_bound(log10_k: Array, divergence: Array, p: float) -> Series:
    """The proven class as a line that lies on the data or above it."""
    late = log10_k >= FIRST_DECADE
    _, rate_at = claimed_rate(p)
    rate = np.full(log10_k.shape, np.nan)
    rate[late] = rate_at(np.log(10) * log10_k[late])
    ratio = (divergence / rate)[late]
    ratio = ratio[np.isfinite(ratio)]
    scale = float(ratio.max()) if ratio.size else np.nan
    bound = np.where(late, scale * rate, np.nan)
    group = name_exponent(p)
    return Series(f"proven class, {group}", log10_k, bound, style="dashed", group=group)


def draw_paths(runs: Sequence[LabRun]) -> Figure:
    """D and margin against the radius, a line for each path."""
    return Figure(
        "regularisation-paths",
        "Regularisation paths",
        "Least loss over W of norm at most R. Left: divergence from the max-margin direction."
        " Right: least lead of an optimal token over the norm of W.",
        (
            Panel("direction", Axis("R", "log"), Axis("D", "log"), _draw_lines(runs, "divergence")),
            Panel("margin", Axis("R", "log"), Axis("margin"), _draw_lines(runs, "margin", False)),
        ),
        table=_list_paths(runs),
    )


def draw_joint_paths(runs: Sequence[LabRun]) -> Figure:
    """D of W and D of the head against the radius of W."""
    return Figure(
        "joint-regularisation-paths",
        "Joint regularisation paths",
        "Least loss over W and v of norms at most R and r. Divergence of each from its max-margin"
        " direction.",
        (
            Panel("W", Axis("R", "log"), Axis("D", "log"), _draw_lines(runs, "divergence")),
            Panel("v", Axis("R", "log"), Axis("D", "log"), _draw_lines(runs, "head_divergence")),
        ),
        table=_list_paths(runs),
    )


def _draw_lines(runs: Sequence[LabRun], name: str, positive: bool = True) -> tuple[Series, ...]:
    series = []
    for run in runs:
        values: NDArray[np.float64] = run[name]
        values = np.where(values > 0, values, np.nan) if positive else values
        group = name_exponent(run.exponents[0])
        series.append(Series(group, run["radii"], values, group=group))
    return tuple(series)


def _list_paths(runs: Sequence[LabRun]) -> Table:
    rows = tuple(
        (
            run.name,
            f"{run.exponents[0]:g}",
            f"{run['radii'][-1]:.4g}",
            f"{run['divergence'][-1]:.3g}",
            f"{run['residual'].max():.1e}",
            str(run.document.get("status", "")),
        )
        for run in runs
    )
    return Table(("run", "p", "last R", "last D", "largest residual", "status"), rows)
