r"""Deep networks trained by mirror descent on CIFAR-10 at p = 1.1, 2, 3 and 10.

Axes: N networks, E exponents, S seeds.
"""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Story

__all__ = ["STORY"]


ARRAYS = {
    "network": 'N: names, such as "resnet18"',
    "p": "E",
    "accuracy": "N E S: on the test set, of 1",
    "small": "N E S: share of weights below 1% of the largest of their tensor",
    "l1_l2": "N E S: |w|_1 / (sqrt(size) |w|_2) of all weights: 1 if all are alike",
}


def examine_deep(evidence: Evidence) -> Finding:
    p = evidence["p"].tolist()
    accuracy, small, spread = (
        np.moveaxis(evidence[name], 1, 0) for name in ("accuracy", "small", "l1_l2")
    )
    at = {r: p.index(r) for r in (1.1, 2.0, 3.0, 10.0)}
    return Finding(
        [
            smaller("share of small weights: p = 1.1 above p = 2", small[at[2.0]], small[at[1.1]]),
            smaller("|w|_1 / |w|_2: p = 10 above p = 2", spread[at[2.0]], spread[at[10.0]]),
            smaller("accuracy: p = 3 above p = 2", accuracy[at[2.0]], accuracy[at[3.0]]),
        ],
        "accuracy " + ", ".join(f"{accuracy[i].mean():.3f} (p = {r:g})" for r, i in at.items()),
    )


CLAIMS = (
    Claim(
        id="C3.fig.deep",
        title="Deep networks on CIFAR-10: p = 3 generalises best, p = 1.1 is sparsest",
        statement="Trained by mirror descent on CIFAR-10, four networks generalise best at p = 3,"
        " have the sparsest weights at p = 1.1 and the most equal ones at p = 10.",
        source="C3, tables and histograms of deep networks",
        provenance=Provenance.RECALLED,
        published="",
        should_hold=False,
        examine=examine_deep,
    ),
    Claim(
        id="C4.fig.deep",
        title="The same on images with other potentials",
        statement="On MNIST, CIFAR-10 and ImageNet, too, the potential shapes the weights of"
        " trained networks and how they generalise.",
        source="C4, experiments with deep networks",
        provenance=Provenance.RECALLED,
        published="",
        examine=examine_deep,
        should_hold=False,
    ),
)


STORY = Story(
    name="deep-networks",
    title="deep networks trained by mirror descent on CIFAR-10",
    arrays=ARRAYS,
    needs="VGG-11, ResNet-18, MobileNet-v2 and RegNet trained on CIFAR-10 at four p, on a GPU",
    claims=CLAIMS,
)
