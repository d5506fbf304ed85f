r"""W and v trained together by normalised steps that shrink, on signal-and-noise problems.

    |step of W| = lr / (k + 1),    |step of v| = lr / (k + 1)^(2/3)

Arrays (S seeds, R recorded steps):
    steps (R,)                                shared
    seed (S,)
    log_loss, log_unattended (S, R)
    norm, head_norm (S, R)
    divergence, head_divergence (S, R)        of W and v from their max-margin solutions
    head_margin_gap (S, R)                    1 - label margin of v / the largest possible one
    optimal (S,)                              share of sequences that select their signal
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import split_seeds

__all__ = ["EXPERIMENT"]


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, first=0, size=2)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.signal_noise(seed) for seed in seeds]
    record = mm.train_joint(
        problems,
        lr=0.5,
        decay=1.0,
        head_decay=2 / 3,
        num_steps=settings["num_steps"],
        record=settings["num_points"],
        keep_path=True,
        threads=1,
    )
    assert record.head_path is not None
    assert record.head_target is not None
    chosen = record.final_selection[:, 0, 0]
    picked = np.stack(
        [
            problem.labels[:, None] * problem.tokens[np.arange(problem.num_sequences), tokens]
            for problem, tokens in zip(problems, chosen, strict=True)
        ]
    )
    v, target = record.head_path[:, 0, 0], record.head_target[:, 0, 0]
    with np.errstate(invalid="ignore"):  # v starts at zero, which has no direction
        margin = np.einsum("snd,srd->srn", picked, v).min(axis=-1) / np.linalg.norm(v, axis=-1)
    largest = np.einsum("snd,sd->sn", picked, target).min(axis=-1) / np.linalg.norm(target, axis=-1)
    best = np.stack([problem.optimal_tokens for problem in problems])
    names = ("log_loss", "log_unattended", "norm", "head_norm", "divergence", "head_divergence")
    return {
        "steps": record.steps[0, 0, 0],
        "seed": np.array(seeds),
        **{name: getattr(record, name)[:, 0, 0] for name in names},
        "head_margin_gap": 1 - margin / largest[:, None],
        "optimal": (chosen == best).mean(axis=-1),
    }


EXPERIMENT = Experiment(
    name="joint-steps",
    title="W and v trained together by shrinking normalised steps, on signals among noise",
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 20_000, "num_points": 80},
        "full": {"num_seeds": 20, "num_steps": 100_000, "num_points": 100},
    },
    split=split,
    run=run,
    shared=("steps",),
)
