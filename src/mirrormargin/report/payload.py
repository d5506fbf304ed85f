"""The figures as the page's script reads them: thinned, rounded, and safe inside a script element.

    [{"id", "name", "title", "panels": [{"title", "x", "y", "equal", "series", "heat"}], "texts"}]

Every series carries its colour on light and on dark paper. Numbers that a log axis cannot show are
kept, for the downloads; the script leaves them out when it draws.

Thinning keeps the ends of a line, and of each stretch its least and largest value; a gap stays a
gap. An outlier of one point therefore survives, which an average would hide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import ReportError
from mirrormargin.figures import Axis, Figure, HeatFrames, Panel, Series
from mirrormargin.figures.palette import DIVERGING, HEAT, find_color

__all__ = ["MAX_POINTS", "embed_json", "format_payload", "thin_figure", "thin_series"]

MAX_POINTS = 400  # of a line
FEWER_POINTS = (MAX_POINTS, 250, 150, 90, 50)
DIGITS = 6
MAX_FRAMES = 60  # of a map


def format_payload(figures: Sequence[Figure], ids: Mapping[str, str], max_bytes: int) -> str:
    """JSON of all figures, with as many points as fit.

    Args:
        figures: What to draw.
        ids: From the figure's name to the id of its section.
        max_bytes: Room for the text.

    Raises:
        ReportError: If the figures do not fit even with few points.
    """
    size = 0
    for points in FEWER_POINTS:
        rows = [_describe(thin_figure(figure, points), ids[figure.name]) for figure in figures]
        text = embed_json(rows)
        size = len(text.encode(errors="replace"))
        if size <= max_bytes:
            return text
    raise ReportError(
        f"the figures take {size / 1e6:.1f} MB and there is room for {max_bytes / 1e6:.1f} MB:"
        " report on fewer folders at a time"
    )


def embed_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever texts it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def thin_figure(figure: Figure, max_points: int) -> Figure:
    """The figure with at most so many points in a line and ``MAX_FRAMES`` frames in a map."""
    panels = tuple(
        replace(
            panel,
            series=tuple(thin_series(series, max_points) for series in panel.series),
            heat=_thin_frames(panel.heat),
        )
        for panel in figure.panels
    )
    return replace(figure, panels=panels)


def thin_series(series: Series, max_points: int) -> Series:
    """The series itself if it is short enough; else at most ``max_points`` of its points."""
    size = series.y.size
    if size <= max_points:
        return series
    # A stretch keeps up to three: its least value, its largest one and a gap.
    edges = np.linspace(1, size - 1, max(1, (max_points - 2) // 3) + 1).astype(int)
    kept = {0, size - 1}
    for start, end in pairwise(edges):
        kept.update(start + index for index in _find_marks(series, start, end))
    return series.take(np.array(sorted(kept), dtype=np.intp))


def _find_marks(series: Series, start: int, end: int) -> list[int]:
    # Along a path x says as much as y, but then one of them is enough to keep the shape.
    part: NDArray[np.float64] = series.y[start:end]
    finite = np.flatnonzero(np.isfinite(part))
    marks = []
    if finite.size:
        marks += [int(finite[part[finite].argmin()]), int(finite[part[finite].argmax()])]
    if finite.size < part.size:
        marks.append(int(np.flatnonzero(~np.isfinite(part))[0]))
    return marks


def _thin_frames(heat: HeatFrames | None) -> HeatFrames | None:
    if heat is None or len(heat.frame_labels) <= MAX_FRAMES:
        return heat
    frames = np.unique(np.linspace(0, len(heat.frame_labels) - 1, MAX_FRAMES).round().astype(int))
    return heat.take([int(frame) for frame in frames])


def _describe(figure: Figure, identity: str) -> dict[str, Any]:
    panels = [_describe_panel(panel) for panel in figure.panels]
    maps = [panel["heat"] for panel in panels if panel["heat"]]
    if maps:
        maps[-1]["scale"] = True  # one colour bar is enough
    texts = None if figure.texts is None else figure.texts.to_document()
    return {
        "id": identity, "name": figure.name, "title": figure.title, "panels": panels, "texts": texts
    }  # fmt: skip


def _describe_panel(panel: Panel) -> dict[str, Any]:
    series = []
    for one in panel.series:
        row: dict[str, Any] = {
            "label": one.label,
            "style": one.style,
            "colors": list(find_color(one.color_key)),
            "visible": one.visible,
            "x": _round(one.x),
            "y": _round(one.y),
        }
        if one.low is not None and one.high is not None:
            row |= {"low": _round(one.low), "high": _round(one.high)}
        series.append(row)
    return {
        "title": panel.title,
        "x": _describe_axis(panel.x),
        "y": _describe_axis(panel.y),
        "equal": panel.equal_aspect,
        "series": series,
        "heat": None if panel.heat is None else _describe_heat(panel.heat),
    }


def _describe_heat(heat: HeatFrames) -> dict[str, Any]:
    return {
        "frames": list(heat.frame_labels),
        "rows": list(heat.row_labels),
        "columns": list(heat.col_labels),
        "marked": [list(cell) for cell in heat.marked],
        "values": [[_round(row, 4) for row in frame] for frame in heat.values],
        "rowTicks": [list(tick) for tick in heat.row_ticks],
        "columnTicks": [list(tick) for tick in heat.col_ticks],
        "dots": None if heat.dots is None else [_round(row, 2) for row in heat.dots],
        "notes": [list(note) for note in heat.notes],
        "colors": [list(color) for color in (DIVERGING if heat.is_signed else HEAT)],
        "limits": list(heat.limits),
        "scale": False,
    }


def _describe_axis(axis: Axis) -> dict[str, Any]:
    return {
        "label": axis.label,
        "scale": axis.scale,
        "ticks": list(axis.ticks),
        "marks": list(axis.marks),
        "reversed": axis.is_reversed,
    }


def _round(values: NDArray[np.float64], digits: int = DIGITS) -> list[float | int | None]:
    return [_round_number(float(value), digits) for value in values]


def _round_number(value: float, digits: int) -> float | int | None:
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    # 100 is shorter than 100.0, and a page holds ten thousand of them.
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
