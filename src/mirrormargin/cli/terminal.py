"""What the user sees: tables, JSON, lines of text and a progress bar.

In a pipe or a file, the text has no colours and is the same whatever the width of a terminal.
Text from data, such as a label, never sends control characters to a terminal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID
    from rich.text import Text

__all__ = [
    "Progress",
    "emit",
    "format_number",
    "make_console",
    "print_json",
    "print_pairs",
    "print_rows",
    "print_table",
    "printable",
    "say",
    "warn",
]

# What cyclopts looks up when it prints help.
HELP_STYLES = {
    "cyclopts.name": "cyan",
    "cyclopts.choices": "dim",
    "cyclopts.default": "dim",
    "cyclopts.env_var": "dim",
    "cyclopts.required": "dim",
    "cyclopts.required_marker": "dim",
    "cyclopts.usage": "bold",
    "cyclopts.border": "none",
}
PARTS = 100_000  # steps of a progress bar
WIDE = 10_000  # columns, in a file or a pipe: no line is wrapped


def printable(text: str, stream: TextIO | None = None) -> str:
    """The text with ``?`` for each control character and each one that the stream cannot encode."""
    kept = "".join(one if one.isprintable() or one in "\n\t" else "?" for one in text)
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return kept.encode(encoding, "replace").decode(encoding)


def say(text: str = "") -> None:
    """Print a line, or several."""
    print(printable(text), flush=True)


def warn(text: str) -> None:
    """Print a line on stderr."""
    print(printable(f"mirrormargin: {text}", sys.stderr), file=sys.stderr, flush=True)


def make_console(stream: TextIO | None = None) -> Console:
    """Rich's view of stdout, or of another stream: colours and width if it is a terminal."""
    from rich.console import Console
    from rich.theme import Theme

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError that is being handled: main() turns it into an exit code

    return PlainConsole(
        file=stream, theme=Theme(HELP_STYLES), highlight=False, markup=False, emoji=False
    )


def format_number(value: float | None, form: str) -> str:
    """The number in the form of :func:`format`, ``-`` for None and nan."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], text_column: int = -1
) -> None:
    """Print columns aligned to the right, except one of text, which is wrapped on a terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(header):
        if index == text_column % len(header):
            table.add_column(_make_cell(name), overflow="fold")
        else:
            table.add_column(_make_cell(name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(_make_cell, row))
    _print_wide(table)


def print_rows(columns: Sequence[tuple[str, str, str]], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table of records.

    Args:
        columns: Title, key and form of each, the last one of text.
        rows: Numbers and texts by their keys; what is absent is shown as ``-``.
    """

    def show(value: Any, form: str) -> str:
        return value if isinstance(value, str) else format_number(value, form)

    lines = [[show(row.get(key), form) for _, key, form in columns] for row in rows]
    print_table([title for title, _, _ in columns], lines)


def print_pairs(pairs: Mapping[str, object], indent: int = 2) -> None:
    """Print names and their values, a line for each; values are wrapped on a terminal."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(_make_cell(name), _make_cell(str(value)))
    _print_wide(Padding(table, (0, 0, 0, indent)))


def _print_wide(renderable: RenderableType) -> None:
    """As wide as the terminal is; in a file or a pipe without a limit."""
    console = make_console()
    if not console.is_terminal:
        console.width = WIDE
    emit(console, renderable)


def _make_cell(text: str) -> Text:
    """The text on one line, with brackets that rich does not take for markup."""
    from rich.text import Text

    return Text(printable(text.replace("\n", " ").replace("\t", " ")))


def emit(console: Console, renderable: RenderableType) -> None:
    """Print what rich lays out; outside a terminal without the blanks that fill its lines."""
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as capture:
        console.print(renderable)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    print("\n".join(lines), file=console.file)


def print_json(report: dict[str, Any]) -> None:
    """Print one JSON object. JSON has neither nan nor inf: they become null."""
    print(json.dumps(_clean(report), indent=2, allow_nan=False))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Progress:
    """A progress bar on stderr, removed at the end.

    Shown if stderr is a terminal; otherwise every method does nothing.

    Args:
        total: The value of ``done`` at the end.
        label: The beginning of the line.
        quiet: Whether to show nothing on a terminal either.
    """

    def __init__(self, total: float, label: str, quiet: bool = False) -> None:
        self.total, self.label = total, printable(label, sys.stderr)
        self.is_shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def update(self, done: float, text: str = "") -> None:
        """Show that ``done`` of the total is done; cheap enough to be called at every step."""
        if not self.is_shown:
            return
        share = min(max(done / self.total, 0.0), 1.0) if self.total > 0 else 1.0
        parts = round(share * PARTS)
        if self._bar is None:
            self._bar = _make_bar()
            # A resumed command starts here: what was done before says nothing about its speed.
            self._task = self._bar.add_task(self.label, total=PARTS, completed=parts, text="")
        assert self._task is not None
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._task, completed=parts, text=printable(text, sys.stderr))

    def close(self) -> None:
        """Clear the line; the next update shows it again."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.stop()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def _make_bar() -> RichProgress:
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True)),
        console=make_console(sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=5,
    )
