r"""Mirror descent with normalised steps on linearly separable data.

    u <- u - lr g / |g|_q,    from w = 0

Arrays (S = one for each p and seed; R recorded steps):
    steps (R,)                shared
    p, seed (S,)
    divergence (S, R)         D from the lp max-margin solution
    log_norm (S, R)           log |w|_p, natural
    margin (S, R)             least margin of a sample over |w|_p
    target_margin (S,)        that of the max-margin solution
    constant_divergence (S,)  D after as many steps with the constant rate 1
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds
from mirrormargin.claims.experiments.separable import (
    draw_rows,
    find_gradient,
    follow_flow,
    make_map,
)

__all__ = ["EXPERIMENT"]

# |w| ~ (lr k)^(1/(p-1)): rates that bring margins to the tens and hundreds at every p.
LR = {1.1: 0.01, 1.5: 0.03, 2.0: 0.1, 3.0: 1.0, 10.0: 1e8}


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    p, seed = part
    A = draw_rows(seed, settings["n"], settings["d"])
    target = mm.solve_decoder_svm(A, np.ones(len(A)), p, 1e-11)
    steps = np.unique(np.geomspace(1, settings["num_steps"], 50).round().astype(int))
    to_primal, q = make_map(p), p / (p - 1)
    u = np.zeros(A.shape[1])
    kept = {}
    for k in range(1, settings["num_steps"] + 1):
        u = u - LR[p] * find_gradient(A, to_primal(u), q)[0]
        if k in steps:
            kept[k] = u
    path = [to_primal(kept[int(k)]) for k in steps]
    end = np.log10(settings["num_steps"])
    _, constant = follow_flow(A, to_primal, q, end, [end])
    sizes = np.array([float(mm.LpPotential(p).norm(w)) for w in path])
    margins = np.array([(A @ w).min() for w in path])
    return {
        "steps": steps,
        "p": np.array([p]),
        "seed": np.array([seed]),
        "divergence": np.array([[float(mm.directional_divergence(target.v, w, p)) for w in path]]),
        "log_norm": np.log(sizes)[None],
        "margin": (margins / sizes)[None],
        "target_margin": np.array([target.margin]),
        "constant_divergence": np.array(
            [float(mm.directional_divergence(target.v, constant[-1], p))]
        ),
    }


EXPERIMENT = Experiment(
    name="linear-steps",
    title="mirror descent with normalised steps on separable data",
    profiles={
        "quick": {
            "num_seeds": 3,
            "p": [1.1, 1.5, 2.0, 3.0, 10.0],
            "n": 15,
            "d": 60,
            "num_steps": 3000,
        },
        "full": {
            "num_seeds": 20,
            "p": [1.1, 1.5, 2.0, 3.0, 10.0],
            "n": 15,
            "d": 60,
            "num_steps": 50_000,
        },
    },
    split=split,
    run=run,
    shared=("steps",),
)
