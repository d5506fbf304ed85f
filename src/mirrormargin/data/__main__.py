"""``python -m mirrormargin.data``: makes a data folder from what is published.

    python -m mirrormargin.data imdb mnli-subset --out data        # fetches, verifies, converts
    python -m mirrormargin.data imdb --out data --published here   # from files you have already

Afterwards ``MIRRORMARGIN_DATA=data`` or ``--data-dir data`` finds them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mirrormargin.data.published import RECIPES, make
from mirrormargin.errors import DataError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m mirrormargin.data",
        description="Make the files of data sets from what others publish.",
    )
    parser.add_argument(
        "names",
        nargs="+",
        choices=tuple(RECIPES),
        metavar="NAME",
        help="any of " + ", ".join(RECIPES),
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a data folder")
    parser.add_argument(
        "--published",
        type=Path,
        metavar="FOLDER",
        help="holds the published files already, under their names in published.txt",
    )
    arguments = parser.parse_args()
    try:
        for name in arguments.names:
            make(name, arguments.out, arguments.published)
            print(f"{name} is in {arguments.out}")
    except DataError as error:
        print(f"mirrormargin: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
