"""For MLflow: a training as one of its runs, in a store on disk or on a server.

    train_model(config, data, "runs/mine", trackers=[MLflowTracker()])
    mirrormargin train digits/tiny --tracker mlflow

Settings become parameters, rows of metrics.jsonl metrics. The folder of the training remembers the
run, so that one that is resumed continues it; what the run has already is not sent again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirrormargin.errors import TrainingError
from mirrormargin.integrations import miss
from mirrormargin.runs import write_atomically
from mirrormargin.training.trackers import Outcome

try:
    from mlflow.entities import Metric, Param, RunTag  # pyright: ignore[reportMissingImports]
    from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]
    from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise miss("mlflow", "mlflow") from error

__all__ = ["MLflowTracker"]

RUN = Path("mlflow", "run.txt")  # in the folder
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
LONGEST = 6000  # characters of a parameter
MOST = 100  # parameters at once


class MLflowTracker:
    """Keeps a training as a run of MLflow.

    Args:
        uri: The store or server, such as ``"sqlite:///mlflow.db"``; None for what MLflow is set to,
            as by ``MLFLOW_TRACKING_URI``.
        experiment: Made if there is none of that name; None for ``MLFLOW_EXPERIMENT_NAME``, or else
            "mirrormargin".

    Attributes:
        run_id: Of the run; empty before the training.
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self.uri = uri
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "mirrormargin")
        self.run_id = ""
        self._known: dict[str, set[int]] | None = None

    def start(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        """Begin a run, or continue that of the folder if MLflow still has it."""
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in settings.items()
        }
        try:
            self._client = MlflowClient(self.uri)
            run = self._find_run(folder)
            if run is None:
                self._known = None
                run = self._client.create_run(self._find_experiment(), run_name=folder.name)
                _remember(folder, run.info.run_id)
            else:
                self._known = {}
                self._client.update_run(run.info.run_id, "RUNNING")
            self.run_id = run.info.run_id
            self._log_settings(texts, run.data.params)
        except (MlflowException, ImportError) as error:
            raise TrainingError(f"MLflow cannot keep this training: {error}") from error

    def _find_run(self, folder: Path) -> Any:
        try:
            run_id = (folder / RUN).read_text(encoding="utf-8").strip()
            run = self._client.get_run(run_id)
        except FileNotFoundError:
            return None
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return run if run.info.lifecycle_stage == "active" else None

    def _find_experiment(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            return self._client.create_experiment(self.experiment)
        return found.experiment_id

    def _log_settings(self, texts: Mapping[str, str], before: Mapping[str, str]) -> None:
        """Parameters of MLflow never change: what has, such as more epochs, becomes a tag."""
        texts = {name: text[:LONGEST] for name, text in texts.items()}
        new = [Param(name, text) for name, text in texts.items() if name not in before]
        for start in range(0, len(new), MOST):
            self._client.log_batch(self.run_id, params=new[start : start + MOST])
        changed = [
            RunTag(name, text) for name, text in texts.items() if before.get(name, text) != text
        ]
        if changed:
            self._client.log_batch(self.run_id, tags=changed)

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send what the run lacks."""
        now = int(1000 * time.time())
        new = [
            Metric(name, value, now, step)
            for name, value in values.items()
            if self._known is None or step not in self._find_steps(name)
        ]
        if new:
            self._client.log_batch(self.run_id, metrics=new)

    def _find_steps(self, name: str) -> set[int]:
        """At which steps a run that is continued had this metric."""
        assert self._known is not None
        if name not in self._known:
            history = self._client.get_metric_history(self.run_id, name)
            self._known[name] = {one.step for one in history}
        return self._known[name]

    def finish(self, outcome: Outcome) -> None:
        """Say how the training ended."""
        self._client.set_terminated(self.run_id, STATUS[outcome])


def _remember(folder: Path, run_id: str) -> None:
    (folder / RUN).parent.mkdir(exist_ok=True)
    write_atomically(folder / RUN, lambda file: file.write(f"{run_id}\n".encode()))
