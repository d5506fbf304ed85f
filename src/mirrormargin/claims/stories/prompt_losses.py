r"""Two sequences whose gains from attending differ by a factor C, under two losses.

Keys are (0, 0) and (1, 1) with scores 0 and C, and (0, 0) and (1, -1) with scores 0 and 1; the
prompt starts at 0 and takes normalised steps of length 0.1. It goes along (1, 0), the max-margin
direction, at a height where both sequences pull alike:

    2 h = log( C loss'(C) / loss'(1) ).

Axes: S runs, one for each loss and C; R recorded steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, mean_near
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

EPS = 2.0**-20  # the share of a token that carries its score: too little to be trained on
SHOWN = 199  # the last step of the published pictures

ARRAYS = {
    "steps": "R",
    "loss": 'S: "correlation", -m, or "logistic", log(1 + e^-m)',
    "C": "S",
    "path": "S R 2: the prompts",
    "divergence": "S R: 1 - cos to (1, 0)",
    "height": "S: h of the formula",
}


def split(settings: Settings) -> list[str]:
    return ["correlation", "logistic"]


def run(settings: Settings, loss: Any) -> Arrays:
    import mirrormargin as mm

    gains = np.array(settings["C"], dtype=float)
    problems = [
        mm.AttentionProblem(
            [[[0, 0, 0], [1, 1, EPS * gain]], [[0, 0, 0], [1, -1, EPS]]],
            [[1, 0, 0]] * 2,
            [1, 1],
            [0, 0, 1 / EPS],
            loss,
        )
        for gain in gains
    ]
    wanted = np.union1d(np.arange(200), np.geomspace(200, settings["num_steps"], 60).round())
    record = mm.train_attention(
        problems,
        lr=0.1,
        num_steps=settings["num_steps"],
        record=wanted.astype(int),
        target=None,
        keep_path=True,
        threads=1,
    )
    assert record.path is not None
    path = record.path[:, 0, 0][..., :2, 0]
    size = np.maximum(np.linalg.norm(path, axis=-1), np.finfo(float).tiny)
    slope = np.zeros_like if loss == "correlation" else lambda m: -np.logaddexp(0.0, m)
    return {
        "steps": record.steps[0, 0, 0],
        "loss": np.full(len(gains), loss),
        "C": gains,
        "path": path,
        "divergence": 1 - path[..., 0] / size,
        "height": (np.log(gains) + slope(gains) - slope(np.ones_like(gains))) / 2,
    }


def examine_losses(evidence: Evidence) -> Finding:
    loss, C, path = evidence["loss"], evidence["C"], evidence["path"]
    shown = path[:, np.searchsorted(evidence["steps"], SHOWN), 1]
    above, below = ((loss == name) & (C > 1) for name in ("correlation", "logistic"))
    off, ten = np.abs(path[:, -1, 1] - evidence["height"]), C == 10
    return Finding(
        [
            all_at_most("1 - cos to (1, 0) in the end", evidence["divergence"][:, -1], 1e-3),
            all_at_most("distance from the derived height", off, 1e-2),
            all_at_least("height of the paths of -m for C > 1", shown[above], 0.0),
            all_at_most("height of the paths of log(1 + e^-m) for C > 1", shown[below], 0.0),
            mean_near("height at C = 10, -m", shown[ten & above], 1.15, 0.1),
            mean_near("height at C = 10, log(1 + e^-m)", shown[ten & below], -3.15, 0.1),
        ],
        f"heights at C = 10: {shown[ten & above][0]:+.2f} and {shown[ten & below][0]:+.2f}",
        "The heights are where both sequences pull alike, log(C loss'(C) / loss'(1)) / 2. At C ="
        " 100 the logistic path leaves (1, -1) only after some hundred steps, beyond the picture",
    )


CLAIMS = (
    Claim(
        id="C1.fig.losses",
        title="Losses bend the path of a prompt to different sides, and keep its direction",
        statement="Of two sequences that gain C and 1 from attending, -m favours the first and the"
        " logistic loss the second: paths run at different heights, along the same direction.",
        source="C1, figure comparing losses",
        provenance=Provenance.SEEN,
        published="heights at C = 10: +1.15 and -3.15",
        examine=examine_losses,
    ),
)


def draw_prompt_losses(evidence: Evidence) -> Figure:
    heights, lines = [], []
    for loss in dict.fromkeys(evidence["loss"].tolist()):
        runs = np.flatnonzero(evidence["loss"] == loss)
        runs = runs[np.argsort(evidence["C"][runs])]
        group, C = f"{loss} loss", evidence["C"][runs]
        formula = evidence["height"][runs]
        heights.append(Series(f"formula, {group}", C, formula, style="dashed", group=group))
        ends = evidence["path"][runs, -1, 1]
        heights.append(Series(group, C, ends, style="points", group=group))
        divergence = evidence["divergence"][runs]
        divergence = np.where(divergence > 0, divergence, np.nan)
        # With C = 1 the prompt is on the axis from the first step on: there is nothing to settle.
        settled = np.isnan(divergence[:, 1:]).all(axis=1)
        spread = find_median(divergence[~settled])
        lines.append(Series(group, evidence["steps"], *spread, group=group))
    return Figure(
        "prompt-losses",
        "The height at which a prompt goes to infinity, under two losses",
        "Two sequences whose gains from attending differ by a factor C. The prompt goes along"
        " (1, 0), the max-margin direction, at a height where both pull alike. Left: the height at"
        " the end, and where both pull alike by the formula. Right: 1 − cos to (1, 0), median over"
        " C with the least and the largest.",
        (
            Panel("height", Axis("C", "log"), Axis("second coordinate"), tuple(heights)),
            Panel("direction", Axis("step", "log"), Axis("1 − cos", "log"), tuple(lines)),
        ),
    )


STORY = Story(
    name="prompt-losses",
    title="a prompt under the losses -m and log(1 + e^-m), for sequences that gain unequally",
    arrays=ARRAYS,
    profiles={"quick": {"C": [*range(1, 11), 100], "num_steps": 20_000}},
    split=split,
    run=run,
    draw=(draw_prompt_losses,),
    claims=CLAIMS,
)
