"""``load_data``: a data set by its name, or from a file or folder of your own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from mirrormargin.data.dataset import DataSet
from mirrormargin.data.files import find_data, find_vocabulary
from mirrormargin.data.framing import check_framing
from mirrormargin.data.image_loading import make_image_set
from mirrormargin.data.image_sets import DIGITS, IMAGE_SETS, read_digits
from mirrormargin.data.own_images import list_images, read_own_images
from mirrormargin.data.own_texts import SUFFIXES, read_own_texts
from mirrormargin.data.prepared import prepare
from mirrormargin.data.text_loading import TextOptions, load_text
from mirrormargin.data.text_sets import TEXT_SETS
from mirrormargin.data.verified import Source, compute_sha256, verify
from mirrormargin.data.vocabulary import check_vocab_size
from mirrormargin.errors import DataError

__all__ = ["DATA_SETS", "load_data"]

DATA_SETS = (*TEXT_SETS, *IMAGE_SETS, "digits")


def load_data(
    name: str | Path,
    *,
    data_dir: str | Path | None = None,
    length: int | None = None,
    keep: str = "head",
    vocab_size: int | None = None,
    num_train: int | None = None,
    text_column: str = "text",
    label_column: str = "label",
    download: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> DataSet:
    """Load a data set, split and shuffled the same way each time.

    The first load of a set of texts takes up to a minute; what it made is kept in the cache folder.

    Args:
        name: One of ``DATA_SETS``; or the path of a file of texts (.jsonl, .csv, .tsv) or of a
            folder that holds a folder of images for each class.
        data_dir: Where its files are; else the variable MIRRORMARGIN_DATA says. Only ever read.
        length: Tokens kept of a text, ``[CLS]`` and ``[SEP]`` included; None: all, at most 512.
        keep: ``head``, the first ones, or ``ends``, the first half and the last half.
        vocab_size: None: all word pieces; else the most frequent ones of the training split.
        num_train: None: the whole training split; else a random subset, the same each time.
        text_column: Where the text is in a row of a file of your own.
        label_column: Where its class is.
        download: Whether to fetch what is absent into the cache folder.
        progress: Called as ``progress(done, total)``, with bytes of a download or numbers of texts.

    Raises:
        DataError: If there is no such data set, it is absent or damaged, or an argument is wrong.
    """
    check_framing(length, keep)
    check_vocab_size(vocab_size)
    options = TextOptions(length, keep, vocab_size, num_train)
    path = Path(name).expanduser()
    if str(name) in TEXT_SETS:
        text_set = TEXT_SETS[str(name)]
        files = find_data(str(name), data_dir, download, progress)
        return load_text(
            str(name),
            text_set.classes,
            files,
            *find_vocabulary(data_dir, download, progress),
            lambda: text_set.read([file.path for file in files]),
            options,
            progress=progress,
        )
    if path.suffix.lower() in SUFFIXES and path.is_file():
        parts, note, classes = read_own_texts(path, text_column, label_column)
        return load_text(
            str(name),
            classes,
            [verify(Source(path.name), path)],
            *find_vocabulary(data_dir, download, progress),
            lambda: (parts, note),
            options,
            key={"text_column": text_column, "label_column": label_column},
            progress=progress,
        )
    if path.suffix.lower() in SUFFIXES and not path.exists():
        raise DataError(f"the file {name} does not exist")
    if str(name) not in DATA_SETS and not path.is_dir():
        raise DataError(
            f"there is no data set {str(name)!r}: there are {', '.join(DATA_SETS)}, and paths of"
            f" files of texts ({', '.join(SUFFIXES)}) and of folders of images by class"
        )
    if options != TextOptions(None, "head", None, num_train):
        raise DataError(
            f"length, keep and vocab_size are for texts, and {name} is of images: choose a"
            " configuration of a model for images, or leave them out"
        )
    if str(name) in IMAGE_SETS:
        image_set = IMAGE_SETS[str(name)]
        files = find_data(str(name), data_dir, download, progress)
        sha256 = {file.name: file.sha256 for file in files}
        arrays, note = prepare(
            {"name": str(name), "sha256": sha256},
            lambda: image_set.read([file.path for file in files]),
        )
        return make_image_set(str(name), image_set.classes, arrays, num_train, sha256, note)
    if str(name) == "digits":
        arrays, note, source = read_digits()
        sha256 = {source.name: compute_sha256(source)}
        return make_image_set("digits", DIGITS, arrays, num_train, sha256, note)
    paths = list_images(path)
    arrays, note, classes = read_own_images(path, paths)
    # They have just been read: a stamp for each would save nothing.
    sha256 = {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in paths
    }
    return make_image_set(str(name), classes, arrays, num_train, sha256, note)
