"""Figures for paper: SVG, PDF and PNG of seven inches' width, the same bytes each time.

A heat map with many frames becomes three small maps: the first, the middle and the last frame.
"""

from __future__ import annotations

import io
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mirrormargin.errors import ReportError
from mirrormargin.figures import Axis, Figure, HeatFrames, Panel, Series
from mirrormargin.figures.palette import DIVERGING, HEAT, INK, SURROUNDINGS, find_color
from mirrormargin.runs import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["FORMATS", "choose_ticks", "write_static"]

FORMATS = ("svg", "pdf", "png")
WIDTH = 7.0  # inches: two columns of a journal
TITLE_WIDTH = 84  # characters of bold type across all columns
ROW_HEIGHT = 2.35
DPI = 300
LEGEND_ROW = 0.16  # inches
DASHES = {"dashed": (0, (4, 2)), "dotted": (0, (1, 1.6)), "dashdot": (0, (5, 1.6, 1, 1.6))}

_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib and has the subscripts
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": SURROUNDINGS["soft"].light,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": SURROUNDINGS["grid"].light,
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "figure.facecolor": SURROUNDINGS["paper"].light,
    "savefig.facecolor": SURROUNDINGS["paper"].light,
    "pdf.fonttype": 42,
    "svg.hashsalt": "mirrormargin",  # otherwise the ids in an SVG are random
}
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "ModDate": None},
    "png": {},
}


def write_static(figure: Figure, stem: Path) -> list[Path]:
    """Write ``<stem>.svg``, ``.pdf`` and ``.png``; nothing if the figure has no panels.

    Raises:
        ReportError: If matplotlib is not installed.
        RunError: If a file cannot be written.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ReportError(
            "static figures need matplotlib: pip install 'mirrormargin[report]'"
        ) from error
    if not figure.panels:
        return []
    paths = []
    with mpl.rc_context(_SETTINGS):  # pyright: ignore[reportArgumentType]
        cells = [cell for panel in figure.panels for cell in _split(panel)]
        columns = 3 if len(cells) > len(figure.panels) else min(figure.columns, len(cells))
        cells_at, heights = _arrange(cells, columns)
        height = sum(heights) + 0.45
        canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasAgg(canvas)
        canvas.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # pyright: ignore
        grid = canvas.add_gridspec(len(heights), columns, height_ratios=heights)
        for panel, at in zip(cells, cells_at, strict=True):
            axes = canvas.add_subplot(grid[at])
            _draw_panel(axes, panel, 1 if panel.is_wide else columns)
        rows = _draw_legend(canvas, figure)
        # What few rows take, panels can spare; many get rows of their own.
        canvas.set_size_inches(WIDTH, height + LEGEND_ROW * max(0, rows - 3))
        # Once: to lay out takes as long as to draw, and the three files look the same.
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        for suffix in FORMATS:
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=suffix, dpi=DPI, metadata=_METADATA[suffix])
            path = stem.with_name(f"{stem.name}.{suffix}")
            write_atomically(path, lambda file, data=buffer: file.write(data.getvalue()))
            paths.append(path)
    return paths


def _split(panel: Panel) -> list[Panel]:
    """One panel for each frame that is shown."""
    if panel.heat is None:
        return [panel]
    last = len(panel.heat.frame_labels) - 1
    if last == 0:
        return [panel]
    frames = sorted({0, last // 2, last})
    heats = [panel.heat.take([frame]) for frame in frames]
    return [
        Panel(f"{panel.title}, {heat.frame_labels[0]}".lstrip(", "), panel.x, panel.y, heat=heat)
        for heat in heats
    ]


def _arrange(cells: list[Panel], columns: int) -> tuple[list[tuple[int, Any]], list[float]]:
    """Row and column of each panel, and the height of each row."""
    cells_at: list[tuple[int, Any]] = []
    heights: list[float] = []
    free = 0  # columns left in the last row
    for panel in cells:
        if panel.is_wide or not free:
            heights.append(_find_height(panel, columns))
            free = columns
        if panel.is_wide:
            cells_at.append((len(heights) - 1, slice(None)))
            free = 0
        else:
            cells_at.append((len(heights) - 1, columns - free))
            free -= 1
    return cells_at, heights


def _find_height(panel: Panel, columns: int) -> float:
    if panel.is_wide and panel.heat is not None and panel.equal_aspect:
        rows, cols = panel.heat.values.shape[1:]
        return min(0.75 * WIDTH * rows / cols + 0.5, 9.0)
    return ROW_HEIGHT if columns > 1 else 3.2


def _draw_panel(axes: Axes, panel: Panel, columns: int) -> None:
    width = math.floor(TITLE_WIDTH / columns)
    axes.set_title(textwrap.fill(panel.title, width), loc="left", fontweight="bold")
    axes.set_xlabel(panel.x.label)
    axes.set_ylabel(panel.y.label)
    if panel.heat is not None:
        _draw_heat(axes, panel.heat, "equal" if panel.equal_aspect else "auto")
        return
    axes.set_xscale(panel.x.scale)
    axes.set_yscale(panel.y.scale)
    shown = [one.cut_to_scales(panel.x.scale, panel.y.scale) for one in panel.series if one.visible]
    bars = [series for series in shown if series.style == "bars"]
    for series in shown:
        if series.style == "bars":
            _draw_bars(axes, series, bars.index(series), len(bars))
        else:
            _draw_series(axes, series)
    _name_ticks(axes, panel)
    if panel.equal_aspect:
        axes.set_aspect("equal", adjustable="datalim")


def _draw_series(axes: Axes, series: Series) -> None:
    color = find_color(series.color_key).light
    x, y = series.x, series.y
    if series.style == "points":
        _draw_errors(axes, x, series, color)
        axes.plot(x, y, "o", color=color, markersize=3.4, markeredgewidth=0, label=series.label)
        return
    if series.low is not None and series.high is not None:
        axes.fill_between(x, series.low, series.high, color=color, alpha=0.16, linewidth=0)
    shape = DASHES.get(series.style, "-")
    width = 4.0 if series.style == "wide" else None
    axes.plot(x, y, color=color, linestyle=shape, linewidth=width, label=series.label)
    if series.style == "arrow path":
        _draw_arrow(axes, x, y, color)


def _draw_arrow(axes: Axes, x: np.ndarray, y: np.ndarray, color: str) -> None:
    there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if there.size >= 2:
        before, last = there[-2:]
        axes.annotate(
            "",
            xy=(x[last], y[last]),
            xytext=(x[before], y[before]),
            arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.4, "mutation_scale": 10},
        )


def _draw_bars(axes: Axes, series: Series, index: int, count: int) -> None:
    width = 0.8 / count
    x = series.x + (index - (count - 1) / 2) * width
    color = find_color(series.color_key).light
    axes.bar(x, series.y, 0.92 * width, color=color, label=series.label)
    _draw_errors(axes, x, series, INK.light)


def _draw_errors(axes: Axes, x: np.ndarray, series: Series, color: str) -> None:
    if series.low is not None and series.high is not None:
        ends = np.stack([series.y - series.low, series.high - series.y]).clip(min=0)
        axes.errorbar(x, series.y, ends, fmt="none", ecolor=color, elinewidth=0.9, capsize=2)


def _name_ticks(axes: Axes, panel: Panel) -> None:
    for axis, name in ((panel.x, "x"), (panel.y, "y")):
        if axis.ticks:
            axes.set(**{f"{name}ticks": range(len(axis.ticks)), f"{name}ticklabels": axis.ticks})
            axes.set(**{f"{name}lim": (-0.5, len(axis.ticks) - 0.5)})
            if name == "x" and _is_crowded(axis):
                axes.tick_params(axis="x", labelrotation=30)
        elif axis.marks:
            from matplotlib.ticker import NullLocator

            labels = [f"{mark:g}" for mark in axis.marks]
            axes.set(**{f"{name}ticks": axis.marks, f"{name}ticklabels": labels})
            getattr(axes, f"{name}axis").set_minor_locator(NullLocator())
        elif axis.scale == "linear":
            axes.locator_params(axis=name, nbins=6)  # pyright: ignore[reportArgumentType]
        else:
            from matplotlib.ticker import NullLocator

            # Small ticks are a third of the time and say nothing beside whole decades; on a short
            # axis their labels overprint.
            getattr(axes, f"{name}axis").set_minor_locator(NullLocator())
            low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
            if high <= 100 * low:
                ticks = choose_ticks(low, high)
                labels = [f"{tick:g}" for tick in ticks]
                axes.set(**{f"{name}ticks": ticks, f"{name}ticklabels": labels})
                axes.set(**{f"{name}lim": (low, high)})
                getattr(axes, f"{name}axis").set_minor_locator(NullLocator())
        if axis.is_reversed:
            getattr(axes, f"{name}axis").set_inverted(True)


def choose_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a log axis of at most two decades, as few of them as say enough."""
    first = math.floor(math.log10(low))
    for digits, enough in (((1, 3), 3), ((1, 2, 5), 2), (range(1, 10), 2)):
        ticks = [float(f"{digit}e{first + i}") for i in range(4) for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= enough:
            return inside
    from matplotlib.ticker import MaxNLocator

    even = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(f"{tick:.6g}") for tick in even if low <= tick <= high]


def _is_crowded(axis: Axis) -> bool:
    return sum(map(len, axis.ticks)) > 36


def _draw_heat(axes: Axes, heat: HeatFrames, aspect: Literal["equal", "auto"]) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    colors = DIVERGING if heat.is_signed else HEAT
    scale = LinearSegmentedColormap.from_list("heat", [color.light for color in colors])
    low, high = heat.limits
    # "auto": a map of one row would otherwise be a hair's breadth high.
    axes.imshow(heat.values[0], cmap=scale, vmin=low, vmax=high, aspect=aspect)
    axes.grid(visible=False)
    mark = SURROUNDINGS["mark"].light
    for i, j in heat.marked:
        cell = Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, ec=mark, lw=1.3)
        axes.add_patch(cell)
    if heat.dots is not None:
        rows, cols = np.nonzero(heat.dots > 0)
        sizes = 9 * heat.dots[rows, cols] ** 2
        axes.scatter(cols, rows, s=sizes, color=mark, alpha=0.85, linewidths=0)
    for row, col, text in heat.notes:
        axes.text(col, row, text, ha="center", va="center", fontsize=7)
    for name, labels, ticks in (
        ("x", heat.col_labels, heat.col_ticks),
        ("y", heat.row_labels, heat.row_ticks),
    ):
        shown = ticks or [(i, labels[i]) for i in range(0, len(labels), -(-len(labels) // 12))]
        positions, texts = zip(*shown, strict=True)
        axes.set(**{f"{name}ticks": positions, f"{name}ticklabels": texts})
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_legend(canvas: Canvas, figure: Figure) -> int:
    """Under the panels, where it covers nothing; each name once. Returns its number of rows."""
    rows = 0
    handles: dict[str, Any] = {}
    for axes in canvas.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        longest = max(map(len, handles))
        columns = max(1, min(len(handles), int(105 / (longest + 7))))
        canvas.legend(handles.values(), handles, loc="outside lower center", ncols=columns)
        rows = -(-len(handles) // columns)
    if any(panel.heat for panel in figure.panels):
        maps = [axes for axes in canvas.axes if axes.images]
        bar = canvas.colorbar(maps[0].images[0], ax=maps, shrink=0.7, aspect=25, pad=0.015)
        bar.outline.set_visible(False)  # pyright: ignore
        bar.ax.grid(visible=False)
        bar.set_label(next(panel.heat.quantity for panel in figure.panels if panel.heat))
    return rows
