r"""A small vision transformer on scikit-learn's digits: real training that needs no download.

Arrays (K optimizers, S seeds, R shares, B bins, M images):
    optimizer, lr (K,), share (R,)          share is shared
    accuracy, attention_accuracy (K, S, R)  test accuracy in % with that share of the entries of
                                            all block matrices, or of Q, K and V, removed
    unpruned, needed, attention_needed (K, S)   as in mirrormargin.claims.campaign.collect
    l1_l2 (K, S, 3)                         of K, Q and V
    zeros (K, 3), histogram (K, 3, B), bin_width ()    the same, first seed
    image (M, 8, 8), label (M,)             shared; the first test images of some digits
    attention (K, M, 4, 4), prediction (K, M)   of [CLS] on the patches in the last block
"""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings

__all__ = ["EXPERIMENT"]

SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
SHOWN = (0, 2, 3, 5, 7, 9)  # digits whose attention is drawn
# Learning rates from 0.001 to 0.03 by factors of three: the best on validation data.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "MirrorAdam p=1.1": {"name": "MirrorAdam", "lr": 3e-3, "p": 1.1},
    "MirrorAdam p=3": {"name": "MirrorAdam", "lr": 1e-3, "p": 3.0},
    "AdamW": {"name": "AdamW", "lr": 3e-3, "weight_decay": 0.01},
}


def run(settings: Settings, optimizer: Any) -> Arrays:
    import torch

    from mirrormargin.data import load_data
    from mirrormargin.training.building import build_model
    from mirrormargin.training.config import OptimizerConfig, Seeds
    from mirrormargin.training.configurations import find_configuration
    from mirrormargin.training.evaluation import evaluate
    from mirrormargin.training.loop import train_model
    from mirrormargin.training.pruning import find_needed, pruning_curve
    from mirrormargin.training.sparsity import KINDS, summarize_attention_weights

    data = load_data("digits")
    curves: dict[str, list[Any]] = {"unpruned": [], "blocks": [], "attention": [], "l1_l2": []}
    arrays: Arrays = {}
    for seed in range(settings["seed"], settings["seed"] + settings["num_seeds"]):
        config = replace(
            find_configuration("digits/tiny"),
            optimizer=OptimizerConfig(**OPTIMIZERS[optimizer]),
            seeds=Seeds(seed, seed, seed),
            epochs=settings["epochs"],
        )
        with TemporaryDirectory() as folder:
            training = train_model(config, data, folder, checkpoint_every=float("inf"))
        model = build_model(config, data)
        model.load_state_dict(training.final)
        model.eval()

        def measure(pruned: torch.nn.Module) -> float:
            return evaluate(pruned, data.test)[1]

        curves["unpruned"].append(measure(model))
        for matrices in ("blocks", "attention"):
            curves[matrices].append(pruning_curve(model, measure, SHARES, matrices))
        weights = summarize_attention_weights(model)
        curves["l1_l2"].append([weights[kind].l1_l2 for kind in KINDS])
        if not arrays:
            labels = data.test.labels.tolist()
            images = data.test.inputs[[labels.index(digit) for digit in SHOWN]]
            with torch.no_grad():
                maps = model.attention(images)[:, -1, :, 0, 1:].mean(dim=1)  # pyright: ignore
                prediction = model(images).argmax(dim=1)
            arrays = {
                "zeros": np.array([[weights[kind].zeros for kind in KINDS]]),
                "histogram": np.array([[weights[kind].histogram for kind in KINDS]]),
                "bin_width": np.array(weights["key"].bin_width),
                "image": images[:, 0].numpy().astype(np.float64),
                "label": np.array(SHOWN),
                "attention": maps.reshape(1, len(SHOWN), 4, 4).numpy().astype(np.float64),
                "prediction": prediction[None].numpy(),
            }
    needed = {
        matrices: [
            find_needed(SHARES, *pair)
            for pair in zip(curves[matrices], curves["unpruned"], strict=True)
        ]
        for matrices in ("blocks", "attention")
    }
    return arrays | {
        "needed": np.array([needed["blocks"]]),
        "attention_needed": np.array([needed["attention"]]),
        "optimizer": np.array([optimizer]),
        "lr": np.array([OPTIMIZERS[optimizer]["lr"]]),
        "share": np.array(SHARES),
        "accuracy": np.array([curves["blocks"]]),
        "attention_accuracy": np.array([curves["attention"]]),
        "unpruned": np.array([curves["unpruned"]]),
        "l1_l2": np.array([curves["l1_l2"]]),
    }


EXPERIMENT = Experiment(
    name="digits",
    title="a vision transformer on handwritten digits, weights removed",
    profiles={
        "quick": {"num_seeds": 3, "epochs": 20},
        "full": {"num_seeds": 5, "epochs": 30},
    },
    split=lambda settings: list(OPTIMIZERS),
    run=run,
    shared=("share", "bin_width", "image", "label"),
)
