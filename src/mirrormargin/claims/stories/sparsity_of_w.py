r"""The same problems at many p: how weight is spread over the entries of W.

Steps are as many as bring |W|_p / |W_mm|_p, the lead in logits, to about 100 at every p, from
|W_k|_p ~ (lr k)^(1/(p-1)).

Axes: S seeds; E exponents; d dimensions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mirrormargin.claims.checks import surely_smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, split_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_mean, find_median

__all__ = ["STORY"]

# |W_mm|_p falls with p, and (lr k)^(1/(p-1)) too: small p get there in few steps of small length.
LR = {1.1: 0.01, 1.25: 0.03, 1.5: 0.1, 1.75: 0.1, 2.0: 0.1, 3.0: 1.0, 5.0: 100.0, 10.0: 1e6}
SMALLEST = 1e-6  # of the largest entry: what is below is not drawn

ARRAYS = {
    "p": "E",
    "num_steps": "E",
    "seed": "S",
    "entries": "S E d*d: |W_ij| / max |W_ij|, the largest first",
    "target_entries": "S E d*d: the same of the max-margin solution",
    "l1_l2": "S E: |W|_1 / (d |W|_2): 1 if all entries are alike, 1/d for a single one",
    "hoyer": "S E: (d - |W|_1 / |W|_2) / (d - 1): 0 and 1 in these cases",
    "small": "S E: share of entries below 1% of the largest",
    "divergence": "S E: from the max-margin solution",
}


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


def examine_sparsity(evidence: Evidence) -> Finding:
    p, hoyer, small = evidence["p"], evidence["hoyer"], evidence["small"]
    names = [f"{value:g}" for value in p]
    checks = [
        surely_smaller(
            f"sparsity at p = {low} less that at p = {high}", hoyer[:, j + 1], hoyer[:, j]
        )
        for j, (low, high) in enumerate(pairwise(names))
    ]
    one, two = 0, names.index("2")
    return Finding(
        checks,
        f"Hoyer index {hoyer[:, one].mean():.2f} at p = {names[one]}, {hoyer[:, two].mean():.2f} at"
        f" p = 2; entries below 1% of the largest {small[:, one].mean():.0%} and"
        f" {small[:, two].mean():.0%}",
    )


CLAIMS = (
    Claim(
        id="A.sparsity",
        title="The smaller p, the sparser the trained W",
        statement="Mirror descent with p near 1 puts its weight on few entries of W, large p"
        " spreads it.",
        source="paper A, weight histograms of trained transformers",
        provenance=Provenance.DERIVED,
        published="sparser as p → 1",
        examine=examine_sparsity,
    ),
)


def draw_weights(evidence: Evidence) -> Figure:
    p, entries = evidence["p"], evidence["entries"]
    ranks = np.arange(1, entries.shape[-1] + 1, dtype=np.float64)
    lines = []
    for j, one in enumerate(p):
        middle = find_median(entries[:, j]).middle
        middle = np.where(middle >= SMALLEST, middle, np.nan)
        lines.append(Series(name_exponent(one), ranks, middle, group=name_exponent(one)))
    shares = (
        Series("‖W‖₁ / (d ‖W‖₂)", p, *find_mean(evidence["l1_l2"]), group="spread"),
        Series("entries below 1%", p, *find_mean(evidence["small"]), group="small", style="dashed"),
    )
    rows = tuple(
        (
            f"{one:g}",
            f"{evidence['l1_l2'][:, j].mean():.3f}",
            f"{evidence['hoyer'][:, j].mean():.3f}",
            f"{evidence['small'][:, j].mean():.1%}",
            f"{np.median(evidence['divergence'][:, j]):.2g}",
        )
        for j, one in enumerate(p)
    )
    return Figure(
        "weights",
        "How weight is spread over the entries of W",
        f"Left: entries of W by size, relative to the largest one, median over {entries.shape[0]}"
        " problems. Right: two measures of how evenly weight is spread, mean with 95% interval.",
        (
            Panel("entries by size", Axis("rank"), Axis("|W_ij| / largest", "log"), tuple(lines)),
            Panel("spread", Axis("p", "log"), Axis("share"), shares),
        ),
        table=Table(("p", "‖W‖₁ / (d ‖W‖₂)", "Hoyer", "entries below 1%", "median D"), rows),
    )


STORY = Story(
    name="weights",
    title="the same problems trained at p from 1.1 to 10: how sparse W becomes",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 20, "num_steps": 2000},
        "full": {"num_seeds": 100, "num_steps": 5000},
    },
    split=split_seeds,
    run=run,
    draw=(draw_weights,),
    claims=CLAIMS,
)
