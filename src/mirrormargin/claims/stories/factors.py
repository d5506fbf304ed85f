r"""K and Q trained instead of W = K Q', by normalised gradient descent.

Axes: S seeds, R recorded steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.arguments import Parameterization
from mirrormargin.claims.checks import mean_at_least, surely_smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds, split_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_mean

__all__ = ["STORY"]

DIM = 10
TRAINED = ("W", "K Qᵀ")
SOLUTIONS = ("Frobenius solution", "nuclear-norm solution")

ARRAYS = {
    "steps": "R",
    "seed": "S",
    "cosine": "S 2 2: of trained W, then of K Q' (axis 1), to the Frobenius solution and the"
    " nuclear-norm one (axis 2) of the tokens that the run selects",
    "attention": "S 2 R: mean attention on the selected tokens, of W and of K Q'",
    "rank": "S 2 2: of both solutions (axis 2), singular values above 1e-7 of the largest",
}


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, size=5)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.unit_sphere(seed) for seed in seeds]
    indices = [list_seeds(settings).index(seed) for seed in seeds]
    normal = mm.NormalInit(std=1.0, seeds=settings["seed"])
    cosine, rank, attention = [], [], []
    factored: tuple[Parameterization, tuple[int, ...]] = ("KQ", (2, DIM, DIM))
    whole: tuple[Parameterization, tuple[int, ...]] = ("W", (DIM, DIM))
    for form, shape in (whole, factored):
        starts = normal.draw(settings["num_seeds"], np.array([2.0]), shape)[indices]
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


def examine_frobenius(evidence: Evidence) -> Finding:
    frobenius, nuclear = evidence["cosine"][:, 0].T
    return Finding(
        [
            mean_at_least("cosine of W to the Frobenius solution", frobenius, 0.98),
            surely_smaller(
                "cosine to the Frobenius solution above that to the nuclear", nuclear, frobenius
            ),
        ],
        f"cosine {frobenius.mean():.3f} to the Frobenius solution, {nuclear.mean():.3f} to the"
        " nuclear one",
    )


def examine_nuclear(evidence: Evidence) -> Finding:
    frobenius, nuclear = evidence["cosine"][:, 1].T
    return Finding(
        [
            mean_at_least("cosine of K Q' to the nuclear solution", nuclear, 0.95),
            surely_smaller(
                "cosine to the nuclear solution above that to the Frobenius", frobenius, nuclear
            ),
        ],
        f"cosine {nuclear.mean():.3f} to the nuclear solution, {frobenius.mean():.3f} to the"
        " Frobenius one",
    )


CLAIMS = (
    Claim(
        id="C2.thm.frobenius",
        title="W goes to the max-margin solution in the Frobenius norm",
        statement="Gradient descent on the key-query matrix W, here with normalised steps,"
        " converges in direction to the Frobenius max-margin solution of the tokens it selects.",
        source="C2, theorem on training W",
        provenance=Provenance.SEEN,
        published="cosine → 1",
        examine=examine_frobenius,
    ),
    Claim(
        id="C2.thm.nuclear",
        title="K Q' goes to the max-margin solution in the nuclear norm",
        statement="If K and Q are trained in place of W, with a vanishing penalty on both, here"
        " none, K Q' converges in direction to the solution of least nuclear norm.",
        source="C2, theorem on training K and Q",
        provenance=Provenance.SEEN,
        published="cosine → 1",
        examine=examine_nuclear,
    ),
)


def draw_factors(evidence: Evidence) -> Figure:
    cosine, attention, steps = (evidence[name] for name in ("cosine", "attention", "steps"))
    x = np.arange(len(TRAINED), dtype=np.float64)
    bars = tuple(
        Series(name, x, *find_mean(cosine[:, :, k]), style="bars", group=name)
        for k, name in enumerate(SOLUTIONS)
    )
    lines = tuple(
        Series(f"trained {name}", steps, *find_mean(attention[:, k]), group=f"trained {name}")
        for k, name in enumerate(TRAINED)
    )
    ticks = tuple(f"trained {name}" for name in TRAINED)
    return Figure(
        "factors",
        "K and Q trained in place of W, against two solutions",
        f"Left: cosine of what was trained to two solutions for the tokens it selects. Right: mean"
        f" attention on these tokens. Means over {cosine.shape[0]} problems with 95% intervals.",
        (
            Panel("direction", Axis("", ticks=ticks), Axis("cosine"), bars),
            Panel("attention", Axis("step", "log"), Axis("attention"), lines),
        ),
    )


STORY = Story(
    name="factors",
    title="K and Q trained in place of W, against the nuclear-norm and Frobenius solutions",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 2000, "num_points": 60},
        "full": {"num_seeds": 100, "num_steps": 5000, "num_points": 60},
    },
    split=split,
    run=run,
    draw=(draw_factors,),
    claims=CLAIMS,
)
