"""The tree of commands, how its help looks, and what is said about a mistake in a command line.

Every command is an ``App`` in a module of its own, imported when its help or itself is asked for.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter
from cyclopts.exceptions import (
    CoercionError,
    ConsumeMultipleError,
    UnknownCommandError,
    UnusedCliTokensError,
)
from cyclopts.help import (
    ColumnSpec,
    DefaultFormatter,
    DescriptionRenderer,
    InlineText,
    NameRenderer,
    TableSpec,
)

from mirrormargin import __version__
from mirrormargin.cli.options import show_examples
from mirrormargin.cli.terminal import emit

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

__all__ = ["app", "describe_mistake", "import_listed"]

MODELS, LAB, PAPERS, MORE = (
    Group(title, sort_key=index)
    for index, title in enumerate(("Models on real data", "The exact lab", "The papers", "More"))
)


class _Formatter(DefaultFormatter):
    """Titles and columns without boxes; paragraphs are wrapped to the width of the terminal."""

    def render_description(
        self, console: Console, options: ConsoleOptions, description: InlineText
    ) -> None:
        for paragraph in _get_text(description).split("\n\n"):
            console.print(" ".join(paragraph.split()) + "\n")

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        from rich.padding import Padding
        from rich.text import Text

        if not panel.entries:
            return
        width = max(16, console.width * 2 // 5)
        columns = (
            ColumnSpec(renderer=NameRenderer(width), style="cyclopts.name", max_width=width),
            ColumnSpec(renderer=DescriptionRenderer(), overflow="fold"),
        )
        for entry in panel.entries:
            if isinstance(entry.description, InlineText):
                text = " ".join(_get_text(entry.description).split())
                entry.description.primary_renderable = Text(text)
        console.print(f"{panel.title}:", style="bold")
        emit(console, Padding(TableSpec().build(columns, panel.entries), (0, 0, 1, 2)))


def _get_text(text: InlineText) -> str:
    return getattr(text.primary_renderable, "plain", "")


def _show_default(value: Any) -> str | None:
    """The default in a help text; None for a flag that is off and an option that is absent."""
    if value is None or value is False or value == ():
        return None
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


app = App(
    name="mirrormargin",
    help="Train attention with mirror descent and see which max-margin it reaches.",
    version=f"mirrormargin {__version__}",
    help_flags=["--help", "-h"],
    help_format="plaintext",
    help_formatter=_Formatter(),
    group_parameters=Group("Options", sort_key=5),
    group_arguments=Group("Arguments", sort_key=1),
    default_parameter=Parameter(negative=(), show_default=_show_default),
    suppress_keyboard_interrupt=False,
)
lab = App(
    name="lab",
    group=LAB,
    help="One attention layer, computed exactly: train, solve, flow, path.",
)
sweep = App(
    name="sweep",
    group=LAB,
    help="Many runs from a grid, here or on a cluster, in one table: run, status, resume.",
)
GROUPS = {"lab": lab, "sweep": sweep}  # commands that have commands
app["--help"].group = app["--version"].group = Group("Options", sort_key=9)
app.command(lab)
app.command(sweep)
# Where each command is, in the order of the help.
COMMANDS = (
    (app, MODELS, "train", "train:app"),
    (app, MODELS, "evaluate", "evaluate:app"),
    (app, MODELS, "prune", "prune:app"),
    (app, MODELS, "shrink", "shrink:app"),
    (app, MODELS, "delta", "delta:app"),
    (app, MODELS, "predict", "predict:app"),
    (lab, None, "train", "lab.train:app"),
    (lab, None, "solve", "lab.solve:app"),
    (lab, None, "flow", "lab.curves:flow_app"),
    (lab, None, "path", "lab.curves:path_app"),
    (sweep, None, "run", "sweep:run_app"),
    (sweep, None, "status", "sweep:status_app"),
    (sweep, None, "resume", "sweep:resume_app"),
    (app, PAPERS, "reproduce", "reproduce:app"),
    (app, PAPERS, "campaign", "campaign:app"),
    (app, PAPERS, "demo", "reproduce:demo_app"),
    (app, MORE, "report", "report:app"),
    (app, MORE, "doctor", "doctor:app"),
)
for index, (parent, group, name, where) in enumerate(COMMANDS):
    parent.command(f"mirrormargin.cli.{where}", name=name, group=group, sort_key=index)


@app.command(
    group=MORE,
    sort_key=len(COMMANDS),
    **show_examples(
        (
            ("completion bash > ~/.mirrormargin.bash", "then: source ~/.mirrormargin.bash"),
            ("completion zsh > ~/.zfunc/_mirrormargin", "a folder that is in $fpath"),
            ("completion fish > ~/.config/fish/completions/mirrormargin.fish", "found by itself"),
        )
    ),
)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Which shell.")], /
) -> None:
    """Print a script that completes commands, options and values in a shell."""
    print(app.generate_completion(shell=shell))


def import_listed(argv: list[str]) -> None:
    """Import the commands whose summaries a help page is going to list."""
    group = GROUPS.get(argv[0]) if argv else None
    rest = argv if group is None else argv[1:]
    if not rest or rest[0] in app.help_flags:
        (app if group is None else group).resolved_commands()


def describe_mistake(error: CycloptsError) -> str:
    """What is wrong with a command line, on one line."""
    words = [*app.name, *(error.command_chain or ())]
    command = shlex.join(words)
    return f"{command}: error: {_say_what(error).rstrip('.')} (see {command} --help)"


def _say_what(error: CycloptsError) -> str:
    """Cyclopts' message, or ours where it would speak of parameters and tokens."""
    name = "" if error.argument is None else error.argument.name
    if isinstance(error, UnknownCommandError):
        return str(error).partition(" Available commands")[0]
    if isinstance(error, UnusedCliTokensError):
        words = " ".join(map(repr, error.unused_tokens or ()))
        return f"{words} is more than this command takes"
    if isinstance(error, ConsumeMultipleError):
        return f"{name} needs a value"
    if isinstance(error, MissingArgumentError):
        return f"{error.keyword} needs a value" if error.keyword else f"{name} is missing"
    if isinstance(error, CoercionError) and error.msg is not None:
        return f"{name}: {error.msg}"
    return str(error)
