"""The stored records of stories on real data, which come with the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.runs import write_atomically

__all__ = ["store_tables"]


def store_tables(records: Path, destination: Path) -> list[str]:
    """Write the evidence of every story whose records are there; returns their names."""
    found = read_records(records)
    destination.mkdir(parents=True, exist_ok=True)
    stored = []
    for name, story in STORIES.items():
        evidence = None if story.table is None else story.table.make_evidence(name, found)
        if evidence is not None:
            _write(destination / f"{name}.json", evidence)
            stored.append(name)
    return stored


def _write(path: Path, evidence: Evidence) -> None:
    origin = {key: evidence.origin[key] for key in ("command", "data_sha256", "versions")}
    document: dict[str, Any] = {
        "experiment": evidence.experiment,
        **origin,
        "settings": evidence.settings,
        "seconds": evidence.seconds,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    arrays = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value.tolist())}"
        for key, value in evidence.arrays.items()
    )
    text = "{\n" + ",\n".join([*lines, '"arrays": {\n' + arrays + "\n}"]) + "\n}\n"
    write_atomically(path, lambda file: file.write(text.encode()))
