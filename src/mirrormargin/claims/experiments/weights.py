r"""The same problems at many p: how weight is spread over the entries of W.

Steps are as many as bring |W|_p / |W_mm|_p, the lead in logits, to about 100 at every p, from
|W_k|_p ~ (lr k)^(1/(p-1)).

Arrays (S seeds, E exponents):
    p (E,), num_steps (E,)      shared
    seed (S,)
    entries (S, E, d * d)       |W_ij| / max |W_ij|, the largest first
    target_entries (S, E, d*d)  the same of the max-margin solution
    l1_l2 (S, E)                |W|_1 / (d |W|_2): 1 if all entries are alike, 1/d for a single one
    hoyer (S, E)                (d - |W|_1 / |W|_2) / (d - 1): 0 and 1 in these cases
    small (S, E)                share of entries below 1% of the largest
    divergence (S, E)           from the max-margin solution
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import split_seeds

__all__ = ["EXPERIMENT"]

# |W_mm|_p falls with p, and (lr k)^(1/(p-1)) too: small p get there in few steps of small length.
LR = {1.1: 0.01, 1.25: 0.03, 1.5: 0.1, 1.75: 0.1, 2.0: 0.1, 3.0: 1.0, 5.0: 100.0, 10.0: 1e6}


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.unit_sphere(seed) for seed in seeds]
    exponents = list(LR)
    record = mm.train_attention(
        problems,
        exponents,
        lr=list(LR.values()),
        num_steps=settings["num_steps"],
        record=1,
        threads=1,
    )
    assert record.target is not None
    assert record.divergence is not None
    W, target = (
        array[:, :, 0].reshape(len(seeds), len(exponents), -1)
        for array in (record.W, record.target)
    )
    d = problems[0].dim
    ratio = np.abs(W).sum(axis=-1) / np.linalg.norm(W, axis=-1)
    entries, target_entries = (_rank(array) for array in (W, target))
    return {
        "p": np.array(exponents),
        "num_steps": np.full(len(exponents), settings["num_steps"]),
        "seed": np.array(seeds),
        "entries": entries,
        "target_entries": target_entries,
        "l1_l2": ratio / d,
        "hoyer": (d - ratio) / (d - 1),
        "small": (entries < 0.01).mean(axis=-1),
        "divergence": record.divergence[:, :, 0, -1],
    }


def _rank(W: Any) -> Any:
    size = -np.sort(-np.abs(W), axis=-1)
    return size / size[..., :1]


EXPERIMENT = Experiment(
    name="weights",
    title="the same problems trained at p from 1.1 to 10: how sparse W becomes",
    profiles={
        "quick": {"num_seeds": 20, "num_steps": 2000},
        "full": {"num_seeds": 100, "num_steps": 5000},
    },
    split=split_seeds,
    run=run,
    shared=("p", "num_steps"),
)
