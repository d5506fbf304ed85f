"""The files of each data set by name: found on this machine, or made from what others publish.

A data set has one layout or two, and any that is complete will do: the compact one first, then the
plain one, which is made here. ``published.txt`` beside this module lists all files with their sizes
and digests.

    python -m mirrormargin.data imdb mnli-subset --out data      # makes a data folder
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mirrormargin.data import archives, subsets
from mirrormargin.data.download import Progress, RemoteFile, download
from mirrormargin.data.files import (
    VARIABLE,
    Source,
    VerifiedFile,
    find_cache,
    find_files,
    list_folders,
    verify,
)
from mirrormargin.data.text_files import read_cells
from mirrormargin.data.tokens import read_vocabulary
from mirrormargin.errors import DataError, RunError
from mirrormargin.runs import write_atomically

__all__ = [
    "LAYOUTS",
    "RECIPES",
    "VOCABULARY",
    "Recipe",
    "find_data",
    "find_vocabulary",
    "has_vocabulary",
    "make",
]

Layout = tuple[Source, ...]


@dataclass(frozen=True)
class Recipe:
    """How the plain layout of a data set is made.

    Attributes:
        remotes: What is published; the files themselves if there is no ``read``.
        read: From the paths of the remotes to the contents of our files, by name.
        counts: Of each file, how often each value of a field must occur: ``field``, then counts.
            For files whose digests are not known. Of a table, the number of the column among how
            many; a header counts as a value.
    """

    remotes: tuple[RemoteFile, ...]
    read: Callable[..., archives.Contents] | None = None
    counts: dict[str, tuple[str | tuple[int, int], dict[str | int, int]]] = field(
        default_factory=dict
    )


def _read_table() -> tuple[dict[str, tuple[Layout, ...]], dict[str, tuple[RemoteFile, ...]]]:
    """Layouts and remotes by data set, from ``published.txt``."""
    layouts: dict[str, dict[str, list[Source]]] = {}
    remotes: dict[str, list[RemoteFile]] = {}
    name = section = ""
    text = Path(__file__).with_name("published.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            name, section = line.strip("[]").split()
        elif line and not line.startswith("#"):
            digest, size, file, *url = line.split()
            num_bytes = None if size == "-" else int(size)
            sha256 = None if digest == "-" else digest
            if section == "published":
                remote = RemoteFile(url[0], file, num_bytes, sha256)
                remotes.setdefault(name, []).append(remote)
            else:
                sources = layouts.setdefault(name, {}).setdefault(section, [])
                sources.append(Source(file, num_bytes, sha256))
    return (
        {name: tuple(map(tuple, parts.values())) for name, parts in layouts.items()},
        {name: tuple(files) for name, files in remotes.items()},
    )


LAYOUTS, _REMOTES = _read_table()
VOCABULARY = LAYOUTS.pop("vocabulary")[0][0]
RECIPES: dict[str, Recipe] = {
    "imdb": Recipe(_REMOTES["imdb"], archives.read_imdb),
    "sst2": Recipe(
        _REMOTES["sst2"],
        archives.read_sst2,
        {
            "sst2/sst2_train.jsonl": ("label", {0: 29_780, 1: 37_569}),
            "sst2/sst2_dev.jsonl": ("label", {0: 428, 1: 444}),
        },
    ),
    "cola": Recipe(
        _REMOTES["cola"],
        archives.read_cola,
        {
            "glue/cola/train.tsv": ((1, 4), {"0": 2_528, "1": 6_023}),
            "glue/cola/dev.tsv": ((1, 4), {"0": 322, "1": 721}),
        },
    ),
    "mrpc": Recipe(
        _REMOTES["mrpc"],
        archives.read_mrpc,
        {
            "glue/mrpc/train.tsv": ((0, 5), {"Quality": 1, "0": 1_194, "1": 2_474}),
            "glue/mrpc/dev.tsv": ((0, 5), {"Quality": 1, "0": 129, "1": 279}),
        },
    ),
    "rte": Recipe(
        _REMOTES["rte"],
        archives.read_rte,
        {
            "glue/rte/train.tsv": (
                (3, 4),
                {"label": 1, "entailment": 1_249, "not_entailment": 1_241},
            ),
            "glue/rte/dev.tsv": ((3, 4), {"label": 1, "entailment": 146, "not_entailment": 131}),
        },
    ),
    "mnli-subset": Recipe(_REMOTES["mnli-subset"], subsets.read_mnli_subset),
    "mnli": Recipe(
        _REMOTES["mnli"],
        archives.read_mnli,
        {
            "multinli/mnli_dev_matched.jsonl": (
                "label",
                {"entailment": 3_479, "neutral": 3_123, "contradiction": 3_213},
            ),
        },
    ),
    "civil-subset": Recipe(_REMOTES["civil-subset"], subsets.read_civil_subset),
    "civil": Recipe(_REMOTES["civil"], archives.read_civil),
    "mnist": Recipe(_REMOTES["mnist"]),
    "fashion": Recipe(_REMOTES["fashion"]),
    "cifar10": Recipe(_REMOTES["cifar10"], archives.read_cifar10),
    "shakespeare": Recipe(_REMOTES["shakespeare"]),
    "wikitext2": Recipe(_REMOTES["wikitext2"], archives.read_wikitext2),
    "vocabulary": Recipe(_REMOTES["vocabulary"]),
}
# The same files, split in another way.
for _name, _same in (("sst2-sentences", "sst2"), ("shakespeare-tested", "shakespeare")):
    LAYOUTS[_name], RECIPES[_name] = LAYOUTS[_same], RECIPES[_same]


def find_data(
    name: str,
    data_dir: str | Path | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> list[VerifiedFile]:
    """The files of a named data set, in the order of their layout.

    Raises:
        DataError: If they are absent or damaged.
    """
    return _find(name, LAYOUTS[name], data_dir, download, progress)


def find_vocabulary(
    data_dir: str | Path | None = None, download: bool = False, progress: Progress | None = None
) -> tuple[VerifiedFile, tuple[str, ...]]:
    """The file of the whole vocabulary, and its word pieces by number."""
    file = _find("vocabulary", ((VOCABULARY,),), data_dir, download, progress)[0]
    return file, read_vocabulary(file.path)


def has_vocabulary(data_dir: str | Path | None = None) -> bool:
    """Whether the vocabulary is on this machine.

    Raises:
        DataError: If it is, but damaged.
    """
    return find_files((VOCABULARY,), list_folders(data_dir)) is not None


def _find(
    name: str,
    layouts: tuple[Layout, ...],
    data_dir: str | Path | None,
    download: bool,
    progress: Progress | None,
) -> list[VerifiedFile]:
    folders = list_folders(data_dir)
    for is_last in (False, True):
        for layout in layouts:
            files = find_files(layout, folders)
            if files is not None:
                return files
        if is_last or not download:
            break
        make(name, progress=progress)
    searched = " nor in ".join(str(folder) for folder in folders)
    absent = next(
        source.name
        for source in layouts[0]
        if not any((folder / source.name).is_file() for folder in folders)
    )
    what = "text needs the vocabulary" if name == "vocabulary" else f"{name} needs"
    raise DataError(
        f"{what} {absent}, which is not in {searched}: say where it is with data_dir (--data-dir)"
        f" or the variable {VARIABLE}, or fetch it with download=True (on the command line:"
        " --download)"
    )


def make(
    name: str,
    folder: Path | None = None,
    published: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Make the plain layout of a data set from what is published.

    Args:
        name: Of the data set, or ``vocabulary``.
        folder: The data folder to write to; None for the one in the cache folder.
        published: A folder that holds the published files already, by their names in
            ``published.txt``; None to fetch them.
        progress: Called with the bytes that have come, and how many there are (0: not known).

    Raises:
        DataError: If a file cannot be fetched or written, or is not what was published.
    """
    if name not in RECIPES:
        raise DataError(f"{name} is not published for download: there are {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    folder = find_cache() / "data" if folder is None else folder
    if recipe.read is None and published is None:
        for remote in recipe.remotes:
            download(remote, folder, progress)
        return
    if published is None:
        downloads = find_cache() / "downloads"
        paths = [download(remote, downloads, progress) for remote in recipe.remotes]
    else:
        paths = [_find_published(remote, published) for remote in recipe.remotes]
    if recipe.read is None:
        for remote, path in zip(recipe.remotes, paths, strict=True):
            _write(folder / remote.name, lambda path=path: [path.read_bytes()])
        return
    for file, write in recipe.read(*paths).items():
        _write(folder / file, write)
        _check(file, folder / file, name, recipe)
    # All is checked and in place; what was fetched would only take up room.
    if published is None:
        for path in paths:
            with suppress(OSError):
                path.unlink()


def _find_published(remote: RemoteFile, folder: Path) -> Path:
    path = folder / remote.name
    if not path.is_file():
        raise DataError(f"{path} is missing: fetch it from {remote.url}")
    verify(Source(remote.name, remote.size, remote.sha256), path)
    return path


def _write(path: Path, write: Callable[[], Iterable[bytes]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.writelines(write()))
    except RunError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise DataError(f"{path.parent} cannot be made: {error.strerror}") from error


def _check(file: str, path: Path, name: str, recipe: Recipe) -> None:
    """Remove a file that does not hold what it should."""
    source = next(source for layout in LAYOUTS[name] for source in layout if source.name == file)
    try:
        verify(source, path)
        if file in recipe.counts:
            column, expected = recipe.counts[file]
            found = _count(path, column)
            if found != expected:
                raise DataError(
                    f"{path} is not what was published: {column} {dict(found)}, not {expected}"
                )
    except DataError:
        path.unlink(missing_ok=True)
        raise


def _count(path: Path, column: str | tuple[int, int]) -> Counter[str | int]:
    """How often each value of a column occurs."""
    if isinstance(column, tuple):
        number, num_columns = column
        return Counter(cells[number] for cells in read_cells(path, num_columns))
    with open(path, encoding="utf-8") as rows:
        return Counter(json.loads(row)[column] for row in rows)
