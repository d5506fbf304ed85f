r"""The least loss over v and W in lp balls of growing radii.

Two problems: the toy, whose two sequences both support the decoder, and three sequences in the
plane of which one does not, so that W goes to the relaxed solution.

Arrays (S = paths, one for each problem and p; R pairs of radii):
    problem (S,)                       "toy" or "relaxed"
    p (S,)
    radii, head_radii (S, R)
    divergence, head_divergence (S, R) of W and v from their max-margin solutions
    log_loss (S, R)
    residual (S, R)                    the larger of the two residuals
    is_certified (S, R)
    num_unsupported (S,)               sequences that do not support the decoder
    plain_divergence (S,)              of the last W from the solution without relaxation
    selection (S, n)                   tokens in the end, padded by -1
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings

__all__ = ["EXPERIMENT"]

MOST_SEQUENCES = 3


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


EXPERIMENT = Experiment(
    name="joint-paths",
    title="joint regularisation paths of W and v, with and without unsupported sequences",
    profiles={
        "quick": {"p": [1.5, 2.0, 3.0], "num_radii": 25},
        "full": {"p": [1.5, 1.75, 2.0, 3.0, 5.0], "num_radii": 40},
    },
    split=split,
    run=run,
)
