"""JSON documents that anybody may have written, and that say whether they were changed since.

:func:`parse_json` and :func:`read_json` take what JSON allows and no more: UTF-8, no key twice, no
``NaN`` where it is not wanted, at most 64 MiB. A document carries the checksum of all the rest of
it, so that a flipped bit, or a number that somebody edited, is noticed when it is read and not
taken for a result.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirrormargin.errors import MirrorMarginError, RunError

__all__ = [
    "CHECKSUM",
    "MOST_BYTES",
    "check_document",
    "check_seal",
    "parse_json",
    "read_json",
    "read_limited",
    "seal",
]

CHECKSUM = "checksum"
MOST_BYTES = 1 << 26  # of a document; as Python objects it may take twenty times as much
MOST_DEPTH = 100  # of brackets within brackets


def check_document(
    name: str, document: Any, *, error: type[MirrorMarginError] = RunError
) -> dict[str, Any]:
    """What a caller wants to have written, {} for None, once JSON can hold all of it.

    Raises:
        RunError: (or the class given) If it is no mapping, or holds other things.
    """
    if document is None:
        return {}
    try:
        if not isinstance(document, Mapping):
            raise TypeError("it is no dictionary")
        return parse_json(json.dumps(dict(document), allow_nan=False))
    except Exception as problem:  # objects may raise what they like
        reason = " ".join(str(problem).split())[:200]
        raise error(
            f"{name} cannot be written as JSON ({reason}): give a dictionary of texts, finite"
            " numbers, lists and dictionaries"
        ) from None


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
        RunError: (or the class given) If it cannot be read, or :func:`parse_json` refuses it, or it
            holds no object.
    """
    try:
        document = parse_json(read_limited(path))
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise error(f"{path} is damaged: {problem}") from problem
    if not isinstance(document, dict):
        raise error(f"{path} is damaged: it holds no JSON object")
    return document


def read_limited(path: Path) -> bytes:
    """The contents of a file, up to one byte more than :func:`parse_json` takes."""
    with open(path, "rb") as file:
        return file.read(MOST_BYTES + 1)


def parse_json(text: bytes | str, *, finite: bool = False, encodable: bool = True) -> Any:
    """What a text of JSON says, from whomever it is.

    Args:
        text: As bytes, in UTF-8.
        finite: Whether the constants NaN and Infinity are refused.
        encodable: Whether halves of characters (lone surrogates) are refused: they can be written
            in JSON, but neither to a file nor to a terminal.

    Raises:
        ValueError: If it is no JSON, far too large or too deeply nested, has a key twice, or a
            number of thousands of digits.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes, and no document is as large")
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        document = json.loads(
            text,
            object_pairs_hook=_refuse_twice,
            parse_constant=_refuse_constant if finite else None,
        )
        _check_depth(document, MOST_DEPTH)
        if encodable and ("\\ud" in text or "\\uD" in text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character, a lone surrogate") from None
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep") from None
    return document


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {name[:60]!r} twice")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, but numbers must be finite")


def _check_depth(value: Any, most: int) -> None:
    """Python's own limit depends on who calls: what one command can read, every one shall."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return
    if most == 0:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
    for item in value:
        if isinstance(item, dict | list):
            _check_depth(item, most - 1)


def _sum(document: Mapping[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(document)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
