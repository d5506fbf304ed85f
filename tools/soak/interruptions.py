"""Signals at random moments: nothing is lost, and what resumes ends at the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.soak.processes import ForkingServer
from tools.soak.trial import Outcome, Trial
from tools.soak.work import WORKS, Reference, Work, collect, do, serve_works

__all__ = ["INTERRUPTIONS", "describe_difference", "open_session"]

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
WORDS = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}
PAUSE = 0.005  # seconds in which main() takes charge of signals
START_UPS = 0.1  # share of the cases that begin a Python of their own
# A shell that starts the trial in the background lets it ignore interrupts.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from mirrormargin.cli import main
print("go", flush=True)
sys.exit(main({!r}))
"""


@dataclass
class _Session:
    server: ForkingServer
    references: dict[str, Reference]


_session: _Session | None = None


@contextmanager
def open_session(
    folder: Path, names: tuple[str, ...] = tuple(WORKS), spoil: tuple[str, ...] = ()
) -> Iterator[None]:
    """A server, and each work done undisturbed; ``spoil`` is called in the server after that."""
    global _session
    with serve_works(folder, names, spoil) as (server, references):
        _session = _Session(server, references)
        try:
            yield
        finally:
            _session = None


def try_case(generator: np.random.Generator, folder: Path) -> Outcome:
    """Interrupt a work up to three times, resume it to the end, and compare."""
    assert _session is not None
    names = sorted(_session.references)
    work = WORKS[names[generator.integers(len(names))]]
    if generator.random() < START_UPS:
        return _interrupt_start(generator, work, folder)
    reference = _session.references[work.name]
    home = folder / "home"
    home.mkdir()
    argv, story = work.begin(home), work.name
    for _ in range(generator.integers(1, 4)):
        number = SIGNALS[generator.integers(len(SIGNALS))]
        delay = generator.uniform(0, 1.1 * reference.seconds)
        story += f", {number.name} after {delay:.2f} s"
        code, fault = _interrupt(work, argv, folder, number, delay, reference.code)
        if fault:
            return Outcome("wrong", f"{story}: {fault}")
        if code == reference.code:
            break
        argv = work.resume(home)
    if code != reference.code:
        code, said = do(_session.server, work, argv, folder)
        if code != reference.code:
            return Outcome("wrong", f"{story}: resuming it ends with {code}: {said[-500:]}")
    difference = describe_difference(collect(home), reference.files)
    return Outcome("wrong" if difference else "held", f"{story} {difference}")


def _interrupt(
    work: Work, argv: list[str], folder: Path, number: signal.Signals, delay: float, right: int
) -> tuple[int, str]:
    """Run a command line into a signal; returns its exit code, and what is wrong with its end."""
    assert _session is not None
    server, errors = _session.server, folder / "errors"
    pid = server.start(work.function, argv, "/dev/null", str(errors))
    server.wait_until_begun(pid)
    time.sleep(PAUSE + delay)
    server.interrupt(pid, number)
    code = server.wait(pid).code
    said = errors.read_text(errors="replace") if errors.exists() else ""
    return code, _find_fault(code, said, number, right)


def _find_fault(code: int, said: str, number: signal.Signals, right: int | None) -> str:
    """What is wrong with how a process has ended after a signal."""
    if number == signal.SIGKILL:
        return "" if code in (-9, right) else f"exit code {code}: {said[-500:]}"
    if code == right and not any("Traceback" in line for line in said.splitlines()):
        return ""  # it was faster
    lines = said.splitlines()
    if code != 128 + number:
        return f"exit code {code}: {said[-500:]}"
    if not 1 <= len(lines) <= 2 or not all(line.startswith("mirrormargin: ") for line in lines):
        return f"it says {said[-500:]!r}"
    return "" if WORDS[number] in said else f"it does not say that it was {WORDS[number]}: {said!r}"


def _interrupt_start(generator: np.random.Generator, work: Work, folder: Path) -> Outcome:
    """A signal while the libraries are imported, in a Python of its own."""
    number = (signal.SIGTERM, signal.SIGINT)[generator.integers(2)]
    delay = generator.uniform(0.0, 1.5)
    story = f"start of {work.name}, {number.name} after {delay:.2f} s"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work.begin(folder))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(PAUSE + delay)
    process.send_signal(number)
    said = process.communicate(timeout=120)[1]
    fault = _find_fault(process.returncode, said, number, None)
    return Outcome("wrong" if fault else "held", f"{story}: {fault}")


def describe_difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """Which files are missing, too many, or not the same; empty if all is right."""
    parts = {
        "is missing": expected.keys() - found.keys(),
        "is left over": found.keys() - expected.keys(),
        "differs": {name for name in expected if found.get(name, expected[name]) != expected[name]},
    }
    return "; ".join(f"{', '.join(sorted(names))} {what}" for what, names in parts.items() if names)


INTERRUPTIONS = Trial(
    name="interruptions",
    title="SIGKILL, SIGTERM and SIGINT at random moments",
    number=300,
    try_case=try_case,
    session=open_session,
)
