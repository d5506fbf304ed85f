"""The numbers of a figure as CSV, one row for each point, and as JSON.

    panel,series,x,y,low,high             of lines, points and bars
    panel,"frame / row",column,value,,    of heat maps: x is the column's name, y the value
    title,"column / text 1",token,weight,,  of shaded texts

Numbers are written so that reading them gives the same bits; a gap is an empty field, or null.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Figure, Panel, Series
from mirrormargin.figures.highlights import HighlightedTexts
from mirrormargin.runs import write_atomically

__all__ = ["COLUMNS", "describe_figure", "format_csv", "write_tables"]

COLUMNS = ("panel", "series", "x", "y", "low", "high")


def write_tables(figure: Figure, stem: Path) -> list[Path]:
    """Write ``<stem>.csv`` and ``<stem>.json``.

    Raises:
        RunError: If they cannot be written.
    """
    texts = {
        ".csv": format_csv(figure),
        ".json": json.dumps(describe_figure(figure), ensure_ascii=False, indent=1) + "\n",
    }
    paths = []
    for suffix, text in texts.items():
        path = stem.with_name(stem.name + suffix)
        write_atomically(path, lambda file, text=text: file.write(text.encode(errors="replace")))
        paths.append(path)
    return paths


def format_csv(figure: Figure) -> str:
    """All points of a figure, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for panel in figure.panels:
        writer.writerows(_list_points(panel))
    if figure.texts is not None:
        writer.writerows(_list_tokens(figure.texts))
    return text.getvalue()


def _list_points(panel: Panel) -> Iterator[tuple[str, ...]]:
    for series in panel.series:
        empty = np.full(series.x.shape, np.nan)
        low = empty if series.low is None else series.low
        high = empty if series.high is None else series.high
        for x, *rest in zip(series.x, series.y, low, high, strict=True):
            where = panel.x.ticks[int(x)] if panel.x.ticks else _format(x)
            yield (panel.title, series.label, where, *map(_format, rest))
    if panel.heat is not None:
        heat = panel.heat
        for frame, i, j in np.ndindex(heat.values.shape):
            name = f"{heat.frame_labels[frame]} / {heat.row_labels[i]}"
            yield (
                panel.title,
                name,
                heat.col_labels[j],
                _format(heat.values[frame, i, j]),
                "",
                "",
            )


def _list_tokens(texts: HighlightedTexts) -> Iterator[tuple[str, ...]]:
    for number, row in enumerate(texts.rows, start=1):
        for column, text in zip(texts.columns, row, strict=True):
            for token, weight in zip(text.tokens, text.weights, strict=True):
                name = f"{column} / text {number}"
                yield (texts.title, name, token, _format(weight), "", "")


def describe_figure(figure: Figure) -> dict[str, Any]:
    """The figure as plain JSON values."""
    table = figure.table
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "panels": [_describe_panel(panel) for panel in figure.panels],
        "table": None if table is None else [list(table.columns), *map(list, table.rows)],
        "texts": None if figure.texts is None else figure.texts.to_document(),
    }


def _describe_panel(panel: Panel) -> dict[str, Any]:
    heat = panel.heat
    return {
        "title": panel.title,
        "x": {"label": panel.x.label, "scale": panel.x.scale, "ticks": list(panel.x.ticks)},
        "y": {"label": panel.y.label, "scale": panel.y.scale, "ticks": list(panel.y.ticks)},
        "series": [_describe_series(series) for series in panel.series],
        "heat": None
        if heat is None
        else {
            "frames": list(heat.frame_labels),
            "rows": list(heat.row_labels),
            "columns": list(heat.col_labels),
            "marked": [list(cell) for cell in heat.marked],
            "values": [[_list_numbers(row) for row in frame] for frame in heat.values],
        },
    }


def _describe_series(series: Series) -> dict[str, Any]:
    row: dict[str, Any] = {"label": series.label, "style": series.style, "group": series.group}
    for name in ("x", "y", "low", "high"):
        value = getattr(series, name)
        row[name] = None if value is None else _list_numbers(value)
    return row


def _list_numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _format(value: Any) -> str:
    return repr(float(value)) if np.isfinite(value) else ""
