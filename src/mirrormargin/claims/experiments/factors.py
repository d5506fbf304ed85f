r"""K and Q trained in place of W = K Q', by normalised gradient descent.

Arrays (S seeds, R recorded steps):
    steps (R,)                    shared
    seed (S,)
    cosine (S, 2, 2)              of trained W, then of K Q' (axis 1), to the Frobenius solution and
                                  the nuclear-norm one (axis 2) of the tokens that the run selects
    attention (S, 2, R)           mean attention on the selected tokens, of W and of K Q'
    rank (S, 2, 2)                of both solutions (axis 2), singular values above 1e-7 of the
                                  largest
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds, split_seeds

__all__ = ["EXPERIMENT"]

DIM = 10


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, size=5)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.unit_sphere(seed) for seed in seeds]
    places = [list_seeds(settings).index(seed) for seed in seeds]
    normal = mm.NormalInit(std=1.0, seeds=settings["seed"])
    cosine, rank, attention = [], [], []
    for form, shape in (("W", (DIM, DIM)), ("KQ", (2, DIM, DIM))):
        starts = normal.draw(settings["num_seeds"], np.array([2.0]), shape)[places]
        record = mm.train_attention(
            problems,
            parameterization=form,
            lr=0.1,
            num_steps=settings["num_steps"],
            init=starts,
            record=settings["num_points"],
            threads=1,
        )
        assert record.target is not None
        pairs = [
            (
                frobenius[0, 0],
                mm.solve_nuclear_svm(problem.tokens, problem.queries, tokens[0, 0]).W,
            )
            for problem, frobenius, tokens in zip(
                problems, record.target, record.final_selection, strict=True
            )
        ]
        cosine.append(
            [
                [1 - float(mm.directional_divergence(U, W[0, 0], 2.0)) for U in pair]
                for pair, W in zip(pairs, record.W, strict=True)
            ]
        )
        rank.append([[_find_rank(U) for U in pair] for pair in pairs])
        attention.append(record.attention[:, 0, 0])
    return {
        "steps": record.steps[0, 0, 0],
        "seed": np.array(seeds),
        "cosine": np.stack(cosine, axis=1),
        "attention": np.stack(attention, axis=1),
        "rank": np.stack(rank, axis=1),
    }


def _find_rank(U: Any) -> int:
    values = np.linalg.svd(U, compute_uv=False)
    return int((values > 1e-7 * values[0]).sum())


EXPERIMENT = Experiment(
    name="factors",
    title="K and Q trained in place of W, against the nuclear-norm and Frobenius solutions",
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 2000, "num_points": 60},
        "full": {"num_seeds": 100, "num_steps": 5000, "num_points": 60},
    },
    split=split,
    run=run,
    shared=("steps",),
)
