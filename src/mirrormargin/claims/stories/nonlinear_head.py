r"""The least loss of a prompt in a disc, under a head that is not linear.

    f_i = sum_j max(0, <a_j, sum_t s_it u_it>),    s_i = softmax((<k_it, prompt>)_t),    y_i = +1

f_i is convex in the average of the values u_it, so it is largest at a single token: mixing tokens
never helps. Keys are those of three sequences of seven tokens in the plane; values are random, and
token 0 of each sequence has the best. In the plane the least loss on a circle is found by looking
everywhere: at 2,000 angles, and then twice at 2,000 around the best. Losses are taken above their
floor, without cancellation.

Axes: S seeds, R radii.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, split_seeds

__all__ = ["STORY"]

WIDTH, HIDDEN = 4, 8
NUM_ANGLES = 2000

ARRAYS = {
    "radii": "R",
    "seed": "S",
    "prompt": "S R 2: where the loss is least on each circle",
    "log_loss_gap": "S R: natural log of the loss above its floor",
    "divergence": "S R: 1 - cos to the max-margin prompt of the best tokens",
    "mixing_gain": "S: largest f of a random mixture, over that of the best token: below 1",
}


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, first=0, size=5)


def run(settings: Settings, seeds: Any) -> Arrays:
    radii = np.geomspace(1, settings["radius"], settings["num_radii"])
    rows = [_follow(seed, radii) for seed in seeds]
    names = ("prompt", "log_loss_gap", "divergence", "mixing_gain")
    return {
        "radii": radii,
        "seed": np.array(seeds),
        **{name: np.stack([row[k] for row in rows]) for k, name in enumerate(names)},
    }


def _follow(seed: int, radii: Any) -> tuple[Any, ...]:
    import mirrormargin as mm

    problem = mm.synthetic.planar_multi(seed)
    keys = problem.tokens[..., :2]
    n, T = keys.shape[:2]
    rng = np.random.default_rng([seed, 31])
    a = rng.normal(size=(HIDDEN, WIDTH))
    values = rng.normal(size=(n, T, WIDTH))
    outputs = np.maximum(values @ a.T, 0).sum(axis=-1)
    order = np.argsort(-outputs, axis=1)
    hidden = np.take_along_axis(values, order[..., None], axis=1) @ a.T
    best = mm.solve_attention_svm(
        problem.tokens, problem.queries, [0] * n, tol=1e-11, compiled=False
    ).W[:2, 0]
    prompts, gaps = [], []
    for radius in radii:
        center, width, found = 0.0, np.pi, np.array([np.inf])
        for _ in range(3):
            angles = center + width * np.linspace(-1, 1, NUM_ANGLES)
            tried = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            found = _find_gaps(keys, hidden, tried)
            center, width = angles[found.argmin()], 2 * width / NUM_ANGLES
        prompts.append(radius * np.array([np.cos(center), np.sin(center)]))
        gaps.append(np.log(found.min()))
    path = np.array(prompts)
    cosine = path @ best / np.linalg.norm(path, axis=1) / np.linalg.norm(best)
    mixtures = rng.dirichlet(np.ones(T), size=500) @ hidden
    gain = (np.maximum(mixtures, 0).sum(axis=-1) / outputs.max(axis=1)[:, None]).max()
    return path, np.array(gaps), 1 - cosine, gain


def _find_gaps(keys: Any, hidden: Any, prompts: Any) -> Any:
    """The loss above its floor, for each prompt."""
    logits = np.einsum("ntk,ak->ant", keys, prompts)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    top = hidden[:, :1]
    # What the other tokens add to each hidden unit, small where they have little attention.
    change = np.einsum("ant,nth->anh", weights, hidden - top)
    unit = top[None, :, 0]
    same = (unit > 0) == (unit + change > 0)
    bent = np.where(same, (unit > 0) * change, np.maximum(unit + change, 0) - np.maximum(unit, 0))
    drop = -bent.sum(axis=-1)
    margin = np.maximum(top[:, 0], 0).sum(axis=-1)
    # log(1 + e^(drop - m)) - log(1 + e^-m)
    return np.log1p(np.expm1(drop) / (1 + np.exp(margin))).mean(axis=-1)


def examine_nonlinear(evidence: Evidence) -> Finding:
    D, gaps = evidence["divergence"], evidence["log_loss_gap"]
    left = D[:, -1].mean() / D[:, 0].mean()
    return Finding(
        [
            all_at_most("f of a mixture over that of the best token", evidence["mixing_gain"], 1.0),
            all_at_most("change of the log loss from circle to circle", np.diff(gaps), 0.0),
            all_at_most("1 - cos at the last radius", D[:, -1], 5e-3),
            all_at_most("its mean, as a share of that at the first radius", left, 0.1),
        ],
        f"1 - cos ≤ {D[:, -1].max():.1e} at radius {evidence['radii'][-1]:.0f}",
        "Checked for a convex ReLU head and labels +1, by search over all prompts of the plane",
    )


CLAIMS = (
    Claim(
        id="C1.thm.nonlinear-head",
        title="The path goes to the max-margin direction under a nonlinear head too",
        statement="If the loss is least when each sequence attends to one token, and mixing tokens"
        " never helps, the regularisation path tends to the max-margin direction of these tokens.",
        source="C1, theorem on nonlinear heads",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_nonlinear,
    ),
)


STORY = Story(
    name="nonlinear-head",
    title="the least loss of a prompt in a disc, under a ReLU head",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 5, "radius": 300, "num_radii": 12},
        "full": {"num_seeds": 50, "radius": 300, "num_radii": 30},
    },
    split=split,
    run=run,
    claims=CLAIMS,
)
