"""Pieces of work that take a second or two, one for each kind of run, and what they leave.

All that a work writes is below one folder, so that it can be interrupted, put on a bad disk, or
done by several processes at once, and then be compared with what it leaves undisturbed.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.soak.processes import ForkingServer, run_command

__all__ = ["WORKS", "Reference", "Work", "collect", "do", "serve_works"]

# What differs between two runs of the same work: times, and checksums over them.
VOLATILE = ("seconds", "environment", "checksum")
# Its tensors are compared by the training that resumes from it.
NOT_COMPARED = ("checkpoint.safetensors",)
SAVE_EVERY = 0.02  # seconds, in place of a minute


@dataclass(frozen=True)
class Work:
    """One command line.

    Attributes:
        name: A word.
        argv: The command without its folders.
        place: Options that name the folders, with {} for the folder of the work.
        again: What resumes it, from a folder; None if the same command does.
        function: What runs it in a process, by its name.
    """

    name: str
    argv: tuple[str, ...]
    place: tuple[str, ...] = ("--out", "{}/run")
    again: Callable[[Path], list[str] | None] | None = None
    function: str = "tools.soak.processes:run_command"

    def begin(self, folder: Path) -> list[str]:
        """The command line that does it in a folder."""
        return [*self.argv, *(part.format(folder) for part in self.place)]

    def resume(self, folder: Path) -> list[str]:
        """The command line that resumes it there."""
        again = None if self.again is None else self.again(folder)
        return self.begin(folder) if again is None else again


@dataclass(frozen=True)
class Reference:
    """A work that nobody disturbed: its exit code, what it left in how many bytes and seconds."""

    code: int
    files: dict[str, bytes]
    num_bytes: int
    seconds: float


def run_lab(argv: list[str], out: str, errors: str) -> int:
    """A command of the lab that saves often."""
    from mirrormargin.cli.lab import kept_runs

    kept_runs.SAVE_EVERY, kept_runs.MOST_SAVING = SAVE_EVERY, 1e9
    return run_command(argv, out, errors)


def run_campaign(argv: list[str], out: str, errors: str) -> int:
    """A campaign of trainings that take a second all together."""
    from dataclasses import replace

    from mirrormargin.claims.campaign import compared_methods
    from mirrormargin.claims.campaign.grid_search import Method
    from mirrormargin.training.config import DataConfig, OptimizerConfig
    from mirrormargin.training.configurations import find_configuration

    data = DataConfig("digits", num_train=100)
    base = replace(find_configuration("digits/tiny"), epochs=1, data=data, batch_size=20)
    rates = {f"lr{lr}": replace(base, optimizer=OptimizerConfig("SGD", lr)) for lr in (0.1, 0.01)}
    compared_methods.METHODS = (
        Method("digits/tiny", "SGD", rates, seeds=(0, 1)),
        Method("digits/tiny", "MirrorAdam p=1.1", {"lr0.003": base}, seeds=(0,)),
    )
    return run_command(argv, out, errors)


def _resume_lab(folder: Path) -> list[str] | None:
    if not (folder / "run" / "run.json").exists():
        return None
    return ["lab", "train", "--resume", str(folder / "run"), "--threads", "1", "--quiet"]


_REPLACE = ("--quiet", "--overwrite")
WORKS = {
    work.name: work
    for work in (
        Work(
            "train",
            (
                *("train", "digits/tiny", "--epochs", "2", "--num-train", "200"),
                *("--batch-size", "20", "--threads", "1", "--checkpoint-every", "0", "--quiet"),
            ),
        ),
        Work(
            "lab",
            (
                *("lab", "train", "unit_sphere", "--seed", "1-4", "--p", "1.75", "3"),
                *("--steps", "20000", "--threads", "1", "--quiet"),
            ),
            again=_resume_lab,
            function="tools.soak.work:run_lab",
        ),
        Work("flow", ("lab", "flow", "unit_sphere", "--p", "2", "3", "--decades", "20", *_REPLACE)),
        Work(
            "path",
            ("lab", "path", "unit_sphere", "--p", "2", "1.75", "--num-radii", "6", *_REPLACE),
        ),
        Work(
            "solve",
            ("lab", "solve", "unit_sphere", "--p", "1.5", "2", "--seed", "1-5", *_REPLACE),
            ("--out", "{}/solution.json"),
        ),
        Work(
            "reproduce",
            ("reproduce", "A.alg", "A.fig.trajectory", "--workers", "1", "--quiet"),
        ),
        Work(
            "campaign",
            ("campaign", "--workers", "1", "--quiet"),
            ("--records", "{}/records", "--runs", "{}/runs"),
            function="tools.soak.work:run_campaign",
        ),
    )
}


def do(server: ForkingServer, work: Work, argv: list[str], folder: Path) -> tuple[int, str]:
    """Run a command line to its end; returns its exit code and what it said on stderr."""
    out, errors = folder / ".out", folder / ".errors"
    code = server.wait(server.start(work.function, argv, str(out), str(errors))).code
    said = errors.read_text(errors="replace")
    out.unlink()
    errors.unlink()
    return code, said


@contextmanager
def serve_works(
    folder: Path,
    names: tuple[str, ...],
    spoil: tuple[str, ...],
    warm: tuple[tuple[Any, ...], ...] = (),
) -> Iterator[tuple[ForkingServer, dict[str, Reference]]]:
    """A server, and what each work gives when nobody disturbs it.

    Args:
        folder: Where the works are done.
        names: Of the works.
        spoil: Functions that the server calls after that.
        warm: Calls that it makes before, so that what they import and compile is there.
    """
    with ForkingServer(path=(Path(__file__).parents[2] / "tests",)) as server:
        references = _make_references(server, names, folder / "references")
        for call in (*warm, *((function,) for function in spoil)):
            server.warm(*call)
        yield server, references


def _make_references(
    server: ForkingServer, names: tuple[str, ...], folder: Path
) -> dict[str, Reference]:
    """Do each work undisturbed, first in the server, so that it is compiled there."""
    references = {}
    for name in names:
        work = WORKS[name]
        own = folder / name
        for part in ("warm", "alone"):
            (own / part).mkdir(parents=True)
        server.warm("tools.soak.work:warm", name, str(own / "warm"))
        start = time.monotonic()
        code, said = do(server, work, work.begin(own / "alone"), own)
        if code not in (0, 1):
            raise RuntimeError(f"{' '.join(work.argv)} ended with {code}: {said}")
        seconds = time.monotonic() - start
        files = collect(own / "alone")
        num_bytes = sum((own / "alone" / one).stat().st_size for one in files)
        references[name] = Reference(code, files, num_bytes, seconds)
    return references


def warm(name: str, folder: str) -> None:
    """Do a work in this process."""
    import os

    import torch

    torch.set_num_threads(1)
    work = WORKS[name]
    kept = [os.dup(number) for number in (1, 2)]
    module, _, function = work.function.partition(":")
    call = {"run_lab": run_lab, "run_campaign": run_campaign}.get(function, run_command)
    try:
        call(work.begin(Path(folder)), os.devnull, os.devnull)
    finally:
        for number, file in zip((1, 2), kept, strict=True):
            os.dup2(file, number)
            os.close(file)


def collect(folder: Path) -> dict[str, bytes]:
    """Everything below a folder that must not depend on what happened on the way."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[str(path.relative_to(folder))] = _normalize(path, str(folder).encode())
    return files


def _normalize(path: Path, folder: bytes) -> bytes:
    if path.name in NOT_COMPARED:
        return b""
    contents = path.read_bytes().replace(folder, b"FOLDER")
    if path.suffix == ".json":
        return json.dumps(_drop(json.loads(contents)), sort_keys=True).encode()
    if path.suffix == ".npz":
        with np.load(io.BytesIO(path.read_bytes())) as arrays:
            return b"".join(
                f"{name} {arrays[name].dtype} {arrays[name].shape}".encode()
                + np.ascontiguousarray(arrays[name]).tobytes()
                for name in sorted(arrays.files)
            )
    return contents


def _drop(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop(one) for key, one in value.items() if key not in VOLATILE}
    return [_drop(one) for one in value] if isinstance(value, list) else value
