"""Downloads that resume where they stopped, and end with the right file or none.

What has come is kept as ``<name>.part``; the file has its name only when size and digest are right.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrormargin.data.files import BLOCK, compute_sha256
from mirrormargin.errors import DataError
from mirrormargin.runs import hold_lock

__all__ = ["RemoteFile", "download"]

TRIES = 5  # in a row without anything new
PAUSE = 1.0  # seconds before the second try, doubled before each further one
TIMEOUT = 30.0  # seconds without an answer
MOST_BYTES = 1 << 30  # of a file whose size is not known
AGAIN = (408, 425, 429, 500, 502, 503, 504)  # statuses that may pass

UNREACHABLE = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server.

    Attributes:
        url: Its address.
        name: Under which it is kept, a path below a folder.
        size: In bytes, None if it is not known.
        sha256: None if it is not known.
    """

    url: str
    name: str
    size: int | None = None
    sha256: str | None = None


class _TooLong(Exception):  # noqa: N818 - never seen outside
    """The server sends more than the file has."""


def download(remote: RemoteFile, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a file unless it is there; of two processes, one waits for the other.

    Args:
        remote: What to fetch.
        folder: Where to keep it; made if it does not exist.
        progress: Called with the bytes that have come, and how many there are (0: not known).

    Raises:
        DataError: If it cannot be fetched or written, or is not the published file.
    """
    path = folder / remote.name
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(path.with_name(f".{path.name}.lock"), wait=True):
            if path.is_file():  # from an earlier call, or put there by hand
                fault = _find_fault(remote, path)
                if fault is not None:
                    raise DataError(
                        f"{path} is not the published file: {fault}. Remove it, and load again"
                    )
                return path
            _fetch(remote, part, progress)
            fault = _find_fault(remote, part)
            if fault is not None:
                part.unlink()
                raise DataError(
                    f"{remote.url} is not the published file: {fault}. It was discarded; load"
                    f" again, or put the right file at {path}"
                )
            os.replace(part, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _fetch(remote: RemoteFile, part: Path, progress: Progress | None) -> None:
    """Try, and resume after what has come, until all is there."""
    tries, pause = 0, PAUSE
    while True:
        before = part.stat().st_size if part.exists() else 0
        if remote.size is not None and before == remote.size:
            return
        try:
            if _receive(remote, part, before, progress):
                return
            problem = "the connection was closed before the end"
        except _TooLong as error:
            part.unlink(missing_ok=True)
            most = MOST_BYTES if remote.size is None else remote.size
            raise DataError(
                f"{remote.url} is not the published file: it has {error} bytes, not {most:,}, or"
                f" even more. It was discarded; put the right file at {_strip_part(part)}"
            ) from None
        except urllib.error.HTTPError as error:
            error.close()
            problem = f"the server answered {error.code} {error.reason}"
            if error.code == 416:  # what is kept is longer than the file: begin again
                part.unlink(missing_ok=True)
            elif error.code not in AGAIN:
                raise DataError(
                    f"{remote.url} cannot be fetched: {problem}. If the file has moved, fetch it"
                    f" from elsewhere and put it at {_strip_part(part)}"
                ) from error
        except UNREACHABLE as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        after = part.stat().st_size if part.exists() else 0
        if after > before:
            tries, pause = 0, PAUSE
        tries += 1
        if tries >= TRIES:
            raise DataError(
                f"{remote.url} cannot be fetched: {problem}, {TRIES} times. Check the network and"
                " load again: what has come is kept"
            )
        time.sleep(pause)
        pause *= 2


def _receive(remote: RemoteFile, part: Path, start: int, progress: Progress | None) -> bool:
    """Append what the server sends; whether that was all."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "mirrormargin"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(remote.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != 206 or not _begins_at(response, start):
            if response.status == 206:
                part.unlink(missing_ok=True)
                return False  # a part of something else
            start = 0  # the server sends everything
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdecimal() else remote.size
        done = start
        with open(part, "ab" if start else "wb") as file:
            while block := _read(response):
                done += len(block)
                if done > (MOST_BYTES if remote.size is None else remote.size):
                    raise _TooLong(f"{done:,}")
                file.write(block)
                if progress is not None:
                    progress(done, total or 0)
            file.flush()
            os.fsync(file.fileno())
    return total is None or done >= total


def _read(response: Any) -> bytes:
    """A block; what had come when a connection broke is worth keeping, and the rest is missing."""
    try:
        return response.read(BLOCK)
    except http.client.IncompleteRead as error:
        return error.partial


def _begins_at(response: Any, start: int) -> bool:
    """Whether an answer is the part from ``start`` on: ``Content-Range: bytes 5-9/10``."""
    unit, _, span = response.headers.get("Content-Range", "").partition(" ")
    return unit == "bytes" and span.partition("-")[0] == str(start)


def _find_fault(remote: RemoteFile, path: Path) -> str | None:
    """In what a file is not the published one."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"it has {size:,} bytes, not {remote.size:,}"
    if remote.sha256 is not None and (found := compute_sha256(path)) != remote.sha256:
        return f"its sha256 is {found}, not {remote.sha256}"
    return None


def _strip_part(part: Path) -> Path:
    return part.with_name(part.name.removesuffix(".part"))
