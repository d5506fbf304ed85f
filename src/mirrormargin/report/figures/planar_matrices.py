"""Two sequences in the plane: where W z goes if W is trained, and where if K and Q are."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.report.sources import Evidence

__all__ = ["build_planar_matrices"]

TRAINED = ("W", "K Qᵀ")
SOLUTIONS = ("Frobenius", "nuclear norm")


def build_planar_matrices(evidence: Evidence) -> Figure | None:
    if "planar-matrices" not in evidence:
        return None
    _, arrays = evidence["planar-matrices"]
    panels, rows = [], []
    for place, picture in enumerate(arrays["picture"].tolist()):
        for form, name in enumerate(TRAINED):
            series = []
            for i, z in enumerate(arrays["queries"][place]):
                ray = arrays["target"][place, form] @ z
                path = arrays["path"][place, form] @ z
                ray = ray * (np.hypot(*path.T).max() / max(float(np.hypot(*ray)), 1e-300))
                group, tokens = f"sequence {i + 1}", arrays["tokens"][place, i]
                x, y = np.array([0.0, ray[0]]), np.array([0.0, ray[1]])
                series.append(Series(f"solution, {group}", x, y, style="dashed", group=group))
                series.append(Series(group, *path.T, style="arrow path", group=group))
                series.append(Series(f"tokens, {group}", *tokens.T, style="points", group=group))
            axes = Axis("first coordinate"), Axis("second coordinate")
            title = f"{picture}, trained {name}"
            panels.append(Panel(title, *axes, tuple(series)))
            cosines = arrays["cosine"][place, form]
            rows.append((str(picture), name, *(f"{value:.4f}" for value in cosines)))
    columns = ("picture", "trained", *(f"cosine to {name}" for name in SOLUTIONS))
    return Figure(
        "planar-matrices",
        "Where W z goes if W is trained, and if K and Q are",
        "W z of two sequences in the plane, from zero; dashed rays are the max-margin solution: in"
        " the Frobenius norm where W is trained, in the nuclear norm where K and Q are. The axes"
        " have different scales.",
        tuple(panels),
        table=Table(columns, tuple(rows)),
    )
