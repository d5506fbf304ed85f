r"""Max-margin solutions in the Frobenius and the nuclear norm: do they exist, and of what rank?

Sequences of T unit tokens, as in the authors' program, for the tokens of the highest score. Where
nothing separates there is no solution; the authors' program then counts a rank of 1.

Arrays (S = one for each size and seed):
    n, T, d, seed (S,)
    separable (S,)             whether the tokens of the highest score can be selected
    rank (S, 2)                of the Frobenius and the nuclear solution, singular values above 1e-4
                               of the largest; 0 without a solution, -1 where it was not computed
    kept, dropped (S,)         the smallest singular value of the nuclear solution that counts, and
                               the largest that does not, over the largest; nan without one
    drawn_separable (S,)       the same for tokens drawn at random
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds

__all__ = ["EXPERIMENT"]

SINGULAR = 1e-4  # a singular value counts above this share of the largest


def split(settings: Settings) -> list[tuple[int, int, int]]:
    return [(n, T, d) for n, T in settings["sizes"] for d in settings["d"]]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    n, T, d = part
    seeds = list_seeds(settings, first=0)
    problems = [mm.synthetic.unit_sphere(seed, n, T, d) for seed in seeds]
    drawn = np.stack([np.random.default_rng([seed, 11]).integers(0, T, n) for seed in seeds])
    best = np.stack([problem.optimal_tokens for problem in problems])
    solved = mm.solve_many(
        problems, np.stack([best, drawn], axis=1)[:, None], threads=1, raise_on_failure=False
    )
    separable = np.asarray(solved.margin[:, 0] > 0)
    rank = np.zeros((len(seeds), 2), dtype=int)
    kept, dropped = np.full((2, len(seeds)), np.nan)
    for k in np.flatnonzero(separable[:, 0]):
        values = np.linalg.svd(solved.W[k, 0, 0], compute_uv=False)
        rank[k, 0] = (values > SINGULAR * values[0]).sum()
        if k < settings["num_nuclear"]:
            found = mm.solve_nuclear_svm(
                problems[k].tokens, problems[k].queries, best[k], threads=1
            )
            rank[k, 1] = found.rank
            shares = np.linalg.svd(found.W, compute_uv=False)
            shares /= shares[0]
            kept[k] = shares[found.rank - 1]
            dropped[k] = shares[found.rank] if found.rank < d else np.nan
        else:
            rank[k, 1] = -1
    sizes = {name: np.full(len(seeds), size) for name, size in (("n", n), ("T", T), ("d", d))}
    return {
        **sizes,
        "seed": np.array(seeds),
        "separable": separable[:, 0],
        "rank": rank,
        "kept": kept,
        "dropped": dropped,
        "drawn_separable": separable[:, 1],
    }


EXPERIMENT = Experiment(
    name="rank",
    title="ranks of max-margin solutions in the Frobenius and the nuclear norm",
    profiles={
        "quick": {
            "sizes": [[5, 5], [10, 5], [15, 5]],
            "d": [3, 4, 5, 10],
            "num_seeds": 100,
            "num_nuclear": 4,
        },
        "full": {
            "sizes": [[5, 5], [10, 5], [15, 5], [5, 10], [5, 15]],
            "d": [1, 2, 3, 4, 5, 10, 15, 20],
            "num_seeds": 100,
            "num_nuclear": 100,
        },
    },
    split=split,
    run=run,
)
