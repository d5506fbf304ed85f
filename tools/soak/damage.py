"""Flipped bits, truncated and overwritten files: noticed, or harmless, never another result."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.soak.trial import Outcome, Trial

__all__ = ["DAMAGE", "open_session", "try_case"]

TEXT = "the film has a lovely cast"
TRAIN = (
    *("train", "imdb/tiny", "--vocabulary", "words", "--epochs", "2", "--threads", "1"),
    *("--set", "model.width=16", "--set", "model.num_layers=1", "--set", "model.num_heads=1"),
)


class _Refused(Exception):  # noqa: N818 - as it should be
    """A clear error."""


@dataclass(frozen=True)
class _Kind:
    """A kind of file, and how it is read.

    Attributes:
        files: Which files, as a pattern below the folder of all.
        read: What a user does with them, given that folder; returns something comparable.
    """

    files: str
    read: Callable[[Path], Any]


def _command(*argv: str) -> Callable[[Path], Any]:
    """Read by a command line; {} is the folder of all."""

    def read(home: Path) -> Any:
        from mirrormargin.cli import main

        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = main([part.format(home) for part in argv])
        said = errors.getvalue()
        if code == 2 and said.startswith("mirrormargin") and said.count("\n") == 1:
            raise _Refused(said)
        if code not in (0, 1) or "Traceback" in said:
            raise AssertionError(f"exit code {code}: {said}")
        return code, out.getvalue().replace(str(home), "HOME")

    return read


def _train(home: Path) -> Any:
    assert _home is not None
    data = str(_home / "reviews.csv")  # a training knows its data by the path
    return _command(*TRAIN, "--data", data, "--out", "{}/run", "--json", "--quiet")(home)


def _read_metrics(home: Path) -> Any:
    from mirrormargin.training.folder import TrainingFolder

    return TrainingFolder(home / "run").read_metrics()


def _finish_training(home: Path) -> Any:
    from mirrormargin.training.folder import TrainingFolder
    from mirrormargin.training.loop import train_model

    folder = TrainingFolder(home / "half")
    ended = train_model(folder.read_config(), folder=folder)
    return [ended.epochs, {k: v.numpy().tobytes() for k, v in ended.final.items()}]


def _load(name: str, folder: str) -> Callable[[Path], Any]:
    """Read by the ``load`` of a public class, everything that it holds."""

    def read(home: Path) -> Any:
        import mirrormargin as mm
        from mirrormargin.dynamics.paths.joint_regularization_path import JointRegularizationPath

        kind = JointRegularizationPath if name == "JointRegularizationPath" else getattr(mm, name)
        return _flatten(kind.load(home / folder))

    return read


def _flatten(value: Any) -> Any:
    """Something that compares by value, bit for bit."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if is_dataclass(value):
        return {one.name: _flatten(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {key: _flatten(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_flatten(one) for one in value]
    if hasattr(value, "tokens"):  # a problem
        return [_flatten(getattr(value, name)) for name in ("tokens", "queries", "labels", "head")]
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text  # what is not kept has no values


def _load_delta(home: Path) -> Any:
    import mirrormargin as mm

    delta = mm.SparseDelta.load(home / "task.safetensors")
    dense = {**delta.to_dense(), **delta.whole}
    return {name: one.numpy().tobytes() for name, one in dense.items()}, dict(delta.info)


def _read_claims(home: Path) -> Any:
    from mirrormargin.claims.claims_file import read_claims

    return read_claims(home / "claims")


def _read_evidence(home: Path) -> Any:
    from mirrormargin.claims.evidence import read_evidence

    return [_flatten(read_evidence(one)) for one in sorted((home / "claims/evidence").iterdir())]


def _read_solution(home: Path) -> Any:
    from mirrormargin.runs import check_seal, read_json

    path = home / "solution.json"
    return check_seal(path, read_json(path))


def _read_record(home: Path) -> Any:
    from mirrormargin.claims.campaign.records import read_records

    return read_records(home / "records")


def _read_table(home: Path) -> Any:
    from mirrormargin.claims.evidence import find_record

    found = find_record("imdb", home / "tables")
    return None if found is None else _flatten(found)


def _read_data(home: Path) -> Any:
    from mirrormargin.training.building import load_training_data
    from mirrormargin.training.folder import TrainingFolder

    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    try:
        data = load_training_data(TrainingFolder(home / "half").read_config())
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
    parts = (data.train, data.validation, data.test)
    arrays = [one.numpy().tobytes() for part in parts for one in (part.inputs, part.labels)]
    return arrays, data.classes, data.sha256


_PREDICT = ("predict", "{}/run", TEXT, "--json", "--quiet")
_PREDICT_SHRUNK = ("predict", "{}/run-shrunk-units0.5", *_PREDICT[2:])
KINDS = (
    _Kind("run/config.json", _train),
    _Kind("run/config.json", _command(*_PREDICT)),
    _Kind("run/inputs.json", _command(*_PREDICT)),
    _Kind("run/summary.json", _train),
    _Kind("run/metrics.jsonl", _read_metrics),
    _Kind("run/selected.safetensors", _command(*_PREDICT)),
    _Kind("run/final.safetensors", _command(*_PREDICT, "--weights", "final")),
    _Kind(
        "run/pruned-0.9.safetensors",
        _command(*_PREDICT, "--weights", "{}/run/pruned-0.9.safetensors"),
    ),
    _Kind(
        "run/pruned-0.9.sparse.safetensors",
        _command(*_PREDICT, "--weights", "{}/run/pruned-0.9.sparse.safetensors"),
    ),
    _Kind("run-shrunk-*/config.json", _command(*_PREDICT_SHRUNK)),
    _Kind("run-shrunk-*/selected.safetensors", _command(*_PREDICT_SHRUNK)),
    _Kind("half/checkpoint.safetensors", _finish_training),
    _Kind("half/config.json", _finish_training),
    _Kind("half/metrics.jsonl", _finish_training),
    _Kind("lab/run.json", _load("AttentionRecord", "lab")),
    _Kind("lab/run.json", _command("lab", "train", "--resume", "{}/lab", "--json", "--quiet")),
    _Kind("lab/arrays-*.npz", _load("AttentionRecord", "lab")),
    _Kind("lab/arrays-*.npz", _command("lab", "train", "--resume", "{}/lab", "--json", "--quiet")),
    _Kind("flow/run.json", _load("FlowRecord", "flow")),
    _Kind("flow/arrays-*.npz", _load("FlowRecord", "flow")),
    _Kind("path/run.json", _load("RegularizationPath", "path")),
    _Kind("path/arrays-*.npz", _load("RegularizationPath", "path")),
    _Kind("joint/*", _load("JointRegularizationPath", "joint")),
    _Kind("task.safetensors", _load_delta),
    _Kind("claims/claims.json", _read_claims),
    _Kind("claims/evidence/*/*", _read_evidence),
    _Kind("solution.json", _read_solution),
    _Kind("records/*/*/*.json", _read_record),
    _Kind("tables/*.json", _read_table),
    _Kind("cache/mirrormargin/prepared/*.npz", _read_data),
)

_home: Path | None = None
_expected: dict[int, Any] = {}


@contextmanager
def open_session(
    folder: Path, parts: tuple[str, ...] = ("trainings", "lab", "deltas", "claims")
) -> Iterator[None]:
    """One of every kind of file, or of these parts of the product."""
    global _home
    _home = folder / "home"
    _home.mkdir()
    makers = {
        "trainings": _make_trainings,
        "lab": _make_lab,
        "deltas": _make_delta,
        "claims": _make_claims,
    }
    for part in parts:
        makers[part](_home)
    try:
        yield
    finally:
        _expected.clear()
        _home = None


def _make_trainings(home: Path) -> None:
    import torch

    from mirrormargin.claims.campaign.records import write_record
    from mirrormargin.training.folder import TrainingFolder
    from mirrormargin.training.loop import train_model

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    rows = ["text,label"]
    for number in range(60):
        words = generator.choice(("the", "film", "plot", "cast", "scene"), 6)
        rows.append(f"{' '.join(words)} x{number} {('dull', 'lovely')[number % 2]},c{number % 2}")
    (home / "reviews.csv").write_text("\n".join(rows) + "\n")
    _train(home)
    folder = TrainingFolder(home / "run")
    for form in ("safetensors", "sparse"):
        _command("prune", "{}/run", "--share", "0.9", "--format", form, "--quiet")(home)
    _command("shrink", "{}/run", "--units", "0.5", "--batch", "2", "--quiet")(home)

    def stop(step: int, num_steps: int, known: Any) -> None:
        if step == num_steps - 1:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        train_model(folder.read_config(), folder=home / "half", on_step=stop)
    _read_data(home)  # leaves prepared data in the cache
    record = {"key": "imdb-tiny/adamw/lr1-seed0", **(folder.read_summary() or {})}
    write_record(home / "records", record)


def _make_lab(home: Path) -> None:
    lab = ("unit_sphere", "--quiet", "--out")
    _command("lab", "train", *lab, "{}/lab", "--steps", "300", "--threads", "1")(home)
    _command("lab", "flow", *lab, "{}/flow", "--decades", "5")(home)
    _command("lab", "path", *lab, "{}/path", "--num-radii", "4")(home)
    _command("lab", "path", "joint_toy", "--joint", "--num-radii", "3", "--out", "{}/joint")(home)
    _command("lab", "solve", *lab, "{}/solution.json")(home)


def _make_delta(home: Path) -> None:
    import torch

    import mirrormargin as mm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        base, model = torch.nn.Linear(30, 40), torch.nn.Linear(30, 40)
    delta = mm.SparseDelta.extract(model, base, keep=100, whole=["bias"], info={"task": "a"})
    delta.save(home / "task.safetensors")


def _make_claims(home: Path) -> None:
    from mirrormargin.claims.evidence import find_record, store_record

    claims = ("reproduce", "A.fig.trajectory", "--workers", "1", "--quiet")
    _command(*claims, "--out", "{}/claims")(home)
    table = find_record("imdb")
    assert table is not None
    (home / "tables").mkdir()
    store_record(home / "tables", table)


def try_case(generator: np.random.Generator, folder: Path) -> Outcome:
    """Damage one file, and read it as a user would."""
    assert _home is not None
    known = [number for number, kind in enumerate(KINDS) if any(_home.glob(kind.files))]
    number = known[generator.integers(len(known))]
    kind = KINDS[number]
    if number not in _expected:
        _expected[number] = _read(kind, _copy(folder / "whole"))
    home = _copy(folder / "home")
    paths = sorted(home.glob(kind.files))
    path = paths[generator.integers(len(paths))]
    story = f"{path.relative_to(home)}, {_damage(generator, path)}"
    try:
        found = _read(kind, home)
    except _Refused as refused:
        return _judge(story, str(refused), path)
    if found == _expected[number]:
        return Outcome("held", story)
    return Outcome("wrong", f"{story}: read as something else, without a word")


def _copy(target: Path) -> Path:
    assert _home is not None
    return Path(shutil.copytree(_home, target))


def _read(kind: _Kind, home: Path) -> Any:
    from mirrormargin.errors import MirrorMarginError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notice about files of earlier versions
        try:
            return kind.read(home)
        except MirrorMarginError as error:
            raise _Refused(str(error)) from error


def _judge(story: str, said: str, path: Path) -> Outcome:
    """A refusal is one line that names the file, or the folder of a run."""
    names = (path.name, str(path.parent))
    if "\n" in said.strip() or not any(name in said for name in names):
        return Outcome("wrong", f"{story}: the error is {said!r}")
    return Outcome("refused", f"{story}: {said.strip()}")


def _damage(generator: np.random.Generator, path: Path) -> str:
    """Flip bits, cut off the end, or overwrite a block; returns what was done."""
    contents = bytearray(path.read_bytes())
    status = path.stat()
    size = len(contents)
    way = generator.choice(("flip", "flip", "flip", "cut", "cut", "block", "empty"))
    if way == "flip":
        bits = generator.integers(8 * size, size=generator.integers(1, 4))
        for bit in bits.tolist():
            contents[bit // 8] ^= 1 << bit % 8
        what = f"bits {bits.tolist()} flipped"
    elif way == "block":
        start, length = int(generator.integers(size)), int(generator.integers(1, 513))
        block = bytes(length) if generator.random() < 0.5 else generator.bytes(length)
        contents[start : start + length] = block[: size - start]
        what = f"{length} bytes from {start} overwritten"
    else:
        keep = int(generator.integers(size)) if way == "cut" else 0
        del contents[keep:]
        what = f"cut to {keep} of {size} bytes"
    path.write_bytes(contents)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return what


DAMAGE = Trial(
    name="damage",
    title="bit flips and truncations over every kind of file",
    number=500,
    try_case=try_case,
    session=open_session,
)
