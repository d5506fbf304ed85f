r"""Mirror descent with normalised steps on linearly separable data.

    u <- u - lr g / |g|_q,    from w = 0

Axes: S runs, one for each p and seed; R recorded steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most, share_at_least, surely_smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories.separable import (
    draw_linear,
    draw_rows,
    find_gradient,
    follow_flow,
    make_map,
)
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

# |w| ~ (lr k)^(1/(p-1)): rates that bring margins to the tens and hundreds at every p.
LR = {1.1: 0.01, 1.5: 0.03, 2.0: 0.1, 3.0: 1.0, 10.0: 1e8}

ARRAYS = {
    "steps": "R",
    "p, seed": "S",
    "divergence": "S R: D from the lp max-margin solution",
    "log_norm": "S R: log |w|_p, natural",
    "margin": "S R: least margin of a sample over |w|_p",
    "target_margin": "S: that of the max-margin solution",
    "constant_divergence": "S: D after as many steps with the constant rate 1",
}


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


def examine_normalized(evidence: Evidence) -> Finding:
    from mirrormargin.dynamics import bound_holds

    log_k, D, p = np.log(evidence["steps"]), evidence["divergence"], evidence["p"]
    margins = evidence["margin"] * np.exp(evidence["log_norm"])
    values = np.maximum(D, 1e-16)  # in rounding D may come out as zero or below
    holds = []
    for row, r, m in zip(values, p, margins, strict=True):
        # Rates are about the end: before all samples have a margin, nothing has to fall.
        begin = float(np.log10(evidence["steps"][m > 1][0]))
        end = float(np.log10(evidence["steps"][-1]))
        middle = (begin + end) / 2
        rate = _find_rate(float(r))
        holds.append(bound_holds(log_k, row, rate, (begin, middle), (middle, end)).holds)
    constant = evidence["constant_divergence"]
    return Finding(
        [
            share_at_least("runs whose D stays below the rate", holds),
            surely_smaller(
                "log D: normalised steps below constant ones",
                np.log(values[:, -1]),
                np.log(constant),
            ),
            all_at_most("D at the end, as a share of D after a step", D[:, -1] / D[:, 0], 0.1),
        ],
        f"D after {evidence['steps'][-1]} steps "
        + ", ".join(
            f"{D[p == r, -1].mean():.1e}, constant {constant[p == r].mean():.1e} (p = {r:g})"
            for r in np.unique(p)
        ),
        "The exponents follow from |w| ~ k^(1/(p-1)): k^-1 up to p = 2, with a logarithm there, and"
        " k^(-1/(p-1)) above. Their factors are set from the step on at which every sample has a"
        " margin of 1",
    )


def _find_rate(p: float) -> Callable[[Any], Any]:
    if p == 2:
        return lambda log_k: log_k * np.exp(-log_k)
    return lambda log_k: np.exp(-min(1.0, 1 / (p - 1)) * log_k)


CLAIMS = (
    Claim(
        id="C4.thm.normalized",
        title="Normalised steps have the same limit and get there at a polynomial rate",
        statement="If steps are divided by the norm of the gradient, the direction converges to the"
        " same max-margin solution, with a divergence that falls like a power of k, not of log k.",
        source="C4, theorem on normalised mirror descent",
        provenance=Provenance.RECALLED,
        published="polynomial in k",
        examine=examine_normalized,
        figures=("linear",),
    ),
)


def draw_steps(evidence: Evidence) -> Figure:
    p, steps, divergence = (evidence[name] for name in ("p", "steps", "divergence"))
    lines = tuple(
        Series(
            name_exponent(one), steps, *find_median(divergence[p == one]), group=name_exponent(one)
        )
        for one in np.unique(p)
    )
    return draw_linear(Panel("normalised steps, lp", Axis("step", "log"), Axis("D", "log"), lines))


STORY = Story(
    name="linear-steps",
    title="mirror descent with normalised steps on separable data",
    arrays=ARRAYS,
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
    early=True,
    draw=(draw_steps,),
    claims=CLAIMS,
)
