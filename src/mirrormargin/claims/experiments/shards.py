r"""One tensor stepped whole, and in pieces that know nothing of each other.

Gradients are drawn at random; constant steps of :class:`mirrormargin.MirrorDescent`.

Arrays (S = one for each seed and p; K ways to cut):
    num_pieces (K,)         shared
    p, seed (S,)
    num_steps (S,)
    size (S,)               entries of the tensor
    moved (S,)              share of entries that have changed since the start
    differing (S, K)        entries whose bits are not those of the whole tensor's
    normalized_differing (S, K)    the same for normalised steps, whose length is not a piece's own
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds

__all__ = ["EXPERIMENT"]

SHAPE = (37, 53)
LR = 0.01


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    p, seed = part
    rng = np.random.default_rng([seed, int(1000 * p)])
    start = rng.normal(size=SHAPE).astype(np.float32).ravel()
    gradients = rng.normal(size=(settings["num_steps"], start.size)).astype(np.float32)
    ends, differing = {}, {"constant": [], "normalized": []}
    for rule, counts in differing.items():
        whole = _step(start, gradients, p, rule, 1)
        ends[rule] = whole
        for count in settings["num_pieces"]:
            pieces = _step(start, gradients, p, rule, count)
            counts.append(int((pieces.view(np.int32) != whole.view(np.int32)).sum()))
    return {
        "num_pieces": np.array(settings["num_pieces"]),
        "p": np.array([p]),
        "seed": np.array([seed]),
        "num_steps": np.array([settings["num_steps"]]),
        "size": np.array([start.size]),
        "moved": np.array([(ends["constant"] != start).mean()]),
        "differing": np.array([differing["constant"]]),
        "normalized_differing": np.array([differing["normalized"]]),
    }


def _step(start: Any, gradients: Any, p: float, rule: str, count: int) -> Any:
    import torch

    import mirrormargin as mm

    weights = [torch.tensor(piece) for piece in np.array_split(start, count)]
    optimizer = mm.MirrorDescent(weights, lr=LR, p=p, step_rule=rule)
    for gradient in gradients:
        for weight, piece in zip(weights, np.array_split(gradient, count), strict=True):
            weight.grad = torch.tensor(piece)
        optimizer.step()
    return torch.cat(weights).numpy()


EXPERIMENT = Experiment(
    name="shards",
    title="one tensor stepped whole and in pieces, bit by bit",
    profiles={
        "quick": {
            "num_seeds": 1,
            "p": [1.1, 1.5, 2.0, 3.0, 10.0],
            "num_pieces": [2, 7, 64],
            "num_steps": 20,
        },
        "full": {
            "num_seeds": 5,
            "p": [1.1, 1.5, 1.7, 2.0, 3.0, 4.5, 10.0],
            "num_pieces": [2, 7, 64, 500],
            "num_steps": 100,
        },
    },
    split=split,
    run=run,
    shared=("num_pieces",),
)
