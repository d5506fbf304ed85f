r"""Processes that start at once, to be interrupted at any moment.

A server is started once, imports and compiles everything, and forks a process for each call:
starting one from scratch would take longer than its work. It talks in lines,

    -> {"warm": ["module:function", [arguments]]}      called in the server itself
    -> {"call": ["module:function", [arguments]]}      called in a new process
    -> {"kill": pid, "signal": number}                 only as long as the process is its own
    <- warm, or pid <n>; then say <n> <text> whenever that process reports something, end <n> <code>

A function's integer is the exit code of its process.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Ended", "ForkingServer", "report", "run_command"]

ROOT = Path(__file__).parents[2]
TIMEOUT = 120.0  # seconds that no process may take, many times what each needs


@dataclass
class Ended:
    """A process that has ended.

    Attributes:
        code: Its exit code, negative for a signal.
        said: What it reported.
    """

    code: int
    said: list[str] = field(default_factory=list)


class ForkingServer:
    """Any number of processes at a time, each a call of a function by its name.

    Args:
        path: Folders with modules, beside those that are found anyway.
        env: Variables of the environment.
    """

    def __init__(self, path: tuple[Path, ...] = (), env: dict[str, str] | None = None) -> None:
        folders = [str(ROOT), *map(str, path), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.soak.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **(env or {}),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(folders),
            },
        )
        self._running: dict[int, Ended] = {}
        self._over: dict[int, Ended] = {}
        self._lines: deque[bytes] = deque()
        self._rest = b""

    def __enter__(self) -> ForkingServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def warm(self, function: str, *arguments: Any) -> None:
        """Call a function in the server, so that its processes need not import or compile."""
        self._send({"warm": [function, arguments]})
        while self._receive(600.0)[0] != "warm":
            pass

    def start(self, function: str, *arguments: Any) -> int:
        """Begin a process; returns its number."""
        self._send({"call": [function, arguments]})
        while True:
            word, pid, _ = self._receive(TIMEOUT)
            if word == "pid":
                self._running[pid] = Ended(0)
                return pid

    def interrupt(self, pid: int, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self._send({"kill": pid, "signal": int(number)})

    def wait(self, pid: int, on_say: Callable[[str], object] | None = None) -> Ended:
        """Wait for the end of a process."""
        while pid not in self._over:
            word, who, text = self._receive(TIMEOUT)
            if word == "say" and who == pid and on_say is not None:
                on_say(text)
        return self._over.pop(pid)

    def wait_until_begun(self, pid: int) -> None:
        """Wait until a process has said something, or has ended."""
        while pid in self._running and not self._running[pid].said:
            self._receive(TIMEOUT)

    def close(self) -> None:
        """End the server, once all processes have ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT)
        self._process.stdout.close()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _receive(self, seconds: float) -> tuple[str, int, str]:
        """The next line, in its parts; what processes say and how they end is kept."""
        assert self._process.stdout is not None
        while not self._lines:
            ready = select.select([self._process.stdout], [], [], seconds)[0]
            block = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not block:
                why = "ended" if ready else f"said nothing for {seconds:g} seconds"
                raise RuntimeError(f"the server of processes {why}")
            *lines, self._rest = (self._rest + block).split(b"\n")
            self._lines.extend(lines)
        word, _, rest = self._lines.popleft().decode().partition(" ")
        who, _, text = rest.partition(" ")
        pid = int(who or 0)
        if word == "say" and pid in self._running:
            self._running[pid].said.append(text)
        if word == "end":
            ended = self._running.pop(pid)
            ended.code = int(text)
            self._over[pid] = ended
        return word, pid, text


def report(text: str) -> None:
    """Say something to whoever started this process, if a server did."""
    if _talk is not None:
        _write(f"say {os.getpid()} {text}")


def run_command(argv: list[str], out: str, errors: str) -> int:
    """A command line of the product, its output in two files; as a process of its own."""
    for number, path in ((1, out), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    from mirrormargin.cli import main

    report("begun")  # from here on signals are handled
    return main(argv)


_talk: int | None = None  # where the server's lines go: a process may redirect its output


def _write(line: str) -> None:
    assert _talk is not None
    os.write(_talk, line.encode() + b"\n")  # whole lines, whoever is killed


def _call(function: str, arguments: list[Any]) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)


def _serve() -> None:
    global _talk
    # A shell that starts the trial in the background lets it ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _talk = os.dup(1)
    os.dup2(2, 1)
    processes: set[int] = set()
    rest = b""
    while True:
        ready = select.select([0], [], [], 0.005 if processes else None)[0]
        for pid in list(processes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                processes.remove(pid)
                _write(f"end {pid} {os.waitstatus_to_exitcode(status)}")
        if not ready:
            continue
        block = os.read(0, 1 << 16)
        if not block:
            break
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            _answer(json.loads(line), processes)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)


def _answer(request: dict[str, Any], processes: set[int]) -> None:
    if "warm" in request:
        _call(*request["warm"])
        _write("warm 0")
    elif "kill" in request:
        if request["kill"] in processes:  # not reaped yet: nobody else has this number
            os.kill(request["kill"], request["signal"])
    else:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                result = _call(*request["call"])
                code = result if isinstance(result, int) else 0
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        processes.add(pid)
        _write(f"pid {pid}")


if __name__ == "__main__":
    # What the processes import must find this module, and not a second one of another name.
    from tools.soak import processes as itself

    itself._serve()
