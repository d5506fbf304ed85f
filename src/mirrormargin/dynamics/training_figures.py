r"""Pictures of a training of the lab: how it went, what it attends to, and W beside W_mm.

The direction of W is compared with the max-margin solution W_mm by

    D = 1 - < sign(V) |V|^(p-1), U >,    U = W_mm and V = W, both of unit lp norm,

and its norm with what is proven of it: steps of dual norm lr add up to at most

    ||W_k||_p <= (||W_0||_p^(p-1) + lr k)^(1/(p-1)),

while under a constant rate ||W_k||_p = Theta(log k).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.rates import claimed_rate
from mirrormargin.figures import Axis, Figure, HeatFrames, Panel, Series, Table
from mirrormargin.figures.maps import choose_frames, draw_map
from mirrormargin.figures.palette import choose_distinct_looks, name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["DEFINITION", "LabRun", "draw_bound", "draw_training"]

Array = NDArray[np.float64]
FIRST_DECADE = 3.0  # before it the start is seen, not the rate
MAX_MAPS = 3
MAX_SIDE = 48  # rows of W that can be seen
LEAST_LOG_GAP = -300.0  # as a power of ten: below it a loss gap is no number any more
RUNNING = 0  # to the end, or as far as it was planned
MISSING = "–"
OWN = "own"  # the target is the solution for the tokens that the run itself selects
ENDS = {RUNNING: "all steps", 1: "zero gradient", 2: "diverged", 3: "out of reach"}
DEFINITION = (
    "D = 1 − ⟨sign(V)|V|ᵖ⁻¹, U⟩ is the divergence of the direction of W from the max-margin one,"
    " with V = W/‖W‖ₚ and U = W_mm/‖W_mm‖ₚ; it is 0 where they agree."
)


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


def draw_training(run: LabRun) -> list[Figure]:
    """Curves of all runs of a record; of the first run what it attends to, and W beside W_mm.

    Maps of many runs are drawn only if W was kept along the way; of a single run always.
    """
    num_runs = run["norm"].shape[0] * run["norm"].shape[2]
    figures = [_draw_progress(run, num_runs)]
    if "path" in run.arrays or num_runs == 1:
        figures.append(_draw_maps(run, num_runs))
        figures += _draw_matrices(run, num_runs)
    return figures


def _draw_progress(run: LabRun, num_runs: int) -> Figure:
    quantities = {
        "divergence": ("direction", Axis("D", "log")),
        "head_divergence": ("direction of the head", Axis("D of the head", "log")),
        "norm": ("norm", Axis("‖W‖ₚ", "log")),
    }
    panels = [
        Panel(title, Axis("step", "log"), axis, _draw_curves(run, run[name]))
        for name, (title, axis) in quantities.items()
        if name in run.arrays
    ]
    panels = [_add_laws(run, panel) for panel in panels]
    panels.append(_draw_loss(run))
    rule = str(run.document["settings"]["step_rule"])
    at_each = " at each p" if len(run.exponents) > 1 else ""
    count = f"{num_runs} runs{at_each}: the median with the least and the largest"
    sentences = [
        f"{rule.capitalize()} steps, {count if num_runs > 1 else f'one run{at_each}'}.",
        *([DEFINITION] if "divergence" in run.arrays else []),
        *_explain_laws(panels),
    ]
    return Figure(
        f"training-{run.stem}",
        f"Training: {run.name}",
        " ".join(sentences),
        tuple(panels),
        columns=3 if len(panels) == 3 else 2,
        table=_list_ends(run),
    )


def _draw_loss(run: LabRun) -> Panel:
    """The gap to the least loss; where that is no number any more, its digits."""
    log_gap = run["log_loss_gap"] / np.log(10)
    finite = log_gap[np.isfinite(log_gap)]
    if finite.size and finite.min() < LEAST_LOG_GAP:
        axis, values = Axis("−log₁₀ of the loss gap", "log"), -log_gap
    else:
        axis, values = Axis("loss gap", "log"), 10.0**log_gap
    return Panel("loss", Axis("step", "log"), axis, _draw_curves(run, values))


def _draw_curves(run: LabRun, values: Array) -> tuple[Series, ...]:
    names = [name_exponent(p) for p in run.exponents]
    series = []
    for j, look in enumerate(choose_distinct_looks(names)):
        one = values[:, j].reshape(-1, values.shape[-1])
        steps = run["steps"][:, j].reshape(-1, values.shape[-1])
        # Runs that ended early repeat their last step: the longest one has them all.
        x = steps[steps[:, -1].argmax()].astype(np.float64)
        again = np.append(False, np.diff(x) == 0)
        one = np.where(np.isfinite(one), one, np.nan)
        keep = ~again & ~np.isnan(one).all(axis=0)
        series.append(Series(look.name, x[keep], *find_median(one[:, keep]), group=look.group))
    return tuple(series)


def _add_laws(run: LabRun, panel: Panel) -> Panel:
    """The panel with what is proven of its quantity, dashed; only W itself has such laws."""
    settings = run.document["settings"]
    if settings["parameterization"] != "W" or settings["decay"] or "head_divergence" in run.arrays:
        return panel
    laws: list[Series] = []
    for j, (p, curve) in enumerate(zip(run.exponents, panel.series, strict=True)):
        lr = float(np.ravel(settings["lr"])[j])
        laws += _find_laws(panel.title, str(settings["step_rule"]), lr, p, curve)
    return Panel(panel.title, panel.x, panel.y, (*panel.series, *laws))


def _find_laws(title: str, rule: str, lr: float, p: float, curve: Series) -> list[Series]:
    k = curve.x
    if title == "norm" and rule == "normalized" and k.size and k[0] == 0:
        # Of many runs the one that starts highest: the law bounds them all.
        start = (curve.y if curve.high is None else curve.high)[0] ** (p - 1)
        law = (start + lr * k) ** (1 / (p - 1))
        label = f"proven bound, {curve.label}"
        return [Series(label, k, law, style="dashed", group=curve.color_key)]
    if title == "norm" and rule == "constant" and k.size and k[-1] > 1:
        label = f"proven growth, {curve.label}"
        return [draw_growth(label, k, np.log(np.maximum(k, 1.0)), curve.y, curve.color_key)]
    if title == "direction" and rule == "constant" and (k >= 10**FIRST_DECADE).sum() > 1:
        with np.errstate(divide="ignore"):
            bound = draw_bound(np.log10(k), curve.y, p)
        return [Series(bound.label, k, bound.y, style="dashed", group=curve.color_key)]
    return []


def draw_growth(label: str, x: Array, law: Array, values: Array, group: str) -> Series:
    """A law without its constant, through the last point."""
    return Series(label, x, law * values[-1] / law[-1], style="dashed", group=group)


def _explain_laws(panels: Sequence[Panel]) -> list[str]:
    labels = [series.label for panel in panels for series in panel.series]
    sentences = {
        "proven bound": "Dashed: after k normalised steps of rate η no norm is larger than"
        " (‖W₀‖ₚᵖ⁻¹ + η k)^(1/(p−1)); it comes near that once the steps point the same way.",
        "proven growth": "Dashed: the norm is proven to grow like log k; drawn through the last"
        " step.",
        "proven class": "Dashed: the proven class of D, scaled to touch it from above.",
    }
    return [
        text for start, text in sentences.items() if any(one.startswith(start) for one in labels)
    ]


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


def _list_ends(run: LabRun) -> Table:
    rows = []
    optimal = _find_optimal(run)
    interrupted = run["planned"].shape[-1] > run["steps"].shape[-1]
    for j, p in enumerate(run.exponents):
        selected = run["selection"][:, j, :, -1]
        ends = run["end"][:, j].ravel().tolist()
        names = [
            # How many is worth a word only where not all ended alike.
            name if ends.count(code) == len(ends) else f"{ends.count(code)} {name}"
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


def _draw_maps(run: LabRun, num_runs: int) -> Figure:
    tokens, queries = run["problem.tokens"][0], run["problem.queries"][0]
    optimal = _find_optimal(run)[0]
    steps, path = _read_path(run)
    shown = range(min(len(run.exponents), MAX_MAPS))
    frames = choose_frames(steps, int(steps.max()))
    attention = [_attend(tokens, queries, path[j]) for j in shown]
    first = "" if num_runs == 1 else " of the first problem from the first start"
    return Figure(
        f"attention-{run.stem}",
        f"Attention along the training: {run.name}",
        f"Attention{first} on each token, softmax(X W z). Outlined cells are the optimal tokens,"
        " those of the highest score y v·x; in the table, which token has most of the attention"
        " in the end, and from which recorded step on it had. Tokens are counted from 1 here, from"
        " 0 in Python.",
        tuple(
            draw_map(name_exponent(run.exponents[j]), steps[j], attention[j], optimal, frames)
            for j in shown
        ),
        columns=min(len(shown), 3),
        table=_list_selected(run, optimal, [maps[-1] for maps in attention]),
    )


def _read_path(run: LabRun) -> tuple[NDArray[np.int64], Array]:
    """Steps (p, R) and W at them (p, R, d, d) of the first run; the last ones if none were kept."""
    steps = run["steps"][0, :, 0]
    if "path" in run.arrays:
        return steps, run["path"][0, :, 0]
    return steps[:, -1:], run["W"][0, :, 0][:, None]


def _list_selected(run: LabRun, optimal: NDArray[np.intp], last: Sequence[Array]) -> Table:
    rows = []
    for j, attention in enumerate(last):
        selection, steps = run["selection"][0, j, 0], run["steps"][0, j, 0]
        for i, token in enumerate(selection[-1]):
            others = np.flatnonzero(selection[:, i] != token)
            since = int(steps[min(others[-1] + 1, steps.size - 1)]) if others.size else 0
            rows.append(
                (
                    *((f"{run.exponents[j]:g}",) if len(last) > 1 else ()),
                    f"{i + 1}",
                    f"{optimal[i] + 1}",
                    f"{token + 1}" + ("" if token == optimal[i] else ", not optimal"),
                    f"{attention[i, token]:.4f}",
                    f"step {since}",
                )
            )
    columns = ("sequence", "optimal token", "selected token", "attention on it", "since")
    return Table((*(("p",) if len(last) > 1 else ()), *columns), tuple(rows))


def _draw_matrices(run: LabRun, num_runs: int) -> list[Figure]:
    """W and W_mm in units of their norms, in one colour scale; nothing if there is no W_mm."""
    steps, path = _read_path(run)
    if "target" not in run.arrays or path.shape[-1] > MAX_SIDE:
        return []
    target = run["target"][0, :, 0]
    shown = [j for j, one in enumerate(target[:MAX_MAPS]) if np.isfinite(one).all() and np.any(one)]
    if not shown:
        return []
    frames = choose_frames(steps, int(steps.max()))
    found: dict[str, Array] = {}
    for j in shown:
        p = run.exponents[j]
        at = [int(np.abs(steps[j] - frame).argmin()) for frame in frames]
        found[f"W/‖W‖ₚ, {name_exponent(p)}"] = _normalize(path[j][at], p)
        found[f"W_mm/‖W_mm‖ₚ, {name_exponent(p)}"] = _normalize(target[j][None], p)
    limit = max(float(np.abs(values).max()) for values in found.values())
    panels = [
        _draw_matrix(title, values, limit, [f"step {frame}" for frame in frames])
        for title, values in found.items()
    ]
    first = "" if num_runs == 1 else " of the first problem from the first start"
    return [
        Figure(
            f"matrices-{run.stem}",
            f"W beside the max-margin solution: {run.name}",
            f"Entries of W{first} and of W_mm, the matrix of least norm ‖·‖ₚ that gives each"
            " selected token a lead of one, (x_α − x_t)ᵀ W z ≥ 1. All have norm one and the same"
            " colours.",
            tuple(panels),
        )
    ]


def _normalize(matrices: Array, p: float) -> Array:
    """Each matrix over its lp norm; zero stays zero."""
    largest = np.abs(matrices).max(axis=(-2, -1), keepdims=True)
    scaled = matrices / np.where(largest > 0, largest, 1.0)
    norm = (np.abs(scaled) ** p).sum(axis=(-2, -1), keepdims=True) ** (1 / p)
    return scaled / np.where(norm > 0, norm, 1.0)


def _draw_matrix(title: str, values: Array, limit: float, frames: Sequence[str]) -> Panel:
    rows, columns = values.shape[1:]
    heat = HeatFrames(
        values,
        tuple(frames) if len(values) > 1 else ("",),
        tuple(f"{i + 1}" for i in range(rows)),
        tuple(f"{j + 1}" for j in range(columns)),
        quantity="entry",
        limits=(-limit, limit),
    )
    return Panel(title, Axis("column"), Axis("row"), heat=heat)


def _attend(tokens: Array, queries: Array, path: Array) -> Array:
    """softmax(X W z) for each recorded W, (R, n, T)."""
    logits = np.einsum("ntd,rde,ne->rnt", tokens, path, queries)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
