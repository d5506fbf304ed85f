"""W and the head trained together on the toy problem: both paths, and how sure the model gets."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.plane import draw_path
from mirrormargin.report.sources import Evidence

__all__ = ["build_joint"]

SAFE = 1  # place on the axis of arithmetics
FIRST_STEPS = 100


def build_joint(evidence: Evidence) -> Figure | None:
    if "joint" not in evidence:
        return None
    _, arrays = evidence["joint"]
    p, steps = arrays["p"], arrays["steps"]
    W, v = arrays["W"][SAFE], arrays["v"][SAFE]
    target, head_target = arrays["target"][SAFE], arrays["head_target"][SAFE]
    matrices, heads = [], []
    for j, exponent in enumerate(p):
        group = name_exponent(exponent)
        none = np.zeros(steps.shape[1], dtype=bool)
        matrix = draw_path(W[j, :, 0, :2].T, target[j, 0, :2], group, none)[:2]
        head = draw_path(v[j, :, :2].T, head_target[j, :2], group, none)[:2]
        matrices.append(Panel(f"W, {group}", Axis("W[0, 0]"), Axis("W[0, 1]"), matrix))
        heads.append(Panel(f"v, {group}", Axis("v[0]"), Axis("v[1]"), head))
    early = steps <= FIRST_STEPS
    curves = [
        Panel(
            title,
            Axis("step"),
            Axis("probability"),
            tuple(
                Series(
                    f"training at {name_exponent(exponent)}",
                    np.where(early[j], steps[j], np.nan),
                    arrays[name][SAFE, j],
                    group=name_exponent(exponent),
                )
                for j, exponent in enumerate(p)
            ),
        )
        for name, title in (("softmax", "largest attention"), ("logistic", "of the right label"))
    ]
    return Figure(
        "joint",
        "W and the head trained together, each with its max-margin ray",
        "Two sequences, both trained from zero, without the + eps of the published normaliser. The"
        " first panels show two entries of W, the next the head v, each with the grey ray of its"
        " max-margin solution. The last ones: mean largest"
        f" attention weight and mean probability of the right label in the first {FIRST_STEPS}"
        " steps.",
        (*matrices, *heads, *curves),
        columns=3,
    )
