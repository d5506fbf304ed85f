r"""Two sequences in the plane: where W z_i goes if W is trained, and if K and Q are.

Two pictures: three tokens around (-1, 0) and around (1, 0), and one token at (1, 0.5) or (1, -0.5)
against four around (-1, 0). W starts at 0, Q at 0, K at random; steps are normalised, of length
0.1.

Arrays (S = 2 pictures; R recorded steps; T = 5 tokens at most, padded by nan):
    steps (R,)                  shared
    picture (S,)                "facing" or "apart"
    tokens (S, 2, T, 2), queries (S, 2, 2)
    optimal (S, 2)              the tokens of the highest score
    selection (S, 2, 2)         those that W, and then K Q', selects in the end
    path (S, 2, R, 2, 2)        W, then K Q'
    target (S, 2, 2, 2)         the Frobenius and the nuclear solution of the optimal tokens
    cosine (S, 2, 2)            of W, then of K Q' (axis 1), to both (axis 2) in the end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings

__all__ = ["EXPERIMENT"]

MOST_TOKENS = 5
SEEDS = {"facing": 1, "apart": 3}


def split(settings: Settings) -> list[str]:
    return list(SEEDS)


def run(settings: Settings, picture: Any) -> Arrays:
    import mirrormargin as mm

    seed = SEEDS[picture] + 1000 * settings["seed"]
    problem = _draw(mm, picture, seed)
    best = problem.optimal_tokens
    X, z = problem.tokens, problem.queries
    target = np.stack(
        [
            mm.solve_attention_svm(X, z, best, compiled=False).W,
            mm.solve_nuclear_svm(X, z, best, threads=1).W,
        ]
    )
    factors = np.zeros((2, 2, 2))
    factors[0] = 0.1 * np.random.default_rng(seed).normal(size=(2, 2))
    wanted = np.union1d(np.arange(0, 200, 2), np.geomspace(200, settings["num_steps"], 60).round())
    records = [
        mm.train_attention(
            problem,
            parameterization=form,
            lr=0.1,
            num_steps=settings["num_steps"],
            init=start,
            record=wanted.astype(int),
            target=None,
            keep_path=True,
            threads=1,
        )
        for form, start in (("W", np.zeros((2, 2))), ("KQ", factors))
    ]
    paths = [record.path[0, 0, 0] for record in records if record.path is not None]
    padded = np.full((2, MOST_TOKENS, 2), np.nan)
    padded[:, : X.shape[1]] = X
    cosine = [
        [np.vdot(U, path[-1]) / np.linalg.norm(U) / np.linalg.norm(path[-1]) for U in target]
        for path in paths
    ]
    return {
        "steps": records[0].steps[0, 0, 0],
        "picture": np.array([picture]),
        "tokens": padded[None],
        "queries": z[None],
        "optimal": best[None],
        "selection": np.stack([record.final_selection[0, 0, 0] for record in records])[None],
        "path": np.stack(paths)[None],
        "target": target[None],
        "cosine": np.array([cosine]),
    }


def _draw(mm: Any, picture: str, seed: int) -> Any:
    """The problem of a picture, in the order and precision of the authors' program."""
    import torch

    generator = torch.Generator(device="cpu").manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    head = normal(2)
    head = head / head.norm()
    if picture == "facing":
        X = 0.3 * normal(2, 3, 2) + torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]])
    else:
        X = 0.5 * normal(2, 5, 2)
        X[:, 0] = torch.tensor([[1.0, 0.5], [1.0, -0.5]])
        X[:, 1:] += torch.tensor([-1.0, 0.0])
    z = normal(2, 2)
    z = z / z.norm(dim=-1, keepdim=True)
    return mm.AttentionProblem(X, z, [1, 1], head)


EXPERIMENT = Experiment(
    name="planar-matrices",
    title="two sequences in the plane, trained as W and as K Q'",
    profiles={"quick": {"num_steps": 2000}},
    split=split,
    run=run,
    shared=("steps",),
)
