r"""Where training at p ends, from random starts, and how far that is from the solutions at other q.

    own     D(W_mm^q(tokens of the run at q), W_p)       same    D(W_mm^q(tokens of this run), W_p)

Both with the published "+ eps" in the normaliser and without, along the whole of each run.

Arrays (S seeds; A = published, safe; E = p, Q = q in 1.75, 2, 3; R recorded steps):
    p (E,), steps (E, R)           shared
    seed (S,)
    own, same (S, A, E, Q, R)      divergence of the run at p from the solution at q
    norm (S, A, E, R)              |W|_p
    attention (S, A, E, R)         mean attention on the selected tokens
    kind (S, A, E)                 "global", "local", "unsettled" or "unknown": where the run ended
    optimal (S, A, E)              share of sequences that select their optimal token
    agreement (S, A, E, Q)         share of sequences where the runs at p and q select the same
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds, split_seeds

__all__ = ["EXPERIMENT"]

EPS = float(np.finfo(np.float64).eps)
STEPS = {1.75: 1500, 2.0: 2000, 3.0: 20000}  # as published
DIM = 10


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm
    from mirrormargin.dynamics.descent.targets import solve_targets

    exponents = list(STEPS)
    problems = [mm.synthetic.unit_sphere(seed) for seed in seeds]
    # A start depends on the problem's place among all seeds, not on how they are split.
    places = [list_seeds(settings).index(seed) for seed in seeds]
    starts = mm.NormalInit(std=1.0, seeds=settings["seed"]).draw(
        settings["num_seeds"], np.array(exponents), (DIM, DIM)
    )[places]
    runs = []
    for eps in (EPS, 0.0):
        record = mm.train_attention(
            problems,
            exponents,
            lr=0.1,
            num_steps=list(STEPS.values()),
            init=starts,
            record=settings["num_points"],
            eps=eps,
            keep_path=True,
            target_tol=1e-10,
            threads=1,
        )
        chosen = record.final_selection
        at_own = solve_targets(record.problems, chosen, tuple(exponents), 1e-10)
        own, same = [], []
        for j in range(len(exponents)):  # q
            at_same = solve_targets(
                record.problems, chosen, tuple([exponents[j]] * len(exponents)), 1e-10
            )
            own.append(record.divergence_from(at_own[:, j : j + 1])[:, :, 0])
            same.append(record.divergence_from(at_same)[:, :, 0])
        best = np.stack([problem.optimal_tokens for problem in problems])[:, None]
        runs.append(
            {
                "own": np.stack(own, axis=2),
                "same": np.stack(same, axis=2),
                "norm": record.norm[:, :, 0],
                "attention": record.attention[:, :, 0],
                "kind": mm.basin_statistics(record, threads=1).kinds[:, :, 0],
                "optimal": (chosen[:, :, 0] == best).mean(axis=-1),
                "agreement": (chosen[:, :, None, 0] == chosen[:, None, :, 0]).mean(axis=-1),
            }
        )
    steps = record.steps[0, :, 0]
    return {
        "p": np.array(exponents),
        "steps": steps,
        "seed": np.array(seeds),
        **{name: np.stack([one[name] for one in runs], axis=1) for name in runs[0]},
    }


EXPERIMENT = Experiment(
    name="directions",
    title="normalised mirror descent on random problems at p = 1.75, 2 and 3, from random starts",
    profiles={
        "quick": {"num_seeds": 30, "num_points": 40},
        "full": {"num_seeds": 100, "num_points": 60},
    },
    split=split_seeds,
    run=run,
    shared=("p", "steps"),
)
