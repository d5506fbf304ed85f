r"""Gradient descent, normalised steps and Polyak's, on problems where theory is global.

Tokens are nearly orthogonal and all tokens of a sequence but one score alike. Starts are random.

Arrays (S seeds, K rules, R recorded steps, F recorded decades):
    rule, lr (K,)                  shared: "constant", "normalized" or "polyak", and its rate
    steps (R,)                     shared
    seed (S,)
    divergence (S, K, R)           1 - cos to the max-margin solution of the optimal tokens
    norm, log_loss_gap, log_unattended, attention (S, K, R)
    optimal (S, K)                 share of sequences that select their optimal token in the end
    target_norm (S,)               |W_mm|, so that the margin of W_mm is 1 / |W_mm|
    flow_log10_k, flow_divergence, flow_norm (S, F)    gradient descent with a small rate, for ever
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import split_seeds

__all__ = ["EXPERIMENT"]

RULES = (
    ("normalized", 1.0),
    ("polyak", 0.5),
    ("polyak", 1.0),
    ("constant", 1.0),
    ("constant", 10.0),
    ("constant", 100.0),
    ("constant", 300.0),
    ("constant", 1000.0),
)


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, first=0, size=5)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.equal_scores(seed) for seed in seeds]
    best = np.stack([problem.optimal_tokens for problem in problems])
    target = mm.solve_many(problems, best[:, None, None], tol=1e-12, threads=1).W
    # A start depends on the seed alone, not on how seeds are split.
    starts = np.stack(
        [0.1 * np.random.default_rng([seed, 7]).normal(size=target.shape[-2:]) for seed in seeds]
    )[:, None, None]
    names = ("divergence", "norm", "log_loss_gap", "log_unattended", "attention")
    kept: dict[str, list[Any]] = {name: [] for name in (*names, "optimal", "steps")}
    for rule, lr in RULES:
        record = mm.train_attention(
            problems,
            step_rule=rule,
            lr=lr,
            num_steps=settings["num_steps"],
            init=starts,
            target=target,
            record=settings["num_points"],
            threads=1,
        )
        for name in names:
            kept[name].append(getattr(record, name)[:, 0, 0])
        kept["steps"].append(record.steps[0, 0, 0])
        kept["optimal"].append((record.final_selection[:, 0, 0] == best).mean(axis=-1))
    flows = [
        mm.mirror_flow(problem, 2.0, settings["decades"], init=start[0, 0], record=1)
        for problem, start in zip(problems, starts, strict=True)
    ]
    return {
        "rule": np.array([rule for rule, _ in RULES]),
        "lr": np.array([lr for _, lr in RULES]),
        "steps": kept["steps"][0],
        "seed": np.array(seeds),
        **{name: np.stack(kept[name], axis=1) for name in (*names, "optimal")},
        "target_norm": np.linalg.norm(target[:, 0, 0], axis=(-2, -1)),
        "flow_log10_k": np.stack([flow.log10_k for flow in flows]),
        "flow_divergence": np.stack([flow.divergence for flow in flows]),
        "flow_norm": np.stack([flow.norm for flow in flows]),
    }


EXPERIMENT = Experiment(
    name="steps",
    title="gradient descent, normalised and Polyak steps on nearly orthogonal tokens",
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 1000, "num_points": 60, "decades": 100},
        "full": {"num_seeds": 100, "num_steps": 1000, "num_points": 100, "decades": 300},
    },
    split=split,
    run=run,
    shared=("rule", "lr", "steps"),
)
