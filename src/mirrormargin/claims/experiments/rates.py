r"""Mirror descent with a small constant rate, followed over hundreds of decades of steps.

Arrays (S = flows, one for each seed and p; R recorded points):
    p, seed (S,)
    log10_k (S, R)            decades of steps
    divergence, norm (S, R)   D from the max-margin solution, and |W|_p
    log_loss_gap (S, R)       natural log
    log_unattended (S, R)
    margin (S,)               of the max-margin solution of the tokens that are selected in the end
    followed (S,)             whether the flow got to the end and settled
    decades (1,)              shared
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
    flow = mm.mirror_flow(
        mm.synthetic.unit_sphere(seed), p, decades=settings["decades"], record=settings["record"]
    )
    return {
        "p": np.array([p]),
        "seed": np.array([seed]),
        "log10_k": flow.log10_k[None],
        "divergence": flow.divergence[None],
        "norm": flow.norm[None],
        "log_loss_gap": flow.log_loss_gap[None],
        "log_unattended": flow.log_unattended[None],
        "margin": 1 / mm.LpPotential(p).norm(flow.target).reshape(1),
        "followed": np.array([flow.status == "followed to the end"]),
        "decades": np.array([settings["decades"]]),
    }


EXPERIMENT = Experiment(
    name="rates",
    title="mirror descent with a small constant rate, over 300 decades of steps",
    profiles={
        "quick": {"num_seeds": 2, "p": [1.25, 1.75, 2.0, 3.0, 5.0], "decades": 300, "record": 1},
        "full": {
            "num_seeds": 10,
            "p": [1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0],
            "decades": 300,
            "record": 1,
        },
    },
    split=split,
    run=run,
    shared=("decades",),
)
