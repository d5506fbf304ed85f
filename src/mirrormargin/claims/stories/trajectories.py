r"""One problem, trained from W = 0 at several p: where W goes, and how attention sharpens.

Axes: E exponents; R recorded steps; n sequences of T tokens; d dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories.directions import STEPS
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel
from mirrormargin.figures.maps import choose_frames, draw_map
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.plane import draw_path

__all__ = ["STORY"]

ARROWS = {1.75: (140, 225, 310, 425), 2.0: (300, 500, 700, 900), 3.0: (1500, 4000, 8000, 13000)}
FIRST, SECOND = (1, 2), (3, 4)  # the entries
LAST_STEP = 2000

ARRAYS = {
    "p": "E",
    "steps": "E R: the last one is repeated",
    "W": "E R d d: along training",
    "target": "E d d: the max-margin solution of the tokens selected in the end",
    "attention": "E R n T: the attention maps",
    "divergence, norm": "E R: of W; D is nan where W is 0",
    "log_unattended": "E R: log of the most that some sequence does not give its selected token",
    "selection": "E n: tokens selected in the end",
    "optimal": "n: those of the highest score",
    "arrows": "E 4: the steps at which the published figure has its arrows",
}


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    (seed,) = list_seeds(settings)
    problem = mm.synthetic.unit_sphere(seed)
    spaced = np.geomspace(1, max(STEPS.values()), settings["num_points"]).round()
    record = mm.train_attention(
        problem,
        list(STEPS),
        lr=0.1,
        num_steps=list(STEPS.values()),
        record=np.union1d(spaced, np.ravel(list(ARROWS.values()))),
        keep_path=True,
        target_tol=1e-10,
        threads=1,
    )
    assert record.path is not None
    assert record.target is not None
    assert record.divergence is not None
    path = record.path[0, :, 0]
    maps = [[problem.attention(W) for W in row] for row in path]
    return {
        "p": record.p,
        "steps": record.steps[0, :, 0],
        "W": path,
        "target": record.target[0, :, 0],
        "attention": np.array(maps),
        "divergence": record.divergence[0, :, 0],
        "norm": record.norm[0, :, 0],
        "log_unattended": record.log_unattended[0, :, 0],
        "selection": record.final_selection[0, :, 0],
        "optimal": problem.optimal_tokens,
        "arrows": np.array(list(ARROWS.values())),
    }


def examine_trajectory(evidence: Evidence) -> Finding:
    checks, ends = [], []
    for j, p in enumerate(evidence["p"]):
        steps, D = evidence["steps"][j], evidence["divergence"][j]
        at = D[np.searchsorted(steps, evidence["arrows"][j])]
        ends.append(D[-1])
        checks += [
            all_at_most(f"D at the end, p = {p:g}", D[-1], 0.02),
            all_at_most(f"largest change of D between arrows, p = {p:g}", np.diff(at), 0.0),
        ]
    return Finding(checks, "D at the end " + " / ".join(f"{D:.4f}" for D in ends))


CLAIMS = (
    Claim(
        id="A.fig.trajectory",
        title="A single trajectory of W bends onto the ray of its max-margin solution",
        statement="From W = 0 on one problem, the plotted entries of W run along the ray of the"
        " max-margin solution at each p.",
        source="paper A, figure of single trajectories",
        provenance=Provenance.SEEN,
        published="follows the ray",
        examine=examine_trajectory,
        figures=("trajectories", "attention"),
    ),
)


def draw_trajectories(evidence: Evidence) -> Figure:
    p, steps, W, target, arrows = (
        evidence[name] for name in ("p", "steps", "W", "target", "arrows")
    )
    panels = []
    for j, exponent in enumerate(p):
        (a, b), (c, d) = FIRST, SECOND
        xy = np.stack([W[j, :, a, b], W[j, :, c, d]])
        ray = np.array([target[j, a, b], target[j, c, d]])
        marks = np.isin(steps[j], arrows[j])
        panels.append(
            Panel(
                name_exponent(exponent),
                Axis("W[1, 2]"),
                Axis("W[3, 4]"),
                draw_path(xy, ray, name_exponent(exponent), marks),
            )
        )
    return Figure(
        "trajectories",
        "W along training, and the max-margin ray",
        "Two entries of W, trained from zero on one problem. The grey ray has the direction of"
        " the max-margin solution at the same p; dots are at the steps "
        + "; ".join(
            f"{', '.join(map(str, row.tolist()))} ({name_exponent(one)})"
            for one, row in zip(p, arrows, strict=True)
        )
        + ".",
        tuple(panels),
        columns=3,
    )


def draw_attention_maps(evidence: Evidence) -> Figure:
    p, steps, attention, optimal = (
        evidence[name] for name in ("p", "steps", "attention", "optimal")
    )
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


STORY = Story(
    name="trajectories",
    title="one problem trained from W = 0 at p = 1.75, 2 and 3, every step of the way",
    arrays=ARRAYS,
    profiles={"quick": {"num_seeds": 1, "num_points": 100}},
    run=run,
    draw=(draw_trajectories, draw_attention_maps),
    claims=CLAIMS,
)
