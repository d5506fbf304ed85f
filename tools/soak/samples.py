"""Files as they should be, which bad ones are made from, and what is tried with those."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.soak.absurd_values import PROBLEM

Generator = np.random.Generator


@dataclass(frozen=True)
class Attempt:
    """What is done with a bad file.

    Attributes:
        what: In words.
        words: A command line; or
        call: a function of Python.
        is_bad: Whether it must be refused.
    """

    what: str
    words: tuple[str, ...] = ()
    call: Callable[[], Any] | None = None
    is_bad: bool = True


ARRAYS = {name: getattr(PROBLEM, name) for name in ("tokens", "queries", "labels", "head")}
LAB = (
    ("lab", "solve"),
    ("lab", "train", "--steps", "5"),
    ("lab", "flow", "--decades", "2"),
    ("lab", "path", "--num-radii", "2", "--starts", "1"),
)
LABELS = {
    "control characters": "\x1b]0;owned\x07\x1b[31mred",
    "a bidirectional override": "\u202egood",
    "markup": "<script>alert(1)</script>",
    "a zero byte": "a\0b",
    "a new line": "one\ntwo",
    "a very long name": "x" * 200_000,
    "half a character": "\ud800",
    "brackets of rich": "[bold red]label[/]",
}
REFUSED_LABELS = {"a very long name", "half a character"}


def make_samples(folder: Path) -> None:
    """What is damaged later: runs of the lab, a training, claims; made once for all cases."""
    import mirrormargin as mm
    from mirrormargin.claims.claims_file import write_claims
    from tools.soak.valid_calls import flow, follow_path, train

    train().save(folder / "training")
    flow().save(folder / "flow")
    follow_path().save(folder / "path")
    assert mm.AttentionRecord.load(folder / "training") is not None
    (folder / "claims").mkdir()
    row = {"id": "A.x", "title": "a claim", "verdict": "reproduced", "paper": "A", "tests": []}
    write_claims(folder / "claims", {"profile": "quick", "seed": 0, "claims": [row]})
    write_texts(folder / "texts.csv", ["good", "bad"])
    _train_model(folder)
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("tokens", "queries", "labels", "head"):
            with archive.open(f"{name}.npy", "w") as file:
                header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 24,)}
                np.lib.format.write_array_header_1_0(file, header)
                for _ in range(128):
                    file.write(bytes(1 << 20))
    with gzip.open(folder / "bomb.csv.gz", "wb") as file:
        file.write(b"text,label\n")
        for _ in range(300):
            file.write(b"a" * (1 << 20))


def _train_model(folder: Path) -> None:
    from mirrormargin.cli import main

    size = ["model.width=8", "model.num_layers=1", "model.num_heads=1", "epochs=1"]
    options = [word for setting in size for word in ("--set", setting)]
    words = [
        "train",
        "sst2/small",
        "--data",
        str(folder / "texts.csv"),
        "--vocabulary",
        "words",
        *options,
    ]
    code = main([*words, "--out", str(folder / "model"), "--quiet", "--threads", "1"])
    if code != 0:
        raise RuntimeError(f"the training that cases damage ended with {code}")


def write_texts(path: Path, labels: list[str], count: int = 24) -> None:
    words = ("film", "plot", "cast", "scene", "lovely", "dull")
    rows = [f"text {i} {words[i % 6]} {words[i % 5]}" for i in range(count)]
    lines = [f'"{row}","{labels[i % len(labels)]}"' for i, row in enumerate(rows)]
    path.write_bytes(("text,label\n" + "\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))


def choose(generator: Generator, options: Any) -> Any:
    options = list(options)
    return options[int(generator.integers(len(options)))]


def rewrite(path: Path, change: Callable[[bytearray], object]) -> None:
    contents = bytearray(path.read_bytes())
    change(contents)
    path.write_bytes(contents)
