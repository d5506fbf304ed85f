"""The real-data figures of paper B, examined on stored records."""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import share_at_least, sizes_as_published, smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.curves import NEVER, compare_steps, smooth
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]


def examine_curves(evidence: Evidence) -> Finding:
    names, steps = evidence["optimizer"].tolist(), evidence["step"]
    plain, normalized = (evidence["loss"][names.index(name)] for name in ("SGD", "SNGD"))
    share = compare_steps(steps, normalized, plain)
    is_reached = share < NEVER
    configurations = evidence.settings.get("configurations", [])
    return Finding(
        [
            smaller(
                "last training loss of SGD less that of SNGD",
                smooth(normalized)[:, -1],
                smooth(plain)[:, -1],
            ),
            share_at_least("trainings in which SNGD reaches SGD's last loss", is_reached),
            smaller(
                "share of the steps that SNGD saves until SGD's last loss",
                share,
                np.ones_like(share),
            ),
            sizes_as_published(configurations),
        ],
        f"SNGD reaches SGD's last loss after {np.mean(share):.0%} of the steps"
        if is_reached.all()
        else f"SNGD reaches SGD's last loss in {is_reached.sum()} of {share.size} trainings",
        f"{', '.join(configurations)}; {share.size} seed{'s' * (share.size > 1)}. Losses are"
        " averaged over a tenth of the training before they are compared; learning rates are those"
        " with the best validation accuracy.",
    )


CLAIMS = tuple(
    Claim(
        id=f"B.fig.{name}",
        title=f"On {data} normalised stochastic steps train faster than SGD",
        statement=f"{model} on {data}, normalised mini-batch steps lower the training loss faster"
        " than plain ones.",
        source=f"paper B, figure of {data}",
        provenance=Provenance.SEEN,
        published="SNGD faster than SGD",
        experiment=name,
        examine=examine_curves,
        figures=(name,),
        should_hold=False,
    )
    for name, data, model in (
        ("mnli", "MultiNLI", "Fine-tuning BERT"),
        ("civil", "CivilComments", "Fine-tuning BERT"),
        ("mnist", "MNIST", "Training"),
        ("cifar10", "CIFAR-10", "Training a small ViT"),
    )
)
