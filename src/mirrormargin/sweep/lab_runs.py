"""Computing lab runs: those that follow each other in compiled calls, and their rows.

Runs of one problem and start that are at the same exponents, rates and lengths as those of others
go through one call with them. Each gets the bits that it would get alone. A call that raises is cut
in two, until the run that makes it raise is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.dynamics import AttentionRecord, NormalInit, train_attention
from mirrormargin.dynamics.descent.record import End
from mirrormargin.sweep.axes import Product
from mirrormargin.sweep.lab_grid import CALL, COLUMNS, FAST, RECIPE, ROWS
from mirrormargin.sweep.table import DONE, FAILED, MEASURED, describe_failure, make_table

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = ["compute_lab_runs", "find_lab_digest"]

RECORDED = ("divergence", "log_loss_gap", "norm", "attention")
ENDS = {int(end): end.name.lower().replace("_", " ") for end in End} | {int(End.RUNNING): "done"}

Settings = dict[str, Any]
Rows = dict[tuple[Any, ...], list[int]]  # problem and start -> places of its runs in the batch


def compute_lab_runs(
    product: Product, first: int, stop: int, offset: int = 0, lost: str = ""
) -> pa.Table:
    """The rows of some runs of a product.

    Args:
        product: Of settings of a :class:`LabGrid`.
        first: The first run, numbered from the beginning of the product.
        stop: The one behind the last; all have the settings of one call.
        offset: Number of the product's first run in the sweep.
        lost: Why nothing can compute them; they are then failed runs.
    """
    runs = list_settings(product, first, stop)
    results = _Results(len(runs))
    if lost:
        results.columns["error"] = [lost] * len(runs)
    else:
        _compute(runs, results)
    settings = {name: [run[name] for run in runs] for name in runs[0]}
    if "seed" in settings:
        settings["init_seed"] = [_find_start(run) for run in runs]
    columns: dict[str, Any] = {
        **settings,
        "run": np.arange(offset + first, offset + stop),
        "digest": [find_lab_digest(run) for run in runs],
        **results.columns,
    }
    return make_table("lab", columns, len(runs))


def _compute(runs: Sequence[Settings], results: _Results) -> None:
    problems = _Problems(runs[0])
    for rows in _group(runs):
        for row, places in list(rows.items()):
            try:
                problems.find(runs[places[0]])
            except Exception as error:
                results.fail(places, error)
                del rows[row]
        if rows:
            _train(list(rows.values()), runs, problems, results)


def list_settings(product: Product, first: int, stop: int) -> list[Settings]:
    """The settings of each run."""
    columns = [
        [axis[place] for place in places.tolist()]
        for axis, places in zip(
            product.axes.values(), product.places(first, stop).values(), strict=True
        )
    ]
    return [dict(zip(product.axes, values, strict=True)) for values in zip(*columns, strict=True)]


def find_lab_digest(settings: Settings) -> str:
    """Sixteen hexadecimal digits, the same for the same settings in any grid."""
    text = json.dumps([RECIPE, "lab", settings], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _group(runs: Sequence[Settings]) -> Iterator[Rows]:
    """Rows of runs that have the same columns: what one call can take."""
    rows: Rows = {}
    for place, run in enumerate(runs):
        rows.setdefault(tuple(run.get(name) for name in ROWS), []).append(place)
    groups: dict[tuple[Any, ...], Rows] = {}
    for row, places in rows.items():
        columns = tuple(tuple(runs[place][name] for name in COLUMNS) for place in places)
        is_at_zero = runs[places[0]]["init_std"] == 0  # which a call with factors refuses
        groups.setdefault((columns, is_at_zero), {})[row] = places
    yield from groups.values()


class _Problems:
    """The problems of a batch, each made once."""

    def __init__(self, settings: Settings) -> None:
        self._make = synthetic.GENERATORS[settings["problem"]]
        known = ("problem", *CALL, *FAST)
        self._own = {name: value for name, value in settings.items() if name not in known}
        self._made: dict[Any, AttentionProblem] = {}

    def find(self, settings: Settings) -> AttentionProblem:
        seed = settings.get("seed")
        if seed not in self._made:
            seeded = {} if seed is None else {"seed": seed}
            self._made[seed] = self._make(**seeded, **self._own)
        return self._made[seed]


def _train(
    rows: list[list[int]], runs: Sequence[Settings], problems: _Problems, results: _Results
) -> None:
    """Train rows of places, all with the same columns; what raises alone has failed."""
    try:
        record = _call(rows, runs, problems)
        results.take(rows, record, bool(runs[rows[0][0]]["record"]))
        return
    except Exception as error:
        if len(rows) == len(rows[0]) == 1:
            results.fail(rows[0], error)
            return
    if len(rows) > 1:
        middle = len(rows) // 2
        halves = [rows[:middle], rows[middle:]]
    else:
        middle = len(rows[0]) // 2
        halves = [[rows[0][:middle]], [rows[0][middle:]]]
    for half in halves:
        _train(half, runs, problems, results)


def _call(rows: list[list[int]], runs: Sequence[Settings], problems: _Problems) -> AttentionRecord:
    columns = [runs[place] for place in rows[0]]
    members = [problems.find(runs[places[0]]) for places in rows]
    call = columns[0]
    p = np.array([run["p"] for run in columns])
    init: Any = 0.0
    if call["init_std"]:
        d = members[0].dim
        factored = call["parameterization"] == "KQ"
        shape = (2, d, call["rank"] or d) if factored else (d, d)
        starts = [runs[places[0]] for places in rows]
        draws = [NormalInit(run["init_std"], _find_start(run)) for run in starts]
        init = np.concatenate([draw.draw(1, p, shape) for draw in draws])
    return train_attention(
        members,
        p,
        step_rule=call["step_rule"],
        lr=[run["lr"] for run in columns],
        num_steps=[run["num_steps"] for run in columns],
        init=init,
        record=call["record"] or [],
        target=None if call["target"] == "none" else "own",
        target_tol=call["target_tol"],
        parameterization=call["parameterization"],
        rank=call["rank"],
        eps=call["eps"],
        max_lr=call["max_lr"],
        threads=1,
    )


def _find_start(settings: Settings) -> int:
    """The seed of the start: the problem's own if none is given."""
    given = settings["init_seed"]
    return settings.get("seed", 0) if given is None else given


class _Results:
    """The columns of a batch that are computed."""

    def __init__(self, count: int) -> None:
        recorded = (f"recorded_{name}" for name in ("steps", *RECORDED))
        names = ("error", "traceback", "steps", "end", "optimal", "capped", *MEASURED, *recorded)
        self.columns: dict[str, list[Any]] = {name: [None] * count for name in names}
        self.columns["status"] = [FAILED] * count

    def fail(self, places: Sequence[int], error: Exception) -> None:
        """Note what these runs raised."""
        line, text = describe_failure(error)
        self._put("error", places, [line] * len(places))
        self._put("traceback", places, [text] * len(places))

    def take(self, rows: list[list[int]], record: AttentionRecord, with_path: bool) -> None:
        """Note what a call has returned, whose runs are at these places."""
        places = [place for row in rows for place in row]
        optimal = np.stack([problem.optimal_tokens for problem in record.problems])
        share = (record.final_selection == optimal[:, None, None]).mean(axis=-1)
        self._put("status", places, [DONE] * len(places))
        self._put("steps", places, record.steps[..., -1].ravel().tolist())
        self._put("end", places, [ENDS[end] for end in record.end.ravel().tolist()])
        self._put("optimal", places, share.ravel().tolist())
        self._put("capped", places, record.capped.ravel().tolist())
        for name in MEASURED:
            if (values := getattr(record, name)) is not None:
                self._put(name, places, values[..., -1].ravel().tolist())
        if not with_path:
            return
        # Runs that end earlier than others of their call repeat their last step.
        moves = np.diff(record.steps.reshape(len(places), -1), axis=1) > 0
        counts = 1 + moves.cumprod(axis=1).sum(axis=1)
        for name in ("steps", *RECORDED):
            if (values := getattr(record, name)) is not None:
                flat = values.reshape(len(places), -1).tolist()
                cut = [row[:count] for row, count in zip(flat, counts.tolist(), strict=True)]
                self._put(f"recorded_{name}", places, cut)

    def _put(self, name: str, places: Sequence[int], values: list[Any]) -> None:
        column = self.columns[name]
        for place, value in zip(places, values, strict=True):
            column[place] = value
