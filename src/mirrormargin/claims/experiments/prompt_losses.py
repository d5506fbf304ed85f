r"""Two sequences whose gains from attending differ by a factor C, under two losses.

Keys are (0, 0) and (1, 1) with scores 0 and C, and (0, 0) and (1, -1) with scores 0 and 1; the
prompt starts at 0 and takes normalised steps of length 0.1. It goes along (1, 0), the max-margin
direction, at a height where both sequences pull alike:

    2 h = log( C loss'(C) / loss'(1) ).

Arrays (S = one for each loss and C; R recorded steps):
    steps (R,)              shared
    loss (S,)               "correlation", -m, or "logistic", log(1 + e^-m)
    C (S,)
    path (S, R, 2)          the prompts
    divergence (S, R)       1 - cos to (1, 0)
    height (S,)             h of the formula
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings

__all__ = ["EXPERIMENT"]

EPS = 2.0**-20  # the share of a token that carries its score: too little to be trained on


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


EXPERIMENT = Experiment(
    name="prompt-losses",
    title="a prompt under the losses -m and log(1 + e^-m), for sequences that gain unequally",
    profiles={"quick": {"C": [*range(1, 11), 100], "num_steps": 20_000}},
    split=split,
    run=run,
    shared=("steps",),
)
