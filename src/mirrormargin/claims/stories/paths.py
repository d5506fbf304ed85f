r"""The least loss on lp balls of growing radius, for a fixed head.

Axes: S paths, one for each seed and p; R radii.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]


ARRAYS = {
    "p, seed": "S",
    "radii": "S R",
    "divergence": "S R: from the max-margin solution of the optimal tokens",
    "margin": "S R: least lead of an optimal token over |W|_p",
    "target_margin": "S: that of the max-margin solution",
    "log_loss_gap": "S R: natural log of the loss above its limit",
    "residual, curvature": "S R: how far each point is from a local minimiser",
    "is_certified": "S R: whether it is one, by both",
    "selects_optimal": "S R: whether the optimal tokens have the largest logits",
}


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    p, seed = part
    problem = mm.synthetic.unit_sphere(seed)
    path = mm.regularization_path(
        problem, p, num_radii=settings["num_radii"], raise_on_failure=False
    )
    names = ("radii", "divergence", "margin", "log_loss_gap", "residual", "curvature")
    return {
        "p": np.array([p]),
        "seed": np.array([seed]),
        **{name: getattr(path, name)[None] for name in (*names, "is_certified")},
        "target_margin": np.array([path.target.margin]),
        "selects_optimal": (path.selection == problem.optimal_tokens).all(axis=-1)[None],
    }


def examine_path(evidence: Evidence) -> Finding:
    D = evidence["divergence"][:, -1]
    return Finding(
        [
            share_at_least("points certified as local minimisers", evidence["is_certified"]),
            share_at_least("optimal tokens at the last radius", evidence["selects_optimal"][:, -1]),
            all_at_most("D at the last radius", D, 1e-4),
        ],
        f"D ≤ {D.max():.1e} on {len(D)} paths",
    )


def examine_euclidean_path(evidence: Evidence) -> Finding:
    chosen = evidence["p"] == 2
    D = evidence["divergence"][chosen, -1]
    return Finding(
        [
            share_at_least(
                "optimal tokens at the last radius", evidence["selects_optimal"][chosen, -1]
            ),
            all_at_most("1 - cos at the last radius", D, 1e-4),
        ],
        f"1 - cos ≤ {D.max():.1e} on {len(D)} paths",
    )


CLAIMS = (
    Claim(
        id="A.thm.path",
        title="The regularisation path goes to the max-margin direction of the optimal tokens",
        statement="With a fixed head, unique optimal tokens and a W that separates them, the"
        " minimiser of the loss on the lp ball of radius R tends in direction to the lp max-margin"
        " solution as R grows.",
        source="paper A, theorem on lp-AttRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        examine=examine_path,
    ),
    Claim(
        id="C1.thm.path",
        title="The Euclidean regularisation path goes to the max-margin direction",
        statement="With a fixed head, the minimiser of the loss on a Euclidean ball tends in"
        " direction to the max-margin solution of the optimal tokens as the ball grows.",
        source="C1, theorem on the regularisation path",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_euclidean_path,
    ),
)


def draw_paths(evidence: Evidence) -> Figure:
    p, best = evidence["p"], evidence["target_margin"][:, None]
    settling, margins = [], []
    for one in np.unique(p):
        paths, group = p == one, name_exponent(one)
        # In units of |W_mm| the radii of different problems mean the same.
        x = np.median((evidence["radii"] * best)[paths], axis=0)
        divergence = np.where(evidence["divergence"] > 0, evidence["divergence"], np.nan)
        lacking = 1 - evidence["margin"] / best
        lacking = np.where(lacking > 0, lacking, np.nan)
        settling.append(Series(group, x, *find_median(divergence[paths]), group=group))
        margins.append(Series(group, x, *find_median(lacking[paths]), group=group))
    certified = evidence["is_certified"]
    radius = Axis("R / ‖W_mm‖ₚ", "log")
    return Figure(
        "paths",
        "The regularisation path against the max-margin direction",
        f"Least loss over W of norm at most R, for {len(np.unique(evidence['seed']))} problems:"
        " median with the least and the largest. Left: divergence of W from the max-margin"
        " direction. Right: the share of the largest margin that W lacks."
        f" {int(certified.sum())} of {certified.size} points are certified as local minimisers.",
        (
            Panel("direction", radius, Axis("D", "log"), tuple(settling)),
            Panel("margin", radius, Axis("1 − margin / largest", "log"), tuple(margins)),
        ),
    )


STORY = Story(
    name="paths",
    title="regularisation paths of a fixed head, to a loss within 1e-300 of its floor",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 3, "p": [1.5, 2.0, 3.0], "num_radii": 30},
        "full": {"num_seeds": 10, "p": [1.1, 1.5, 2.0, 3.0, 5.0], "num_radii": 40},
    },
    split=split,
    run=run,
    early=True,
    draw=(draw_paths,),
    claims=CLAIMS,
)
