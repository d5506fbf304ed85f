r"""Attention under a ReLU head, where several tokens of a sequence can stay attended.

    f_i = sum_j max(0, (V' X_i' s_i)_j),    s_i = softmax(X_i W z_i)

W takes 2001 normalised steps of length 0.1, with the "+ eps" in the normaliser and in plain double
precision, as published. Then O_i are the tokens with s_it > 1e-3, and W is compared with

    W_dir    least norm with equal logits inside each O_i, and a lead of 1 over all other tokens
    W_eq     W_fin + R W_dir: W_fin is of least norm with the trained logits inside each O_i, and R
             brings the sum closest to W
    W_one    the max-margin solution of the one most attended token of each sequence

Problems are drawn as in the authors' program; a run counts if some label is -1, attention is
nowhere in (1e-6, 1e-3], somewhere below that, and all three solutions exist.

Arrays (S = one for each d and seed; R recorded steps):
    steps (R,)                  shared
    d, seed (S,)
    counts (S,)                 whether the run counts; if not, the three cosines are nan
    cosine_eq, cosine_dir, cosine_one (S, R)    of W to the three
    attention (S, n, T)         in the end
    num_selected (S,)           tokens in all O_i
    unselected (S,)             the most attended token outside all O_i
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import split_seeds

__all__ = ["EXPERIMENT"]

NUM_SEQUENCES, NUM_TOKENS = 3, 4
LR, NUM_STEPS, EVERY = 0.1, 2001, 100
LOW, HIGH = 1e-6, 1e-3
EPS = float(np.finfo(float).eps)


def split(settings: Settings) -> list[tuple[int, list[int]]]:
    groups = split_seeds(settings, size=settings["group"])
    return [(d, seeds) for d in settings["d"] for seeds in groups]


def run(settings: Settings, part: Any) -> Arrays:
    d, seeds = part
    drawn = [_draw(seed, d) for seed in seeds]
    X, y, z, V, W = (np.stack([problem[k] for problem in drawn]) for k in range(5))
    Ws, attention = _train(X, y, z, V, W)
    rows = [_compare(X[k], y[k], z[k], Ws[:, k], attention[k]) for k in range(len(seeds))]
    return {
        "steps": np.arange(0, NUM_STEPS, EVERY) + 1,
        "d": np.full(len(seeds), d),
        "seed": np.array(seeds),
        "counts": np.array([np.isfinite(row).all() for row in rows]),
        **{
            f"cosine_{name}": np.stack([row[k] for row in rows])
            for k, name in enumerate(("eq", "dir", "one"))
        },
        "attention": attention,
        "num_selected": (attention > HIGH).sum(axis=(1, 2)),
        "unselected": np.where(attention > HIGH, 0.0, attention).max(axis=(1, 2)),
    }


def _draw(seed: int, d: int) -> tuple[Any, ...]:
    """Tokens, labels, queries and V as published, and a start of our own: theirs has no seed."""
    import torch

    generator = torch.Generator(device="cpu").manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    V = normal(d, d)
    V = V / V.norm()
    X = normal(NUM_SEQUENCES, NUM_TOKENS, d)
    X = X / X.norm(dim=-1, keepdim=True)
    y = np.where(normal(NUM_SEQUENCES).numpy() > 0, 1.0, -1.0)
    z = normal(NUM_SEQUENCES, d)
    z = z / z.norm(dim=-1, keepdim=True)
    bound = 1 / np.sqrt(d)
    start = np.random.default_rng([seed, d]).uniform(-bound, bound, (d, d))
    X, z, V = (array.numpy().astype(float) for array in (X, z, V))
    return X, y, z, V, start


def _train(X: Any, y: Any, z: Any, V: Any, W: Any) -> tuple[Any, Any]:
    """W after every hundredth step from the first on, (R, S, d, d), and the last attention."""
    kept = []
    attention = X[..., 0]
    for step in range(NUM_STEPS):
        logits = (X @ (z @ W.transpose(0, 2, 1))[..., None])[..., 0]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        attention = weights / weights.sum(axis=-1, keepdims=True)
        hidden = (attention[..., None, :] @ X)[..., 0, :] @ V
        margin = y * np.maximum(hidden, 0).sum(axis=-1)
        # What each token would add to the margin, to first order.
        gain = y[..., None] * (X @ ((hidden > 0) @ V.transpose(0, 2, 1))[..., None])[..., 0]
        pull = attention * (gain - (attention * gain).sum(axis=-1, keepdims=True))
        pull *= -1 / (1 + np.exp(margin))[..., None] / NUM_SEQUENCES
        gradient = (pull[..., None, :] @ X)[..., 0, :].transpose(0, 2, 1) @ z
        size = np.sqrt((gradient**2).sum(axis=(1, 2), keepdims=True))
        W = W - LR * gradient / (size + EPS)
        if step % EVERY == 0:
            kept.append(W)
    return np.stack(kept), attention


def _compare(X: Any, y: Any, z: Any, Ws: Any, attention: Any) -> Any:
    """Cosines of W to W_eq, W_dir and W_one, (3, R); nan if the run does not count."""
    import mirrormargin as mm

    nothing = np.full((3, len(Ws)), np.nan)
    unclear = ((attention > LOW) & (attention <= HIGH)).any()
    if (y > 0).all() or unclear or (attention > LOW).all():
        return nothing
    selected = attention > HIGH
    best = attention.argmax(axis=-1)
    rows, logits, leads = [], [], []
    for i, first in enumerate(best):
        for t in np.flatnonzero(np.arange(NUM_TOKENS) != first):
            row = np.outer(X[i, first] - X[i, t], z[i]).ravel()
            if selected[i, t]:
                rows.append(row)
                logits.append(np.log(attention[i, first] / attention[i, t]))
            else:
                leads.append(row)
    dim = X.shape[-1] ** 2
    equal = np.array(rows).reshape(-1, dim)
    W_fin = np.linalg.lstsq(equal, np.array(logits), rcond=None)[0]
    # W_dir lies where the rows of equal logits vanish: there it is a plain max-margin problem.
    free = np.linalg.svd(equal)[2][np.linalg.matrix_rank(equal) :] if len(equal) else np.eye(dim)
    try:
        W_dir = free.T @ mm.solve_decoder_svm(np.array(leads) @ free.T, np.ones(len(leads))).v
        W_one = mm.solve_attention_svm(X, z, best, compiled=False).W.ravel()
    except mm.NotSeparableError:
        return nothing
    last = Ws[-1].ravel()
    R = W_dir @ (last - W_fin) / (W_dir @ W_dir)
    targets = np.stack([W_fin + R * W_dir, W_dir, W_one])
    flat = Ws.reshape(len(Ws), -1)
    sizes = np.linalg.norm(targets, axis=1)[:, None] * np.linalg.norm(flat, axis=1)
    return targets @ flat.T / sizes


EXPERIMENT = Experiment(
    name="multi-token",
    title="attention under a ReLU head, where several tokens stay attended",
    profiles={
        "quick": {"d": [4, 6, 8, 10], "num_seeds": 200, "group": 100},
        "full": {"d": [4, 6, 8, 10], "num_seeds": 900, "group": 100},
    },
    split=split,
    run=run,
    shared=("steps",),
)
