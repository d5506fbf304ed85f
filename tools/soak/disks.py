"""Disks that are full, read-only or gone: one clear line, and nothing is lost that was there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tools.soak.interruptions import describe_difference
from tools.soak.processes import ForkingServer
from tools.soak.trial import Outcome, SkippedTrial, Trial
from tools.soak.work import WORKS, Reference, Work, collect, do, serve_works

__all__ = ["DISKS", "open_session"]

LARGE = "256m"
_server: ForkingServer | None = None
_references: dict[str, Reference] = {}


@contextmanager
def open_session(
    folder: Path, names: tuple[str, ...] = tuple(WORKS), spoil: tuple[str, ...] = ()
) -> Iterator[None]:
    """A server, and each work done on a disk that is as it should be."""
    global _server
    probe = folder / "probe"
    probe.mkdir()
    with _mounted(probe, LARGE):
        pass
    with serve_works(folder, names, spoil) as (server, references):
        _references.update(references)
        _server = server
        try:
            yield
        finally:
            _server = None
            _references.clear()


def try_case(generator: np.random.Generator, folder: Path) -> Outcome:
    """Do a work on a bad disk, mend the disk, resume the work to its end, and compare."""
    assert _server is not None
    names = sorted(_references)
    work = WORKS[names[generator.integers(len(names))]]
    reference = _references[work.name]
    disk = folder / "disk"
    disk.mkdir()
    home = disk / "home"
    ways = {"full": _fill, "read-only": _protect, "gone": _take_away}
    way = sorted(ways)[generator.integers(len(ways))]
    with _mounted(disk, LARGE):
        home.mkdir()
        story, ends = ways[way](generator, work, disk, folder)
        story = f"{work.name}, {way}: {story}"
        for code, said in ends:
            fault = _find_fault(code, said, reference.code)
            if fault:
                return Outcome("wrong", f"{story}: {fault}")
        code, said = do(_server, work, work.resume(home), folder)
        if code != reference.code:
            return Outcome("wrong", f"{story}: afterwards it ends with {code}: {said[-500:]}")
        difference = describe_difference(collect(home), reference.files)
    if difference:
        return Outcome("wrong", f"{story} {difference}")
    is_refused = any(code == 2 for code, _ in ends)
    return Outcome("refused" if is_refused else "held", f"{story} {ends}")


Ends = list[tuple[int, str]]


def _fill(generator: np.random.Generator, work: Work, disk: Path, folder: Path) -> tuple[str, Ends]:
    """Leave less room than the work needs, twice."""
    assert _server is not None
    whole = _references[work.name].num_bytes + (1 << 14)
    story, ends = "", []
    for _ in range(2):
        used = _measure_used(disk)
        room = max(int(generator.uniform(0, 1.1) * whole), 4096)
        _mount_again(disk, f"size={max(used, room)}")
        story += f"{max(used, room)} bytes of {whole}, "
        ends.append(do(_server, work, work.resume(disk / "home"), folder))
        _mount_again(disk, f"size={LARGE}")
    return story, ends


def _measure_used(disk: Path) -> int:
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _protect(
    generator: np.random.Generator, work: Work, disk: Path, folder: Path
) -> tuple[str, Ends]:
    """Begin on a disk that cannot be written, after a first try that was killed or not made."""
    assert _server is not None
    delay = generator.uniform(0, 1.1 * _references[work.name].seconds)
    has_begun = generator.random() < 0.7
    if has_begun:
        argv = work.begin(disk / "home")
        pid = _server.start(work.function, argv, "/dev/null", "/dev/null")
        time.sleep(delay)
        _server.interrupt(pid, signal.SIGKILL)
        _server.wait(pid)
    _mount_again(disk, "ro")
    end = do(_server, work, work.resume(disk / "home"), folder)
    _mount_again(disk, "rw")
    return f"after {delay:.2f} s" if has_begun else "from the start", [end]


def _take_away(
    generator: np.random.Generator, work: Work, disk: Path, folder: Path
) -> tuple[str, Ends]:
    """Move the folder away while it is written to, and back when the work has ended."""
    assert _server is not None
    home, errors = disk / "home", folder / "errors"
    delay = generator.uniform(0, 1.1 * _references[work.name].seconds)
    pid = _server.start(work.function, work.begin(home), "/dev/null", str(errors))
    time.sleep(delay)
    home.rename(disk / "away")
    code = _server.wait(pid).code
    said = errors.read_text(errors="replace") if errors.exists() else ""
    if home.exists():  # it was made again: what is in it is the beginning of another work
        subprocess.run(["rm", "-rf", str(home)], check=True)
    (disk / "away").rename(home)
    return f"after {delay:.2f} s", [(code, said)]


def _find_fault(code: int, said: str, right: int) -> str:
    """What is wrong with how a work has ended on a bad disk."""
    if code == right and "Traceback" not in said:
        return ""
    if code != 2:
        return f"exit code {code}: {said[-700:]}"
    lines = said.splitlines()
    if len(lines) != 1 or not lines[0].startswith("mirrormargin: error: "):
        return f"it says {said[-700:]!r}"
    return ""


@contextmanager
def _mounted(folder: Path, size: str) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise SkippedTrial(f"no disk can be mounted here: {error.strerror}") from error
    if done.returncode:
        raise SkippedTrial(f"no disk can be mounted here: {' '.join(done.stderr.split())}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _mount_again(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


DISKS = Trial(
    name="disks",
    title="full, read-only and vanishing disks",
    number=60,
    try_case=try_case,
    session=open_session,
)
