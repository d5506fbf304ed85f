r"""``mirrormargin completion``: a script that teaches a shell the commands and their options.

source <(mirrormargin completion bash)           in ~/.bashrc
source <(mirrormargin completion zsh)            in ~/.zshrc
mirrormargin completion fish | source            in config.fish
"""

from __future__ import annotations

import argparse
from typing import Any

from mirrormargin.cli.options import describe
from mirrormargin.cli.problems import LAB
from mirrormargin.training.configurations import CONFIGURATIONS

__all__ = ["add_parser", "run"]

EXAMPLES = (
    ("completion bash > ~/.mirrormargin.bash", "then: source ~/.mirrormargin.bash"),
    ("completion zsh > ~/.mirrormargin.zsh", "then, after compinit: source it"),
    ("completion fish > ~/.config/fish/completions/mirrormargin.fish", "fish finds it there"),
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that completes commands, options and problems.",
        **describe(EXAMPLES),
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    # All commands, also those that are added after this one.
    parser.set_defaults(run=run, commands=commands)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    write = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}[arguments.shell]
    print(write(arguments.commands.choices))
    return 0


def _list_words(parser: argparse.ArgumentParser) -> tuple[list[str], list[str], dict[str, str]]:
    """Options, words for positional arguments, and what follows which option."""
    options, words, values = [], [], {}
    for action in parser._actions:
        options += action.option_strings
        choices = " ".join(map(str, action.choices or ()))
        if not action.option_strings:
            words += [f"lab/{name}" for name in LAB] if action.dest == "problem" else []
            words += CONFIGURATIONS if parser.prog.endswith(" train") else []
            words += ["@folder"] if action.metavar == "FOLDER" else choices.split()
        elif action.nargs != 0:
            for name in action.option_strings:
                values[name] = choices or {"FOLDER": "@folder", "FILE": "@file"}.get(
                    str(action.metavar), "@none"
                )
    return options, words, values


def _write_bash(commands: dict[str, argparse.ArgumentParser]) -> str:
    cases = []
    for name, parser in commands.items():
        options, words, values = _list_words(parser)
        cases.append(f"    {name})")
        cases += [f"      options='{' '.join(options)}' words='{' '.join(words)}'"]
        cases += ["      case $previous in"]
        cases += [f"        {option}) follow='{value}' ;;" for option, value in values.items()]
        cases += ["      esac ;;"]
    return BASH.format(commands=" ".join(commands), cases="\n".join(cases))


def _write_zsh(commands: dict[str, argparse.ArgumentParser]) -> str:
    # zsh runs bash's completions by itself, so there is one script to keep right.
    return f"{ZSH}\n{_write_bash(commands)}"


def _write_fish(commands: dict[str, argparse.ArgumentParser]) -> str:
    start = "complete -c mirrormargin"
    lines = [f"{start} -f", f"{start} -n __fish_use_subcommand -a '{' '.join(commands)}'"]
    for name, parser in commands.items():
        options, words, values = _list_words(parser)
        here = f"{start} -n '__fish_seen_subcommand_from {name}'"
        offered = "(__fish_complete_directories)" if words == ["@folder"] else " ".join(words)
        lines += [f"{here} -a '{offered}'"] if words else []
        lines += [f"{here} -F"] if any(word.startswith("lab/") for word in words) else []
        for option in options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            value = values.get(option)
            follow = {"@folder": " -x -a '(__fish_complete_directories)'", "@file": " -r -F"}
            extra = "" if value is None else follow.get(value, f" -x -a '{value}'")
            lines.append(f"{here} {flag}{' -x' if value == '@none' else extra}")
    return "\n".join(lines)


ZSH = "#compdef mirrormargin\nautoload -U +X bashcompinit && bashcompinit"
BASH = """\
_mirrormargin() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local options= words= follow=
  COMPREPLY=()
  if [ "$COMP_CWORD" -le 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version' -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  case $follow in
    @folder) COMPREPLY=($(compgen -d -- "$current")) ;;
    @file) COMPREPLY=($(compgen -f -- "$current")) ;;
    @none) ;;
    ?*) COMPREPLY=($(compgen -W "$follow" -- "$current")) ;;
    *)
      case $current in
        -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
        *) case $words in
             @folder) COMPREPLY=($(compgen -d -- "$current")) ;;
             *) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
           esac
           case $words in *lab/*) COMPREPLY+=($(compgen -f -- "$current")) ;; esac ;;
      esac ;;
  esac
}}
complete -o filenames -F _mirrormargin mirrormargin"""
