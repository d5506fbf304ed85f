"""Computing trainings on real data: each in a folder of its own, and a row of its summary.

    SWEEP/runs/<configuration>-<digest>/     a folder as mirrormargin train writes it

A training that was killed is resumed from its checkpoint, and one that is complete is not trained
again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.data import DataSet
from mirrormargin.runs import hold_folder
from mirrormargin.sweep.axes import Product
from mirrormargin.sweep.table import DONE, FAILED, describe_failure, make_table
from mirrormargin.sweep.training_grid import find_config
from mirrormargin.sweep.worker_processes import STOPPING
from mirrormargin.training.building import load_training_data
from mirrormargin.training.config import TrainingConfig
from mirrormargin.training.configurations import list_overrides
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model
from mirrormargin.training.summary import summarize_training

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = ["RUNS", "compute_trainings"]

RUNS = "runs"  # the folder of folders
PATIENCE = 60.0  # seconds to wait for a process that still trains there and is about to end


def compute_trainings(
    product: Product,
    first: int,
    stop: int,
    offset: int,
    folder: Path,
    data_dir: str | None = None,
    device: str = "cpu",
    *,
    lost: str = "",
) -> pa.Table:
    """The rows of some runs of a product.

    Args:
        product: Of settings of a :class:`TrainingGrid`.
        first: The first run, numbered from the beginning of the product.
        stop: The one behind the last.
        offset: Number of the product's first run in the sweep.
        folder: Of the sweep.
        data_dir: Where data is.
        device: Where to compute.
        lost: Why nothing can compute them; they are then failed runs.
    """
    rows = []
    for number in range(first, stop):
        row: dict[str, Any] = {"run": offset + number, "status": FAILED, "error": lost or None}
        try:
            config, with_test = find_config(product.settings(number))
            home = TrainingFolder.choose(config, folder / RUNS)
            row |= _describe_config(config) | {"folder": f"{RUNS}/{home.path.name}"}
            if not lost:
                summary = _train(config, home, with_test, data_dir, device)
                row |= _describe_summary(summary, config) | {"status": DONE}
        except Exception as error:
            row["error"], row["traceback"] = describe_failure(error)
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return make_table("training", columns, len(rows))


def _train(
    config: TrainingConfig,
    home: TrainingFolder,
    with_test: bool,
    data_dir: str | None,
    device: str,
) -> dict[str, Any]:
    """Train, or resume, and evaluate; returns the summary."""

    def check(step: int, num_steps: int, known: dict[str, Any]) -> None:
        if STOPPING.is_set():
            raise KeyboardInterrupt

    with hold_folder(home.path, wait=PATIENCE):
        known = home.read_summary()
        if known is not None and (not with_test or "test" in known or "has_test" in known):
            return known
        data = _load_data(config, data_dir)
        training = train_model(config, data, home, device=device, on_step=check)
        summary = summarize_training(training, data, with_test=with_test, device=device)
        home.write_summary(summary)
        return summary


_loaded: tuple[Any, DataSet] | None = None  # what was trained on last


def _load_data(config: TrainingConfig, data_dir: str | None) -> DataSet:
    """The data of a configuration; runs that follow each other often have the same."""
    global _loaded
    key = (config.data, getattr(config.model, "pretrained", None), data_dir)
    if _loaded is None or _loaded[0] != key:
        _loaded = None
        _loaded = key, load_training_data(config, data_dir=data_dir)
    return _loaded[1]


def _describe_config(config: TrainingConfig) -> dict[str, Any]:
    own = config.optimizer
    return {
        "digest": config.digest(),
        "configuration": config.name,
        "settings": json.dumps(list_overrides(config), sort_keys=True),
        "data": config.data.name,
        "optimizer": own.name,
        "p": own.p,
        "lr": own.lr,
        "step_rule": own.step_rule,
        "momentum": own.momentum,
        "weight_decay": own.weight_decay,
        "batch_size": config.batch_size,
        "num_epochs": config.epochs,
        "seed_init": config.seeds.init,
        "seed_order": config.seeds.order,
        "seed_dropout": config.seeds.dropout,
    }


def _describe_summary(summary: dict[str, Any], config: TrainingConfig) -> dict[str, Any]:
    validation, test = summary["validation"], summary.get("test", {})
    last, blocks = summary["epochs"][-1], summary["weights"]["blocks"]
    return {
        "epochs": len(summary["epochs"]),
        "selected_epoch": summary["selected_epoch"],
        "train_loss": last["train_loss"],
        "train_accuracy": last["train_accuracy"],
        "measure": config.task.measure,
        "validation_last": validation["last"],
        "validation_selected": validation["selected"],
        "test_last": test.get("last"),
        "test_selected": test.get("selected"),
        "shares": summary["shares"],
        "validation_pruned": validation["frontier"]["blocks"],
        "zeros": blocks["zeros"] / blocks["entries"],
    }
