"""Where data sets are looked for, and where what is made of them is kept.

data folder    the argument, else the variable MIRRORMARGIN_DATA; only ever read
cache folder   $XDG_CACHE_HOME/mirrormargin or ~/.cache/mirrormargin
    data/      downloaded files, looked through after the data folder
    prepared/  arrays made of the files
    verified/  which files were found whole
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["VARIABLE", "find_cache", "list_folders"]

VARIABLE = "MIRRORMARGIN_DATA"


def list_folders(data_dir: str | Path | None = None) -> list[Path]:
    """The folders to look through, in order."""
    given = data_dir if data_dir is not None else os.environ.get(VARIABLE) or None
    folders = [] if given is None else [Path(given).expanduser().absolute()]
    downloads = find_cache() / "data"
    return folders if downloads in folders else [*folders, downloads]


def find_cache() -> Path:
    """The cache folder, which need not exist."""
    # The standard says that a relative path there is to be ignored.
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "mirrormargin"
