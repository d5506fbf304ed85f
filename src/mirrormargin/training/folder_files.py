"""The files of a training's folder: what they are called, and its JSON documents.

Documents carry a checksum. Files are replaced by renaming: each is whole or absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mirrormargin.errors import TrainingError
from mirrormargin.runs import check_seal, hold_folder, read_json, seal, write_atomically

__all__ = [
    "BOARD",
    "CHECKPOINT",
    "CONFIG",
    "DERIVED",
    "INPUTS",
    "METRICS",
    "SUMMARY",
    "TRACKED",
    "WEIGHTS",
    "FolderFiles",
]

CONFIG, METRICS, CHECKPOINT = "config.json", "metrics.jsonl", "checkpoint.safetensors"
INPUTS, SUMMARY = "inputs.json", "summary.json"
BOARD, LOCK = "tensorboard", ".lock"
TRACKED = (BOARD, "mlflow", "wandb")  # folders of trackers
WEIGHTS = {"final": "final.safetensors", "selected": "selected.safetensors"}
# What commands make of it unless another file is named: it is of this training alone.
DERIVED = ("pruned-*.safetensors", "delta-*.safetensors")
PRUNED = {"safetensors": ".safetensors", "sparse": ".sparse.safetensors"}


class FolderFiles:
    """A folder, which need not exist yet, and what lies in it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"TrainingFolder({str(self.path)!r})"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes from writing here; makes the folder.

        Raises:
            TrainingError: If the folder cannot be made.
            RunError: If another process is training here.
        """
        with hold_folder(self.path, error=TrainingError):
            yield

    def name_pruned(self, share: float, format: str = "safetensors") -> Path:
        """Where a pruned model goes if no file is named."""
        return self.path / f"pruned-{share:g}{PRUNED[format]}"

    def name_delta(self, num_values: int) -> Path:
        """Where a delta goes if no file is named."""
        return self.path / f"delta-{num_values}.safetensors"

    def name_shrunk(self, *shares: str) -> Path:
        """Where a shrunk model goes if no folder is named: beside this one."""
        path = self.path.resolve() if self.path.name in ("", "..") else self.path
        return path.with_name("-".join([path.name, "shrunk", *shares]))

    def owns(self, path: Path) -> bool:
        """Whether a path is one of the training's own files, which nothing else may replace."""
        own = (CONFIG, METRICS, CHECKPOINT, INPUTS, SUMMARY, LOCK, *WEIGHTS.values())
        return path.resolve() in [(self.path / name).resolve() for name in own]

    def _has(self, name: str) -> bool:
        return os.path.isfile(self.path / name)  # False for what cannot even be a path

    def _list_files(self) -> list[Path]:
        """Hidden files are those of a training that was killed at once."""
        if not os.path.isdir(self.path):
            return []
        return [path for path in self.path.iterdir() if not path.name.startswith(".")]

    def _read_json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        if not self._has(name):
            return None
        return check_seal(path, read_json(path, error=TrainingError), error=TrainingError)

    def _write_json(self, name: str, document: Mapping[str, Any], **options: Any) -> None:
        text = json.dumps(seal(document), **options) + "\n"
        write_atomically(self.path / name, lambda file: file.write(text.encode()))
