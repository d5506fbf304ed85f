"""How attention sharpens: the maps at several p at the same steps, with one slider."""

from __future__ import annotations

from mirrormargin.figures import Figure
from mirrormargin.figures.maps import choose_frames, draw_map
from mirrormargin.figures.palette import name_exponent
from mirrormargin.report.sources import Evidence

__all__ = ["build_attention_maps"]

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
