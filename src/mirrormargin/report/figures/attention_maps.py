"""How attention sharpens: the maps at several p at the same steps, with one slider."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mirrormargin.report.figure import Axis, Figure, HeatFrames, Panel
from mirrormargin.report.figures.spread import name_exponent
from mirrormargin.report.sources import Evidence

__all__ = ["build_attention_maps", "choose_frames", "draw_map"]

NUM_FRAMES = 40
LAST_STEP = 2000


def build_attention_maps(evidence: Evidence) -> Figure | None:
    if "trajectories" not in evidence:
        return None
    _, arrays = evidence["trajectories"]
    p, steps, attention, optimal = (arrays[name] for name in ("p", "steps", "attention", "optimal"))
    frames = choose_frames(steps, LAST_STEP)
    return Figure(
        "attention",
        "Attention along training",
        "Attention of one problem along training from W = 0, when all tokens are attended alike."
        " Outlined cells are the optimal tokens. The slider moves all maps to the same step; a run"
        " that has ended stays at its last one.",
        tuple(
            draw_map(name_exponent(exponent), steps[j], attention[j], optimal, frames)
            for j, exponent in enumerate(p)
        ),
        columns=3,
    )


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
    places = [int(np.abs(steps - frame).argmin()) for frame in frames]
    n, T = attention.shape[1:]
    heat = HeatFrames(
        attention[places],
        tuple(f"step {frame}" for frame in frames),
        tuple(f"sequence {i + 1}" for i in range(n)),
        tuple(f"{t + 1}" for t in range(T)),
        tuple((i, int(t)) for i, t in enumerate(marked)),
    )
    return Panel(title, Axis("token"), Axis(""), heat=heat)
