"""What a mirror step costs, against one of SGD.

Axes: E exponents, S repeats.
"""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Story

__all__ = ["STORY"]

ARRAYS = {
    "p": "E",
    "ratio": "E S: time of a mirror step over that of torch.optim.SGD",
}


def examine_overhead(evidence: Evidence) -> Finding:
    ratio = evidence["ratio"]
    return Finding(
        [
            all_at_most(
                "time of a mirror step over that of SGD, medians", np.median(ratio, axis=1), 2.5
            )
        ],
        ", ".join(
            f"{np.median(row):.2f} (p = {p:g})" for p, row in zip(evidence["p"], ratio, strict=True)
        ),
    )


CLAIMS = (
    Claim(
        id="C3.overhead",
        title="A mirror step costs hardly more than one of SGD",
        statement="Mirror descent with an lp potential runs with virtually no overhead over SGD.",
        source="C3, abstract",
        provenance=Provenance.SEEN,
        published="virtually no overhead",
        examine=examine_overhead,
        should_hold=False,
    ),
)

STORY = Story(
    name="overhead",
    title="steps timed against SGD",
    arrays=ARRAYS,
    needs="an idle machine (make bench times it)",
    claims=CLAIMS,
)
