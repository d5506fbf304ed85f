r"""W and the head v trained together on the published toy problem, from zero.

Arrays (A = published "+ eps", safe; E exponents; R recorded steps); steps repeat their last one:
    p (E,), steps (E, R)
    W (A, E, R, d, d), v (A, E, R, d)           the iterates
    target (A, E, d, d), head_target (A, E, d)  max-margin solutions of the tokens of the run
    divergence, head_divergence (A, E, R)
    norm, head_norm (A, E, R)
    softmax (A, E, R)      mean over sequences of the largest attention weight
    logistic (A, E, R)     mean over sequences of 1 / (1 + exp(-y v.x)), x the selected token
    log_loss (A, E, R)
    selection (A, E, n)    tokens selected in the end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.directions import EPS, STEPS

__all__ = ["EXPERIMENT"]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    problem = mm.synthetic.joint_toy()
    spaced = np.geomspace(100, max(STEPS.values()), settings["num_points"]).round()
    runs = []
    for eps in (EPS, 0.0):
        record = mm.train_joint(
            problem,
            list(STEPS),
            lr=0.1,
            num_steps=list(STEPS.values()),
            record=np.union1d(np.arange(101), spaced),  # the published plots show 100 steps
            eps=eps,
            keep_path=True,
            threads=1,
        )
        assert record.path is not None
        assert record.head_path is not None
        W, v = record.path[0, :, 0], record.head_path[0, :, 0]
        chosen = record.selection[0, :, 0]  # (E, R, n)
        picked = problem.tokens[np.arange(problem.num_sequences), chosen]  # (E, R, n, d)
        margins = problem.labels * np.einsum("erd,ernd->ern", v, picked)
        runs.append(
            {
                "W": W,
                "v": v,
                "target": record.target[0, :, 0],  # pyright: ignore[reportOptionalSubscript]
                "head_target": record.head_target[0, :, 0],  # pyright: ignore[reportOptionalSubscript]
                "divergence": record.divergence[0, :, 0],  # pyright: ignore[reportOptionalSubscript]
                "head_divergence": record.head_divergence[0, :, 0],  # pyright: ignore[reportOptionalSubscript]
                "norm": record.norm[0, :, 0],
                "head_norm": record.head_norm[0, :, 0],  # pyright: ignore[reportOptionalSubscript]
                "softmax": record.attention[0, :, 0],
                "logistic": np.mean(0.5 * (1 + np.tanh(margins / 2)), axis=-1),
                "log_loss": record.log_loss[0, :, 0],
                "selection": chosen[:, -1],
            }
        )
    return {
        "p": record.p,
        "steps": record.steps[0, :, 0],
        **{name: np.stack([one[name] for one in runs]) for name in runs[0]},
    }


EXPERIMENT = Experiment(
    name="joint",
    title="W and v trained together on the toy problem of two sequences, from zero",
    profiles={"quick": {"num_points": 40}},
    run=run,
)
