"""The ``mirrormargin`` command: parse, run, and end with an exit code that says how it went.

Whatever takes time to import is imported inside :func:`main`: ``--help`` answers at once, and an
interrupt during an import ends like any other. The tree of commands is in
:mod:`mirrormargin.cli.app`, each command in a module of its own.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from mirrormargin.cli import interrupts

__all__ = ["main"]

USER_ERROR = 2
BROKEN_PIPE = 128 + 13  # what a shell reports for SIGPIPE
DISK_ERRORS = (errno.ENOSPC, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; ``argv`` is without the program's name.

    0: done. 1: done, but something does not hold, as each command's help says. 2: a user's
    mistake, one line on stderr. 130 and 143: ended by SIGINT or SIGTERM. 141: the reader of a pipe
    has closed it.
    """
    with interrupts.raise_on_signals():
        try:
            code = _run(sys.argv[1:] if argv is None else list(argv))
            if interrupts.is_received() and code != interrupts.exit_code():
                raise KeyboardInterrupt  # a library has swallowed it
            # Here rather than at interpreter exit, where a closed pipe could no longer be caught.
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            # The reader (head, less) has seen enough.
            _discard_output()
            return BROKEN_PIPE
        except OSError as error:
            if error.errno in DISK_ERRORS:
                print(f"mirrormargin: error: cannot write: {error.strerror}", file=sys.stderr)
                _discard_output()
                return USER_ERROR
            if error.filename is None:
                raise
            # What no command expected of a path: a name that is too long, links in a circle.
            shown = ascii(str(error.filename))[:200]
            print(f"mirrormargin: error: {shown}: {error.strerror}", file=sys.stderr)
            return USER_ERROR
        except BaseException as error:
            # Libraries that are interrupted while they are imported may raise something else.
            if not isinstance(error, KeyboardInterrupt) and not interrupts.is_received():
                raise
            from mirrormargin.cli.ranks import is_follower

            if not is_follower():
                print(f"mirrormargin: {interrupts.describe()}", file=sys.stderr)
            return interrupts.exit_code()


def _run(argv: list[str]) -> int:
    from cyclopts import CycloptsError

    from mirrormargin.cli.app import app, describe_mistake, import_listed
    from mirrormargin.cli.ranks import wait_for_first
    from mirrormargin.cli.terminal import make_console, printable
    from mirrormargin.errors import MirrorMarginError

    for word in argv:
        try:
            os.fsencode(word)
        except UnicodeEncodeError:  # from a caller in Python: no shell has such words
            print(f"mirrormargin: error: {ascii(word)[:200]} is no text", file=sys.stderr)
            return USER_ERROR
    import_listed(argv)
    try:
        result = app(
            argv,
            console=make_console(),
            print_error=False,
            exit_on_error=False,
            result_action="return_value",
        )
        return result if isinstance(result, int) else 0  # --help has no result
    except CycloptsError as error:
        line = wait_for_first(describe_mistake(error), error)
    except MirrorMarginError as error:
        if interrupts.is_received():  # its cause, such as the end of a worker that got it too
            raise KeyboardInterrupt from error
        line = wait_for_first(f"mirrormargin: error: {error}", error)
    print(printable(" ".join(line.split()), sys.stderr), file=sys.stderr)
    return USER_ERROR


def _discard_output() -> None:
    """Python flushes stdout again when it exits: send that to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
