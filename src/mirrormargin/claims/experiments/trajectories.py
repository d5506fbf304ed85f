r"""One problem, trained from W = 0 at several p: where W goes, and how attention sharpens.

Arrays (E exponents, R recorded steps, n sequences, T tokens); rows of steps repeat their last one:
    p (E,), steps (E, R)
    W (E, R, d, d)             the iterates
    target (E, d, d)           the max-margin solution of the tokens selected in the end
    attention (E, R, n, T)     the attention maps
    divergence, norm (E, R)
    log_unattended (E, R)      log of the most that some sequence does not give its selected token
    selection (E, n)           tokens selected in the end; optimal (n,) those of the highest score
    arrows (E, 4)              the steps at which the published figure has its arrows
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.directions import STEPS
from mirrormargin.claims.experiments.seeds import list_seeds

__all__ = ["EXPERIMENT"]

ARROWS = {1.75: (140, 225, 310, 425), 2.0: (300, 500, 700, 900), 3.0: (1500, 4000, 8000, 13000)}


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


EXPERIMENT = Experiment(
    name="trajectories",
    title="one problem trained from W = 0 at p = 1.75, 2 and 3, every step of the way",
    profiles={"quick": {"num_seeds": 1, "num_points": 100}},
    run=run,
)
