"""The ``mirrormargin`` command: one module for each subcommand.

torch and numba are imported inside the subcommands, so that ``--help`` and ``--version`` answer at
once. A user's mistake is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from mirrormargin import __version__
from mirrormargin.cli import (
    campaign,
    completion,
    demo,
    doctor,
    flow,
    path,
    predict,
    prune,
    report,
    reproduce,
    solve,
    train,
)
from mirrormargin.errors import MirrorMarginError

__all__ = ["main"]

USER_ERROR = 2
INTERRUPTED = 128 + 2  # what a shell reports for SIGINT
BROKEN_PIPE = 128 + 13  # and for SIGPIPE
FULL = (errno.ENOSPC, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; ``argv`` is without the program's name."""
    try:
        code = _run(argv)
        # Here rather than at interpreter exit, where a closed pipe could no longer be caught.
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python flushes once more when it exits: let
        # that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("mirrormargin: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"mirrormargin: error: cannot write: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USER_ERROR


def _run(argv: Sequence[str] | None) -> int:
    try:
        parser = _build_parser()
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help()
            return 0
        return arguments.run(arguments)
    except MirrorMarginError as error:
        print("mirrormargin: error:", " ".join(str(error).split()), file=sys.stderr)
        return USER_ERROR
    except SystemExit as stop:  # argparse's way to end
        return stop.code if isinstance(stop.code, int) else 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of argparse's usage text and a line."""
        self.exit(USER_ERROR, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mirrormargin",
        description="Train attention with mirror descent and see which max-margin it reaches.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mirrormargin {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for module in (
        demo,
        train,
        solve,
        flow,
        path,
        predict,
        prune,
        reproduce,
        campaign,
        report,
        doctor,
        completion,
    ):
        module.add_parser(commands)
    return parser
