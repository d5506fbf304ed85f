r"""A prompt and a head trained together, in the plane, by normalised steps of length 0.1.

Three sequences of the origin and one other token, (1, 1), (1, -1) and (0.5, 1) or (0.5, 1.5). With
the last one the third sequence does not support the decoder, and the prompt has to go to the
relaxed solution. Starts are prompt (0, -1) and head (-1, 0).

Arrays (S = 2 problems; R recorded steps):
    steps (R,)                       shared
    third (S, 2)                     the second token of the third sequence
    prompt, head (S, R, 2)
    attention (S, R)                 mean attention on the tokens other than the origin
    probability (S, R)               mean of 1 / (1 + exp(-y f))
    divergence, head_divergence (S, R)    1 - cos to the max-margin solutions, relaxed where needed
    plain_divergence (S, R)          1 - cos of the prompt to the solution without relaxation
    target, plain_target, head_target (S, 2)
    num_unsupported (S,)             sequences that do not support the decoder
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings

__all__ = ["EXPERIMENT"]

THIRDS = ((0.5, 1.0), (0.5, 1.5))
SELECTED = (1, 1, 1)


def split(settings: Settings) -> list[tuple[float, float]]:
    return list(THIRDS)


def run(settings: Settings, third: Any) -> Arrays:
    import mirrormargin as mm

    problem = mm.synthetic.planar_joint(third)
    wanted = np.union1d(np.arange(200), np.geomspace(200, settings["num_steps"], 60).round())
    record = mm.train_joint(
        problem,
        lr=0.1,
        num_steps=settings["num_steps"],
        init=[[0.0, 0.0], [-1.0, 0.0]],
        head_init=[-1.0, 0.0],
        record=wanted.astype(int),
        target_tol=1e-11,
        keep_path=True,
        threads=1,
    )
    assert record.path is not None
    assert record.head_path is not None
    prompt, head = record.path[0, 0, 0][..., 0], record.head_path[0, 0, 0]
    others = problem.tokens[:, 1]
    # The origin has logit 0 and gives nothing to the output.
    attended = 1 / (1 + np.exp(-prompt @ others.T))
    outputs = problem.labels * attended * (head @ others.T)
    decoder = mm.solve_decoder_svm(others, problem.labels, tol=1e-11)
    supports = decoder.support
    targets = [
        mm.solve_attention_svm(
            problem.tokens, problem.queries, SELECTED, tol=1e-11, rhs=rhs, compiled=False
        ).W[:, 0]
        for rhs in (supports.astype(float), None)
    ]
    return {
        "steps": record.steps[0, 0, 0],
        "third": np.array([third]),
        "prompt": prompt[None],
        "head": head[None],
        "attention": attended.mean(axis=-1)[None],
        "probability": (1 / (1 + np.exp(-outputs))).mean(axis=-1)[None],
        "divergence": _diverge(targets[0], prompt)[None],
        "head_divergence": _diverge(decoder.v, head)[None],
        "plain_divergence": _diverge(targets[1], prompt)[None],
        "target": targets[0][None],
        "plain_target": targets[1][None],
        "head_target": decoder.v[None],
        "num_unsupported": np.array([int((~supports).sum())]),
    }


def _diverge(target: Any, path: Any) -> Any:
    return 1 - path @ target / (np.linalg.norm(path, axis=-1) * np.linalg.norm(target))


EXPERIMENT = Experiment(
    name="joint-prompts",
    title="a prompt and a head trained together, with and without an unsupported sequence",
    profiles={"quick": {"num_steps": 1000}, "full": {"num_steps": 10_000}},
    split=split,
    run=run,
    shared=("steps",),
)
