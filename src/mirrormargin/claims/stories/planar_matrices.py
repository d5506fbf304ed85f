r"""Two sequences in the plane: where W z_i goes if W is trained, and if K and Q are.

Two pictures: three tokens around (-1, 0) and around (1, 0), and one token at (1, 0.5) or (1, -0.5)
against four around (-1, 0). W starts at 0, Q at 0, K at random; steps are normalised, of length
0.1.

Axes: S = 2 pictures; R recorded steps; T tokens at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.arguments import Parameterization
from mirrormargin.claims.checks import all_at_least, all_equal
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table

__all__ = ["STORY"]

MOST_TOKENS = 5
SEEDS = {"facing": 1, "apart": 3}
TRAINED = ("W", "K Qᵀ")
SOLUTIONS = ("Frobenius", "nuclear norm")

ARRAYS = {
    "steps": "R",
    "picture": 'S: "facing" or "apart"',
    "tokens": "S 2 T 2: of both sequences, padded by nan",
    "queries": "S 2 2",
    "optimal": "S 2: the tokens of the highest score",
    "selection": "S 2 2: those that W, and then K Q', selects in the end",
    "path": "S 2 R 2 2: W, then K Q'",
    "target": "S 2 2 2: the Frobenius and the nuclear solution of the optimal tokens",
    "cosine": "S 2 2: of W, then of K Q' (axis 1), to both (axis 2) in the end",
}


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
    inits: dict[Parameterization, Any] = {"W": np.zeros((2, 2)), "KQ": factors}
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
        for form, start in inits.items()
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


def examine_planar(evidence: Evidence) -> Finding:
    cosine = evidence["cosine"]
    best = np.broadcast_to(evidence["optimal"][:, None], evidence["selection"].shape)
    own, other = cosine[:, [0, 1], [0, 1]], cosine[:, [0, 1], [1, 0]]
    return Finding(
        [
            all_equal("selected tokens", evidence["selection"], best),
            all_at_least("cosine of W to the Frobenius solution", own[:, 0], 0.99),
            all_at_least("cosine of K Q' to the nuclear solution", own[:, 1], 0.95),
            all_at_least("lead of the own solution over the other one", own - other, 0.0),
        ],
        f"cosine of W {own[:, 0].min():.4f} or more, of K Q' {own[:, 1].min():.3f} or more",
    )


CLAIMS = (
    Claim(
        id="C2.fig.planar",
        title="In the plane W z follows the Frobenius solution, and K Q' z the nuclear one",
        statement="On two sequences in the plane training selects the optimal tokens, W goes to the"
        " Frobenius solution and K Q' to the nuclear one.",
        source="C2, figures of two sequences in the plane",
        provenance=Provenance.SEEN,
        published="paths run along their own solution; no numbers",
        examine=examine_planar,
    ),
)


def draw_planar_matrices(evidence: Evidence) -> Figure:
    panels, rows = [], []
    for k, picture in enumerate(evidence["picture"].tolist()):
        for form, name in enumerate(TRAINED):
            series = []
            for i, z in enumerate(evidence["queries"][k]):
                ray = evidence["target"][k, form] @ z
                path = evidence["path"][k, form] @ z
                ray = ray * (np.hypot(*path.T).max() / max(float(np.hypot(*ray)), 1e-300))
                group, tokens = f"sequence {i + 1}", evidence["tokens"][k, i]
                x, y = np.array([0.0, ray[0]]), np.array([0.0, ray[1]])
                series.append(Series(f"solution, {group}", x, y, style="dashed", group=group))
                series.append(Series(group, *path.T, style="arrow path", group=group))
                series.append(Series(f"tokens, {group}", *tokens.T, style="points", group=group))
            axes = Axis("first coordinate"), Axis("second coordinate")
            title = f"{picture}, trained {name}"
            panels.append(Panel(title, *axes, tuple(series)))
            cosines = evidence["cosine"][k, form]
            rows.append((str(picture), name, *(f"{value:.4f}" for value in cosines)))
    columns = ("picture", "trained", *(f"cosine to {name}" for name in SOLUTIONS))
    return Figure(
        "planar-matrices",
        "Where W z goes if W is trained, and if K and Q are",
        "W z of two sequences in the plane, from zero; dashed rays are the max-margin solution: in"
        " the Frobenius norm where W is trained, in the nuclear norm where K and Q are. The axes"
        " have different scales.",
        tuple(panels),
        table=Table(columns, tuple(rows)),
    )


STORY = Story(
    name="planar-matrices",
    title="two sequences in the plane, trained as W and as K Q'",
    arrays=ARRAYS,
    profiles={"quick": {"num_steps": 2000}},
    split=split,
    run=run,
    draw=(draw_planar_matrices,),
    claims=CLAIMS,
)
