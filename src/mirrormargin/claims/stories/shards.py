r"""One tensor stepped whole, and in pieces that know nothing of each other.

Gradients are drawn at random; constant steps of :class:`mirrormargin.MirrorDescent`.

Axes: S runs, one for each seed and p; K ways to cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.arguments import StepRule
from mirrormargin.claims.checks import all_at_least, all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds

__all__ = ["STORY"]

LR = 0.01

ARRAYS = {
    "num_pieces": "K",
    "p, seed": "S",
    "num_steps": "S",
    "size": "S: entries of the tensor",
    "moved": "S: share of entries that have changed since the start",
    "differing": "S K: entries whose bits are not those of the whole tensor's",
    "last_places": "S K: by how many units in the last place they differ at most",
    "normalized_differing": "S K: the same for normalised steps, whose length is not a piece's own",
}


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    p, seed = part
    rng = np.random.default_rng([seed, int(1000 * p)])
    start = rng.normal(size=settings["size"]).astype(settings["dtype"])
    gradients = rng.normal(size=(settings["num_steps"], start.size)).astype(start.dtype)
    bits = np.int32 if start.dtype == np.float32 else np.int64
    differing: dict[StepRule, list[Any]] = {"constant": [], "normalized": []}
    ends, places = {}, []
    for rule, counts in differing.items():
        whole = _step(start, gradients, p, rule, 1)
        ends[rule] = whole
        for count in settings["num_pieces"]:
            pieces = _step(start, gradients, p, rule, count)
            apart = np.abs(pieces.view(bits) - whole.view(bits))
            counts.append(int((apart > 0).sum()))
            if rule == "constant":
                places.append(int(apart.max()))
    return {
        "num_pieces": np.array(settings["num_pieces"]),
        "p": np.array([p]),
        "seed": np.array([seed]),
        "num_steps": np.array([settings["num_steps"]]),
        "size": np.array([start.size]),
        "moved": np.array([(ends["constant"] != start).mean()]),
        "differing": np.array([differing["constant"]]),
        "last_places": np.array([places]),
        "normalized_differing": np.array([differing["normalized"]]),
    }


def _step(start: Any, gradients: Any, p: float, rule: StepRule, count: int) -> Any:
    import torch

    import mirrormargin as mm

    weights = [torch.tensor(piece) for piece in np.array_split(start, count)]
    optimizer = mm.MirrorDescent(weights, lr=LR, p=p, step_rule=rule)
    for gradient in gradients:
        for weight, piece in zip(weights, np.array_split(gradient, count), strict=True):
            weight.grad = torch.tensor(piece)
        optimizer.step()
    return torch.cat(weights).numpy()


def examine_parallel(evidence: Evidence) -> Finding:
    differing, places = evidence["differing"], evidence["last_places"]
    return Finding(
        [
            all_at_least("share of entries that the steps move", evidence["moved"], 0.9),
            all_at_most("difference between pieces and whole, in last places", places, 100),
        ],
        f"of {evidence['size'][0]} entries at most {differing.max()} differ, by"
        f" {places.max()} in the last place, in {differing.size} cuttings",
        "A power may depend on its place in a vector register by rounding, and does not where steps"
        " are compiled, in float32. Normalised steps need one norm of all pieces",
    )


CLAIMS = (
    Claim(
        id="C3.parallel",
        title="A step acts on each weight alone, so it parallelises fully",
        statement="Mirror descent with psi_p needs nothing but a weight and its gradient: tensors"
        " cut into pieces step to the same values.",
        source="C3, abstract",
        provenance=Provenance.SEEN,
        published="fully parallelisable",
        examine=examine_parallel,
    ),
)


STORY = Story(
    name="shards",
    title="one tensor stepped whole and in pieces, bit by bit",
    arrays=ARRAYS,
    profiles={
        # float32 has compiled steps, and compiling them takes half a minute.
        "quick": {
            "dtype": "float64",
            "size": 1961,
            "num_seeds": 1,
            "p": [1.1, 1.5, 2.0, 3.0, 10.0],
            "num_pieces": [2, 7, 64],
            "num_steps": 20,
        },
        "full": {
            "dtype": "float32",
            "size": 1961,
            "num_seeds": 2,
            "p": [1.1, 1.5, 1.7, 2.0, 3.0, 4.5, 10.0],
            "num_pieces": [2, 7, 64, 500],
            "num_steps": 20,
        },
    },
    split=split,
    run=run,
    early=True,
    claims=CLAIMS,
)
