"""Maps of attention: on tokens as training proceeds, and on the patches of images.

Images share one map: a column for each image, a row for each model. Each picture takes as many
cells as its image has pixels; a patch of the attention takes its part of them. Dots are the ink of
the image; below a picture stands the class that the model gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import ReportError
from mirrormargin.figures.figure import Axis, HeatFrames, Panel

__all__ = ["choose_frames", "draw_map", "draw_pictures"]

Array = NDArray[np.float64]
NUM_FRAMES = 40
GAP, NOTE = 1, 2  # cells between pictures, and below each for the class


def choose_frames(steps: NDArray[np.int64], last: int) -> list[int]:
    """Steps from 0 to ``last``, evenly spaced in their logarithms, out of the recorded ones."""
    recorded = np.unique(steps[steps <= last])
    wanted = np.geomspace(1, max(last, 1), NUM_FRAMES - 1)
    chosen = {int(recorded[np.abs(recorded - step).argmin()]) for step in wanted}
    return sorted({int(recorded[0]), *chosen})


def draw_map(
    title: str,
    steps: NDArray[np.int64],
    attention: NDArray[np.float64],
    marked: NDArray[np.intp],
    frames: Sequence[int],
) -> Panel:
    """The maps (R, n, T) at the recorded steps (R,) nearest to each frame."""
    indices = [int(np.abs(steps - frame).argmin()) for frame in frames]
    n, T = attention.shape[1:]
    heat = HeatFrames(
        attention[indices],
        tuple(f"step {frame}" for frame in frames),
        tuple(f"sequence {i + 1}" for i in range(n)),
        tuple(f"{t + 1}" for t in range(T)),
        tuple((i, int(t)) for i, t in enumerate(marked)),
    )
    return Panel(title, Axis("token"), Axis(""), heat=heat)


def draw_pictures(
    names: Sequence[str],
    images: Array,
    attention: Array,
    labels: NDArray[np.int64],
    predictions: NDArray[np.int64],
) -> Panel:
    """One wide panel.

    Args:
        names: Of the K models.
        images: (M, H, H), of any range; larger is more ink.
        attention: On the patches, (K, M, G, G), with G a divisor of H.
        labels: (M,).
        predictions: (K, M).

    Raises:
        ReportError: If patches do not divide the images.
    """
    count, size = images.shape[0], images.shape[1]
    if size % attention.shape[-1]:
        raise ReportError(f"images of {size} pixels have {attention.shape[-1]} patches: a divisor")
    scale = size // attention.shape[-1]
    ink = _fit(images)
    shades = np.kron(_fit(attention), np.ones((scale, scale)))
    height, width = size + GAP + NOTE, size + GAP
    values = np.full(((len(names) + 1) * height - GAP, count * width - GAP), np.nan)
    dots = np.zeros_like(values)
    notes: list[tuple[float, float, str]] = []
    for i in range(count):
        across = slice(i * width, i * width + size)
        middle = i * width + (size - 1) / 2
        values[:size, across] = ink[i]
        notes.append((size + 0.5, middle, f"{labels[i]}"))
        for k in range(len(names)):
            top = (k + 1) * height
            values[top : top + size, across] = shades[k, i]
            dots[top : top + size, across] = ink[i]
            mark = "✓" if predictions[k, i] == labels[i] else "✗"
            notes.append((top + size + 0.5, middle, f"{predictions[k, i]} {mark}"))
    rows = ("image", *names)
    heat = HeatFrames(
        values[None],
        ("",),
        tuple(f"{rows[r // height]}, row {r % height + 1}" for r in range(values.shape[0])),
        tuple(f"image {c // width + 1}, column {c % width + 1}" for c in range(values.shape[1])),
        quantity="attention / largest",
        row_ticks=tuple((k * height + (size - 1) / 2, name) for k, name in enumerate(rows)),
        col_ticks=tuple((i * width + (size - 1) / 2, f"{i + 1}") for i in range(count)),
        dots=dots,
        notes=tuple(notes),
    )
    return Panel(
        "attention of [CLS] on the patches",
        Axis("image"),
        Axis(""),
        heat=heat,
        equal_aspect=True,
        is_wide=True,
    )


def _fit(pictures: Array) -> Array:
    """Each picture in units of its largest value; what is below zero is nothing."""
    positive = np.maximum(np.asarray(pictures, dtype=np.float64), 0.0)
    largest = positive.max(axis=(-2, -1), keepdims=True)
    return positive / np.where(largest > 0, largest, 1.0)
