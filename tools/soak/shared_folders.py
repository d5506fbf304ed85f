"""Two and more processes in one folder: one works, the others wait or are told to, none is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tools.soak.interruptions import describe_difference
from tools.soak.processes import ForkingServer, report
from tools.soak.trial import Outcome, Trial
from tools.soak.work import WORKS, Reference, collect, do, serve_works

__all__ = ["SHARED_FOLDERS", "open_session"]

SECONDS = 1.0  # that readers and writers of one run take
_server: ForkingServer | None = None
_references: dict[str, Reference] = {}


@contextmanager
def open_session(
    folder: Path, names: tuple[str, ...] = tuple(WORKS), spoil: tuple[str, ...] = ()
) -> Iterator[None]:
    """A server, and each work done by one process alone."""
    global _server
    warm = (
        ("tools.soak.shared_folders:write_versions", str(folder / "warm"), 0, 0.0),
        ("tools.soak.shared_folders:read_versions", str(folder / "warm"), 0.0),
    )
    with serve_works(folder, names, spoil, warm) as (server, references):
        _references.update(references)
        _server = server
        try:
            yield
        finally:
            _server = None
            _references.clear()


def try_case(generator: np.random.Generator, folder: Path) -> Outcome:
    """Several processes do the same work in one folder, or write and read one run."""
    ways: list[Callable[..., Outcome]] = [_do_together, _do_together, _replace_and_read]
    return ways[generator.integers(len(ways))](generator, folder)


def _do_together(generator: np.random.Generator, folder: Path) -> Outcome:
    """The same command, two to four times, a little apart; readers look at it all the time."""
    assert _server is not None
    names = sorted(_references)
    work = WORKS[names[generator.integers(len(names))]]
    reference = _references[work.name]
    home = folder / "home"
    home.mkdir()
    pids, errors, story = [], [], work.name
    looks = _server.start("tools.soak.shared_folders:look", str(home), 1.5 * reference.seconds)
    for number in range(generator.integers(2, 5)):
        errors.append(folder / f"errors-{number}")
        argv = work.begin(home)
        pids.append(_server.start(work.function, argv, "/dev/null", str(errors[-1])))
        pause = generator.uniform(0, 0.7 * reference.seconds) * (generator.random() < 0.7)
        story += f", next after {pause:.2f} s"
        time.sleep(pause)
    codes = [_server.wait(pid).code for pid in pids]
    looked = _server.wait(looks)
    said = [path.read_text(errors="replace") if path.exists() else "" for path in errors]
    if looked.code:
        return Outcome("wrong", f"{story}: a reader failed: {looked.said}")
    for code, text in zip(codes, said, strict=True):
        lines = text.splitlines()
        is_told = code == 2 and len(lines) == 1 and _is_told(lines[0])
        if "Traceback" in text or not (code == reference.code or is_told):
            return Outcome("wrong", f"{story}: exit code {code}: {text[-700:]}")
    if reference.code not in codes:
        return Outcome("wrong", f"{story}: nobody did the work: {said}")
    difference = describe_difference(collect(home), reference.files)
    if difference:
        return Outcome("wrong", f"{story} {difference}")
    if 2 in codes:
        code, text = do(_server, work, work.resume(home), folder)
        if code != reference.code:
            return Outcome("wrong", f"{story}: afterwards it ends with {code}: {text[-700:]}")
    return Outcome("refused" if 2 in codes else "held", f"{story} {codes}")


def _is_told(line: str) -> bool:
    return any(text in line for text in ("another command is writing", "holds a run already"))


def look(folder: str, seconds: float) -> int:
    """Read whatever trainings, runs and claims are below a folder, again and again."""
    from mirrormargin.claims.claims_file import CLAIMS_FILE, read_claims
    from mirrormargin.errors import MirrorMarginError
    from mirrormargin.runs import RUN_FILE, read_run
    from mirrormargin.runs.documents import read_json
    from mirrormargin.training.folder import TrainingFolder

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # os.walk passes over folders that vanish meanwhile; rglob does not.
        found = [Path(where, name) for where, _, names in os.walk(folder) for name in names]
        for path in (path for path in found if path.suffix == ".json"):
            try:
                if path.name == RUN_FILE:
                    read_run(path.parent, read_json(path)["kind"])
                elif path.name == CLAIMS_FILE:
                    read_claims(path.parent)
                elif path.name == "config.json":
                    training = TrainingFolder(path.parent)
                    training.read_config()
                    training.read_summary()
                    training.read_step()
                    if (path.parent / "metrics.jsonl").exists():
                        training.read_metrics()
            except FileNotFoundError:
                continue
            except MirrorMarginError as error:
                if path.parent.exists() and path.exists():  # parts of evidence are removed
                    report(" ".join(str(error).split()))
                    return 1
        time.sleep(0.002)
    return 0


def _replace_and_read(generator: np.random.Generator, folder: Path) -> Outcome:
    """Two or three processes replace a run as fast as they can, and two read it."""
    assert _server is not None
    home, count = str(folder / "home"), int(generator.integers(2, 4))
    write_versions(home, 0, 0.0)
    writers = [
        _server.start("tools.soak.shared_folders:write_versions", home, number + 1, SECONDS)
        for number in range(count)
    ]
    readers = [
        _server.start("tools.soak.shared_folders:read_versions", home, SECONDS) for _ in range(2)
    ]
    ends = [_server.wait(pid) for pid in (*writers, *readers)]
    counts = [int(end.said[-1]) if end.code == 0 and end.said else 0 for end in ends]
    story = f"{count} writers and 2 readers of one run: {counts} times"
    for end in ends:
        if end.code:
            return Outcome("wrong", f"{story}: {end.said}")
    left = sorted(path.name for path in Path(home).iterdir())
    if len(left) != 2 or min(counts) == 0:
        return Outcome("wrong", f"{story}: {left}")
    return Outcome("held", story)


def write_versions(folder: str, writer: int, seconds: float) -> int:
    """Replace a run again and again, at least once."""
    from mirrormargin.errors import MirrorMarginError
    from mirrormargin.runs import write_run

    end, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < end:
        version = 1_000_000 * writer + number
        try:
            write_run(folder, "version", {"version": version}, {"a": np.full(5_000, version)})
        except MirrorMarginError as error:
            report(" ".join(str(error).split()))
            return 1
        number += 1
    report(str(number))
    return 0


def read_versions(folder: str, seconds: float) -> int:
    """Read a run again and again, and make sure that its two files are of one version."""
    from mirrormargin.errors import MirrorMarginError
    from mirrormargin.runs import read_run

    end, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < end:
        try:
            document, arrays = read_run(folder, "version")
        except MirrorMarginError as error:
            report(" ".join(str(error).split()))
            return 1
        if not (arrays["a"] == document["version"]).all():
            report("the arrays are of another version than the document")
            return 1
        number += 1
    report(str(number))
    return 0


SHARED_FOLDERS = Trial(
    name="shared-folders",
    title="two and more processes in one folder",
    number=50,
    try_case=try_case,
    session=open_session,
)
