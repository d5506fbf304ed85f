"""A prompt and a head trained together in the plane, with and without a relaxed sequence."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.plane import draw_path
from mirrormargin.report.sources import Evidence

__all__ = ["build_joint_prompts"]


def build_joint_prompts(evidence: Evidence) -> Figure | None:
    if "joint-prompts" not in evidence:
        return None
    _, arrays = evidence["joint-prompts"]
    panels = []
    none = np.zeros(arrays["steps"].shape, dtype=bool)
    for place, third in enumerate(arrays["third"]):
        title = f"third token ({third[0]:g}, {third[1]:g})"
        paths = []
        for name, target, group in (("prompt", "target", "W"), ("head", "head_target", "head")):
            ray, path, _ = draw_path(arrays[name][place].T, arrays[target][place], group, none)
            paths.append(Series(f"solution, {name}", ray.x, ray.y, style="dashed", group=group))
            paths.append(Series(name, path.x, path.y, style="arrow path", group=group))
        axes = Axis("first coordinate"), Axis("second coordinate")
        panels.append(Panel(title, *axes, tuple(paths)))
        lines = [
            Series(label, arrays["steps"], arrays[key][place], style=style, group=group)
            for label, key, style, group in (
                ("prompt", "divergence", "line", "W"),
                ("head", "head_divergence", "line", "head"),
                ("prompt, without relaxation", "plain_divergence", "dotted", "W"),
            )
        ]
        panels.append(Panel(title, Axis("step", "log"), Axis("1 − cos", "log"), tuple(lines)))
    return Figure(
        "joint-prompts",
        "A prompt and a head trained together",
        "Left: both paths with the rays of their max-margin solutions. Right: 1 − cos to them."
        " Where the third sequence does not support the head, the prompt goes to the relaxed"
        " solution and not to the plain one.",
        tuple(panels),
    )
