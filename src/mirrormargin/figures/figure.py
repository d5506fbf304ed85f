"""What a figure shows, in plain numbers: no drawing library is known here.

A figure is a row of panels; a panel has two axes and either series or a heat map with frames.
Texts with shaded words may stand below the panels.
Points that are not finite are gaps. Every renderer gets the same :class:`Figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import check_choice
from mirrormargin.errors import ReportError
from mirrormargin.figures.highlights import HighlightedTexts

__all__ = ["SCALES", "STYLES", "Axis", "Figure", "HeatFrames", "Panel", "Series", "Table"]

Array = NDArray[np.float64]

SCALES = ("linear", "log")
STYLES = ("line", "dashed", "dotted", "dashdot", "wide", "points", "bars", "arrow path")


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: What is measured along it.
        scale: One of ``SCALES``.
        ticks: Names of the positions 0, 1, 2, ...; numbers if there are none.
        marks: Places that get their number; chosen by the renderer if there are none.
        is_reversed: Whether it falls from left to right, or upwards.
    """

    label: str
    scale: str = "linear"
    ticks: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()
    is_reversed: bool = False

    def __post_init__(self) -> None:
        check_choice("the scale of an axis", self.scale, SCALES, error=ReportError)


@dataclass(frozen=True, eq=False)
class Series:
    """One line, cloud, row of bars or path.

    Attributes:
        label: Its name in the legend.
        x: Positions, (m,).
        y: Values, (m,).
        low: Lower end of a band or of error bars, (m,); None if there is none.
        high: Upper end, (m,); given with ``low``.
        style: One of ``STYLES``.
        group: What it is coloured by; equal groups have equal colours on the whole page.
        visible: Whether it is shown before anybody asks for it.
    """

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    style: str = "line"
    group: str = ""
    visible: bool = True

    def __post_init__(self) -> None:
        check_choice(f"the style of {self.label!r}", self.style, STYLES, error=ReportError)
        if (self.low is None) != (self.high is None):
            raise ReportError(f"{self.label!r} has one of low and high: give both or neither")
        for name in ("x", "y", "low", "high"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _read_vector(value, f"{name} of {self.label!r}"))
        sizes = {value.size for value in (self.x, self.y, self.low, self.high) if value is not None}
        if len(sizes) > 1:
            raise ReportError(f"the arrays of {self.label!r} have lengths {sorted(sizes)}: one")

    @property
    def color_key(self) -> str:
        return self.group or self.label

    def take(self, indices: NDArray[np.intp]) -> Series:
        """The same series at some of its points."""
        low = None if self.low is None else self.low[indices]
        high = None if self.high is None else self.high[indices]
        return replace(self, x=self.x[indices], y=self.y[indices], low=low, high=high)

    def cut_to_scales(self, x_scale: str, y_scale: str) -> Series:
        """The series as it can be drawn: what has no logarithm is a gap, or ends at the data."""
        gaps = ~np.isfinite(self.x) | ~np.isfinite(self.y)
        if x_scale == "log":
            gaps |= ~(self.x > 0)
        if y_scale == "log":
            gaps |= ~(self.y > 0)
        x, y = np.where(gaps, np.nan, self.x), np.where(gaps, np.nan, self.y)
        if self.low is None or self.high is None:
            return replace(self, x=x, y=y)
        low, high = (np.where(gaps, np.nan, end) for end in (self.low, self.high))
        if y_scale == "log" and not gaps.all():
            drawn = np.concatenate([y, low[low > 0]])
            least = np.nanmin(drawn)
            low, high = np.maximum(low, least), np.maximum(high, least)
        return replace(self, x=x, y=y, low=low, high=high)


@dataclass(frozen=True, eq=False)
class HeatFrames:
    """A map of numbers that changes from frame to frame.

    Attributes:
        values: (frames, rows, columns).
        frame_labels: What a frame is called, such as "step 100".
        row_labels: Names of the rows.
        col_labels: Names of the columns.
        marked: Cells (row, column) to be outlined.
        quantity: What the numbers are.
        row_ticks: Positions along the rows with the text to write there instead of their names.
        col_ticks: The same along the columns.
        dots: Sizes from 0 to 1 of dots over the cells, (rows, columns); None for no dots.
        notes: Texts over the map, each as row, column and text.
        limits: The numbers at the two ends of the colours. Where the first is negative there are
            two colours, which meet at zero.
    """

    values: Array
    frame_labels: tuple[str, ...]
    row_labels: tuple[str, ...]
    col_labels: tuple[str, ...]
    marked: tuple[tuple[int, int], ...] = ()
    quantity: str = "attention"
    row_ticks: tuple[tuple[float, str], ...] = ()
    col_ticks: tuple[tuple[float, str], ...] = ()
    dots: Array | None = None
    notes: tuple[tuple[float, float, str], ...] = ()
    limits: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        named = (len(self.frame_labels), len(self.row_labels), len(self.col_labels))
        if values.ndim != 3 or values.shape != named or not values.size:
            raise ReportError(f"a heat map of shape {values.shape} has labels for {named}")
        object.__setattr__(self, "values", values)
        low, high = self.limits
        if not low < high or (low < 0 and low != -high):
            raise ReportError(f"a heat map has the limits {self.limits}: give (0, b) or (-b, b)")
        if self.dots is not None:
            dots = np.asarray(self.dots, dtype=np.float64)
            if dots.shape != values.shape[1:]:
                raise ReportError(f"a heat map of shape {values.shape[1:]} has dots {dots.shape}")
            object.__setattr__(self, "dots", dots)

    @property
    def is_signed(self) -> bool:
        return self.limits[0] < 0

    def take(self, frames: Sequence[int]) -> HeatFrames:
        """The same map with some of its frames."""
        labels = tuple(self.frame_labels[frame] for frame in frames)
        return replace(self, values=self.values[list(frames)], frame_labels=labels)


@dataclass(frozen=True, eq=False)
class Panel:
    """Two axes, and what is between them; a wide one has a row of the figure to itself."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    heat: HeatFrames | None = None
    equal_aspect: bool = False
    is_wide: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text under a figure."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ReportError(f"a row of a table has not {len(self.columns)} cells")


@dataclass(frozen=True, eq=False)
class Figure:
    """Panels side by side, with a caption.

    Attributes:
        name: Short and unique on a page; files and anchors are named after it.
        title: A sentence that says what is to be seen.
        caption: How to read it.
        panels: From left to right, then down.
        columns: How many panels fit beside each other on a wide page.
        table: Numbers to go with it.
        texts: Texts with shaded words, below the panels.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 2
    table: Table | None = None
    texts: HighlightedTexts | None = None


def _read_vector(value: ArrayLike, name: str) -> Array:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 1:
        raise ReportError(f"{name} has shape {array.shape}: give one axis")
    return array
