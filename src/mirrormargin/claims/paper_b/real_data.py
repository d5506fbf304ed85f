"""The real-data figures of paper B, examined on stored records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.checks import smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]


def examine_curves(evidence: Evidence) -> Finding:
    names, steps = evidence["optimizer"].tolist(), evidence["step"]
    plain, normalized = (smooth(evidence["loss"][names.index(name)]) for name in ("SGD", "SNGD"))
    # A run that never gets there counts as twice the steps that it had.
    shares = []
    for theirs, ours in zip(plain, normalized, strict=True):
        first = [
            steps[np.argmax(curve <= theirs[-1])] if (curve <= theirs[-1]).any() else 2 * steps[-1]
            for curve in (ours, theirs)
        ]
        shares.append(first[0] / first[1])
    share = np.array(shares)
    return Finding(
        [
            smaller("last training loss of SGD less that of SNGD", normalized[:, -1], plain[:, -1]),
            smaller("steps of SGD less those of SNGD to the same loss", share, np.ones_like(share)),
        ],
        f"SNGD reaches SGD's last loss after {np.mean(share):.0%} of the steps",
        "Losses are averaged over a tenth of the training before they are compared; learning rates"
        " are those with the best validation accuracy.",
    )


def smooth(loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each value with those before it, a tenth of the course: single rows are noisy."""
    width = max(1, loss.shape[-1] // 10)
    total = np.cumsum(np.pad(loss, ((0, 0), (1, 0))), axis=-1)
    start = np.maximum(np.arange(loss.shape[-1]) + 1 - width, 0)
    end = np.arange(loss.shape[-1]) + 1
    return (total[:, end] - total[:, start]) / (end - start)


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
