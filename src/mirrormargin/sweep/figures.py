r"""Pictures of a sweep: what was measured against one setting, a line for each value of the others.

    lab          median of D and its quartiles over seeds, and the mean share of optimal tokens
    trainings    mean over seeds, with its 95% interval, on validation data

The first setting with several values is along the axis, seeds are what is averaged over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import Look, choose_distinct_looks
from mirrormargin.figures.spread import Spread, find_mean, find_median
from mirrormargin.sweep.folder import SweepFolder
from mirrormargin.sweep.parts import Part, read_rows
from mirrormargin.sweep.table import DONE
from mirrormargin.sweep.training_grid import SEED, look_up
from mirrormargin.training.configurations import find_configuration

__all__ = ["draw_sweep"]

MOST_ROWS = 2_000_000  # that are looked at
MOST_LINES = 8
MOST_TABLE = 60  # rows of the table
ALONG = {
    "lab": ("p", "lr", "num_steps", "dim", "num_tokens", "num_sequences", "init_std", "eps"),
    "training": ("optimizer.p", "optimizer.lr", "optimizer.weight_decay", "epochs", "batch_size"),
}
LAB_SETTINGS = (
    *ALONG["lab"],
    *("problem", "loss", "step_rule", "parameterization", "rank", "max_lr"),
    *("optimal_score", "other_score", "signal", "third_score"),
)
LOGARITHMIC = ("lr", "optimizer.lr", "num_steps", "eps", "dim")
TINY = 1e-17  # D is no smaller, up to rounding: what is not positive is drawn there

Array = NDArray[np.float64]


class Setting(NamedTuple):
    """A setting of all runs: its values, and which of them each run has."""

    values: list[Any]
    codes: NDArray[np.intp]


class Rows(NamedTuple):
    """The settings of some runs, but for their seeds, and numbers that were measured."""

    settings: dict[str, Setting]
    measures: dict[str, Array]


class Measure(NamedTuple):
    """A column as it is drawn."""

    column: str
    title: str
    axis: Axis
    summarize: Any


def draw_sweep(name: str, folder: Path) -> list[Figure]:
    """The figures of a sweep.

    Args:
        name: How it is called.
        folder: Where it is.

    Raises:
        RunError: If it is damaged.
    """
    sweep = SweepFolder(folder)
    parts = _thin_out([*sweep.table, *sweep.fresh])
    seen = sum(len(part.runs) for part in parts)
    note = f"{len(sweep.done):,} of {sweep.size:,} runs are done, {sweep.failed:,} of them failed."
    if seen < len(sweep.done):
        note += f" Drawn from {seen:,} of them."
    if not parts:
        return []
    if sweep.kind == "lab":
        return [_draw_lab(name, parts, note)]
    return _draw_trainings(name, parts, note)


def _thin_out(parts: list[Part]) -> list[Part]:
    """As many files as fit, evenly spaced."""
    total = sum(len(part.runs) for part in parts)
    return parts[:: max(1, -(-total // MOST_ROWS))]


def _draw_lab(name: str, parts: Sequence[Part], note: str) -> Figure:
    columns = ("divergence", "optimal", "status", *LAB_SETTINGS)
    table = read_rows("lab", parts, columns)
    status = _encode_column(table["status"])
    done = np.array([value == DONE for value in status.values])[status.codes]
    settings = {one: _encode_column(table[one]) for one in LAB_SETTINGS}
    measures = {
        one: np.where(done, np.array(table[one].to_numpy(), dtype=np.float64), np.nan)
        for one in ("divergence", "optimal")
    }
    quartiles = "median over seeds with quartiles"
    return _draw(
        f"sweep-{name.replace('/', '-')}",
        f"Sweep: {name}",
        f"{note} D is the divergence of the direction of W from the max-margin one at the end, 0"
        f" where they agree: {quartiles}. Optimal: share of the selected tokens that are optimal,"
        " mean with 95% interval.",
        Rows(settings, measures),
        ALONG["lab"],
        (
            Measure("divergence", "direction", Axis("D", "log"), _find_quartiles),
            Measure("optimal", "selected tokens", Axis("optimal"), find_mean),
        ),
    )


def _encode_column(column: Any) -> Setting:
    """A column of a table, without going through its rows."""
    whole = column.combine_chunks()
    if not hasattr(whole, "indices"):
        whole = whole.dictionary_encode("encode")
    values = whole.dictionary.to_pylist()
    # Categories without a value are the only ones that are not in the dictionary.
    codes = whole.indices.fill_null(len(values)).to_numpy()
    return Setting([*values, None], codes.astype(np.intp))


def _encode(values: list[Any]) -> Setting:
    keys = [json.dumps(value) for value in values]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return Setting([json.loads(key) for key in places], np.array([places[key] for key in keys]))


def _find_quartiles(values: Array) -> Spread:
    known = np.maximum(values[np.isfinite(values)], TINY)
    return find_median(known, 0.25, 0.75) if known.size else Spread(np.array(np.nan), None, None)


def _draw_trainings(name: str, parts: Sequence[Part], note: str) -> list[Figure]:
    columns = ("configuration", "settings", "measure", "status", "validation_selected")
    rows = read_rows("training", parts, (*columns, "train_loss")).to_pylist()
    figures = []
    for measure in dict.fromkeys(row["measure"] for row in rows if row["status"] == DONE):
        own = [row for row in rows if row["measure"] == measure]
        settings = _list_settings([(row["configuration"], row["settings"]) for row in own])
        measures = {
            column: np.array([row[column] for row in own], dtype=np.float64)
            for column in ("validation_selected", "train_loss")
        }
        figures.append(
            _draw(
                f"sweep-{name.replace('/', '-')}-{measure}",
                f"Sweep: {name}",
                f"{note} Means over seeds with 95% intervals.",
                Rows(settings, measures),
                ALONG["training"],
                (
                    Measure(
                        "validation_selected", "validation data", Axis(str(measure)), find_mean
                    ),
                    Measure("train_loss", "training data", Axis("loss", "log"), find_mean),
                ),
            )
        )
    return figures


def _list_settings(runs: Sequence[tuple[str, str]]) -> dict[str, Setting]:
    """What some of the trainings, given as configuration and JSON, have changed, but for seeds."""
    bases = {name: find_configuration(name) for name, _ in runs}
    changes = [json.loads(text) for _, text in runs]
    names = dict.fromkeys(key for one in changes for key in one if not key.startswith(SEED))
    found = {
        key: [
            one[key] if key in one else look_up(bases[name], key)
            for (name, _), one in zip(runs, changes, strict=True)
        ]
        for key in names
    }
    found["configuration"] = [name for name, _ in runs]
    return {key: _encode(values) for key, values in found.items()}


def _draw(
    name: str,
    title: str,
    caption: str,
    rows: Rows,
    along: Sequence[str],
    measures: Sequence[Measure],
) -> Figure:
    """A panel for each measure, lines of the settings that are not along the axis."""
    varied = [key for key, one in rows.settings.items() if len(np.unique(one.codes)) > 1]
    x = next((key for key in along if key in varied), next(iter(varied or rows.settings)))
    groups = _group(rows, [key for key in varied if key != x], x)
    sizes = {label: sum(map(len, line.values())) for label, line in groups.items()}
    shown = sorted(groups, key=lambda label: -sizes[label])[:MOST_LINES]
    if len(shown) < len(groups):
        caption += f" {len(shown)} of {len(groups)} lines are drawn."
    labels = [label for label in groups if label in shown]
    looks = dict(zip(labels, choose_distinct_looks(labels), strict=True))
    along_x, positions = _choose_axis(x, rows.settings[x].values)
    panels = tuple(
        Panel(
            measure.title,
            along_x,
            measure.axis,
            tuple(
                _draw_line(
                    {positions[key]: places for key, places in groups[label].items()},
                    rows.measures[measure.column],
                    measure,
                    looks[label],
                )
                for label in labels
            ),
        )
        for measure in measures
    )
    return Figure(name, title, caption, panels, table=_list(groups, rows, x, measures))


Groups = dict[str, dict[int, NDArray[np.intp]]]  # line -> code along the axis -> places of runs


def _group(rows: Rows, names: Sequence[str], x: str) -> Groups:
    """The runs of each combination of these settings, by what is along the axis."""
    keys = np.stack([rows.settings[name].codes for name in (*names, x)], axis=1)
    found, members = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(members.ravel(), kind="stable")
    counts = np.bincount(members.ravel(), minlength=len(found))
    groups: Groups = {}
    for codes, places in zip(found.tolist(), np.split(order, counts.cumsum()[:-1]), strict=True):
        named = zip(names, codes[:-1], strict=True)
        described = (_describe(one, rows.settings[one].values[code]) for one, code in named)
        label = ", ".join(described) or "all runs"
        groups.setdefault(label, {})[codes[-1]] = places
    return groups


def _choose_axis(name: str, values: Sequence[Any]) -> tuple[Axis, list[float]]:
    """The axis of a setting, and where on it each of its values is."""
    short = name.removeprefix("optimizer.")
    numbers = [value for value in values if value is not None]
    if numbers and all(type(value) in (int, float) for value in numbers):
        scale = "log" if name in LOGARITHMIC and min(numbers) > 0 else "linear"
        return Axis(short, scale), [np.nan if value is None else float(value) for value in values]
    return Axis(short, ticks=tuple(map(str, values))), [float(k) for k in range(len(values))]


def _draw_line(
    groups: dict[float, NDArray[np.intp]], values: Array, measure: Measure, look: Look
) -> Series:
    ordered = sorted(groups.items(), key=lambda group: group[0])
    found = [measure.summarize(values[places]) for _, places in ordered]
    middle = np.array([float(one.middle) for one in found])
    # Of one run there is no band: it is as wide as a point.
    low = np.array([float(one.middle if one.low is None else one.low) for one in found])
    high = np.array([float(one.middle if one.high is None else one.high) for one in found])
    return Series(
        look.name,
        np.array([position for position, _ in ordered]),
        middle,
        low,
        high,
        style=look.style if len(ordered) > 1 else "points",
        group=look.group,
    )


def _list(groups: Groups, rows: Rows, x: str, measures: Sequence[Measure]) -> Table:
    values, lines = rows.settings[x].values, []
    for label, line in groups.items():
        for key, places in line.items():
            cells = [
                f"{float(measure.summarize(rows.measures[measure.column][places]).middle):.4g}"
                for measure in measures
            ]
            lines.append((label, _describe(x, values[key]), f"{len(places):,}", *cells))
    columns = ("settings", x, "runs", *(measure.axis.label for measure in measures))
    return Table(columns, tuple(lines[:MOST_TABLE]))


def _describe(name: str, value: Any) -> str:
    short = name.removeprefix("optimizer.")
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{short} = {shown}"
