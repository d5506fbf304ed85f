r"""Mirror descent with a small constant rate, followed over hundreds of decades of steps.

Axes: S flows, one for each seed and p; R recorded points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

REGIMES = (("p below 2", 1.0, 2.0), ("p = 2", 2.0, 2.0), ("p above 2", 2.0, np.inf))

ARRAYS = {
    "p, seed": "S",
    "log10_k": "S R: decades of steps",
    "divergence, norm": "S R: D from the max-margin solution, and |W|_p",
    "log_loss_gap, log_unattended": "S R: natural logs",
    "margin": "S: of the max-margin solution of the tokens that are selected in the end",
    "followed": "S: whether the flow got to the end and settled",
    "decades": "1: how many were asked for",
}


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


def examine_rate(evidence: Evidence) -> Finding:
    from mirrormargin.dynamics import bound_holds, claimed_rate
    from mirrormargin.dynamics.rates import choose_windows

    early, late = choose_windows(float(evidence["decades"][0]))
    holds, exponents = [], {}
    for p, log10_k, D in zip(
        evidence["p"], evidence["log10_k"], evidence["divergence"], strict=True
    ):
        _, rate = claimed_rate(float(p))
        used = log10_k >= 1
        log_k = np.log(10) * log10_k[used]
        holds.append(bound_holds(log_k, D[used], rate, early, late).holds)
        last = log10_k[used] >= late[0]
        slope = np.polyfit(np.log(log_k[last]), np.log(D[used][last]), 1)[0]
        exponents.setdefault(float(p), []).append(-slope)
    found = ", ".join(f"{np.mean(values):.2f} (p = {p:g})" for p, values in exponents.items())
    return Finding(
        [
            share_at_least("flows followed to the end", evidence["followed"]),
            share_at_least("flows within the bound of their early decades", holds),
        ],
        f"bound holds in {sum(holds)} of {len(holds)}; D ~ (log k)^-a, a = {found}",
    )


def examine_growth(evidence: Evidence) -> Finding:
    log_k = np.log(10) * evidence["log10_k"][:, -1]
    lead = evidence["norm"][:, -1] * evidence["margin"] / log_k
    return Finding(
        [
            all_at_least("|W|_p / (|W_mm|_p log k) at the end, least", lead, 0.8),
            all_at_most("the same, largest", lead, 1.2),
        ],
        f"|W|_p / (|W_mm|_p log k) from {lead.min():.3f} to {lead.max():.3f}",
    )


CLAIMS = (
    Claim(
        id="A.thm.rate",
        title="The divergence falls poly-logarithmically, with three cases of p",
        statement="With a small constant rate, D is O((log k)^-(p-1)) for p < 2,"
        " O(log log k / log k) at p = 2 and O(1 / log k) for p > 2.",
        source="paper A, theorem on the rate",
        provenance=Provenance.RECALLED,
        published="O((log k)^-(p-1)), O(log log k / log k), O(1 / log k)",
        examine=examine_rate,
    ),
    Claim(
        id="A.thm.growth",
        title="With a constant rate the norm grows like log k",
        statement="The key step of the rate: |W_k|_p = Theta(log k) when steps are not normalised.",
        source="paper A, proof of the rate",
        provenance=Provenance.RECALLED,
        published="Θ(log k)",
        examine=examine_growth,
    ),
)


def draw_rates(evidence: Evidence) -> Figure:
    from mirrormargin.dynamics.figures import draw_bound

    p = evidence["p"]
    regimes = []
    for title, low, high in REGIMES:
        inside = (p == 2) if low == high else (p > low) & (p < high)
        if inside.any():
            regimes.append((title, np.unique(p[inside])))
    settling, growing = [], []
    for title, exponents in regimes:
        lines: list[Series] = []
        norms: list[Series] = []
        for one in exponents:
            flows = p == one
            x, group = evidence["log10_k"][flows][0], name_exponent(one)
            spread = find_median(evidence["divergence"][flows])
            lines.append(Series(group, x, *spread, group=group))
            most = spread.middle if spread.high is None else spread.high
            lines.append(draw_bound(x, most, one))
            norms.append(Series(group, x, *find_median(evidence["norm"][flows]), group=group))
        settling.append(Panel(title, Axis("log₁₀ k", "log"), Axis("D", "log"), tuple(lines)))
        axes = Axis("log₁₀ k", "log"), Axis("‖W‖ₚ", "log")
        growing.append(Panel(f"norm, {title}", *axes, tuple(norms)))
    count = len(np.unique(evidence["seed"]))
    return Figure(
        "rates",
        "How fast the direction settles, against the proven rate",
        f"Top: divergence D from the max-margin direction after k steps, median of {count} problems"
        " with the least and the largest. Dashed: the proven class, scaled so that it touches the"
        " largest D from above; only its slope is claimed. Bottom: the norm of W, which should grow"
        " like log k.",
        (*settling, *growing),
        columns=len(regimes),
    )


STORY = Story(
    name="rates",
    title="mirror descent with a small constant rate, over 300 decades of steps",
    arrays=ARRAYS,
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
    early=True,
    draw=(draw_rates,),
    claims=CLAIMS,
)
