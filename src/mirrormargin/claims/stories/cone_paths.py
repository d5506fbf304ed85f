"""Regularisation paths that are kept inside the cone of a locally optimal direction.

Axes: S paths, R radii.
"""

from __future__ import annotations

from mirrormargin.claims.checks import all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Story

__all__ = ["STORY"]

ARRAYS = {"divergence": "S R: D from the local max-margin solution"}


def examine_local_path(evidence: Evidence) -> Finding:
    D = evidence["divergence"][:, -1]
    return Finding(
        [all_at_most("D at the last radius", D, 1e-4)], f"D ≤ {D.max():.1e} on {len(D)} paths"
    )


CLAIMS = (
    Claim(
        id="A.thm.local-path",
        title="Restricted to a cone, the path goes to the local max-margin direction",
        statement="If the minimisation is restricted to the cone of a locally optimal direction,"
        " the path tends to that direction instead.",
        source="paper A, theorem on lp-AttRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        examine=examine_local_path,
        should_hold=False,
    ),
)

STORY = Story(
    name="cone-paths",
    title="paths inside a cone",
    arrays=ARRAYS,
    needs="a minimiser that keeps to a cone, which is not built",
    claims=CLAIMS,
)
