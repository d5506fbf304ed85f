"""``python -m mirrormargin`` is the command ``mirrormargin``."""

import sys

if __name__ == "__main__":
    try:
        from mirrormargin.cli import main
    except KeyboardInterrupt:  # main() is not in charge of signals yet
        print("mirrormargin: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(main())
