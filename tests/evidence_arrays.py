"""Small arrays shaped as each experiment writes them, for tests of what is drawn from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from training_arrays import TRAINING_EVIDENCE

__all__ = ["EVIDENCE", "make_claims"]

P = np.array([1.75, 2.0, 3.0])
S, R, N, T, D = 4, 12, 4, 5, 5


def _steps(last: int = 1000) -> np.ndarray:
    return np.append(0, np.unique(np.geomspace(1, last, R - 1).round()))[:R].astype(np.int64)


def _decay(*shape: int, power: float = 1.0) -> np.ndarray:
    """Falls along the last axis, and differs along the others."""
    x = np.arange(1, shape[-1] + 1, dtype=np.float64)
    factors = 1 + 0.1 * np.random.default_rng(0).random(shape[:-1])
    return 0.5 * factors[..., None] * x**-power


def _make_directions() -> dict[str, Any]:
    own = np.broadcast_to(_decay(S, 2, 1, 1, R, power=0.2), (S, 2, 3, 3, R)).copy()
    for j in range(3):
        own[:, :, j, j] = _decay(S, 2, R, power=2.0)
    kind = np.array(["global", "local", "unsettled", "global"])[:, None, None]
    return {
        "p": P,
        "steps": np.stack([_steps()] * 3),
        "seed": np.arange(S),
        "own": own,
        "same": own / 2,
        "norm": 1 / _decay(S, 2, 3, R),
        "kind": np.broadcast_to(kind, (S, 2, 3)).copy(),
    }


def _make_trajectories() -> dict[str, Any]:
    steps = np.stack([_steps(500), _steps(1000), _steps(2000)])
    W = np.linspace(0, 9, R)[None, :, None, None] * np.linspace(-1, 1, D * D).reshape(D, D)
    W = np.broadcast_to(W, (3, R, D, D)).copy()
    sharp = np.linspace(0, 6, R)[:, None, None] * np.eye(N, T)
    attention = np.exp(sharp) / np.exp(sharp).sum(axis=-1, keepdims=True)
    return {
        "p": P,
        "steps": steps,
        "W": W,
        "target": W[:, -1],
        "attention": np.stack([attention] * 3),
        "optimal": np.arange(N),
        "arrows": steps[:, [2, 4, 6, 8]],
    }


def _make_rates() -> dict[str, Any]:
    p = np.repeat([1.5, 2.0, 3.0], 2)
    log10_k = np.broadcast_to(np.arange(0.0, 60.0), (6, 60)).copy()
    return {
        "p": p,
        "seed": np.tile([1, 2], 3),
        "log10_k": log10_k,
        "divergence": _decay(6, 60, power=2.0),
        "norm": 1 + log10_k,
    }


def _make_cone_paths() -> dict[str, Any]:
    lead = np.geomspace(1.0, 1e8, 9) * np.ones((4, 1))
    return {
        "p": np.array([1.75, 1.75, 2.0, 2.0]),
        "seed": np.array([1, 2, 1, 2]),
        "kind": np.array(["global", "local", "local", "local"]),
        "nu": np.full(4, 1e-4),
        "lead": lead,
        "divergence": 0.1 / lead**2,
        "reverse_divergence": 0.1 / lead**2,
        "bound": np.minimum(2.0, 10 / lead),
        "is_certified": np.ones((4, 9), dtype=bool),
    }


def _make_cones() -> dict[str, Any]:
    rates = _make_rates()
    return {
        **rates,
        "mu": np.array([0.01, 0.1]),
        "radius": np.array([5.0, 10.0, 20.0]),
        "descends": np.broadcast_to([0.5, 0.75, 1.0], (6, 2, 3)).copy(),
        "start_radius": np.full(6, 10.0),
        "stays": np.array([True, True, False, True, True, True]),
    }


def _make_steps() -> dict[str, Any]:
    rule = np.array(["normalized", "polyak", "polyak", "constant", "constant"])
    powers = np.array([2.0, 2.0, 2.1, 0.1, 0.3])[None, :, None]
    x = np.arange(1.0, R + 1)
    factors = 1 + 0.1 * np.arange(S)[:, None, None]
    return {
        "rule": rule,
        "lr": np.array([1.0, 0.5, 1.0, 1.0, 10.0]),
        "steps": _steps(),
        "seed": np.arange(S),
        "divergence": 0.1 * factors * x**-powers,
        "norm": factors * x**powers,
        # Below the smallest float: only logarithms can be shown.
        "log_loss_gap": -factors * 100 * x * powers,
        "log_unattended": -factors * 100 * x * powers,
    }


def _make_paths() -> dict[str, Any]:
    p = np.repeat(P, 2)
    return {
        "p": p,
        "seed": np.tile([1, 2], 3),
        "radii": np.broadcast_to(np.geomspace(0.1, 1000, R), (6, R)).copy(),
        "divergence": _decay(6, R, power=3.0),
        "margin": 0.5 * (1 - _decay(6, R, power=3.0)),
        "target_margin": np.full(6, 0.5),
        "is_certified": np.ones((6, R), dtype=bool),
    }


def _make_joint() -> dict[str, Any]:
    grown = np.linspace(0, 5, R)
    v = np.broadcast_to(grown[None, None, :, None] * np.array([1.0, 2.0]), (2, 3, R, 2)).copy()
    W = np.broadcast_to(
        grown[None, None, :, None, None] * np.array([[1.0, -1.0], [0.5, 2.0]]), (2, 3, R, 2, 2)
    ).copy()
    sure = np.broadcast_to(1 - 0.5 / (1 + grown), (2, 3, R)).copy()
    return {
        "p": P,
        "steps": np.stack([_steps(200)] * 3),
        "W": W,
        "v": v,
        "target": W[:, :, -1],
        "head_target": v[:, :, -1],
        "softmax": sure,
        "logistic": sure,
    }


def _make_joint_steps() -> dict[str, Any]:
    steps = np.geomspace(1, 10_000, 30).round().astype(np.int64)
    return {
        "steps": steps,
        "seed": np.arange(2),
        "log_loss": -np.cbrt(steps) * np.array([[1.0], [1.1]]),
        "log_unattended": -np.cbrt(steps) * np.array([[1.0], [1.1]]),
        "divergence": _decay(2, 30),
        "head_divergence": _decay(2, 30),
        "head_margin_gap": _decay(2, 30),
    }


def _make_joint_paths() -> dict[str, Any]:
    return {
        "problem": np.array(["toy", "toy", "relaxed"]),
        "p": np.array([1.5, 2.0, 2.0]),
        "radii": np.broadcast_to(np.geomspace(0.1, 100, R), (3, R)).copy(),
        "divergence": _decay(3, R, power=3.0),
        "head_divergence": 1e-20 * _decay(3, R),
        "is_certified": np.ones((3, R), dtype=bool),
    }


def _make_weights() -> dict[str, Any]:
    entries = np.geomspace(1, 1e-9, 25)
    return {
        "p": P,
        "seed": np.arange(S),
        "entries": np.broadcast_to(entries, (S, 3, 25)).copy(),
        "l1_l2": np.linspace(0.4, 0.8, S * 3).reshape(S, 3),
        "hoyer": np.linspace(0.6, 0.2, S * 3).reshape(S, 3),
        "small": np.linspace(0.5, 0.1, S * 3).reshape(S, 3),
        "divergence": np.full((S, 3), 1e-3),
    }


def _make_factors() -> dict[str, Any]:
    cosine = np.array([[0.99, 0.85], [0.9, 0.98]]) + 0.001 * np.arange(S)[:, None, None]
    return {
        "steps": _steps(),
        "seed": np.arange(S),
        "cosine": cosine,
        "attention": 1 - _decay(S, 2, R),
    }


def _make_prompts() -> dict[str, Any]:
    problem, rule = (
        np.array(a).ravel()
        for a in np.meshgrid(["alike", "local"], ["normalized", "constant"], indexing="ij")
    )
    path = np.linspace(0, 9, R)[None, :, None] * np.array([1.0, 0.5])
    keys = np.full((4, 3, 7, 2), np.nan)
    keys[:, 0, :3] = [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    return {
        "steps": _steps(),
        "problem": problem,
        "rule": rule,
        "path": np.broadcast_to(path, (4, R, 2)).copy(),
        "divergence": _decay(4, R),
        "optimal": np.array([1.0, 1.0, 0.0, 0.0]),
        "keys": keys,
        "target": np.tile([1.0, 0.5], (4, 1)),
    }


def _make_joint_prompts() -> dict[str, Any]:
    path = np.linspace(0, 9, R)[None, :, None] * np.array([1.0, 0.5])
    path = np.broadcast_to(path, (2, R, 2)).copy()
    return {
        "steps": _steps(),
        "third": np.array([[0.5, 1.0], [0.5, 1.5]]),
        "prompt": path,
        "head": path[..., ::-1].copy(),
        "target": path[:, -1],
        "head_target": path[:, -1, ::-1].copy(),
        "divergence": _decay(2, R),
        "head_divergence": _decay(2, R),
        "plain_divergence": _decay(2, R),
    }


def _make_prompt_losses() -> dict[str, Any]:
    path = np.linspace(0, 9, R)[None, :, None] * np.array([1.0, 0.5])
    divergence = _decay(4, R)
    divergence[0, 1:] = 0.0
    return {
        "steps": _steps(),
        "loss": np.array(["correlation", "correlation", "logistic", "logistic"]),
        "C": np.array([1.0, 10.0, 1.0, 10.0]),
        "path": np.broadcast_to(path, (4, R, 2)).copy(),
        "divergence": divergence,
        "height": np.array([0.0, 1.0, 0.0, -3.0]),
    }


def _make_planar_matrices() -> dict[str, Any]:
    W = np.array([[1.0, 0.2], [0.1, 0.5]])
    path = np.linspace(0, 9, R)[:, None, None] * W
    tokens = np.full((2, 2, 5, 2), np.nan)
    tokens[:, :, :2] = [[1.0, 0.0], [-1.0, 0.5]]
    return {
        "steps": _steps(),
        "picture": np.array(["facing", "apart"]),
        "tokens": tokens,
        "queries": np.broadcast_to(np.array([[1.0, 0.0], [0.0, 1.0]]), (2, 2, 2)).copy(),
        "path": np.broadcast_to(path, (2, 2, R, 2, 2)).copy(),
        "target": np.broadcast_to(W, (2, 2, 2, 2)).copy(),
        "cosine": np.full((2, 2, 2), 0.99),
    }


def _make_multi_token() -> dict[str, Any]:
    cosine = 1 - _decay(S, R)
    cosine[-1] = np.nan
    return {
        "steps": _steps(),
        "d": np.array([8, 8, 10, 10]),
        "counts": np.array([True, True, True, False]),
        "cosine_eq": cosine,
        "cosine_dir": 0.9 * cosine,
        "cosine_one": 0.5 * cosine,
    }


def _make_rank() -> dict[str, Any]:
    d = np.repeat([4, 8], 3)
    return {
        "n": np.full(6, 4),
        "T": np.full(6, 5),
        "d": d,
        "separable": d > 4,
        "rank": np.where((d > 4)[:, None], [4, 2], 0),
        "drawn_separable": np.array([False, True, False, True, True, True]),
    }


def _make_linear_flow() -> dict[str, Any]:
    log10_k = np.broadcast_to(np.arange(0.0, 60.0), (6, 60)).copy()
    return {
        "potential": np.array(["lp"] * 4 + ["quadratic"] * 2),
        "p": np.array([1.5, 1.5, 3.0, 3.0, 2.0, 2.0]),
        "log10_k": log10_k,
        "divergence": _decay(6, 60),
        "entries": np.broadcast_to(np.linspace(1, 0.1, D), (6, D)).copy(),
    }


def _make_linear_steps() -> dict[str, Any]:
    p = np.array([1.5, 1.5, 3.0, 3.0])
    return {"steps": _steps(), "p": p, "divergence": _decay(4, R)}


EVIDENCE = {
    "directions": _make_directions(),
    "trajectories": _make_trajectories(),
    "rates": _make_rates(),
    "cones": _make_cones(),
    "cone-paths": _make_cone_paths(),
    "steps": _make_steps(),
    "paths": _make_paths(),
    "joint": _make_joint(),
    "joint-steps": _make_joint_steps(),
    "joint-paths": _make_joint_paths(),
    "weights": _make_weights(),
    "factors": _make_factors(),
    "prompts": _make_prompts(),
    "joint-prompts": _make_joint_prompts(),
    "prompt-losses": _make_prompt_losses(),
    "planar-matrices": _make_planar_matrices(),
    "multi-token": _make_multi_token(),
    "rank": _make_rank(),
    "linear-flow": _make_linear_flow(),
    "linear-steps": _make_linear_steps(),
    **TRAINING_EVIDENCE,
}

INJECTED = "</script><b>bold</b> & \"quoted\" 'text' \u2028"


def make_claims() -> dict[str, Any]:
    """A claims.json with every verdict and provenance, and texts that try to be markup."""
    rows = (
        ("A.fig.directions", "directions", ["directions", "basins"], "reproduced", "seen"),
        ("A.fig.map", "trajectories", ["trajectories", "attention"], "reproduced", "derived"),
        ("A.thm.rate", "rates", ["rates"], "reproduced differently", "recalled"),
        ("A.tab<1>.x/y z", "weights", ["weights"], "not reproduced", "seen"),
        ("B.fig.steps", "steps", ["steps"], "reproduced", "seen"),
        ("B.tab.text", "text", ["nothing"], "not run", "seen"),
    )
    claims = [
        {
            "id": name,
            "paper": name[0],
            "title": f"What {name} says",
            "statement": INJECTED,
            "source": "a paper",
            "provenance": provenance,
            "published": "O(1 / log k)" if provenance == "recalled" else "0.014",
            "measured": "" if verdict == "not run" else "0.0043",
            "verdict": verdict,
            "note": INJECTED,
            "origin": {"kind": "run now", "command": "", "data_sha256": None, "versions": {}},
            "experiment": experiment,
            "evidence": f"evidence/{experiment}-1a2b3c4d" if experiment in EVIDENCE else None,
            "figures": figures,
            "command": f"mirrormargin reproduce {name} --profile quick --seed 0",
            "tests": []
            if verdict == "not run"
            else [
                {
                    "name": "mean D at p = 3",
                    "kind": "statement",
                    "expected": "at most 0.02",
                    "value": 0.0043,
                    "low": 0.0036,
                    "high": 0.005,
                    "holds": verdict != "not reproduced",
                }
            ],
        }
        for name, experiment, figures, verdict, provenance in rows
    ]
    return {
        "kind": "claims",
        "format": 1,
        "profile": "quick",
        "seed": 0,
        "claims": claims,
        "environment": {"versions": {"mirrormargin": "0.1.0"}, "machine": {"cores": 2}},
        "seconds": {"directions": 4.2},
    }
