"""Texts and images that a stranger may have sent."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tools.soak.samples import LABELS, REFUSED_LABELS, Attempt, choose, rewrite, write_texts

__all__ = ["make_images", "make_texts"]

Generator = np.random.Generator


def make_texts(generator: Generator, folder: Path, samples: Path) -> Attempt:
    from mirrormargin.data import load_data

    path, kind = folder / "texts.csv", choose(generator, TEXTS)
    is_bad, write = TEXTS[kind]
    path = write(path, samples) or path

    def load() -> Any:
        return load_data(path, vocabulary="words")

    way = int(generator.integers(3))
    if way == 0:
        words = ("evaluate", str(samples / "model"), "--data", str(path))
        return Attempt(f"{kind} in {path.name}", words, is_bad=is_bad)
    if way == 1:
        words = ("predict", str(samples / "model"), str(path))
        return Attempt(f"{kind} in {path.name}", words, is_bad=False)
    return Attempt(f"{kind} in {path.name}", call=load, is_bad=is_bad)


def _write(name: str, contents: bytes) -> Callable[[Path, Path], Path]:
    def write(path: Path, samples: Path) -> Path:
        path = path.with_name(name)
        path.write_bytes(contents)
        return path

    return write


def _lines(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode("utf-8", "surrogatepass")


GOOD = [json.dumps({"text": f"text {i}", "label": "ab"[i % 2]}) for i in range(12)]
TEXTS: dict[str, tuple[bool, Callable[[Path, Path], Path | None]]] = {
    **{
        f"a label of {name}": (
            name in REFUSED_LABELS,
            lambda path, samples, label=label: write_texts(path, ["good", label]),
        )
        for name, label in LABELS.items()
        if name != "a new line"
    },
    "a label with half a character": (
        True,
        _write("texts.jsonl", _lines(*GOOD, '{"text": "a b", "label": "\\ud800"}')),
    ),
    "a text with half a character": (
        True,
        _write("texts.jsonl", _lines(*GOOD, '{"text": "\\udfff b", "label": "a"}')),
    ),
    "columns twice": (True, _write("texts.csv", b"text,label,label\n" + b"a b,1,2\n" * 9)),
    "no columns": (True, _write("texts.csv", b"")),
    "one column": (True, _write("texts.csv", b"text;label\na;b\n")),
    "more fields than columns": (True, _write("texts.csv", b"text,label\na,b,c\n")),
    "an open quote": (True, _write("texts.csv", b'text,label\n"a,b\n' + b"x,y\n" * 20)),
    "no UTF-8": (True, _write("texts.csv", b"text,label\n\xff\xfe,a\n")),
    "zero bytes": (True, _write("texts.csv", b"text,label\n" + bytes(50) + b"\n")),
    "a field of a megabyte": (
        True,
        _write("texts.csv", b"text,label\n" + b"a" * (1 << 20) + b",b\n"),
    ),
    "100,000 brackets": (True, _write("texts.jsonl", _lines(*GOOD, "[" * 100_000))),
    "a key twice": (
        True,
        _write("texts.jsonl", _lines(*GOOD, '{"text": "a", "text": "b", "label": "a"}')),
    ),
    "a number of 5,000 digits": (
        True,
        _write("texts.jsonl", _lines(*GOOD, '{"text": "q", "label": ' + "9" * 5000 + "}")),
    ),
    "a label of nested lists": (
        True,
        _write("texts.jsonl", _lines(*GOOD, '{"text": "q", "label": [[1]]}')),
    ),
    "a list for a row": (True, _write("texts.jsonl", _lines(*GOOD, "[1, 2]"))),
    "a bomb": (
        True,
        lambda path, samples: Path(
            shutil.copy(samples / "bomb.csv.gz", path.with_name("bomb.csv.gz"))
        ),
    ),
    "half a gzip": (
        True,
        _write("texts.csv.gz", gzip.compress(b"text,label\n" + os.urandom(5000))[:2000]),
    ),
    "no gzip": (True, _write("texts.csv.gz", b"text,label\na,b\n")),
    "half an xz": (True, _write("texts.csv.xz", lzma.compress(os.urandom(5000))[:2000])),
    "one class": (True, lambda path, samples: write_texts(path, ["only"])),
    "a link in a circle": (True, lambda path, samples: path.symlink_to(path)),
    "a folder": (True, lambda path, samples: path.mkdir()),
    "nothing wrong": (False, lambda path, samples: write_texts(path, ["good", "bad"])),
}


def make_images(generator: Generator, folder: Path, samples: Path) -> Attempt:
    from PIL import Image

    from mirrormargin.data import load_data

    images, kind = folder / "images", choose(generator, IMAGES)
    for name in ("cat", "dog"):
        (images / name).mkdir(parents=True)
        for number in range(4):
            pixels = generator.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(images / name / f"{number}.png")
    IMAGES[kind](generator, images)
    is_bad = kind not in ("a name of control characters", "a link outside", "flipped bits")
    return Attempt(f"{kind} among images", call=lambda: load_data(images), is_bad=is_bad)


def _flip_image(generator: Generator, images: Path) -> None:
    def flip(contents: bytearray) -> None:
        contents[int(generator.integers(len(contents)))] ^= 1 << int(generator.integers(8))

    rewrite(images / "cat" / "0.png", flip)


def _make_huge(generator: Generator, images: Path) -> None:
    from PIL import Image

    Image.new("1", (20_000, 20_000)).save(images / "cat" / "0.png")


def _make_wide(generator: Generator, images: Path) -> None:
    from PIL import Image

    Image.new("L", (9, 8)).save(images / "cat" / "0.png")


def _name_badly(generator: Generator, images: Path) -> None:
    (images / "cat").rename(images / "\x1b[31mcat")


def _write_image(contents: bytes) -> Callable[[Generator, Path], object]:
    return lambda generator, images: (images / "cat" / "0.png").write_bytes(contents)


IMAGES: dict[str, Callable[[Generator, Path], object]] = {
    "flipped bits": _flip_image,
    "20,000 x 20,000 pixels": _make_huge,
    "another size": _make_wide,
    "nothing": _write_image(b""),
    "noise": _write_image(os.urandom(300)),
    "a text": _write_image(b"<svg onload=alert(1)>"),
    "a name of control characters": _name_badly,
    "a name with half a character": lambda generator, images: os.rename(
        os.fsencode(images / "cat"), os.fsencode(images) + b"/\xff"
    ),
    "a link in a circle": lambda generator, images: (images / "cat" / "x.png").symlink_to("x.png"),
    "a link outside": lambda generator, images: (images / "dog" / "x.png").symlink_to(
        images / "cat" / "0.png"
    ),
}
