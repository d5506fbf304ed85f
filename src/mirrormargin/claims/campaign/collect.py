r"""From records of trainings to the arrays that claims are examined on, one function a table.

K methods, S seeds, E exponents, R shares or steps, N reviews; accuracies are in %.

accuracies   optimizer, lr, setting (K,); selected_test, last_test, validation (K, S)
pruning      optimizer, lr, setting (K,), share (R,); accuracy, attention_accuracy (K, S, R): test
             accuracy with that share of the entries of all block matrices, or of Q, K and V,
             removed; unpruned (K, S); needed, attention_needed (K, S): the share of weights
             that must be left for an accuracy within a point of the unpruned one
exponents    p (E,), layers (L,); best_test, selected_test, last_test, epochs, train (E, L, S);
             validation (E, L, S, R): by epoch, the last one repeated
weights      p (E,), kind (3,): key, query, value; above, largest, l1_l2, zeros (E, 3), means over
             seeds; underflowed (E,), of all weights; bin_width (), histogram (E, 3, B): sums
selection    p (E,); score, share, top, right (E, S, N); untrained (S,): mean score; text,
             position (N,); tokens, weights (E, N, T): seed 0, short ones filled up with "" and 0
vit          optimizer (2,), epoch (R,); accuracy (2, R) on validation data, test (2,) in the
             end; near_zero, largest (2, 3) and histogram (2, 3, B), bin_width of K, Q and V
curves       optimizer, lr, setting (K,), step (R,); loss (K, S, R); accuracy (K, S)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign.method import Method, Records, list_runs
from mirrormargin.training.pruning import find_needed
from mirrormargin.training.sparsity import KINDS
from mirrormargin.training.summary import SHARES

__all__ = [
    "collect_accuracies",
    "collect_curves",
    "collect_exponents",
    "collect_pruning",
    "collect_selection",
    "collect_vit",
    "collect_weights",
    "find_final_records",
]

Arrays = dict[str, NDArray[Any]]
Finals = list[list[dict[str, Any]]]


def find_final_records(method: Method, records: Records) -> list[dict[str, Any]] | None:
    """Records of the chosen setting, one a seed; None unless all are there and none failed."""
    runs = list_runs(method, records)
    if not all(run.is_done(records) for run in runs):
        return None
    finals = [records[run.key] for run in runs if run.with_test]
    return finals if finals and not any("failed" in record for record in finals) else None


def collect_accuracies(methods: Sequence[Method], finals: Finals) -> Arrays:
    return _name(methods, finals) | {
        "selected_test": _gather(finals, lambda r: r["test"]["selected"]),
        "last_test": _gather(finals, lambda r: r["test"]["last"]),
        "validation": _gather(finals, lambda r: r["validation"]["selected"]),
    }


def collect_pruning(methods: Sequence[Method], finals: Finals) -> Arrays:
    def find(matrices: str) -> NDArray[Any]:
        return _gather(
            finals,
            lambda r: find_needed(SHARES, r["test"]["frontier"][matrices], r["test"]["unpruned"]),
        )

    return _name(methods, finals) | {
        "share": np.array(SHARES),
        "accuracy": _gather(finals, lambda r: r["test"]["frontier"]["blocks"]),
        "attention_accuracy": _gather(finals, lambda r: r["test"]["frontier"]["attention"]),
        "unpruned": _gather(finals, lambda r: r["test"]["unpruned"]),
        "needed": find("blocks"),
        "attention_needed": find("attention"),
    }


def collect_exponents(methods: Sequence[Method], finals: Finals) -> Arrays:
    p = list(dict.fromkeys(_exponents(finals).tolist()))
    sizes = [group[0]["config"]["model"]["num_layers"] for group in finals]
    layers = sorted(set(sizes))
    by_size = {
        (q, size): group for q, size, group in zip(_exponents(finals), sizes, finals, strict=True)
    }
    layers = [n for n in layers if all((q, n) in by_size for q in p)]
    longest = max(len(record["epochs"]) for group in finals for record in group)

    def take(read: Any) -> NDArray[Any]:
        return np.stack([_gather([by_size[q, n] for n in layers], read) for q in p])

    def pad(record: dict[str, Any]) -> list[float]:
        curve = [row["validation_accuracy"] for row in record["epochs"]]
        return curve + curve[-1:] * (longest - len(curve))

    return {
        "p": np.array(p),
        "layers": np.array(layers),
        "best_test": take(lambda record: record["test"]["best"]),
        "selected_test": take(lambda record: record["test"]["selected"]),
        "last_test": take(lambda record: record["test"]["last"]),
        "epochs": take(lambda record: len(record["epochs"])),
        "train": take(lambda record: record["epochs"][-1]["train_accuracy"]),
        "validation": take(pad),
    }


def collect_weights(methods: Sequence[Method], finals: Finals) -> Arrays:
    def take(key: str) -> NDArray[Any]:
        return _gather(finals, lambda r: [r["weights"][kind][key] for kind in KINDS]).mean(axis=1)

    rows = [record["weights"][kind] for group in finals for record in group for kind in KINDS]
    num_bins = max(len(row["histogram"]) for row in rows)

    def fill(record: dict[str, Any]) -> list[list[int]]:
        bins = [record["weights"][kind]["histogram"] for kind in KINDS]
        return [row + [0] * (num_bins - len(row)) for row in bins]

    return {
        "p": _exponents(finals),
        "kind": np.array(list(KINDS)),
        **{key: take(key) for key in ("above", "largest", "l1_l2", "zeros")},
        "underflowed": _gather(finals, lambda r: r["weights"]["underflowed"]).mean(axis=1),
        "bin_width": np.array(rows[0]["bin_width"]),
        "histogram": _gather(finals, fill).sum(axis=1),
    }


def collect_selection(methods: Sequence[Method], finals: Finals) -> Arrays:
    def take(key: str) -> NDArray[Any]:
        return _gather(finals, lambda r: r["selection"][key])

    untrained = _gather(finals, lambda r: r["selection"]["untrained"])
    reviews = [group[0]["selection"]["reviews"] for group in finals]
    longest = max(len(review["tokens"]) for review in reviews[0])

    def fill(key: str, empty: Any) -> NDArray[Any]:
        return np.array(
            [[(r[key] + [empty] * longest)[:longest] for r in group] for group in reviews]
        )

    return {
        "p": _exponents(finals),
        "score": take("scaled"),
        "share": take("share"),
        "top": take("is_top_word"),
        "right": take("is_right"),
        "untrained": untrained.mean(axis=(0, 2)),
        "text": np.array([review["text"] for review in reviews[0]]),
        "position": np.array([review["position"] for review in reviews[0]]),
        "tokens": fill("tokens", ""),
        "weights": fill("weights", 0.0),
    }


def collect_curves(methods: Sequence[Method], finals: Finals) -> Arrays:
    return _name(methods, finals) | {
        "step": np.array(finals[0][0]["steps"]["step"]),
        "loss": _gather(finals, lambda r: r["steps"]["train_loss"]),
        "accuracy": _gather(finals, lambda r: r["test"]["selected"]),
    }


def collect_vit(methods: Sequence[Method], finals: Finals) -> Arrays:
    weights = collect_weights(methods, finals)
    epochs = [row["epoch"] for row in finals[0][0]["epochs"]]

    def curve(record: dict[str, Any]) -> list[float]:
        return [row["validation_accuracy"] for row in record["epochs"]]

    return {
        "optimizer": np.array([method.name for method in methods]),
        "epoch": np.array(epochs),
        "accuracy": _gather(finals, curve).mean(axis=1),
        "test": _gather(finals, lambda r: r["test"]["last"]).mean(axis=1),
        "near_zero": weights["histogram"][:, :, 0],
        **{key: weights[key] for key in ("largest", "histogram", "bin_width")},
    }


def _name(methods: Sequence[Method], finals: Finals) -> Arrays:
    return {
        "optimizer": np.array([method.name for method in methods]),
        "lr": np.array([group[0]["config"]["optimizer"]["lr"] for group in finals]),
        "setting": np.array([_find_setting(group[0]) for group in finals]),
    }


def _find_setting(record: dict[str, Any]) -> str:
    return record["key"].split("/")[-1].rsplit("-seed", 1)[0]


def _exponents(finals: Finals) -> NDArray[Any]:
    return np.array([group[0]["config"]["optimizer"]["p"] for group in finals])


def _gather(finals: Finals, read: Any) -> NDArray[Any]:
    """What is read from every record, (methods, seeds, ...), for the seeds that all have."""
    num_seeds = min(len(group) for group in finals)
    return np.array([[read(record) for record in group[:num_seeds]] for group in finals])
