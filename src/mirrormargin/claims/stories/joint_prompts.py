r"""A prompt and a head trained together, in the plane, by normalised steps of length 0.1.

Three sequences of the origin and one other token, (1, 1), (1, -1) and (0.5, 1) or (0.5, 1.5). With
the last one the third sequence does not support the decoder, and the prompt has to go to the
relaxed solution. Starts are prompt (0, -1) and head (-1, 0).

Axes: S = 2 problems; R recorded steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, all_equal, mean_near
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.plane import draw_path

__all__ = ["STORY"]

THIRDS = ((0.5, 1.0), (0.5, 1.5))
SELECTED = (1, 1, 1)

ARRAYS = {
    "steps": "R",
    "third": "S 2: the second token of the third sequence",
    "prompt, head": "S R 2: along training",
    "attention": "S R: mean attention on the tokens other than the origin",
    "probability": "S R: mean of 1 / (1 + exp(-y f))",
    "divergence, head_divergence": "S R: 1 - cos to the max-margin solutions, relaxed where needed",
    "plain_divergence": "S R: 1 - cos of the prompt to the solution without relaxation",
    "target, plain_target, head_target": "S 2: the solutions that these are measured from",
    "num_unsupported": "S: sequences that do not support the decoder",
}


def split(settings: Settings) -> list[tuple[float, float]]:
    return list(THIRDS)


def run(settings: Settings, third: Any) -> Arrays:
    import mirrormargin as mm

    problem = mm.synthetic.planar_joint(third)
    wanted = np.union1d(np.arange(200), np.geomspace(200, settings["num_steps"], 60).round())
    record = mm.train_joint(
        problem,
        lr=0.1,
        num_steps=settings["num_steps"],
        init=[[0.0, 0.0], [-1.0, 0.0]],
        head_init=[-1.0, 0.0],
        record=wanted.astype(int),
        target_tol=1e-11,
        keep_path=True,
        threads=1,
    )
    assert record.path is not None
    assert record.head_path is not None
    prompt, head = record.path[0, 0, 0][..., 0], record.head_path[0, 0, 0]
    others = problem.tokens[:, 1]
    # The origin has logit 0 and gives nothing to the output.
    attended = 1 / (1 + np.exp(-prompt @ others.T))
    outputs = problem.labels * attended * (head @ others.T)
    decoder = mm.solve_decoder_svm(others, problem.labels, tol=1e-11)
    supports = decoder.support
    targets = [
        mm.solve_attention_svm(
            problem.tokens, problem.queries, SELECTED, tol=1e-11, rhs=rhs, compiled=False
        ).W[:, 0]
        for rhs in (supports.astype(float), None)
    ]
    return {
        "steps": record.steps[0, 0, 0],
        "third": np.array([third]),
        "prompt": prompt[None],
        "head": head[None],
        "attention": attended.mean(axis=-1)[None],
        "probability": (1 / (1 + np.exp(-outputs))).mean(axis=-1)[None],
        "divergence": _diverge(targets[0], prompt)[None],
        "head_divergence": _diverge(decoder.v, head)[None],
        "plain_divergence": _diverge(targets[1], prompt)[None],
        "target": targets[0][None],
        "plain_target": targets[1][None],
        "head_target": decoder.v[None],
        "num_unsupported": np.array([int((~supports).sum())]),
    }


def _diverge(target: Any, path: Any) -> Any:
    return 1 - path @ target / (np.linalg.norm(path, axis=-1) * np.linalg.norm(target))


def examine_joint(evidence: Evidence) -> Finding:
    relaxed = evidence["num_unsupported"] > 0
    steps, tight = evidence["steps"], ~relaxed
    attention = evidence["attention"][:, np.searchsorted(steps, 90)]
    probability = evidence["probability"][:, np.searchsorted(steps, 70)]
    D, head, plain = (evidence[f"{name}divergence"][:, -1] for name in ("", "head_", "plain_"))
    return Finding(
        [
            all_equal("problems with an unsupported sequence", relaxed, [False, True]),
            all_at_most("1 - cos of the prompt", D, 1e-3),
            all_at_most("1 - cos of the head", head, 1e-3),
            all_at_least("1 - cos from the solution without relaxation", plain[relaxed], 1e-2),
            mean_near("softmax probability at step 90", attention[tight], 1.0, 0.01),
            mean_near("logistic probability at step 70", probability[tight], 1.0, 0.01),
        ],
        f"probabilities {attention[tight].mean():.4f} and {probability[tight].mean():.4f}; second"
        f" problem: 1 - cos {D[relaxed].max():.1e} from the relaxed solution,"
        f" {plain[relaxed].min():.1e} from the other",
    )


CLAIMS = (
    Claim(
        id="C1.fig.joint",
        title="A prompt and a head trained together reach both max-margin solutions",
        statement="From the published start attention and the label probability go to 1; the prompt"
        " goes to the max-margin direction, or to the relaxed one if a sequence does not support"
        " the decoder.",
        source="C1, figures of joint training",
        provenance=Provenance.SEEN,
        published="softmax probability about 1 by step 90, logistic one by step 70",
        examine=examine_joint,
    ),
)


def draw_joint_prompts(evidence: Evidence) -> Figure:
    panels = []
    none = np.zeros(evidence["steps"].shape, dtype=bool)
    for i, third in enumerate(evidence["third"]):
        title = f"third token ({third[0]:g}, {third[1]:g})"
        paths = []
        for name, target, group in (("prompt", "target", "W"), ("head", "head_target", "head")):
            ray, path, _ = draw_path(evidence[name][i].T, evidence[target][i], group, none)
            paths.append(Series(f"solution, {name}", ray.x, ray.y, style="dashed", group=group))
            paths.append(Series(name, path.x, path.y, style="arrow path", group=group))
        axes = Axis("first coordinate"), Axis("second coordinate")
        panels.append(Panel(title, *axes, tuple(paths)))
        lines = [
            Series(label, evidence["steps"], evidence[key][i], style=style, group=group)
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


STORY = Story(
    name="joint-prompts",
    title="a prompt and a head trained together, with and without an unsupported sequence",
    arrays=ARRAYS,
    profiles={"quick": {"num_steps": 1000}, "full": {"num_steps": 10_000}},
    split=split,
    run=run,
    draw=(draw_joint_prompts,),
    claims=CLAIMS,
)
