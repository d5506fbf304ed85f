"""The trial of bad calls: functions, commands and files that make no sense.

A case is one of three: a public function or method of which one or two arguments are replaced by
values of the catalogue, a command with one or two options of that sort, or a bad file. Cases are
made in a process of their own, which is watched: a hang, a crash or a gigabyte is a wrong outcome
and not the end of the trial.

held      the call was valid after all; what it gave is finite where it should be
refused   an error of ours, in one line without control characters
wrong     another error, a hang of 10 seconds, a gigabyte of memory, a crash, a page that would run
          a script of a stranger, or what must be refused is accepted
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import resource
import shutil
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tools.soak.judging import SECONDS, judge_call, judge_words
from tools.soak.samples import choose
from tools.soak.trial import Outcome, Trial

__all__ = ["BAD_CALLS"]

START = 180  # seconds for the process to import, compile and train what cases damage
MOST_GROWTH = 1 << 30  # bytes by which the peak of memory may grow in a case
MOST_MEMORY = 6 << 30  # that the process may have at all

Generator = np.random.Generator


# -- the process that makes the cases


class Worker:
    """Makes cases one after another, and is replaced when one of them ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._pipe: Any = None

    def make(self, seed: int, folder: Path) -> Outcome:
        if self._process is None:
            self.start()
        self._pipe.send((seed, str(folder)))
        if not self._pipe.poll(SECONDS + 5):
            self.close()
            return Outcome("wrong", f"it hangs: nothing for {SECONDS + 5} seconds (seed {seed})")
        try:
            kind, what = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            return Outcome("wrong", f"the process ended with {code} (seed {seed})")
        return Outcome(kind, what)

    def start(self) -> None:
        self._pipe, other = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(other, str(self._folder)), daemon=True
        )
        self._process.start()
        other.close()
        try:
            if not self._pipe.poll(START) or self._pipe.recv() != "ready":
                raise EOFError
        except EOFError:
            self.close()
            raise RuntimeError("the process that makes the cases did not start") from None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None


def _serve(pipe: Any, name: str) -> None:
    folder = Path(name)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.environ["MIRRORMARGIN_DATA"] = str(folder / "data")
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    from tools.soak.samples import make_samples

    samples = folder / "samples"
    if not (samples / "ready").exists():
        shutil.rmtree(samples, ignore_errors=True)
        samples.mkdir()
        with _silence():
            make_samples(samples)
        (samples / "ready").touch()
    _warm_up(folder, samples)
    pipe.send("ready")
    while True:
        seed, own = pipe.recv()
        os.chdir(own)
        before = _measure_peak()
        try:
            kind, what = _make_case(np.random.default_rng(seed), Path(own), samples)
        except BaseException:
            kind, what = "wrong", f"the trial itself failed: {traceback.format_exc()}"
        growth = _measure_peak() - before
        if growth > MOST_GROWTH:
            kind, what = "wrong", f"{what}: it took {growth >> 20:,} MiB"
        os.chdir(folder)
        pipe.send((kind, what))


def _warm_up(folder: Path, samples: Path) -> None:
    """Import and compile before time is measured."""
    os.chdir(folder)
    page = ("report", str(samples / "training"), "--out", "page.html")
    with _silence():
        from mirrormargin.cli import main

        for words in (
            page,
            *((*command, *rest) for command, rest in _list_commands(samples).items() if rest),
        ):
            main(words)


def _measure_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _make_case(generator: Generator, folder: Path, samples: Path) -> tuple[str, str]:
    way = generator.random()
    if way < 0.45:
        return _try_call(generator, samples)
    if way < 0.65:
        return _try_words(generator, samples)
    return _try_file(generator, folder, samples)


# -- functions


def _try_call(generator: Generator, samples: Path) -> tuple[str, str]:
    from tools.soak.absurd_values import ABSURD, NEVER, find_kind
    from tools.soak.valid_calls import CALLS, LONG, METHODS, TORCH, find, list_parameters

    name = choose(generator, (*CALLS, *METHODS))
    parameters = list(list_parameters(name))
    if not parameters:
        return "held", f"{name}()"
    count = min(len(parameters), 1 + int(generator.random() < 0.4))
    chosen = [parameters[int(i)] for i in generator.choice(len(parameters), count, False)]
    function, arguments = find(name)
    is_bad, said = False, []
    allowed: tuple[type[Exception], ...] = ()
    for one in chosen:
        what = choose(generator, ABSURD)
        value, kind = ABSURD[what](), find_kind(name, one.name)
        is_function = kind == "function" and callable(value)  # what it raises is the caller's
        if what in LONG.get((name, one.name), ()) or is_function:
            what, value = "None", None
        is_default = value is None and one.default is None
        is_bad |= bool(kind) and what in NEVER[kind] and not is_default
        said.append(f"{one.name} = {what}")
        arguments[one.name] = value
        allowed += TORCH.get((name, one.name), ())
    return judge_call(f"{name}({', '.join(said)})", lambda: function(**arguments), is_bad, allowed)


# -- commands


WORDS = (
    *("", "x", "nan", "inf", "-inf", "-1", "0", "1.5", "1e6", "1e308", "1e999", "9" * 5000),
    *(
        "2**3",
        "1_0",
        "0x10",
        "\x1b[31m",
        "a b; rm -rf /",
        "$(true)",
        "'",
        "../..",
        "/",
        "/dev/null",
    ),
    *("~", "x" * 5000, "\u202e", "\ud800", "--", "-", "[]", "{}", "null", "true", "1,2", "é"),
)
NEVER_WORDS = {
    "int": {"", "x", "nan", "inf", "-inf", "1.5", "1e308", "1e999", "9" * 5000, "\x1b[31m", "[]"},
    "float": {"", "x", "nan", "\x1b[31m", "[]", "null", "1,2", "'"},
}


def _list_commands(samples: Path) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Commands that work and are quick, with what they need."""
    model = str(samples / "model")
    return {
        ("lab", "train"): ("unit_sphere", "--steps", "5", "--record", "3"),
        ("lab", "solve"): ("unit_sphere",),
        ("lab", "flow"): ("unit_sphere", "--decades", "2"),
        ("lab", "path"): ("planar_joint", "--num-radii", "2", "--starts", "1"),
        ("train",): ("digits/tiny", "--show"),
        ("evaluate",): (model,),
        ("prune",): (model, "--share", "0.5", "--out", "pruned.safetensors"),
        ("shrink",): (model, "--units", "0.5", "--out", "small", "--batch", "2"),
        ("predict",): (model, "a lovely film"),
        ("report",): (str(samples / "training"), "--out", "page.html"),
        ("campaign",): ("--list",),
        ("doctor",): (),
        ("completion",): ("bash",),
        ("reproduce",): (),
    }


# Values that are allowed and would run for hours, or look for what is not of this trial.
LONG_OPTIONS = {
    ("--steps", "1e6"), ("--decades", "1e6"), ("--decades", "1e308"), ("--record", "1e6"),
    ("--radii", "1e6"), ("--num-radii", "1e6"),
}  # fmt: skip
# To draw all figures takes more than the seconds of a case where others compute too.
LEFT_OUT = {
    *("--download", "--help", "--version", "--compile", "--tensorboard", "*", "--published"),
    "--figures",
}


def _try_words(generator: Generator, samples: Path) -> tuple[str, str]:
    from mirrormargin.cli.app import app

    commands = _list_commands(samples)
    command = choose(generator, commands)
    found: Any = app
    for word in command:
        found = found[word]
    options = [
        one
        for one in found.assemble_argument_collection()
        if one.name not in LEFT_OUT and not (command == ("reproduce",) and one.name == "CLAIM")
    ]
    words, is_bad = [*command, *commands[command]], False
    if command == ("reproduce",):
        words += [choose(generator, ("no.such.claim", "A.x", "\x1b[31m", "--", ""))]
    for _ in range(min(len(options), 1 + int(generator.random() < 0.4))):
        option, value = choose(generator, options), choose(generator, WORDS)
        if (option.name, value) in LONG_OPTIONS:
            continue
        hint = str(option.hint)
        if not option.name.startswith("-"):
            words.append(value)
        elif "bool" in hint:
            words.append(option.name)
        else:
            words += [option.name, value]
            for kind, never in NEVER_WORDS.items():
                if f"'{kind}'" in hint or hint.startswith((kind, f"tuple[{kind}")):
                    is_bad |= value in never
    return judge_words(tuple(words), is_bad)


# -- files


def _try_file(generator: Generator, folder: Path, samples: Path) -> tuple[str, str]:
    from tools.soak.bad_files import MAKERS

    attempt = choose(generator, MAKERS)(generator, folder, samples)
    if attempt.call is not None:
        return judge_call(attempt.what, attempt.call, attempt.is_bad)
    return judge_words(attempt.words, attempt.is_bad, attempt.what)


# -- all of them


@contextmanager
def _silence() -> Iterator[None]:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


_WORKERS: list[Worker] = []


@contextmanager
def _session(folder: Path) -> Iterator[None]:
    folder = folder / "shared"
    folder.mkdir()
    worker = Worker(folder)
    _WORKERS.append(worker)
    try:
        worker.start()
        yield
    finally:
        _WORKERS.remove(worker)
        worker.close()


def _try_case(generator: Generator, folder: Path) -> Outcome:
    return _WORKERS[-1].make(int(generator.integers(2**62)), folder)


BAD_CALLS = Trial(
    name="calls",
    title="bad calls and files",
    number=2500,
    try_case=_try_case,
    session=_session,
)
