r"""``mirrormargin lab train``: one attention layer, for every problem, exponent and start at once.

    u <- u - step grad L(W),    W = sign(u) |u|^(1/(p-1))

With --out the record is saved now and then, when the training is interrupted, and at the end;
--resume continues from it to the same bits.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from mirrormargin.cli import interrupts
from mirrormargin.cli.lab.destination import Destination
from mirrormargin.cli.lab.problems import KEYS, Problem, load_problems
from mirrormargin.cli.lab.saved_training import train_safely
from mirrormargin.cli.lab.summary import print_training, summarize
from mirrormargin.cli.options import (
    OUTPUT,
    Exponents,
    FolderOut,
    Json,
    Number,
    Numbers,
    Overwrite,
    Positive,
    Quiet,
    Seeds,
    Threads,
    Wholes,
    show_examples,
)
from mirrormargin.cli.terminal import warn
from mirrormargin.errors import ProblemError, TrainingInterrupted

if TYPE_CHECKING:
    from mirrormargin.dynamics import AttentionRecord

__all__ = ["app", "train"]

# What holds unless it is given. None of these goes with --resume, where the folder has the say.
DEFAULTS: dict[str, Any] = {
    "p": (2.0,),
    "seed": None,
    "step_rule": "normalized",
    "lr": (0.1,),
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
STEPS = (2000,)
START = Group("Start and variants", sort_key=50)
RECORD = Group("Record", sort_key=60)

app = App(
    name="train",
    **show_examples(
        (
            ("lab train unit_sphere --p 1.75 2 3 --seed 1-100 --init-std 1", "300 runs at once"),
            ("lab train joint_toy --joint --p 2 3 --json", "W and the head together, as JSON"),
            ("lab train problem.npz --steps 1000000 --out runs/long", "kept, even if interrupted"),
            ("lab train --resume runs/long", "continues it; --steps N goes further"),
        ),
        more=KEYS,
    ),
)


@app.default
def train(
    problem: Problem | None = None,
    /,
    *,
    p: Annotated[Exponents | None, Parameter(show_default="2")] = None,
    seed: Seeds | None = None,
    step_rule: Annotated[
        Literal["normalized", "constant", "polyak"] | None,
        Parameter(metavar="RULE", help="How long a step is.", show_default="normalized"),
    ] = None,
    lr: Annotated[
        Numbers | None,
        Parameter(help="Learning rate, one or one for each p.", show_default="0.1"),
    ] = None,
    steps: Annotated[
        Wholes | None,
        Parameter(help="How many, one number or one for each p.", show_default="2000"),
    ] = None,
    eps: Annotated[
        Number | None, Parameter(help="Added to the norm that normalized steps are divided by.")
    ] = None,
    max_lr: Annotated[Number | None, Parameter(help="Largest step of Polyak's rule.")] = None,
    threads: Threads | None = None,
    init_std: Annotated[
        Number | None,
        Parameter(
            group=START,
            help="Deviation of normal entries at the start.",
            show_default="0, start at zero",
        ),
    ] = None,
    init_seeds: Annotated[
        Seeds | None,
        Parameter(group=START, help="One start for each, as 1 2 3 or 1-10.", show_default="0"),
    ] = None,
    joint: Annotated[bool, Parameter(group=START, help="Train the head too.")] = False,
    decay: Annotated[
        Number | None, Parameter(group=START, help="Steps lr / (k + 1)^X at step k; with --joint.")
    ] = None,
    head_decay: Annotated[
        Number | None, Parameter(group=START, help="The same for the head; with --joint.")
    ] = None,
    parameterization: Annotated[
        Literal["W", "KQ"] | None,
        Parameter(
            group=START,
            metavar="W|KQ",
            show_choices=False,
            help="Train W, or K and Q with W = K Q'.",
            show_default="W",
        ),
    ] = None,
    rank: Annotated[
        Positive | None, Parameter(group=START, help="Columns of K and Q.", show_default="d")
    ] = None,
    record: Annotated[
        Wholes | None,
        Parameter(
            group=RECORD,
            help="How many log-spaced steps to record, or which ones.",
            show_default="50",
        ),
    ] = None,
    keep_path: Annotated[
        bool, Parameter(group=RECORD, help="Keep W at each recorded step.")
    ] = False,
    out: FolderOut | None = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        Path | None,
        Parameter(
            metavar="FOLDER",
            group=OUTPUT,
            help="Continue what --out kept there, instead of PROBLEM and its options.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train attention by mirror descent.

    Every problem, exponent and start is trained at once.
    """
    given = {
        "p": p,
        "seed": seed,
        "step_rule": step_rule,
        "lr": lr,
        "init_std": init_std,
        "init_seeds": init_seeds,
        "eps": eps,
        "max_lr": max_lr,
        "joint": joint or None,
        "decay": decay,
        "head_decay": head_decay,
        "parameterization": parameterization,
        "rank": rank,
        "keep_path": keep_path or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    folder = resume or out
    seeds: list[int | None] = []
    try:
        if resume is not None:
            extra = {"PROBLEM": problem, "--out": out, "--overwrite": overwrite}
            _refuse_with_resume([*given, *(name for name, value in extra.items() if value)])
            trained = _resume(resume, steps, record, threads, quiet)
        else:
            if problem is None:
                raise ProblemError(
                    "PROBLEM is missing: give the name of a problem or a file, or --resume FOLDER"
                )
            options = _read_options(given) | {
                "num_steps": _flatten(steps or STEPS),
                "threads": threads,
            }
            if record is not None:
                options["record"] = _flatten(record)
            found = load_problems(problem, seed)
            seeds = [number for number, _ in found]
            problems = [one for _, one in found]
            trained = _train(problems, options, joint, out, overwrite, quiet)
    except TrainingInterrupted as interrupt:
        _explain_interrupt(interrupt.record, folder)
        return interrupts.exit_code()
    print_training(
        trained, summarize(trained, seeds), problem, folder, as_json=json, is_quiet=quiet
    )
    return 0


def _train(
    problems: list[Any],
    options: dict[str, Any],
    joint: bool,
    out: Path | None,
    overwrite: bool,
    quiet: bool,
) -> AttentionRecord:
    import mirrormargin as mm
    from mirrormargin.dynamics.descent.record import KIND

    if out is not None:
        Destination(out, KIND, ["training"], overwrite)
    train = mm.train_joint if joint else mm.train_attention
    threads = options["threads"]
    return train_safely(
        lambda progress: train(problems, **options, progress=progress),
        lambda record, progress: mm.resume_training(record, threads=threads, progress=progress),
        out,
        quiet,
    )


def _refuse_with_resume(names: list[str]) -> None:
    if names:
        options = [name if name[0] in "-P" else f"--{name.replace('_', '-')}" for name in names]
        raise ProblemError(
            f"{' and '.join(options)} and --resume are given, but the folder says what is trained:"
            " leave it out"
        )


def _resume(
    folder: Path,
    steps: tuple[int, ...] | None,
    record: tuple[int, ...] | None,
    threads: int | None,
    quiet: bool,
) -> AttentionRecord:
    _refuse_real(folder)
    import mirrormargin as mm

    before = mm.AttentionRecord.load(folder)
    more: dict[str, Any] = {}
    if steps is not None:
        more["num_steps"] = _flatten(steps)
        if record is not None:
            more["record_steps"] = _flatten(record)
    elif record is not None:
        raise ProblemError("--record goes with --resume only if --steps says how far: add it")

    def resume(record: AttentionRecord, progress: Any, **options: Any) -> AttentionRecord:
        return mm.resume_training(record, **options, threads=threads, progress=progress)

    return train_safely(lambda progress: resume(before, progress, **more), resume, folder, quiet)


def _refuse_real(folder: Path) -> None:
    """Trainings on real data are resumed by the command that began them: say which."""
    from mirrormargin.training.folder import TrainingFolder

    real = TrainingFolder(folder)
    if real.status not in ("empty", "foreign"):
        from mirrormargin.training.configurations import format_command

        raise ProblemError(
            f"{folder} holds a training on real data; resume it with"
            f" {format_command(real.read_config())} --out {shlex.quote(str(folder))}"
        )


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """What the library's call gets, but the problems."""
    chosen = DEFAULTS | given
    _check_together(chosen)
    import mirrormargin as mm

    options: dict[str, Any] = {name: chosen[name] for name in ("p", "step_rule", "keep_path")}
    options["lr"] = _flatten(chosen["lr"])
    for name in ("eps", "max_lr", "decay", "head_decay", "rank"):
        if chosen[name] is not None:
            options[name] = chosen[name]
    if not chosen["joint"]:
        options["parameterization"] = chosen["parameterization"]
    if chosen["init_std"] != 0:
        init = mm.NormalInit(chosen["init_std"], chosen["init_seeds"] or (0,))
        options |= {"init": init, "head_init": init} if chosen["joint"] else {"init": init}
    return options


def _check_together(chosen: dict[str, Any]) -> None:
    """Options that would have no effect are a mistake."""
    joint, rule, factored = chosen["joint"], chosen["step_rule"], chosen["parameterization"] == "KQ"
    wrong = {
        "--decay needs --joint": chosen["decay"] is not None and not joint,
        "--head-decay needs --joint": chosen["head_decay"] is not None and not joint,
        "--joint trains W, not K and Q": joint and factored,
        "--joint has no --step-rule polyak": joint and rule == "polyak",
        "--rank needs --parameterization KQ": chosen["rank"] is not None and not factored,
        "--eps needs --step-rule normalized": chosen["eps"] is not None and rule != "normalized",
        "--max-lr needs --step-rule polyak": chosen["max_lr"] is not None and rule != "polyak",
        "--init-seeds needs an --init-std above 0": chosen["init_seeds"] is not None
        and chosen["init_std"] == 0,
        "--parameterization KQ needs an --init-std above 0, for K = Q = 0 never moves": factored
        and chosen["init_std"] == 0,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ProblemError(f"{message}: change one of the two")


def _flatten(values: tuple[Any, ...]) -> Any:
    """A single number as such: it stands for all exponents, or for a count."""
    return values[0] if len(values) == 1 else list(values)


def _explain_interrupt(record: AttentionRecord, folder: Path | None) -> None:
    done = int(record.state["step"].sum())
    shape = record.norm.shape
    total = int(record.planned[:, -1].sum()) * shape[0] * shape[2]
    warn(f"{interrupts.describe()} after {done:,} of {total:,} steps")
    if folder is not None:
        warn(f"to resume: mirrormargin lab train --resume {shlex.quote(str(folder))}")
