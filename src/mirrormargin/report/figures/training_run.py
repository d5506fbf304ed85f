"""A training: divergence, norm and loss along the way, where each exponent ended, and its maps."""

from __future__ import annotations

import shlex

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.maps import choose_frames, draw_map
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import RunFolder

__all__ = ["build_training"]

Array = NDArray[np.float64]
MAX_MAPS = 3
RUNNING = 0  # to the end, or as far as it was planned
MISSING = "–"
OWN = "own"  # the target is the solution for the tokens that the run itself selects
ENDS = {RUNNING: "all steps", 1: "zero gradient", 2: "diverged", 3: "out of reach"}


def build_training(run: RunFolder) -> list[Figure]:
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


def _draw_curves(run: RunFolder, values: Array) -> tuple[Series, ...]:
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


def _list_ends(run: RunFolder) -> Table:
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
            resume = shlex.join(["mirrormargin", "train", "--resume", str(run.folder)])
            names.append(f"interrupted at step {done} of {total}; {resume} goes on")
        shares = f"{(selected == optimal[:, None]).mean():.1%}"
        norm, gap = _format_ends(run, "norm", j, ".4g"), run["log_loss_gap"][:, j, :, -1]
        loss = f"{np.median(gap) / np.log(10):.4g}"
        steps = str(int(run["steps"][:, j].max()))
        rows.append((f"{p:g}", steps, divergence, norm, loss, shares, ", ".join(names)))
    columns = ("p", "steps", "D", "‖W‖ₚ", "log₁₀ loss gap", "at optimal tokens", "ends")
    return Table(columns, tuple(rows))


def _find_optimal(run: RunFolder) -> NDArray[np.intp]:
    """The tokens of the highest score y v.x in each sequence, (P, n)."""
    tokens, labels, head = (run[f"problem.{name}"] for name in ("tokens", "labels", "head"))
    return (labels[..., None] * np.einsum("pntd,pd->pnt", tokens, head)).argmax(axis=-1)


def _format_ends(run: RunFolder, name: str, j: int, form: str) -> str:
    if name not in run.arrays:
        return MISSING
    last = run[name][:, j, :, -1]
    known = last[np.isfinite(last)]
    return f"{np.median(known):{form}}" if known.size else MISSING


def _draw_maps(run: RunFolder) -> Figure:
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
