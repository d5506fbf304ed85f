"""The real-data figures of paper B, examined on stored records."""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]


def examine_curves(evidence: Evidence) -> Finding:
    names, loss = evidence["optimizer"].tolist(), evidence["loss"]
    plain, normalized = loss[names.index("SGD")], loss[names.index("SNGD")]
    steps = evidence["step"]
    # A run that never gets there counts as twice the steps that it had.
    reached = [
        steps[np.argmax(ours <= theirs[-1])] if (ours <= theirs[-1]).any() else 2 * steps[-1]
        for ours, theirs in zip(normalized, plain, strict=True)
    ]
    share = np.array(reached) / steps[-1]
    return Finding(
        [
            smaller("last training loss of SGD less that of SNGD", normalized[:, -1], plain[:, -1]),
            smaller("steps of SGD less those of SNGD to the same loss", share, np.ones_like(share)),
        ],
        f"SNGD reaches SGD's last loss after {np.mean(share):.0%} of the steps",
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
