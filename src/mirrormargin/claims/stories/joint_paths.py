r"""The least loss over v and W in lp balls of growing radii.

Two problems: the toy, whose two sequences both support the decoder, and three sequences in the
plane of which one does not, so that W goes to the relaxed solution.

Axes: S paths, one for each problem and p; R pairs of radii; n sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent

__all__ = ["STORY"]

MOST_SEQUENCES = 3
TITLES = {"toy": "both sequences support the head", "relaxed": "one sequence does not"}
ROUNDING = 1e-16  # a D below it is zero

ARRAYS = {
    "problem": 'S: "toy" or "relaxed"',
    "p": "S",
    "radii, head_radii": "S R: of the balls of W and v",
    "divergence, head_divergence": "S R: of W and v from their max-margin solutions",
    "log_loss": "S R: natural log",
    "residual": "S R: the larger of the two residuals",
    "is_certified": "S R: whether both residuals are small enough",
    "num_unsupported": "S: sequences that do not support the decoder",
    "plain_divergence": "S: of the last W from the solution without relaxation",
    "selection": "S n: tokens in the end, padded by -1",
}


def split(settings: Settings) -> list[tuple[str, float]]:
    return [(name, p) for name in ("toy", "relaxed") for p in settings["p"]]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    name, p = part
    toy = name == "toy"
    problem = mm.synthetic.joint_toy() if toy else mm.synthetic.planar_joint((0.5, 1.5))
    path = mm.joint_regularization_path(
        problem, p, num_radii=settings["num_radii"], raise_on_failure=False
    )
    chosen = path.selection[-1]
    plain = mm.solve_attention_svm(problem.tokens, problem.queries, chosen, p, compiled=False)
    names = ("radii", "head_radii", "divergence", "head_divergence", "log_loss", "is_certified")
    return {
        "problem": np.array([name]),
        "p": np.array([p]),
        **{key: getattr(path, key)[None] for key in names},
        "residual": np.maximum(path.residual, path.head_residual)[None],
        "num_unsupported": np.array([int((~path.decoder.support).sum())]),
        "plain_divergence": np.array([float(mm.directional_divergence(plain.W, path.W[-1], p))]),
        "selection": np.pad(chosen, (0, MOST_SEQUENCES - len(chosen)), constant_values=-1)[None],
    }


def examine_joint_path(evidence: Evidence) -> Finding:
    toy = evidence["problem"] == "toy"
    D, Dv = evidence["divergence"][toy, -1], evidence["head_divergence"][toy, -1]
    return Finding(
        [
            share_at_least("points certified as local minimisers", evidence["is_certified"][toy]),
            all_at_most("D of W at the last radius", D, 1e-4),
            all_at_most("D of v at the last radius", Dv, 1e-4),
        ],
        f"D of W ≤ {D.max():.1e}, of v ≤ {Dv.max():.1e}",
    )


def examine_relaxed(evidence: Evidence) -> Finding:
    relaxed = evidence["problem"] == "relaxed"
    D, plain = evidence["divergence"][relaxed, -1], evidence["plain_divergence"][relaxed]
    times = plain / np.maximum(D, np.finfo(float).eps)
    return Finding(
        [
            all_at_least("sequences without support", evidence["num_unsupported"][relaxed], 1),
            all_at_most("D of W from the relaxed solution", D, 1e-4),
            all_at_least("D from the plain over D from the relaxed solution", times, 100.0),
        ],
        f"D ≤ {D.max():.1e} from the relaxed, ≥ {plain.min():.1e} from the plain solution",
    )


def examine_euclidean_path(evidence: Evidence) -> Finding:
    chosen = (evidence["p"] == 2) & (evidence["num_unsupported"] == 0)
    D, head = (evidence[name][chosen, -1] for name in ("divergence", "head_divergence"))
    return Finding(
        [
            all_at_most("1 - cos of W at the last radii", D, 1e-3),
            all_at_most("1 - cos of the head at the last radii", head, 1e-3),
        ],
        f"1 - cos: W {D.max():.1e}, head {head.max():.1e}",
    )


def examine_euclidean_relaxed(evidence: Evidence) -> Finding:
    chosen = (evidence["p"] == 2) & (evidence["num_unsupported"] > 0)
    D, plain = evidence["divergence"][chosen, -1], evidence["plain_divergence"][chosen]
    return Finding(
        [
            all_at_most("1 - cos of W from the relaxed solution", D, 1e-3),
            all_at_least("1 - cos of W from the solution without relaxation", plain, 1e-2),
        ],
        f"1 - cos: relaxed {D.max():.1e}, without {plain.min():.1e}",
    )


CLAIMS = (
    Claim(
        id="A.thm.joint-path",
        title="The joint regularisation path takes W and v to their max-margin directions",
        statement="When every sequence supports the decoder and attention elsewhere costs label"
        " margin, the joint minimisers over growing lp balls tend in direction to the max-margin"
        " decoder and the max-margin W.",
        source="paper A, theorem on lp-JointRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        examine=examine_joint_path,
    ),
    Claim(
        id="A.thm.joint-relaxed",
        title="Where a sequence does not support the decoder, W goes to the relaxed solution",
        statement="If some sequences are no support vectors of the decoder, the joint path takes W"
        " to the solution that asks no lead of one in these sequences.",
        source="paper A, theorem on lp-JointRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        examine=examine_relaxed,
    ),
    Claim(
        id="C1.thm.joint-path",
        title="Trained together, attention and head both go to their max-margin solutions",
        statement="If all sequences support the decoder, the joint regularisation path of attention"
        " and head tends to the max-margin solution of each.",
        source="C1, theorem on the joint regularisation path",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_euclidean_path,
    ),
    Claim(
        id="C1.thm.relaxed",
        title="Sequences that do not support the decoder are asked for no lead",
        statement="If some sequences do not support the decoder, attention tends along the joint"
        " path to the relaxed solution, in which their constraints have the right-hand side 0.",
        source="C1, theorem on the joint regularisation path",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_euclidean_relaxed,
    ),
)


def draw_joint_paths(evidence: Evidence) -> Figure:
    names = list(dict.fromkeys(evidence["problem"].tolist()))
    panels = []
    for name in names:
        series: list[Series] = []
        for i in np.flatnonzero(evidence["problem"] == name):
            group = name_exponent(evidence["p"][i])
            x = evidence["radii"][i]
            for key, style, what in (
                ("divergence", "line", "W"),
                ("head_divergence", "dashed", "v"),
            ):
                values = np.maximum(evidence[key][i], ROUNDING)
                series.append(Series(f"{what}, {group}", x, values, style=style, group=group))
        title = TITLES.get(name, str(name))
        panels.append(Panel(title, Axis("R", "log"), Axis("D", "log"), tuple(series)))
    certified = evidence["is_certified"]
    return Figure(
        "joint-paths",
        "The joint path against both max-margin directions",
        "Divergence of W and of the head v from their max-margin solutions where the loss is least"
        " over balls of radii R and r. Where a sequence does not support the head, W goes to the"
        f" solution that asks no lead of it. {int(certified.sum())} of {certified.size} points are"
        " certified. A D that rounding alone makes is drawn at 1e-16.",
        tuple(panels),
    )


STORY = Story(
    name="joint-paths",
    title="joint regularisation paths of W and v, with and without unsupported sequences",
    arrays=ARRAYS,
    profiles={
        "quick": {"p": [1.5, 2.0, 3.0], "num_radii": 25},
        "full": {"p": [1.5, 1.75, 2.0, 3.0, 5.0], "num_radii": 40},
    },
    split=split,
    run=run,
    early=True,
    draw=(draw_joint_paths,),
    claims=CLAIMS,
)
