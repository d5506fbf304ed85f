r"""What one mirror step is, on random numbers.

    p = 2:   W - lr G,  the step of gradient descent,      D(U, V) = 1 - cos(U, V)
    any p:   argmin over V of  lr <G, V> + D_psi(V, W)

Axes: S seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds

__all__ = ["STORY"]

EXPONENTS = (1.1, 1.5, 1.75, 3.0, 5.0, 10.0)
LR = 0.1
NUM_PERTURBED = 100

ARRAYS = {
    "seed": "S",
    "sgd_difference": "S: largest |difference| of weights after 100 steps at p = 2 and of"
    " torch.optim.SGD",
    "cosine_difference": "S: |D - (1 - cos)| at p = 2",
    "excess": "S: least over p and perturbed steps of lr <G, V> + D_psi(V, W), less its value at"
    " the step, over the size of the perturbation squared",
}


def run(settings: Settings, part: Any) -> Arrays:
    import torch

    import mirrormargin as mm

    rows = []
    for seed in list_seeds(settings):
        rng = np.random.default_rng(seed)
        start, other = rng.normal(size=(2, 10, 10))
        gradients = rng.normal(size=(100, 10, 10))

        def train(make: Any, start: Any = start, gradients: Any = gradients) -> Any:
            W = torch.from_numpy(start.copy()).requires_grad_()
            optimizer = make([W])
            for gradient in gradients:
                W.grad = torch.from_numpy(gradient)
                optimizer.step()
            return W.detach().numpy()

        ours = train(lambda params: mm.MirrorDescent(params, lr=LR, p=2.0))
        theirs = train(lambda params: torch.optim.SGD(params, lr=LR))
        cosine = np.vdot(start, other) / np.linalg.norm(start) / np.linalg.norm(other)
        divergence = float(mm.directional_divergence(start, other, 2.0))
        excess = []
        for p in EXPONENTS:
            moved = train(
                lambda params, p=p: mm.MirrorDescent(params, lr=LR, p=p), gradients=gradients[:1]
            )
            excess.append(_find_excess(start, moved, gradients[0], p, rng))
        rows.append((np.abs(ours - theirs).max(), abs(divergence - (1 - cosine)), min(excess)))
    columns = np.array(rows).T
    names = ("sgd_difference", "cosine_difference", "excess")
    return {"seed": np.array(list_seeds(settings)), **dict(zip(names, columns, strict=True))}


def _find_excess(W: Any, V: Any, G: Any, p: float, rng: Any) -> float:
    """In plain formulas, not the library's: how much worse than the step is what lies beside it."""
    slope = np.sign(W) * np.abs(W) ** (p - 1)

    def value(U: Any) -> Any:
        bregman = (np.abs(U) ** p - np.abs(W) ** p) / p - slope * (U - W)
        return (LR * G * U + bregman).sum(axis=(-1, -2))

    size = 1e-3
    beside = V + size * rng.normal(size=(NUM_PERTURBED, *V.shape))
    return float((value(beside) - value(V)).min() / size**2)


def examine_step(evidence: Evidence) -> Finding:
    excess = evidence["excess"]
    return Finding(
        [
            all_at_least(
                "excess of perturbed steps over the size of the change squared", excess, 0.0
            )
        ],
        f"no perturbed step is better; the least excess is {excess.min():.2g} size^2",
    )


def examine_gd(evidence: Evidence) -> Finding:
    steps, cosine = evidence["sgd_difference"], evidence["cosine_difference"]
    return Finding(
        [
            all_at_most("difference from torch.optim.SGD after 100 steps", steps, 1e-13),
            all_at_most("difference of D from 1 - cos", cosine, 1e-13),
        ],
        f"equal to {max(steps.max(), cosine.max()):.0e}",
    )


CLAIMS = (
    Claim(
        id="A.alg.step",
        title="A mirror step minimises the linearised loss plus the Bregman divergence",
        statement="Moving in dual coordinates, grad psi(W') = grad psi(W) - lr G, is the same as"
        " choosing W' to minimise lr <G, W'> + D_psi(W', W).",
        source="paper A, algorithm lp-AttGD",
        provenance=Provenance.DERIVED,
        published="exact",
        examine=examine_step,
    ),
    Claim(
        id="A.alg.gd",
        title="At p = 2 mirror descent is gradient descent",
        statement="With psi = |W|^2 / 2 the step is that of gradient descent, and the directional"
        " divergence is one minus the cosine.",
        source="paper A, algorithm lp-AttGD",
        provenance=Provenance.SEEN,
        published="exact",
        examine=examine_gd,
    ),
)


STORY = Story(
    name="identities",
    title="single mirror steps on random numbers",
    arrays=ARRAYS,
    profiles={"quick": {"num_seeds": 20}},
    run=run,
    early=True,
    claims=CLAIMS,
)
