r"""Prompts in the plane, trained from several starts by normalised and by constant steps.

Three problems: one sequence whose third token scores 0.9, so that all tokens but one score alike;
the same sequence with a third score of 0, which makes token 1 locally optimal; and three sequences
of seven tokens, all but one alike. Starts are (0, a), or (a, 0) for the last one, with a in 1, 0.5,
0, -0.5, -1, -1.5. Normalised steps have length 0.1, constant ones the rate 1.

Arrays (S = one for each problem, rule and start; R recorded steps):
    steps (R,)                   shared
    problem (S,)                 "alike", "local" or "multi"
    rule (S,)                    "normalized" or "constant"
    start (S,)                   a
    path (S, R, 2)               the prompts
    norm (S, R)                  |prompt|
    attention (S, R)             mean attention on the optimal tokens
    divergence (S, R)            1 - cos to the max-margin prompt of the tokens selected in the end;
                                 nan where the prompt is 0
    optimal (S,)                 share of sequences that select their optimal token in the end
    locally_optimal (S,)         whether the selection is
    keys (S, 3, 7, 2), scores (S, 3, 7)    of the problem, padded by nan
    target (S, 2)                the max-margin prompt
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings

__all__ = ["EXPERIMENT"]

STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
RULES = (("normalized", 0.1), ("constant", 1.0))


def split(settings: Settings) -> list[str]:
    return ["alike", "local", "multi"]


def run(settings: Settings, name: Any) -> Arrays:
    import mirrormargin as mm

    problem = (
        mm.synthetic.planar_multi(settings["seed"])
        if name == "multi"
        else mm.synthetic.planar_single(0.9 if name == "alike" else 0.0)
    )
    starts = np.zeros((1, 1, len(STARTS), 3, 3))
    starts[0, 0, :, 0 if name == "multi" else 1, 0] = STARTS
    # Every step of the published pictures, which end at 200, then fewer.
    wanted = np.union1d(np.arange(200), np.geomspace(200, settings["num_steps"], 60).round())
    parts, steps = [], wanted
    for rule, lr in RULES:
        record = mm.train_attention(
            problem,
            step_rule=rule,
            lr=lr,
            num_steps=settings["num_steps"],
            init=starts,
            record=wanted.astype(int),
            target_tol=1e-11,
            keep_path=True,
            threads=1,
        )
        assert record.path is not None
        assert record.divergence is not None
        assert record.target is not None
        path, chosen = record.path[0, 0][..., :2, 0], record.final_selection[0, 0]
        count, steps = len(STARTS), record.steps[0, 0, 0]
        parts.append(
            {
                "problem": np.full(count, name),
                "rule": np.full(count, rule),
                "start": np.array(STARTS),
                "path": path,
                "norm": np.linalg.norm(path, axis=-1),
                "attention": _attend(problem, record.path[0, 0]),
                "divergence": record.divergence[0, 0],
                "optimal": (chosen == problem.optimal_tokens).mean(axis=-1),
                "locally_optimal": np.array(
                    [mm.is_locally_optimal(problem, tokens) for tokens in chosen]
                ),
                "keys": np.stack([_pad(problem.tokens[..., :2])] * count),
                "scores": np.stack([_pad(problem.scores)] * count),
                "target": record.target[0, 0][..., :2, 0],
            }
        )
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return {"steps": steps, **arrays}


def _attend(problem: Any, W: Any) -> Any:
    """Mean attention on the optimal tokens, (starts, steps)."""
    logits = np.einsum("ntd,irde,ne->irnt", problem.tokens, W, problem.queries)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    best = problem.optimal_tokens
    return weights[..., np.arange(len(best)), best].mean(axis=-1)


def _pad(array: Any) -> Any:
    padded = np.full((3, 7, *array.shape[2:]), np.nan)
    padded[: array.shape[0], : array.shape[1]] = array
    return padded


EXPERIMENT = Experiment(
    name="prompts",
    title="prompts in the plane from six starts, by normalised and constant steps",
    profiles={"quick": {"num_steps": 10_000}, "full": {"num_steps": 100_000}},
    split=split,
    run=run,
    shared=("steps",),
)
