"""Official archives read member by member, in memory, as the rows of our own files.

Nothing is unpacked by the paths of an archive: members are looked up by the names we know.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mirrormargin.errors import DataError
from mirrormargin.runs.arrays import FREE_BYTES, check_unpacked

__all__ = [
    "read_cifar10",
    "read_civil",
    "read_cola",
    "read_imdb",
    "read_mnli",
    "read_mrpc",
    "read_rte",
    "read_sst2",
    "read_wikitext2",
    "write_row",
]

Contents = dict[str, Callable[[], Iterable[bytes]]]  # by name, what makes the contents of a file

REVIEW = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+)_(\d+)\.txt$")
URLS = re.compile(r"aclImdb/(train|test)/urls_(pos|neg)\.txt$")
TITLE = re.compile(r"/title/(tt\d+)")


def read_imdb(archive: Path) -> Contents:
    """``aclImdb_v1.tar.gz``: a file for each review, ``<id>_<rating>.txt``, and lists of films."""
    reviews: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    films: dict[tuple[str, str], list[str]] = {}
    for name, contents in _walk_tar(archive, lambda name: REVIEW.match(name) or URLS.match(name)):
        if review := REVIEW.match(name):
            part, side, number, rating = review.groups()
            row = int(number), int(rating), contents.decode()
            reviews.setdefault((part, side), []).append(row)
        elif urls := URLS.match(name):
            part, side = urls.groups()
            found = [TITLE.search(line) for line in contents.decode().splitlines()]
            films[part, side] = [title[1] if title else "" for title in found]
    return {
        f"imdb/imdb_{part}.jsonl": lambda part=part: _write_reviews(archive, part, reviews, films)
        for part in ("train", "test")
    }


def _write_reviews(archive: Path, part: str, reviews: Any, films: Any) -> Iterator[bytes]:
    for side, label in (("pos", 1), ("neg", 0)):
        titles = films.get((part, side), [])
        for number, rating, text in sorted(reviews.get((part, side), [])):
            if number >= len(titles):
                raise DataError(f"{archive}: there is no film for review {number} of {part}/{side}")
            row = {"id": number, "label": label, "rating": rating, "movie": titles[number]}
            yield write_row({**row, "text": text})


def read_cifar10(archive: Path) -> Contents:
    """``cifar-10-binary.tar.gz``: six batches, kept as they are."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    wanted = {f"cifar-10-batches-bin/{name}": name for name in names}
    batches = {wanted[name]: contents for name, contents in _walk_tar(archive, wanted.get)}
    absent = [name for name in names if name not in batches]
    if absent:
        raise DataError(f"{archive}: there is no {absent[0]} in it")
    return {f"cifar10/{name}": lambda name=name: [batches[name]] for name in names}


def read_sst2(archive: Path) -> Contents:
    """``SST-2.zip``: tables of a text and 0 or 1, without quoting."""

    def write(part: str) -> Iterator[bytes]:
        with _open_member(archive, f"SST-2/{part}.tsv") as file:
            next(file, None)  # the names of the columns
            for line in file:
                text, _, label = line.rstrip("\r\n").rpartition("\t")
                yield write_row({"text": text.rstrip(), "label": int(label)})

    return {f"sst2/sst2_{part}.jsonl": lambda part=part: write(part) for part in ("train", "dev")}


def read_cola(archive: Path) -> Contents:
    """``CoLA.zip``: tables without a header, kept as they are."""
    return _read_tables(archive, "CoLA", "glue/cola")


def read_rte(archive: Path) -> Contents:
    """``RTE.zip``: tables, kept as they are."""
    return _read_tables(archive, "RTE", "glue/rte")


def _read_tables(archive: Path, folder: str, out: str) -> Contents:
    def write(part: str) -> Iterator[bytes]:
        with _open_member(archive, f"{folder}/{part}.tsv") as file:
            yield from (line.encode() for line in file)

    return {f"{out}/{part}.tsv": lambda part=part: write(part) for part in ("train", "dev")}


def read_mrpc(train: Path, test: Path, dev_ids: Path) -> Contents:
    """The tables of MRPC: GLUE's list of ids says which training pairs are its development part."""

    def write(is_dev: bool) -> Iterator[bytes]:
        header, *lines = train.read_bytes().splitlines(keepends=True)
        ids = {tuple(line.split(b"\t")) for line in dev_ids.read_bytes().splitlines()}
        yield header
        yield from (line for line in lines if (tuple(line.split(b"\t")[1:3]) in ids) == is_dev)

    return {
        "glue/mrpc/train.tsv": lambda: write(False),
        "glue/mrpc/dev.tsv": lambda: write(True),
        "glue/mrpc/test.tsv": lambda: [test.read_bytes()],
    }


def read_mnli(archive: Path) -> Contents:
    """``multinli_1.0.zip``: a JSON object a line; where annotators did not agree, label ``-``."""

    def write(part: str) -> Iterator[bytes]:
        with _open_member(archive, f"multinli_1.0/multinli_1.0_{part}.jsonl") as file:
            number = 0
            for line in file:
                row = json.loads(line)
                if row["gold_label"] == "-":
                    continue
                pair = {"premise": row["sentence1"], "hypothesis": row["sentence2"]}
                yield write_row({"id": number, **pair, "label": row["gold_label"]})
                number += 1

    return {
        f"multinli/mnli_{part}.jsonl": lambda part=part: write(part)
        for part in ("train", "dev_matched")
    }


def read_civil(archive: Path) -> Contents:
    """``civil_comments.zip``: tables with the share of annotators that found a comment toxic."""

    def write(member: str, column: str) -> Iterator[bytes]:
        with _open_member(archive, member, newline="") as file:
            for row in csv.DictReader(file):
                yield write_row(
                    {"text": row["comment_text"], "toxic": int(float(row[column]) >= 0.5)}
                )

    return {
        "civilcomments/civil_train.jsonl": lambda: write("train.csv", "target"),
        "civilcomments/civil_validation.jsonl": lambda: write(
            "test_public_expanded.csv", "toxicity"
        ),
        "civilcomments/civil_test.jsonl": lambda: write("test_private_expanded.csv", "toxicity"),
    }


def read_wikitext2(archive: Path) -> Contents:
    """``wikitext-2-v1.zip``: three texts, kept as they are."""

    def write(part: str) -> Iterator[bytes]:
        with _open_member(archive, f"wikitext-2/wiki.{part}.tokens") as file:
            yield from (line.encode() for line in file)

    return {
        f"wikitext-2/wiki.{part}.tokens": lambda part=part: write(part)
        for part in ("train", "valid", "test")
    }


def write_row(row: dict[str, Any]) -> bytes:
    """A line of JSON."""
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def _walk_tar(archive: Path, is_wanted: Callable[[str], Any]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of wanted files, in one pass: going back in a tar.gz is slow."""
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if member.isfile() and is_wanted(member.name):
                    if member.size > FREE_BYTES:
                        raise DataError(
                            f"{archive}, {member.name}: it has {member.size:,} bytes, no file of"
                            " ours is as large"
                        )
                    file = tar.extractfile(member)
                    assert file is not None  # it is a file
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} cannot be read: {error}") from error


@contextmanager
def _open_member(archive: Path, name: str, newline: str = "\n") -> Iterator[io.TextIOWrapper]:
    try:
        with (
            zipfile.ZipFile(archive) as file,
            file.open(name) as member,
            io.TextIOWrapper(member, encoding="utf-8", newline=newline) as text,
        ):
            # zipfile reads no more of a member than this, and rows are read one by one.
            unpacked = file.getinfo(name).file_size
            check_unpacked(archive, unpacked, archive.stat().st_size, error=DataError)
            yield text
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # A RuntimeError says that it is encrypted, or compressed by an unknown method.
        raise DataError(f"{archive} cannot be read: {error}") from error
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(f"{archive}, {name}: not as expected: {error}") from error
