"""Where the data sets are published, and how they come from there into the cache folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mirrormargin.data import archives
from mirrormargin.data.download import Progress, RemoteFile, download
from mirrormargin.data.places import find_cache
from mirrormargin.data.sources import LAYOUTS, MNIST, VOCABULARY
from mirrormargin.data.verified import verify
from mirrormargin.errors import DataError, RunError
from mirrormargin.runs import write_atomically

__all__ = ["RECIPES", "Recipe", "fetch"]


@dataclass(frozen=True)
class Recipe:
    """How a data set is fetched.

    Attributes:
        remotes: Files to download: an archive if there is a ``read``, else the files themselves.
        read: From the archive to the contents of our files, by name.
        counts: Of each file, how often each value of a field must occur: ``field``, then counts.
    """

    remotes: tuple[RemoteFile, ...]
    read: Callable[[Path], archives.Contents] | None = None
    counts: dict[str, tuple[str, dict[str | int, int]]] = field(default_factory=dict)


# Sizes and digests: of IMDB, CIFAR-10, MultiNLI and Civil Comments as in the lists of
# tensorflow-datasets, of SST-2 (md5 only) as in torchtext.
RECIPES: dict[str, Recipe] = {
    "imdb": Recipe(
        (
            RemoteFile(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "aclImdb_v1.tar.gz",
                84_125_825,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        archives.read_imdb,
    ),
    "sst2": Recipe(
        (
            RemoteFile(
                "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
                "SST-2.zip",
                md5="9f81648d4199384278b86e315dac217c",
            ),
        ),
        archives.read_sst2,
        {
            "sst2/sst2_train.jsonl": ("label", {0: 29_780, 1: 37_569}),
            "sst2/sst2_dev.jsonl": ("label", {0: 428, 1: 444}),
        },
    ),
    "mnli": Recipe(
        (
            RemoteFile(
                "https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
                "multinli_1.0.zip",
                226_850_426,
                "049f507b9e36b1fcb756cfd5aeb3b7a0cfcb84bf023793652987f7e7e0957822",
            ),
        ),
        archives.read_mnli,
        {
            "multinli/mnli_dev_matched.jsonl": (
                "label",
                {"entailment": 3_479, "neutral": 3_123, "contradiction": 3_213},
            ),
        },
    ),
    "civil": Recipe(
        (
            RemoteFile(
                "https://storage.googleapis.com/jigsaw-unintended-bias-in-toxicity-classification/"
                "civil_comments.zip",
                "civil_comments.zip",
                414_947_977,
                "767b71a3d9dc7a2eceb234d0c3e7e38604e11f59c12ba1cbb888ffd4ce6b6271",
            ),
        ),
        archives.read_civil,
    ),
    "mnist": Recipe(
        tuple(
            RemoteFile(
                "https://ossci-datasets.s3.amazonaws.com/" + source.name,
                source.name,
                source.size,
                source.sha256,
            )
            for source in MNIST[0]
        )
    ),
    "cifar10": Recipe(
        (
            RemoteFile(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        archives.read_cifar10,
    ),
    "vocabulary": Recipe(
        (
            RemoteFile(
                "https://huggingface.co/google-bert/bert-base-uncased/resolve/main/vocab.txt",
                VOCABULARY.name,
                VOCABULARY.size,
                VOCABULARY.sha256,
            ),
        )
    ),
}


def fetch(name: str, progress: Progress | None = None) -> None:
    """Bring a data set into the cache folder.

    Raises:
        DataError: If it cannot be fetched, or is not what was published.
    """
    if name not in RECIPES:
        raise DataError(f"{name} is not published for download: there are {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    folder = find_cache() / "data"
    if recipe.read is None:
        for remote in recipe.remotes:
            download(remote, folder, progress)
        return
    archive = download(recipe.remotes[0], find_cache() / "downloads", progress)
    for file, make in recipe.read(archive).items():
        _write(folder / file, make)
        _check(file, folder / file, name, recipe)
    # All is checked and in place; the archive would only take room.
    with suppress(OSError):
        archive.unlink()


def _write(path: Path, make: Callable[[], Iterable[bytes]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.writelines(make()))
    except RunError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise DataError(f"{path.parent} cannot be made: {error.strerror}") from error


def _check(file: str, path: Path, name: str, recipe: Recipe) -> None:
    """Remove a file that does not hold what was published."""
    source = next(source for layout in LAYOUTS[name] for source in layout if source.name == file)
    try:
        verify(source, path)
        if file in recipe.counts:
            column, expected = recipe.counts[file]
            with open(path, encoding="utf-8") as rows:
                found = Counter(json.loads(row)[column] for row in rows)
            if found != expected:
                raise DataError(
                    f"{path} is not what was published: {column} {dict(found)}, not {expected}"
                )
    except DataError:
        path.unlink(missing_ok=True)
        raise
