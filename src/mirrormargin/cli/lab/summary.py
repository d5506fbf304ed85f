"""What a training of the lab reached, for each exponent and for each run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.terminal import print_json, print_rows, say

if TYPE_CHECKING:
    from mirrormargin.dynamics import AttentionRecord

__all__ = ["print_training", "summarize"]

# Title, key and form of each column.
FIRST_COLUMNS = (("p", "p", "g"), ("runs", "runs", "d"), ("steps", "steps", "d"))
COLUMNS = (
    ("D median", "divergence", ".2e"),
    ("D worst", "worst_divergence", ".2e"),
    ("|W|_p", "norm", ".4g"),
    ("log10 gap", "log10_loss_gap", ".2f"),
    ("attention", "attention", ".6f"),
    ("optimal", "optimal", ".0%"),
)
JOINT_COLUMNS = (
    *COLUMNS[:2],
    ("head D", "head_divergence", ".2e"),
    COLUMNS[2],
    ("|v|_p", "head_norm", ".4g"),
    ("log10 loss", "log10_loss", ".2f"),
    COLUMNS[4],
)


def summarize(record: AttentionRecord, seeds: Sequence[int | None]) -> dict[str, Any]:
    """One row for each exponent, medians over its runs, and one for each run."""
    import numpy as np

    from mirrormargin.dynamics.descent.record import End

    P, E, inits = record.norm.shape[:3]
    last = _measure_last(record)
    names = {int(end): end.name.lower().replace("_", " ") for end in End}
    names[int(End.RUNNING)] = "done" if record.is_complete else "interrupted"
    rows, runs = [], []
    for j, p in enumerate(record.settings.p):
        row: dict[str, Any] = {"p": p, "runs": P * inits, "steps": record.settings.num_steps[j]}
        for name, values in last.items():
            row[name] = _reduce(np.median, values[:, j])
        row["worst_divergence"] = None
        if "divergence" in last:
            row["worst_divergence"] = _reduce(np.max, last["divergence"][:, j])
        if "optimal" in last:
            row["optimal"] = float(last["optimal"][:, j].mean())
        found = [names[int(end)] for end in record.end[:, j].ravel()]
        row["ends"] = {name: found.count(name) for name in names.values() if name in found}
        rows.append(row)
    for i, j, k in np.ndindex(P, E, inits):
        run: dict[str, Any] = {"problem": i, "p": record.settings.p[j], "init": k}
        if any(seed is not None for seed in seeds):
            run["seed"] = seeds[i]
        run["step"] = int(record.steps[i, j, k, -1])
        run |= {name: float(values[i, j, k]) for name, values in last.items()}
        run["selection"] = record.final_selection[i, j, k].tolist()
        runs.append(run | {"end": names[int(record.end[i, j, k])]})
    return {"exponents": rows, "runs": runs}


def _measure_last(record: AttentionRecord) -> dict[str, Any]:
    """Numbers at the last recorded step, (P, E, I) each."""
    import numpy as np

    ten = np.log(10)
    last = {
        "norm": record.norm[..., -1],
        "log10_loss": record.log_loss[..., -1] / ten,
        "log10_loss_gap": record.log_loss_gap[..., -1] / ten,
        "attention": record.attention[..., -1],
    }
    if record.head is None:  # else the problems' own heads play no role
        optimal = np.stack([problem.optimal_tokens for problem in record.problems])
        last["optimal"] = (record.final_selection == optimal[:, None, None]).mean(axis=-1)
    for name in ("divergence", "head_divergence", "head_norm"):
        values = getattr(record, name)
        if values is not None:
            last[name] = values[..., -1]
    return last


def _reduce(reduce: Any, values: Any) -> float | None:
    """Over the runs that have the number."""
    import numpy as np

    known = values[~np.isnan(values)]
    return float(reduce(known)) if known.size else None


def print_training(
    record: AttentionRecord,
    summary: dict[str, Any],
    problem: str | None,
    folder: Path | None,
    *,
    as_json: bool,
    is_quiet: bool,
) -> None:
    """The table, or everything as JSON."""
    settings = record.settings
    if as_json:
        about = {
            "problem": problem,
            "folder": None if folder is None else str(folder),
            "step_rule": settings.step_rule,
            "parameterization": settings.parameterization,
            "lr": settings.lr,
            "complete": record.is_complete,
        }
        print_json(about | summary)
        return
    joint = settings.parameterization == "joint"
    columns = JOINT_COLUMNS if joint else COLUMNS
    rows = [row | {"ends": _list_ends(row["ends"])} for row in summary["exponents"]]
    print_rows((*FIRST_COLUMNS, *columns, ("ends", "ends", "")), rows)
    if not is_quiet:
        say(_LEGEND + ("" if joint else _OPTIMAL))
        if folder is not None:
            say(f"wrote {folder}")


def _list_ends(ends: dict[str, int]) -> str:
    return ", ".join(f"{count} {end}" for end, count in ends.items())


_LEGEND = """
D           directional divergence of W from the max-margin solution of the tokens it selects
attention   mean weight on the selected, the most attended tokens; medians over the runs"""
_OPTIMAL = """
log10 gap   log10 of the loss above its floor, which needs all attention on the optimal tokens
optimal     share of the selected tokens that are optimal"""
