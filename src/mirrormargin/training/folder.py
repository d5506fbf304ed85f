r"""``TrainingFolder``: which files lie in the folder of a training; no other code knows.

    config.json              the configuration, its digest, and digests of the data; of a model that
                             was shrunk also from what
    metrics.jsonl            a row for every stretch of steps ("steps") and every epoch ("epoch")
    checkpoint.safetensors   everything that is needed to resume the training
    inputs.json              classes, sizes and vocabulary: to read new inputs without the data
    final.safetensors        weights after the last epoch, by their plain names
    selected.safetensors     weights of the epoch that was best on validation data; of a model that
                             was shrunk, its only ones
    summary.json             accuracies or losses, pruning, sparsity (mirrormargin.training.summary)
    pruned-*.safetensors     what ``mirrormargin prune`` wrote
    delta-*.safetensors      what ``mirrormargin delta`` wrote
    tensorboard/             events, if they were asked for; mlflow/ and wandb/ likewise
    .lock                    while a process trains, or evaluates what it has trained

The configuration comes first, weights and inputs last. Files are replaced by renaming: each is
whole or absent. ``tensor_files``, ``checkpoint``, ``metrics`` and ``summary`` say what they hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mirrormargin.errors import DataError, TrainingError
from mirrormargin.training.config import TrainingConfig, can_extend
from mirrormargin.training.folder_files import (
    CHECKPOINT,
    CONFIG,
    DERIVED,
    INPUTS,
    METRICS,
    SUMMARY,
    TRACKED,
    WEIGHTS,
    FolderFiles,
)
from mirrormargin.training.metrics import MetricsFile, read_rows
from mirrormargin.training.settings import list_changes
from mirrormargin.training.trackers import Tracking

if TYPE_CHECKING:
    from torch import Tensor

    from mirrormargin.data import DataSet, InputForm

__all__ = ["CONFIG", "SUMMARY", "Status", "TrainingFolder"]

REPORTED = ("command", "config", "epochs", "shares", "validation", "weights")  # by reports
Status = Literal["empty", "foreign", "damaged", "begun", "resumable", "finished", "shrunk"]


class TrainingFolder(FolderFiles):
    """The folder of one training, which need not exist yet.

    Example:
        >>> folder = TrainingFolder("runs/imdb")
        >>> folder.status, folder.read_summary()
        ('empty', None)
    """

    @classmethod
    def choose(
        cls, config: TrainingConfig, parent: str | os.PathLike[str] = "runs"
    ) -> TrainingFolder:
        """The folder of a configuration if none is named: ``runs/DATA-SIZE-DIGEST``."""
        return cls(Path(parent) / f"{config.name.replace('/', '-')}-{config.digest()[:8]}")

    @property
    def status(self) -> Status:
        """What is there.

        ``empty``      nothing, or no folder at all
        ``foreign``    other things than a training
        ``damaged``    a training whose configuration cannot be read
        ``begun``      a configuration, but no checkpoint yet
        ``resumable``  a checkpoint
        ``finished``   the weights of a training that has ended
        ``shrunk``     a model that was shrunk from those of another folder
        """
        if not self._has(CONFIG):
            return "foreign" if self._list_files() else "empty"
        try:
            self.read_config()
        except TrainingError:
            return "damaged"
        if self.shrunk_from is not None:
            return "shrunk"
        if self.is_finished:
            return "finished"
        return "resumable" if self._has(CHECKPOINT) else "begun"

    @property
    def is_finished(self) -> bool:
        """Whether the training has ended: its weights and inputs are there."""
        weights = WEIGHTS.values() if self.shrunk_from is None else (WEIGHTS["selected"],)
        return all(self._has(name) for name in (INPUTS, *weights))

    @property
    def shrunk_from(self) -> str | None:
        """Of a model that was shrunk, from which weights of which folder; None for trainings."""
        origin = (self._read_json(CONFIG) or {}).get("shrunk_from")
        return None if origin is None else str(origin)

    def refuse_shrunk(self) -> None:
        """Raise a TrainingError if this is no training, but what was shrunk from one."""
        if (origin := self.shrunk_from) is not None:
            raise TrainingError(
                f"{self.path} holds no training, but a model that was shrunk from {origin}: use"
                " that folder, or choose another"
            )

    # -- the configuration and what is known of the data

    def claim(self, config: TrainingConfig, data: DataSet) -> None:
        """Make this the folder of a training, or make sure that it is.

        A training that is here with fewer epochs becomes this one, and is resumed: what it left at
        its end is removed, the checkpoint stays.

        Raises:
            TrainingError: If it holds another training, one on other data, a damaged one, or
                things that are no training.
        """
        if self._has(CONFIG):
            try:
                found = self.read_config()
            except TrainingError as error:
                raise TrainingError(f"{error}; choose another folder, or remove this one") from None
            self.refuse_shrunk()
            is_longer = can_extend(found, config)
            if found != config and not is_longer:
                changes = ", ".join(list_changes(found, config))
                raise TrainingError(
                    f"{self.path} holds another training (different: {changes}): resume it with its"
                    " own settings, choose another folder, or replace it with --overwrite"
                )
            if not self.knows(data):
                raise TrainingError(
                    f"{self.path} holds a training on other data, or its files have changed: resume"
                    " it with that data, choose another folder, or replace it with --overwrite"
                )
            if is_longer:
                self._write_config(config, data)
                for name in (SUMMARY, INPUTS, *WEIGHTS.values()):
                    (self.path / name).unlink(missing_ok=True)
            return
        if self._list_files():
            raise TrainingError(
                f"{self.path} holds other things than a training: choose a folder that is empty or"
                " does not exist"
            )
        self._write_config(config, data)

    def clear(self) -> None:
        """Remove a training, whole or not, so that another one can begin; other files stay.

        Raises:
            TrainingError: If the folder holds other things than a training.
            RunError: If another process is training here.
        """
        if self.status == "empty":
            return
        if self.status == "foreign":
            raise TrainingError(
                f"{self.path} holds other things than a training, which are not replaced: choose"
                " another folder"
            )
        with self.hold():
            made = [path.name for one in DERIVED for path in self.path.glob(one)]
            # The configuration last: without it the rest would be things of nobody.
            for name in (*WEIGHTS.values(), SUMMARY, INPUTS, METRICS, CHECKPOINT, *made, CONFIG):
                (self.path / name).unlink(missing_ok=True)
            for name in TRACKED:
                shutil.rmtree(self.path / name, ignore_errors=True)

    def read_config(self) -> TrainingConfig:
        """What is trained here.

        Raises:
            TrainingError: If nothing is, or the file is damaged.
        """
        document = self._read_json(CONFIG)
        if document is None:
            raise TrainingError(
                f"{self.path} holds no training on real data: give a folder that mirrormargin train"
                " wrote, such as that of mirrormargin train digits/tiny"
            )
        try:
            return TrainingConfig.from_dict(document["config"])
        except (KeyError, TrainingError) as error:
            raise TrainingError(f"{self.path / CONFIG} is damaged: {error}") from error

    def knows(self, data: DataSet) -> bool:
        """Whether this is the data that is trained on: the same files, as many examples."""
        known = {"sha256": data.sha256, "size": len(data.train)}
        return (self._read_json(CONFIG) or {}).get("data", known) == known

    # -- metrics

    def open_metrics(self, size: int = 0, tracking: Tracking | None = None) -> MetricsFile:
        """Open the metrics for writing; see :class:`MetricsFile`."""
        return MetricsFile(self.path / METRICS, size, tracking)

    def read_metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All rows, or those of one kind; a last line that was cut off is left out.

        Raises:
            TrainingError: If there are none, or rows are damaged or missing.
        """
        # The checkpoint first: the rows that belong to it are on disk before it is.
        whole = 0
        with suppress(TrainingError, KeyError, TypeError, ValueError):
            whole = int((self._read_checkpoint_document() or {})["metrics_bytes"])
        rows = read_rows(self.path / METRICS, whole)
        return [row for row in rows if kind is None or row["kind"] == kind]

    # -- the checkpoint

    def write_checkpoint(self, parts: Mapping[str, Mapping[str, Tensor]], document: Any) -> None:
        """Replace the checkpoint: tensors by part and name, and what JSON can hold."""
        from mirrormargin.training.tensor_files import write_parts

        write_parts(self.path / CHECKPOINT, parts, document)

    def read_checkpoint(self) -> tuple[dict[str, dict[str, Tensor]], Any] | None:
        """Inverse of :meth:`write_checkpoint`; None if there is no checkpoint.

        Raises:
            TrainingError: If it is damaged.
        """
        from mirrormargin.training.tensor_files import read_parts

        return read_parts(self.path / CHECKPOINT) if self._has(CHECKPOINT) else None

    def read_step(self) -> int | None:
        """The step that a resumed training starts after; None if there is no checkpoint.

        Raises:
            TrainingError: If the checkpoint is damaged.
        """
        document = self._read_checkpoint_document()
        return None if document is None else int(document["position"]["step"])

    def _read_checkpoint_document(self) -> Any:
        """What the checkpoint says besides its tensors; None if there is no checkpoint."""
        from mirrormargin.training.tensor_files import read_document

        return read_document(self.path / CHECKPOINT) if self._has(CHECKPOINT) else None

    # -- what a training that has ended leaves

    def write_result(
        self,
        config: TrainingConfig,
        data: InputForm,
        final: Mapping[str, Tensor],
        selected: Mapping[str, Tensor],
        architecture: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the inputs and both sets of weights, with an encoder's sizes: it has ended."""
        from mirrormargin.training.tensor_files import write_tensors

        self._write_json(INPUTS, data.describe_form(), ensure_ascii=False)
        more = {} if architecture is None else {"architecture": architecture}
        document = {"config": config.as_dict(), **more}
        for name, weights in (("final", final), ("selected", selected)):
            write_tensors(self.path / WEIGHTS[name], weights, document)

    def write_shrunk(
        self,
        source: TrainingFolder,
        name: str,
        weights: Mapping[str, Tensor],
        architecture: Mapping[str, Any],
    ) -> None:
        """Write a model that was shrunk from the weights of this name of another folder."""
        from mirrormargin.training.tensor_files import write_tensors

        known = source._read_json(CONFIG) or {}
        origin = f"the {name} weights of {source.path}"
        self._write_json(CONFIG, {**known, "shrunk_from": origin}, indent=2)
        self._write_json(INPUTS, source.read_inputs().describe_form(), ensure_ascii=False)
        document = {"config": known["config"], "architecture": architecture}
        write_tensors(self.path / WEIGHTS["selected"], weights, document)

    def find_weights(self, name: str = "selected") -> Path:
        """The file of the ``final`` or ``selected`` weights.

        Raises:
            TrainingError: If the training has not ended.
        """
        path = self.path / WEIGHTS[name]
        if not self._has(path.name):
            reason = "the training has not ended: resume it with mirrormargin train"
            if self.shrunk_from is not None:
                reason = "of a model that was shrunk there are selected weights alone: use those"
                if name == "selected":
                    reason = "mirrormargin shrink was stopped: call it again"
            raise TrainingError(f"{path} does not exist, because {reason}")
        return path

    def read_weights(self, name: str = "selected") -> tuple[dict[str, Tensor], TrainingConfig]:
        """The ``final`` or ``selected`` weights, and the configuration of their model.

        Raises:
            TrainingError: If the training has not ended, or the file is damaged.
        """
        from mirrormargin.training.tensor_files import read_tensors

        path = self.find_weights(name)
        state, document = read_tensors(path)
        try:
            return state, TrainingConfig.from_dict(document["config"])
        except (KeyError, TypeError) as error:
            raise TrainingError(f"{path} is damaged: it names no configuration") from error

    def read_architecture(self) -> dict[str, Any] | None:
        """What :meth:`write_result` got; None for other models and earlier trainings."""
        from mirrormargin.training.tensor_files import read_document

        found = read_document(self.find_weights("selected"))
        architecture = found.get("architecture") if isinstance(found, dict) else None
        return architecture if isinstance(architecture, dict) else None

    def read_inputs(self) -> InputForm:
        """How the model reads inputs, and what its classes are.

        Raises:
            TrainingError: If the training has not ended, or the file is damaged.
        """
        from mirrormargin.data import InputForm

        path = self.path / INPUTS
        document = self._read_json(INPUTS)
        if document is None:
            raise TrainingError(f"{path} does not exist: the training has not ended")
        try:
            return InputForm.read_form(document)
        except DataError as error:
            raise TrainingError(f"{path} is damaged: {error}") from error

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep what :func:`mirrormargin.training.summary.summarize_training` found."""
        self._write_json(SUMMARY, summary, allow_nan=False)

    def read_summary(self) -> dict[str, Any] | None:
        """The summary; None if the training has not been evaluated.

        Raises:
            TrainingError: If it is damaged.
        """
        return self._read_json(SUMMARY)

    def read_whole_summary(self) -> dict[str, Any]:
        """The summary, with all that a report shows of a training.

        Raises:
            TrainingError: If the training has not been evaluated, or the summary is damaged.
        """
        summary = self.read_summary() or {}
        for key in REPORTED:
            if key not in summary:
                raise TrainingError(f"{self.path / SUMMARY} is damaged: it has no {key!r}")
        return summary

    # -- private

    def _write_config(self, config: TrainingConfig, data: DataSet) -> None:
        document = {
            "digest": config.digest(),
            "config": config.as_dict(),
            "data": {"sha256": data.sha256, "size": len(data.train)},
        }
        self._write_json(CONFIG, document, indent=2)
