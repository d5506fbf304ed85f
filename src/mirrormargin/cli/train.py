r"""``mirrormargin train``: the lab's attention layer, for every problem, exponent and start.

    u <- u - step grad L(W),    W = sign(u) |u|^(1/(p-1))

With --out the record is saved now and then, when it is interrupted, and in the end; --resume goes
on from it to the same bits. Configurations of real data go to mirrormargin.cli.real_training.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.destination import Destination
from mirrormargin.cli.lab_options import add_start, add_training
from mirrormargin.cli.options import (
    add_output,
    add_report,
    describe,
    read_count,
)
from mirrormargin.cli.problems import KEYS, load_problems
from mirrormargin.cli.real_options import (
    CONFIGURATION_LIST,
    add_real_options,
    check_kind,
    is_real,
)
from mirrormargin.cli.training_run import train_safely
from mirrormargin.cli.training_table import print_training, summarize
from mirrormargin.errors import ProblemError, TrainingError, TrainingInterrupted

if TYPE_CHECKING:
    from mirrormargin.dynamics import AttentionRecord

__all__ = ["add_parser", "run"]

INTERRUPTED = 128 + 2

# What holds unless it is given. None of these goes with --resume, where the folder has the say.
DEFAULTS: dict[str, Any] = {
    "p": [2.0],
    "seed": None,
    "step_rule": "normalized",
    "lr": [0.1],
    "init_std": 0.0,
    "init_seeds": None,
    "eps": None,
    "max_lr": None,
    "joint": False,
    "decay": None,
    "head_decay": None,
    "parameterization": "W",
    "rank": None,
    "keep_path": False,
}
STEPS = [2000]
EXAMPLES = (
    ("train lab/unit_sphere --p 1.75 2 3 --seed 1-100 --init-std 1", "300 runs at once"),
    ("train lab/joint_toy --joint --p 2 3 --json", "W and the head together, as JSON"),
    ("train problem.npz --steps 1000000 --out runs/long", "kept, also if it is interrupted"),
    ("train --resume runs/long", "goes on with that; --steps N goes further"),
    ("train imdb/small --p 1.1 --seed 1", "a transformer on real data; called again, it goes on"),
    ("train imdb/small --data reviews.csv --set epochs=2", "the same on your own texts"),
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train attention problems of the lab, one in a file, or a model on real data",
        description="Train one attention layer by mirror descent, every problem, exponent and start"
        " at once;\nor a transformer on real data, by one of the configurations below.",
        **describe(EXAMPLES, more=f"{KEYS}\n{CONFIGURATION_LIST}"),
    )
    parser.add_argument(
        "problem",
        metavar="PROBLEM",
        nargs="?",
        help="lab/GENERATOR, a file .npz or .json, or a configuration, see below",
    )
    both = "defaults are the lab's; real data takes --p, --lr, --seed and --threads of these"
    add_training(parser.add_argument_group("training", both))
    add_start(parser.add_argument_group("start and variants, lab only"))
    group = parser.add_argument_group("record, lab only")
    group.add_argument(
        "--record",
        type=read_count,
        nargs="+",
        metavar="N",
        help="how many log-spaced steps to record, or which ones (default: 50)",
    )
    group.add_argument("--keep-path", action="store_true", help="keep W at each recorded step")
    group = parser.add_argument_group(
        "output", "real data goes on, or says what is there, without --overwrite and --resume"
    )
    add_output(group, "keep the record in this folder")
    group.add_argument(
        "--resume",
        type=Path,
        metavar="FOLDER",
        help="go on with what --out kept there, instead of PROBLEM and its options",
    )
    add_report(group)
    add_real_options(parser)
    parser.set_defaults(run=run, **dict.fromkeys(DEFAULTS), steps=None)


def run(arguments: argparse.Namespace) -> int:
    """Train or go on, then print the table or the JSON object."""
    if arguments.resume is not None:
        _refuse_real(arguments.resume)
    check_kind(arguments, real=is_real(arguments.problem))
    if is_real(arguments.problem):
        from mirrormargin.cli.real_training import train_real

        return train_real(arguments)
    seeds: list[int | None] = []
    try:
        if arguments.resume is not None:
            record, folder = _resume(arguments), arguments.resume
        else:
            record, seeds = _train(arguments)
            folder = arguments.out
    except TrainingInterrupted as interrupt:
        return _report_interrupt(interrupt.record, arguments)
    summary = summarize(record, seeds)
    print_training(record, summary, arguments, folder)
    return 0


def _train(arguments: argparse.Namespace) -> tuple[AttentionRecord, list[int | None]]:
    options = _read_options(arguments)
    found = load_problems(arguments.problem, options.pop("seed"))
    import mirrormargin as mm
    from mirrormargin.dynamics.descent.record import KIND

    if arguments.out is not None:
        Destination(arguments.out, KIND, ["training"], arguments.overwrite)
    problems = [problem for _, problem in found]
    train = mm.train_joint if options.pop("joint") else mm.train_attention
    p = options.pop("p")
    record = train_safely(
        lambda progress: train(problems, p, **options, progress=progress),
        lambda record, progress: mm.resume_training(
            record, threads=arguments.threads, progress=progress
        ),
        arguments.out,
        arguments.quiet,
    )
    return record, [seed for seed, _ in found]


def _refuse_real(folder: Path) -> None:
    """Trainings on real data go on by the command that began them: say which."""
    from mirrormargin.training.folder import TrainingFolder

    real = TrainingFolder(folder)
    if real.status not in ("empty", "foreign"):
        from mirrormargin.training.configurations import format_command

        command = format_command(real.read_config())
        raise TrainingError(
            f"{folder} holds a training on real data, which goes on without --resume: {command}"
            f" --out {shlex.quote(str(folder))}"
        )


def _resume(arguments: argparse.Namespace) -> AttentionRecord:
    wrong = [name for name in DEFAULTS if _is_given(getattr(arguments, name))]
    wrong += [name for name in ("problem", "out", "overwrite") if getattr(arguments, name)]
    if wrong:
        names = ["PROBLEM" if n == "problem" else f"--{n.replace('_', '-')}" for n in wrong]
        raise ProblemError(
            f"{' and '.join(names)} and --resume are given, but the folder says what is trained:"
            " leave it out"
        )
    import mirrormargin as mm

    before = mm.AttentionRecord.load(arguments.resume)
    more: dict[str, Any] = {}
    if arguments.steps is not None:
        more["num_steps"] = _flatten(arguments.steps)
        if arguments.record is not None:
            more["record_steps"] = _flatten(arguments.record)
    elif arguments.record is not None:
        raise ProblemError("--record goes with --resume only if --steps says how far: add it")

    def go_on(record: AttentionRecord, progress: Any, **options: Any) -> AttentionRecord:
        return mm.resume_training(record, **options, threads=arguments.threads, progress=progress)

    return train_safely(
        lambda progress: go_on(before, progress, **more), go_on, arguments.resume, arguments.quiet
    )


def _read_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the library's call gets, but the problems."""
    if arguments.problem is None:
        raise ProblemError(
            "there is no PROBLEM: give lab/GENERATOR, a file or a configuration, or --resume FOLDER"
        )
    given = {
        name: getattr(arguments, name) if _is_given(getattr(arguments, name)) else default
        for name, default in DEFAULTS.items()
    }
    _check_together(given)
    import mirrormargin as mm

    options: dict[str, Any] = {name: given[name] for name in ("p", "seed", "joint", "step_rule")}
    options |= {
        "lr": _flatten(given["lr"]),
        "num_steps": _flatten(arguments.steps or STEPS),
        "keep_path": given["keep_path"],
        "threads": arguments.threads,
    }
    if arguments.record is not None:
        options["record"] = _flatten(arguments.record)
    for name in ("eps", "max_lr", "decay", "head_decay", "rank"):
        if given[name] is not None:
            options[name] = given[name]
    if not given["joint"]:
        options["parameterization"] = given["parameterization"]
    if given["init_std"] != 0:
        init = mm.NormalInit(given["init_std"], given["init_seeds"] or [0])
        options |= {"init": init, "head_init": init} if given["joint"] else {"init": init}
    return options


def _check_together(given: dict[str, Any]) -> None:
    """Options that would have no effect are a mistake."""
    joint, rule, factored = given["joint"], given["step_rule"], given["parameterization"] == "KQ"
    wrong = {
        "--decay needs --joint": given["decay"] is not None and not joint,
        "--head-decay needs --joint": given["head_decay"] is not None and not joint,
        "--joint trains W, not K and Q": joint and factored,
        "--joint has no --step-rule polyak": joint and rule == "polyak",
        "--rank needs --parameterization KQ": given["rank"] is not None and not factored,
        "--eps needs --step-rule normalized": given["eps"] is not None and rule != "normalized",
        "--max-lr needs --step-rule polyak": given["max_lr"] is not None and rule != "polyak",
        "--init-seeds needs an --init-std above 0": given["init_seeds"] is not None
        and given["init_std"] == 0,
        "--parameterization KQ needs an --init-std above 0, for K = Q = 0 never moves": factored
        and given["init_std"] == 0,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ProblemError(f"{message}: change one of the two")


def _is_given(value: Any) -> bool:
    return value is not None and value is not False  # 0 is given


def _flatten(values: list[Any]) -> Any:
    """A single number as such: it stands for all exponents, or for a count."""
    return values[0] if len(values) == 1 else values


def _report_interrupt(record: AttentionRecord, arguments: argparse.Namespace) -> int:
    folder = arguments.resume or arguments.out
    done = int(record.state["step"].sum())
    shape = record.norm.shape
    total = int(record.planned[:, -1].sum()) * shape[0] * shape[2]
    print(f"mirrormargin: interrupted after {done:,} of {total:,} steps", file=sys.stderr)
    if folder is not None:
        print(f"mirrormargin train --resume {folder} goes on from there", file=sys.stderr)
    return INTERRUPTED
