r"""Records of trainings: one small JSON file each, in folders by configuration and method.

key          where the file is, without .json
command      what makes the same training
digest       of the configuration; a record of another one counts as absent
config, data (name, note, sha256 of every file), environment, threads
epochs, steps, selected_epoch, seconds, validation, test, weights, selection
             see mirrormargin.training.summary; or
failed       why the training ended early, such as a loss that is not finite
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mirrormargin.errors import ClaimError
from mirrormargin.runs import write_atomically

__all__ = ["read_records", "write_record"]


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """All records below a folder, by key.

    Raises:
        ClaimError: If one is damaged.
    """
    records = {}
    for path in sorted(folder.glob("*/*/*.json")):
        try:
            record = json.loads(path.read_bytes())
            records[record["key"]] = record
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClaimError(
                f"the record {path} is damaged: remove it, and it is made again"
            ) from error
    return records


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write a record to the file that its key names, atomically."""
    path = folder / f"{record['key']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # One line a part: small, and still readable in a diff.
    parts = (f" {json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in record.items())
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    write_atomically(path, lambda file: file.write(text.encode()))
