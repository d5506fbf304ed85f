"""JSON documents that say themselves whether they are as they were written.

A document carries the checksum of all the rest of it, so that a flipped bit, or a number that
somebody edited, is noticed when it is read and not taken for a result.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirrormargin.errors import MirrorMarginError, RunError

__all__ = ["CHECKSUM", "check_seal", "read_json", "seal"]

CHECKSUM = "checksum"
MOST_BYTES = 1 << 30


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its checksum, a new one if it has one."""
    rest = {key: value for key, value in document.items() if key != CHECKSUM}
    return {**rest, CHECKSUM: _sum(rest)}


def check_seal(
    path: str | Path,
    document: dict[str, Any],
    *,
    error: type[MirrorMarginError] = RunError,
    silent: bool = False,
) -> dict[str, Any]:
    """The document without its checksum, once that is found right.

    A document of an earlier version has none: it is taken as it is, with a warning unless
    ``silent``.

    Raises:
        RunError: (or the class given) If the checksum is another.
    """
    rest = {key: value for key, value in document.items() if key != CHECKSUM}
    if CHECKSUM not in document:
        if not silent:
            warnings.warn(
                f"{path} has no checksum, as files of earlier versions: damage would go unnoticed",
                stacklevel=3,
            )
    elif document[CHECKSUM] != _sum(rest):
        raise error(
            f"{path} is damaged, or was edited: it is not what was written; restore a copy, or"
            " remove it and make it again"
        )
    return rest


def read_json(path: Path, *, error: type[MirrorMarginError] = RunError) -> dict[str, Any]:
    """Read a JSON object from a file that anybody may have written.

    Raises:
        FileNotFoundError: If there is no file.
        RunError: (or the class given) If it cannot be read, is far too large, or holds no object.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise error(f"{path} has {path.stat().st_size:,} bytes: no file of ours is as large")
        document = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is damaged: {problem}") from problem
    if not isinstance(document, dict):
        raise error(f"{path} is damaged: it holds no JSON object")
    return document


def _sum(document: Mapping[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(document)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
