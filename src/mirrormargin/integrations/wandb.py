"""For Weights & Biases: a training as one of its runs, on its server or, offline, in the folder.

    train_model(config, data, "runs/mine", trackers=[WandbTracker(project="attention")])
    mirrormargin train digits/tiny --tracker wandb

The folder of the training remembers the run, and one that is resumed continues it. With
``WANDB_MODE=offline`` nothing is sent until ``wandb sync``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirrormargin.errors import TrainingError
from mirrormargin.integrations import miss
from mirrormargin.runs import write_atomically
from mirrormargin.training.trackers import Outcome

try:
    import wandb  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise miss("wandb", "wandb") from error

__all__ = ["WandbTracker"]

RUN = Path("wandb", "run.txt")  # in the folder


class WandbTracker:
    """Keeps a training as a run of Weights & Biases.

    Args:
        **options: More arguments of ``wandb.init``, such as ``project``, which is "mirrormargin"
            unless it is given here or by ``WANDB_PROJECT``.
    """

    def __init__(self, **options: Any) -> None:
        self.options = {"project": os.environ.get("WANDB_PROJECT", "mirrormargin"), **options}
        self._run: Any = None

    def start(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        """Begin a run, or continue that of the folder."""
        library: Any = wandb
        own = {"id": _find_id(folder), "resume": "allow", "dir": str(folder), "name": folder.name}
        try:
            self._run = library.init(**{"reinit": "create_new", **own, **self.options})
            self._run.config.update(dict(settings), allow_val_change=True)
        except library.Error as error:
            raise TrainingError(f"wandb cannot keep this training: {error}") from error

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send a row, unless the run that is continued is further."""
        if step >= self._run.step:
            self._run.log(dict(values), step=step)

    def finish(self, outcome: Outcome) -> None:
        """Say how the training ended; wandb knows success and failure only."""
        self._run.finish(exit_code=0 if outcome == "finished" else 1)


def _find_id(folder: Path) -> str:
    """The run of the folder, or a new name, which the folder remembers."""
    path = folder / RUN
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, lambda file: file.write(f"{secrets.token_hex(8)}\n".encode()))
    return path.read_text(encoding="utf-8").strip()
