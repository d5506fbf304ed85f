r"""W, and K and Q, trained from the small uniform starts of torch's linear layers.

Problems of n = 6 sequences of T = 8 tokens, d = 10; entries start uniform in +-1/sqrt(d), and steps
are normalised, of length 0.1.

Axes: S seeds, R recorded steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.arguments import Parameterization
from mirrormargin.claims.checks import mean_near, surely_smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, split_seeds

__all__ = ["STORY"]

DIM = 10

ARRAYS = {
    "steps": "R",
    "seed": "S",
    "attention": "S 2 R: mean attention on the most attended tokens, of W and of K Q'",
    "cosine": "S 2 2 R: of W, then of K Q' (axis 1), to the Frobenius solution and the nuclear"
    " one (axis 2) of the tokens selected in the end",
}


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, first=0, size=5)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.unit_sphere(seed) for seed in seeds]
    wanted = np.union1d(np.geomspace(1, settings["num_steps"], 50).round(), settings["marks"])
    bound = 1 / np.sqrt(DIM)
    attention, cosine = [], []
    factored: tuple[Parameterization, tuple[int, ...]] = ("KQ", (2, DIM, DIM))
    whole: tuple[Parameterization, tuple[int, ...]] = ("W", (DIM, DIM))
    for form, shape in (whole, factored):
        starts = [
            np.random.default_rng([seed, len(shape)]).uniform(-bound, bound, shape)
            for seed in seeds
        ]
        record = mm.train_attention(
            problems,
            parameterization=form,
            lr=0.1,
            num_steps=settings["num_steps"],
            init=np.stack(starts)[:, None, None],
            record=np.append(0, wanted).astype(int),
            keep_path=True,
            threads=1,
        )
        assert record.path is not None
        assert record.target is not None
        attention.append(record.attention[:, 0, 0])
        nuclear = [
            mm.solve_nuclear_svm(problem.tokens, problem.queries, tokens, threads=1).W
            for problem, tokens in zip(problems, record.final_selection[:, 0, 0], strict=True)
        ]
        targets = np.stack([record.target[:, 0, 0], np.stack(nuclear)], axis=1)
        cosine.append(_find_cosines(targets, record.path[:, 0, 0]))
    return {
        "steps": record.steps[0, 0, 0],
        "seed": np.array(seeds),
        "attention": np.stack(attention, axis=1),
        "cosine": np.stack(cosine, axis=1),
    }


def _find_cosines(targets: Any, path: Any) -> Any:
    products = np.einsum("stij,srij->str", targets, path)
    sizes = np.linalg.norm(targets, axis=(2, 3))[:, :, None]
    return products / (sizes * np.linalg.norm(path, axis=(2, 3))[:, None])


def examine_local(evidence: Evidence) -> Finding:
    steps, cosine = evidence["steps"], evidence["cosine"][:, 0]
    at = {step: int(np.searchsorted(steps, step)) for step in (80, 250)}
    frobenius, nuclear = cosine[:, 0, -1], cosine[:, 1, -1]
    W = evidence["attention"][:, 0, at[250]]
    factors = evidence["attention"][:, 1, at[80]]
    return Finding(
        [
            surely_smaller(
                "cosine to the Frobenius solution above that to the nuclear", nuclear, frobenius
            ),
            mean_near("cosine of W to the Frobenius solution", frobenius, 0.99, 0.02),
            mean_near("cosine of W to the nuclear solution", nuclear, 0.86, 0.02),
            mean_near("attention of W at step 250", W, 0.98, 0.02),
            mean_near("attention of K Q' at step 80", factors, 1.0, 0.02),
        ],
        f"cosine {frobenius.mean():.3f} and {nuclear.mean():.3f}; attention {W.mean():.3f} at step"
        f" 250, {factors.mean():.3f} at step 80",
    )


CLAIMS = (
    Claim(
        id="C2.fig.local",
        title="From small starts W aligns with the Frobenius solution, and attention saturates",
        statement="Averaged over problems, W has a higher cosine to the Frobenius solution than to"
        " the nuclear one, and attention goes to one token; with K and Q it does so faster.",
        source="C2, figures of local convergence",
        provenance=Provenance.SEEN,
        published="cosine 0.99 and 0.86; attention 1 by step 250 (W) and 80 (K, Q)",
        examine=examine_local,
    ),
)


STORY = Story(
    name="uniform-starts",
    title="W, and K and Q, trained from small uniform starts",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 2000, "marks": [80, 250]},
        "full": {"num_seeds": 100, "num_steps": 2000, "marks": [80, 250]},
    },
    split=split,
    run=run,
    claims=CLAIMS,
)
