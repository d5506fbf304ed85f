"""``python -m mirrormargin`` is the command ``mirrormargin``."""

import sys

from mirrormargin.cli import main

if __name__ == "__main__":
    sys.exit(main())
