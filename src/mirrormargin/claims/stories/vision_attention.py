r"""A vision transformer trained on CIFAR-10: do its attention maps become sparser?

Axes: R epochs, L layers.
"""

from __future__ import annotations

from mirrormargin.claims.checks import smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Story

__all__ = ["STORY"]


ARRAYS = {
    "epoch": "R: from 0, before training, to 400",
    "spread": "R L: mean over test images, heads and queries of 1 / (T |s|_2^2): the share of the"
    " tokens that attention is spread over",
    "accuracy": "R: on the test set, of 1",
}


def examine_vision(evidence: Evidence) -> Finding:
    spread = evidence["spread"]
    return Finding(
        [
            smaller("fall of the spread of attention, by layer", spread[-1], spread[0]),
        ],
        f"spread of attention {spread[0].mean():.2f} before and {spread[-1].mean():.2f} after",
    )


CLAIMS = (
    Claim(
        id="C1.fig.vit",
        title="The attention maps of a vision transformer become sparser in training",
        statement="In a ViT-base trained on CIFAR-10 from scratch attention concentrates on ever"
        " fewer tokens.",
        source="C1, figure of attention maps",
        provenance=Provenance.SEEN,
        published="sparser; no numbers",
        should_hold=False,
        examine=examine_vision,
    ),
)


STORY = Story(
    name="vision-attention",
    title="attention maps of a vision transformer along its training on CIFAR-10",
    arrays=ARRAYS,
    needs="400 epochs of a ViT-base on CIFAR-10 from scratch, on a GPU",
    claims=CLAIMS,
)
