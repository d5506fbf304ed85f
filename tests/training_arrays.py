"""Made-up arrays shaped as trainings on real data are collected, for tests of their figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.stories import deltas, fitted, league
from mirrormargin.claims.stories.league import OURS

__all__ = ["METHODS", "REVIEWS", "SHARES", "TRAINING_EVIDENCE", "make_deltas", "make_pruning"]

P = np.array([1.1, 2.0, 3.0])
S = 3
SHARES = np.array([0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998])
METHODS = np.array(
    ["MirrorAdam p=1.1", "AdamW", "AdamW + L1", "Powerpropagation", "gradual pruning"]
)
# The second token of the last one tries to be markup.
REVIEWS = (
    ("[CLS] wonderful from the first scene onward . [SEP]", 1),
    ("[CLS] i loved every minute of this . [SEP]", 2),
    ("[CLS] the camera work is beautiful . [SEP]", 5),
    ("[CLS] a dull script [SEP]", 2),
    ("[CLS] what a brilliant little thriller ! [SEP]", 3),
    ("[CLS] its sound ##track sounds awful . [SEP]", 5),
    ("[CLS] two hours of superb acting . [SEP]", 4),
    ("[CLS] a boring , endless and slow film with no end in sight . [SEP]", 2),
    ("[CLS] terrible . [SEP]", 1),
    ("[CLS] <b>bold</b>&amp; awful [SEP]", 2),
)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _make_imdb() -> dict[str, Any]:
    rng = _rng(1)
    rise = 1 - np.exp(-np.arange(1, 31) / np.array([4.0, 6.0, 9.0])[:, None])
    height = 50 + np.array([34.0, 32.5, 33.0])[:, None, None] * rise[:, None]
    validation = height + 0.6 * rng.standard_normal((3, S, 30))
    last = height[:, None, 0, -1:] + 0.4 * rng.standard_normal((3, 1, S))
    return {
        "p": P,
        "layers": np.array([3]),
        "best_test": last + 0.9,
        "selected_test": last + 0.3,
        "last_test": last,
        "epochs": np.array([20, 24, 30])[:, None, None] + rng.integers(0, 3, (3, 1, S)),
        "train": np.full((3, 1, S), 99.5) + 0.01 * np.arange(S),
        "validation": validation[:, None],
        "more_config": np.array(["imdb/tiny", "imdb/tiny", "imdb/small"]),
        "more_p": P,
        "more_layers": np.array([2, 2, 2]),
        "more_seeds": np.array([3, 3, 1]),
        "more_last": np.array([83.0, 81.5, 82.0]),
        "more_train": np.array([99.5, 99.0, 98.0]),
        "more_selected": np.array([83.4, 82.0, 82.5]),
        "more_best": np.array([84.1, 82.9, 83.0]),
        "more_epochs": np.array([80, 80, 160]),
    }


def _make_optimizers() -> dict[str, Any]:
    names = [*METHODS[:2], "MirrorAdam p=1.5", "MirrorAdam p=3", "SGD", "MirrorDescent p=1.1"]
    height = np.array([86.0, 86.4, 85.8, 85.0, 79.0, 83.5])[:, None]
    selected = height + 0.5 * _rng(2).standard_normal((6, S))
    return {
        "optimizer": np.array(names),
        "lr": np.array([1e-3, 1e-3, 3e-4, 1e-4, 3e-3, 2e-3]),
        "setting": np.array(["lr0.001"] * 6),
        "selected_test": selected,
        "last_test": selected - 0.4,
        "validation": selected + 0.2,
    }


def _make_bins(scales: np.ndarray, bins: int = 60) -> np.ndarray:
    """Counts (methods, 3, bins): at small scales more small entries, and a longer tail."""
    k = np.arange(bins)
    rows = 1e5 / scales[:, None] * np.exp(-k / (8 * scales[:, None]))
    rows = rows + 30 * (k < 55) * (scales[:, None] < 0.9) * np.exp(-k / 20)
    counts = np.floor(rows[:, None, :] * np.array([1.0, 0.8, 0.6])[:, None]).astype(np.int64)
    counts[scales < 0.5, 1, 58] = 3  # a bin alone
    return counts


def _make_weights() -> dict[str, Any]:
    histogram = _make_bins(np.array([0.3, 1.0, 1.3]))
    return {
        "p": P,
        "kind": np.array(["key", "query", "value"]),
        "above": histogram[:, :, 12:].sum(axis=-1) / S,
        "largest": np.array([[0.9, 0.8, 0.5], [0.4, 0.4, 0.3], [0.3, 0.3, 0.2]]),
        "l1_l2": np.array([[0.4, 0.42, 0.5], [0.75, 0.74, 0.78], [0.85, 0.86, 0.87]]),
        "zeros": np.array([[1200.0, 1100.0, 900.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        "underflowed": np.array([15321.0, 0.0, 0.0]),
        "bin_width": np.array(0.005),
        "histogram": histogram,
    }


def _make_selection(*names: str) -> dict[str, Any]:
    rng = _rng(3)
    words = [text.split() for text, _ in REVIEWS]
    longest, count = max(map(len, words)), len(words)
    tokens = np.array([[row + [""] * (longest - len(row)) for row in words]] * 2)
    position = np.array([place for _, place in REVIEWS])
    weights = np.zeros((2, count, longest))
    for j, sharp in enumerate((6.0, 3.0)):
        for i, row in enumerate(words):
            attention = rng.random(len(row))
            attention[position[i]] += sharp * rng.random()
            weights[j, i, : len(row)] = attention / attention.sum()
    chosen = weights[:, np.arange(count), position]
    largest = weights.max(axis=-1)
    spread = 1 - 0.1 * rng.random((2, S, 1))
    kind = rng.random((2, S, 5))
    return {
        "optimizer": np.array(names),
        "score": (chosen / largest)[:, None] * spread,
        "share": chosen[:, None] * spread,
        "top": np.repeat((chosen == largest)[:, None], S, axis=1),
        "right": rng.random((2, S, count)) < 0.8,
        "kind": kind / kind.sum(axis=-1, keepdims=True),
        "untrained": 0.4 + 0.1 * rng.random(S),
        "text": np.array([" ".join(row[1:-1]) for row in words]),
        "tokens": tokens,
        "weights": weights,
        "position": position,
    }


def make_pruning(names: np.ndarray, seed: int, height: float, chance: float) -> dict[str, Any]:
    """Accuracy falls from ``height`` to ``chance``, in its own place for each method."""
    rng = _rng(seed)
    count = len(names)
    left = -np.log10(1 - SHARES)
    halves = np.linspace(2.3, 0.9, count)[:, None, None]
    fall = 1 / (1 + np.exp(-6 * (left - halves)))
    unpruned = height + 0.3 * rng.standard_normal((count, S))
    accuracy = unpruned[:, :, None] - (height - chance) * fall
    return {
        "optimizer": names,
        "lr": np.full(count, 1e-3),
        "setting": np.array([f"lr{1e-3:g}"] * count),
        "share": SHARES,
        "accuracy": accuracy + 0.4 * rng.standard_normal((count, S, SHARES.size)),
        "attention_accuracy": 0.4 * accuracy + 0.6 * unpruned[:, :, None],
        "unpruned": unpruned,
        "needed": np.geomspace(0.01, 0.1, count)[:, None] * rng.uniform(0.9, 1.1, (count, S)),
        "attention_needed": np.full((count, S), 0.05),
    }


def _make_curves(seed: int, height: float) -> dict[str, Any]:
    rng = _rng(seed)
    steps = np.arange(20, 2001, 20)
    rates = np.array([600.0, 400.0, 250.0, 200.0])[:, None, None]
    loss = 0.05 + 2 * np.exp(-steps / rates) * (1 + 0.1 * rng.standard_normal((4, S, 100)))
    return {
        "optimizer": np.array(["SGD", "SNGD", "SNGD per tensor", "Adam"]),
        "lr": np.array([0.1, 0.01, 1e-3, 1e-3]),
        "step": steps,
        "loss": loss,
        "accuracy": height
        + np.array([[0.0], [0.5], [0.8], [1.0]])
        + 0.2 * rng.standard_normal((4, S)),
    }


def _make_fitted(seed: int) -> dict[str, Any]:
    """SGD, SNGD in 60% of its steps, and Adam, which ends after half of the epochs."""
    rng = _rng(seed)
    epochs, speed = np.arange(1, 41), np.array([0.2, 0.33, 0.4])[:, None, None]
    fit = np.exp(-speed * epochs) * (1 + 0.01 * rng.standard_normal((3, S, 40)))
    sparse = 1 - np.exp(-speed * np.arange(41))
    spread = rng.uniform(0.9, 1.0, (3, S, 1, 2))
    steps = np.array([[200, 600, 1200, 1800], [120, 360, 720, 1080], [100, 300, 600, 900]])
    return {
        "optimizer": np.array(["SGD", "SNGD", "Adam"]),
        "lr": np.array([0.4, 0.2, 1e-3]),
        "setting": np.array(["lr0.4", "lr0.2", "lr0.001"]),
        "is_at_edge": np.array([False, False, True]),
        "level": np.array([0.5, 0.1, 0.01, 0.001]),
        "steps": steps[:, None] + rng.integers(0, 20, (3, S, 1)),
        "num_epochs": np.array([40, 40, 20])[:, None] - np.arange(S),
        "test": 92 + rng.random((3, S)),
        "steps_per_epoch": np.array(50),
        "loss": fit,
        "accuracy": 92 - 80 * fit,
        "entropy": (1 - 0.3 * sparse)[..., None] * spread,
        "largest": (0.1 + 0.4 * sparse)[..., None] * spread,
    }


def _make_vit() -> dict[str, Any]:
    rng, epoch = _rng(4), np.arange(10, 1001, 10)
    rise = np.stack([1 - np.exp(-epoch / 150), 1 - np.exp(-epoch / 220)])[:, None]
    histogram = _make_bins(np.array([1.0, 0.4]))
    return {
        "optimizer": np.array(["Adam", "MD p=1.1"]),
        "lr": np.array([1e-3, 1.0]),
        "setting": np.array(["lr0.001", "lr1"]),
        "epoch": epoch,
        "accuracy": 30 + np.array([[[51.5]], [[51.0]]]) * rise + rng.standard_normal((2, S, 100)),
        "train": np.full((2, S), 99.0),
        "test": np.array([[81.0], [80.5]]) + 0.1 * rng.standard_normal((2, S)),
        "near_zero": histogram[:, :, 0],
        "largest": np.array([[0.4, 0.4, 0.3], [0.9, 0.8, 0.6]]),
        "histogram": histogram,
        "bin_width": np.array(0.005),
    }


def make_deltas(seed: int) -> dict[str, Any]:
    """Ours is a little behind full fine-tuning at 10,000 numbers, and others are further."""
    rows = (
        ("AdamW, all weights", 22_000_000, 86.0),
        ("head alone", 0, 66.0),
        ("centred MirrorAdam", 2_000, 84.0),
        ("centred MirrorAdam", 10_000, 85.4),
        ("centred MirrorAdam", 50_000, 85.7),
        ("LoRA", 9_216, 82.0),
        ("LoRA", 73_728, 85.6),
        ("Fisher mask", 10_000, 81.0),
    )
    score = np.array([height for *_, height in rows])[:, None]
    return {
        "method": np.array([method for method, *_ in rows]),
        "setting": np.array(["lr 0.01, p 1.1"] * len(rows)),
        "numbers": np.array([numbers for _, numbers, _ in rows]),
        "bytes": np.array([4_000 + 3.5 * numbers for _, numbers, _ in rows]),
        "score": score + 0.1 * _rng(seed).standard_normal((len(rows), S)),
    }


def make_league(seed: int) -> dict[str, Any]:
    """Our way without a penalty is surely ahead of all others at every share."""
    ways = ("AdamW", "AdamW + L1", "gradual pruning", "memoryless top-k", *OURS)
    height = np.array(
        [[80, 60, 30], [94, 92, 88], [96, 95, 94], [95, 94, 92]] + [[97, 96, 95.5]] * 2
    )
    score = height[..., None] + 0.05 * _rng(seed).standard_normal((len(ways), 3, S))
    score[-1] -= 0.2
    return {
        "way": np.array(ways),
        "setting": np.array(["p1.5-to0.7-lr0.01"] * len(ways)),
        "share": np.array([0.95, 0.98, 0.99]),
        "score": score,
        "validation": np.array([60.0, 92.0, 95.0, 94.0, 96.0, 95.8]),
        "dense": np.full(S, 97.2),
        "is_loss": np.array(False),
    }


def _make_digits() -> dict[str, Any]:
    rng = _rng(5)
    names = np.array(["MirrorAdam p=1.1", "MirrorAdam p=3", "MirrorDescent p=1.1", "AdamW"])
    images = np.zeros((6, 8, 8))
    for i, (top, bottom) in enumerate([(1, 7), (2, 6), (1, 5), (3, 8), (0, 8), (2, 8)]):
        images[i, top:bottom, 2 + i % 3 : 5 + i % 2] = rng.integers(4, 17, (bottom - top, 1))
    attention = rng.random((4, 6, 4, 4)) ** 3
    label = np.array([1, 7, 4, 9, 3, 0])
    prediction = np.tile(label, (4, 1))
    prediction[1, 2] = 8
    pruning = make_pruning(names, 6, 97.5, 10.0)
    del pruning["setting"]  # there is one for each optimizer
    return {
        **pruning,
        "histogram": _make_bins(np.array([0.3, 1.3, 0.4, 1.0])),
        "bin_width": np.array(0.005),
        "l1_l2": np.linspace(0.4, 0.8, 12).reshape(4, 1, 3).repeat(S, axis=1),
        "zeros": np.zeros((4, 3)),
        "image": images,
        "attention": attention / attention.sum(axis=(-2, -1), keepdims=True),
        "label": label,
        "prediction": prediction,
    }


TRAINING_EVIDENCE = {
    "imdb": _make_imdb(),
    "imdb-optimizers": _make_optimizers(),
    "imdb-weights": _make_weights(),
    "token-selection": _make_selection("MirrorDescent p=1.1", "MirrorDescent p=2"),
    "token-selection-adam": _make_selection("MirrorAdam p=1.05", "AdamW"),
    "pruning-imdb": make_pruning(METHODS, 10, 86.0, 50.0),
    "pruning-plain": make_pruning(
        np.array([f"MirrorDescent p={p}" for p in (1.1, 2, 3)]), 14, 72.0, 50.0
    ),
    "pruning-sst2": make_pruning(METHODS, 11, 82.0, 50.0),
    "pruning-mnist": make_pruning(METHODS, 12, 98.0, 10.0),
    "pruning-cifar10": make_pruning(METHODS, 13, 75.0, 10.0),
    **{story.name: _make_fitted(24 + k) for k, story in enumerate(fitted.STORIES)},
    "mnist": _make_curves(20, 98.0),
    "cifar10": _make_curves(21, 70.0),
    "mnli": _make_curves(22, 75.0),
    "civil": _make_curves(23, 90.0),
    "cifar10-vit": _make_vit(),
    "digits": _make_digits(),
    **{story.name: make_deltas(30 + k) for k, story in enumerate(deltas.STORIES)},
    **{story.name: make_league(40 + k) for k, story in enumerate(league.STORIES)},
}
