"""Files that a stranger may have sent: damaged, garbled, far too large, or made to mislead.

Each maker writes into an empty folder and returns what to try with it. What must be refused says
so; what is merely odd may hold.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mirrormargin.runs import seal
from tools.soak.absurd_values import PROBLEM
from tools.soak.bad_data import make_images, make_texts
from tools.soak.samples import ARRAYS, LAB, Attempt, choose, rewrite

__all__ = ["MAKERS"]

Generator = np.random.Generator


# -- problems


def make_npz(generator: Generator, folder: Path, samples: Path) -> Attempt:
    path, kind = folder / "problem.npz", choose(generator, NPZ)
    NPZ[kind](generator, path, samples)
    command = choose(generator, LAB)
    is_bad = kind not in ("flipped bits", "Fortran order", "big-endian")
    return Attempt(f"{kind} in an .npz", (*command[:2], str(path), *command[2:]), is_bad=is_bad)


def _save(path: Path, **changes: Any) -> None:
    np.savez_compressed(path, **{**ARRAYS, **changes})


def _flip(generator: Generator, path: Path, samples: Path) -> None:
    _save(path)

    def flip(contents: bytearray) -> None:
        for _ in range(int(generator.integers(1, 20))):
            contents[int(generator.integers(len(contents)))] ^= 1 << int(generator.integers(8))

    rewrite(path, flip)


def _cut(generator: Generator, path: Path, samples: Path) -> None:
    _save(path)
    rewrite(path, lambda c: c.__delitem__(slice(int(generator.integers(len(c))), None)))


def _noise(generator: Generator, path: Path, samples: Path) -> None:
    path.write_bytes(generator.bytes(int(generator.integers(0, 2000))))


def _change_header(generator: Generator, path: Path, samples: Path) -> None:
    text = choose(
        generator,
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 10), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1000000000000000000000), }",
            "{'descr': '<f8', 'fortran_order': 3, 'shape': 'x', }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<f8', 'shape': (2,), }",
            "(" * 500,
            "__import__('os').system('true')",
            "\xff\xfe{",
            "{'descr': '<f8'\n  'fortran_order': ",
        ),
    )
    header = text.encode("latin1") + b"\n"
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{choose(generator, ARRAYS)}.npy", body)


def _change_flags(position: int, value: int) -> Callable[[Generator, Path, Path], None]:
    def change(generator: Generator, path: Path, samples: Path) -> None:
        _save(path)

        def write(contents: bytearray) -> None:
            start = contents.find(b"PK\x01\x02")  # the directory, and the file's own header
            struct.pack_into("<H", contents, start + position, value)
            struct.pack_into("<H", contents, position - 2, value)

        rewrite(path, write)

    return change


def _repeat(generator: Generator, path: Path, samples: Path) -> None:
    _save(path)
    buffer = io.BytesIO()
    np.save(buffer, ARRAYS["head"])
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("head.npy", buffer.getvalue())


NPZ: dict[str, Callable[[Generator, Path, Path], object]] = {
    "flipped bits": _flip,
    "a missing end": _cut,
    "noise": _noise,
    "an absurd header": _change_header,
    "encryption": _change_flags(8, 1),
    "an unknown compression": _change_flags(10, 97),
    "a name twice": _repeat,
    "a bomb": lambda g, path, samples: shutil.copy(samples / "bomb.npz", path),
    "a link in a circle": lambda g, path, samples: path.symlink_to(path),
    "a folder": lambda g, path, samples: path.mkdir(),
    "a single array": lambda g, path, samples: np.save(path.open("wb"), ARRAYS["head"]),
    "objects": lambda g, path, samples: _save(path, head=np.array([None, 1], dtype=object)),
    "nan": lambda g, path, samples: _save(path, tokens=np.full((2, 3, 2), np.nan)),
    "texts": lambda g, path, samples: _save(path, labels=np.array(["a", "b"])),
    "complex numbers": lambda g, path, samples: _save(path, head=np.ones(2, complex)),
    "another shape": lambda g, path, samples: _save(path, head=np.ones((3, 3))),
    "no entries": lambda g, path, samples: _save(path, tokens=np.zeros((0, 3, 2))),
    "an unknown name": lambda g, path, samples: _save(path, **{"../../x": np.ones(2)}),
    "an unknown loss": lambda g, path, samples: _save(path, loss=np.array("\x1b[31m")),
    "Fortran order": lambda g, path, s: _save(path, tokens=np.asfortranarray(PROBLEM.tokens)),
    "big-endian": lambda g, path, s: _save(path, tokens=PROBLEM.tokens.astype(">f8")),
}


def make_json(generator: Generator, folder: Path, samples: Path) -> Attempt:
    path, kind = folder / "problem.json", choose(generator, JSONS)
    contents = JSONS[kind]
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    command = choose(generator, LAB)
    return Attempt(f"{kind} in a .json", (*command[:2], str(path), *command[2:]))


JSONS: dict[str, str | bytes] = {
    "100,000 brackets": "[" * 100_000,
    "an object of 5,000 levels": '{"tokens":' * 5000 + "1" + "}" * 5000,
    "a number of 5,000 digits": '{"head": [' + "9" * 5000 + "]}",
    "NaN": '{"head": [NaN, 1]}',
    "Infinity": '{"head": [Infinity, 1]}',
    "1e999": '{"head": [1e999, 1]}',
    "a key twice": '{"head": [1], "head": [2]}',
    "a list": "[1, 2, 3]",
    "null": "null",
    "nothing": "",
    "half a character": '{"loss": "\\ud800", "head": [1, 2]}',
    "UTF-16": '{"head": [1]}'.encode("utf-16"),
    "no text": b"\xff\xfe\x00\x01",
    "a zero byte": '{"head": "\0"}',
    "ragged lists": '{"tokens": [[1], [1, 2]]}',
    "lists of lists of lists": '{"tokens": ' + "[" * 90 + "]" * 90 + "}",
    "a control character as a key": '{"\\u001b[31m": 1}',
    "an object for an array": '{"tokens": {"a": 1}}',
}

# -- runs of the lab, and documents of others


def make_run(generator: Generator, folder: Path, samples: Path) -> Attempt:
    """run.json changed, with a checksum that fits: by one who knows the format."""
    import mirrormargin as mm

    kind = choose(generator, ("training", "flow", "path"))
    run = folder / "run"
    shutil.copytree(samples / kind, run)
    what, is_bad = _damage_document(generator, run / "run.json")
    load = {
        "training": mm.AttentionRecord.load,
        "flow": mm.FlowRecord.load,
        "path": mm.RegularizationPath.load,
    }[kind]
    attempt = int(generator.integers(3))
    if attempt == 0 or (kind != "training" and attempt == 1):
        return Attempt(f"{what} in run.json of a {kind}", call=lambda: load(run), is_bad=is_bad)
    words = ("lab", "train", "--resume", str(run)) if attempt == 1 else ("report", str(run))
    if attempt == 2:
        words = (*words, "--out", str(folder / "page.html"))
    return Attempt(f"{what} in run.json of a {kind}", words, is_bad=False)


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, "x", "\x1b[31m", "<script>alert(1)</script>", [], {}, [[]], ["a"],
    10**30, "../../x", "/etc/passwd", "\ud800",
)  # fmt: skip


def _damage_document(generator: Generator, path: Path) -> tuple[str, bool]:
    """Damage a JSON document; says how, and whether every reader must refuse it."""
    way = choose(generator, ("text", "value", "value", "value", "key", "bits"))
    if way == "text":
        kind = choose(generator, [kind for kind in JSONS if kind != "half a character"])
        contents = JSONS[kind]
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return kind, True
    if way == "bits":
        contents = bytearray(path.read_bytes())
        contents[int(generator.integers(len(contents)))] ^= 1 << int(generator.integers(8))
        path.write_bytes(contents)
        return "a flipped bit", False  # in the name of the checksum it is only noted
    document = json.loads(path.read_text())
    parts: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        keys = part if isinstance(part, dict) else range(len(part))
        for key in keys:
            parts.append((part, key))
            if isinstance(part[key], dict | list):
                walk(part[key])

    walk({key: value for key, value in document.items() if key != "checksum"})
    part, key = choose(generator, parts)
    owner = document if key in document and part.get(key) is document[key] else part
    if way == "key" and isinstance(owner, dict):
        del owner[key]
        what = f"no {key!r}"
    else:
        value = choose(generator, VALUES)
        owner[key] = value
        what = f"{value!r} for {key!r}"
    path.write_text(json.dumps(seal(document)))
    return what, False


def make_training(generator: Generator, folder: Path, samples: Path) -> Attempt:
    """A file of a training on real data, changed."""
    model = folder / "model"
    shutil.copytree(samples / "model", model)
    name = choose(generator, ("config.json", "summary.json", "inputs.json", "metrics.jsonl"))
    path = model / name
    if name == "metrics.jsonl":
        lines = path.read_bytes().split(b"\n")
        bad = choose(generator, (*JSONS.values(), b"\xff\xfe", "[1]", '{"kind": 3}', "3", "{}"))
        lines.insert(
            int(generator.integers(len(lines))), bad if isinstance(bad, bytes) else bad.encode()
        )
        path.write_bytes(b"\n".join(lines))
        what = "a damaged line"
    elif generator.random() < 0.2:
        rewrite(path, lambda c: c.__delitem__(slice(int(generator.integers(len(c))), None)))
        what = "a missing end"
    else:
        what, _ = _damage_document(generator, path)
    words = choose(
        generator,
        (
            ("report", str(model), "--out", str(folder / "page.html")),
            ("evaluate", str(model)),
            ("predict", str(model), "a lovely film"),
            ("prune", str(model), "--share", "0.5"),
            ("train", "--resume", str(model), "--quiet"),
        ),
    )
    return Attempt(f"{what} in {name} of a training", words, is_bad=False)


def make_weights(generator: Generator, folder: Path, samples: Path) -> Attempt:
    model = folder / "model"
    shutil.copytree(samples / "model", model)
    path = model / "selected.safetensors"
    kind = choose(generator, ("flips", "cut", "noise", "length", "pickle"))

    def change(contents: bytearray) -> None:
        if kind == "flips":
            for _ in range(int(generator.integers(1, 8))):
                contents[int(generator.integers(len(contents)))] ^= 1 << int(generator.integers(8))
        elif kind == "cut":
            del contents[int(generator.integers(len(contents) - 1)) :]
        elif kind == "noise":
            contents[:] = generator.bytes(500)
        elif kind == "length":
            contents[:8] = struct.pack("<Q", int(generator.integers(2**62)))
        else:
            contents[:] = b"\x80\x04cposix\nsystem\nX\x04\x00\x00\x00true\x85R."

    rewrite(path, change)
    words = choose(generator, (("predict", str(model), "a film"), ("prune", str(model))))
    return Attempt(f"{kind} in weights", (*words, *(("--share", "0.5") * (words[0] == "prune"))))


def make_claims(generator: Generator, folder: Path, samples: Path) -> Attempt:
    claims = folder / "claims"
    shutil.copytree(samples / "claims", claims)
    path = claims / "claims.json"
    words = ("report", str(claims), "--out", str(folder / "page.html"))
    if generator.random() < 0.6:
        document = json.loads(path.read_text())
        escape = choose(
            generator,
            ("../../training", str(samples / "training"), "evidence/../../x", "link", "~", "/"),
        )
        if escape == "link":
            (claims / "link").symlink_to(samples / "training")
        document["claims"][0]["evidence"] = escape
        path.write_text(json.dumps(seal(document)))
        return Attempt(f"evidence {escape!r} in claims.json", words, is_bad=escape != "~")
    what, is_bad = _damage_document(generator, path)
    return Attempt(f"{what} in claims.json", words, is_bad=is_bad)


MAKERS = (
    make_npz,
    make_json,
    make_run,
    make_training,
    make_weights,
    make_claims,
    make_texts,
    make_images,
)
