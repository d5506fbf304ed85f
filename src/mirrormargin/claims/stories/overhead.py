"""What training with mirror descent costs, against SGD.

A transformer of the size of ``imdb/small`` trains on random tokens, one step with each optimizer in
turn and in another order each time, so that a busy moment hits them alike; what counts is the ratio
within a round.

Axes: E exponents, S rounds.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story

__all__ = ["STORY"]

ARRAYS = {
    "p": "E",
    "ratio": "E S: time of a mirror step over that of torch.optim.SGD",
    "training_ratio": "E S: the same with the forward and backward pass",
}
BATCH = 16


def run(settings: Settings, part: Any) -> Arrays:
    import torch

    from mirrormargin import MirrorDescent
    from mirrormargin.models import TextTransformer
    from mirrormargin.training import find_configuration
    from mirrormargin.training.config import TextModel
    from mirrormargin.training.evaluation import compute_loss

    config = find_configuration("imdb/small")
    assert isinstance(config.model, TextModel)
    length, vocab_size = config.data.length or 512, config.data.vocab_size or 30_522
    draws = torch.Generator().manual_seed(settings["seed"])
    ids = torch.randint(4, vocab_size, (BATCH, length), dtype=torch.int32, generator=draws)
    labels = torch.randint(0, 2, (BATCH,), generator=draws)
    models, optimizers = [], []
    for p in (None, *settings["p"]):  # None for SGD
        models.append(TextTransformer(vocab_size, length=length, **vars(config.model)))
        weights = models[-1].parameters()
        optimizers.append(
            torch.optim.SGD(weights, 1e-9) if p is None else MirrorDescent(weights, 1e-9, p=p)
        )

    def train(k: int) -> tuple[float, float]:
        """Seconds of the step alone and of all."""
        start = time.perf_counter()
        optimizers[k].zero_grad()
        compute_loss(models[k](ids), labels, config.reduction).backward()
        middle = time.perf_counter()
        optimizers[k].step()
        end = time.perf_counter()
        return end - middle, end - start

    count = len(models)
    for k in range(count):  # compilation, allocation
        train(k)
    seconds = np.empty((2, count, settings["num_rounds"]))
    for j in range(settings["num_rounds"]):
        for k in np.roll(np.arange(count), j).tolist():
            seconds[:, k, j] = train(k)
    ratios = seconds[:, 1:] / seconds[:, :1]
    return {"p": np.array(settings["p"]), "ratio": ratios[0], "training_ratio": ratios[1]}


def examine_overhead(evidence: Evidence) -> Finding:
    step, whole = (
        np.median(evidence[name], axis=1, keepdims=True) for name in ("ratio", "training_ratio")
    )
    return Finding(
        [all_at_most("time of a training step over that with SGD, medians", whole, 1.1)],
        ", ".join(f"{b:.2f} (p = {p:g})" for p, b in zip(evidence["p"], whole[:, 0], strict=True)),
        "Forward and backward pass included. The optimizer's part alone is "
        + ", ".join(f"{a:.1f}" for a in step[:, 0])
        + " times SGD's: a power of every weight costs more than a sum, and both are a small part"
        " of the time",
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
    profiles={
        "quick": {"p": [1.1, 2.0, 3.0, 10.0], "num_rounds": 9},
        "full": {"p": [1.1, 1.5, 2.0, 3.0, 10.0], "num_rounds": 60},
    },
    run=run,
    claims=CLAIMS,
)
