r"""The least loss on lp balls of growing radius, for a fixed head.

Arrays (S = paths, one for each seed and p; R radii):
    p, seed (S,)
    radii (S, R)
    divergence (S, R)             from the max-margin solution of the optimal tokens
    margin (S, R)                 least lead of an optimal token over |W|_p
    target_margin (S,)            that of the max-margin solution
    log_loss_gap (S, R)           natural log
    residual, curvature (S, R)    the certificate of each point
    is_certified (S, R), selects_optimal (S, R)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds

__all__ = ["EXPERIMENT"]


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


EXPERIMENT = Experiment(
    name="paths",
    title="regularisation paths of a fixed head, to a loss within 1e-300 of its floor",
    profiles={
        "quick": {"num_seeds": 3, "p": [1.5, 2.0, 3.0], "num_radii": 30},
        "full": {"num_seeds": 10, "p": [1.1, 1.5, 2.0, 3.0, 5.0], "num_radii": 40},
    },
    split=split,
    run=run,
)
