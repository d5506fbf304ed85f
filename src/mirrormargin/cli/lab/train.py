r"""``mirrormargin lab train``: one attention layer, for every problem, exponent and start at once.

    u <- u - step grad L(W),    W = sign(u) |u|^(1/(p-1))

With --out the record is saved now and then, when the training is interrupted, and at the end;
--resume continues from it to the same bits.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from mirrormargin.cli import interrupts
from mirrormargin.cli.lab.kept_runs import Destination, train_safely
from mirrormargin.cli.lab.problems import KEYS, Problem, load_problems
from mirrormargin.cli.options import (
    OUTPUT,
    Counts,
    Exponents,
    FolderOut,
    Json,
    Number,
    Numbers,
    Overwrite,
    Positive,
    Quiet,
    Seeds,
    Starts,
    Threads,
    show_examples,
)
from mirrormargin.cli.terminal import print_json, print_rows, say, warn
from mirrormargin.errors import ProblemError, TrainingInterrupted

if TYPE_CHECKING:
    from mirrormargin.dynamics import AttentionRecord

__all__ = ["app", "train"]

STEPS = (2000,)
START = Group("Start and variants", sort_key=50)
# Title, key and form of each column.
FIRST_COLUMNS = (("p", "p", "g"), ("runs", "runs", "d"), ("steps", "steps", "d"))
COLUMNS = (
    ("D median", "divergence", ".2e"),
    ("D worst", "worst_divergence", ".2e"),
    ("|W|_p", "norm", ".4g"),
    ("log10 gap", "log10_loss_gap", ".2f"),
    ("attention", "attention", ".6f"),
    ("optimal", "optimal", ".0%"),
)
JOINT_COLUMNS = (
    *COLUMNS[:2],
    ("head D", "head_divergence", ".2e"),
    COLUMNS[2],
    ("|v|_p", "head_norm", ".4g"),
    ("log10 loss", "log10_loss", ".2f"),
    COLUMNS[4],
)
LEGEND = """
D           directional divergence of W from the max-margin solution of the tokens it selects
attention   mean weight on the selected, the most attended tokens; medians over the runs"""
OPTIMAL_LEGEND = """
log10 gap   log10 of the loss above its floor, which needs all attention on the optimal tokens
optimal     share of the selected tokens that are optimal"""

app = App(
    name="train",
    usage="mirrormargin lab train [OPTIONS] [PROBLEM]",
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained; with --resume the folder says that, and none of these may be given.

    Attributes:
        step_rule: Rule for the length of a step. [default: normalized]
        lr: Learning rate, one or one for each p. [default: 0.1]
        eps: Added to the norm that normalized steps are divided by.
        max_lr: Largest step of Polyak's rule.
        init_std: Standard deviation of normal entries at the start. [default: 0, start at zero]
        init_seeds: One start for each, as 1 2 3 or 1-10. [default: 0]
        joint: Train the head too.
        decay: Steps lr / (k + 1)^X at step k; with --joint.
        head_decay: The same for the head; with --joint.
        parameterization: Train W, or K and Q with W = K Q'. [default: W]
        rank: Columns of K and Q. [default: d]
        keep_path: Keep W at each recorded step.
    """

    p: Annotated[Exponents | None, Parameter(show_default="2")] = None
    seed: Seeds | None = None
    step_rule: Literal["normalized", "constant", "polyak"] | None = None
    lr: Numbers | None = None
    eps: Number | None = None
    max_lr: Number | None = None
    init_std: Annotated[Number | None, Parameter(group=START)] = None
    init_seeds: Annotated[Starts | None, Parameter(group=START)] = None
    joint: Annotated[bool, Parameter(group=START)] = False
    decay: Annotated[Number | None, Parameter(group=START)] = None
    head_decay: Annotated[Number | None, Parameter(group=START)] = None
    parameterization: Annotated[Literal["W", "KQ"] | None, Parameter(group=START)] = None
    rank: Annotated[Positive | None, Parameter(group=START)] = None
    keep_path: Annotated[bool, Parameter(group=OUTPUT)] = False

    def list_given(self) -> list[str]:
        """Names of those that were given, as options."""
        names = [item.name for item in fields(self) if getattr(self, item.name) != item.default]
        return [f"--{name.replace('_', '-')}" for name in names]


@app.default
def train(
    problem: Problem | None = None,
    /,
    *,
    training: Training = Training(),
    steps: Counts | None = None,
    threads: Threads | None = None,
    record: Annotated[Counts | None, Parameter(group=OUTPUT)] = None,
    out: FolderOut | None = None,
    overwrite: Overwrite = False,
    resume: Annotated[Path | None, Parameter(metavar="FOLDER", group=OUTPUT)] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train attention by mirror descent.

    Every problem, exponent and start is trained at once.

    Args:
        steps: How many, one number or one for each p. [default: 2000]
        record: How many log-spaced steps to record, or which ones. [default: 50]
        resume: Resume the training that --out kept there; instead of PROBLEM and its options.
    """
    seeds: list[int | None] = []
    try:
        if resume is not None:
            others = {"PROBLEM": problem, "--out": out, "--overwrite": overwrite}
            given = [*training.list_given(), *(name for name, value in others.items() if value)]
            if given:
                raise ProblemError(
                    f"{' and '.join(given)} and --resume are given, but the folder says what is"
                    " trained: leave it out"
                )
            trained = _resume(resume, steps, record, threads, quiet)
        else:
            if problem is None:
                raise ProblemError(
                    "PROBLEM is missing: give the name of a problem or a file, or --resume FOLDER"
                )
            options = _read_options(training)
            options |= {"num_steps": _flatten(steps or STEPS), "threads": threads}
            if record is not None:
                options["record"] = _flatten(record)
            found = load_problems(problem, training.seed)
            seeds = [seed for seed, _ in found]
            problems = [one for _, one in found]
            trained = _train(problems, options, training.joint, out, overwrite, quiet)
    except TrainingInterrupted as interrupt:
        _explain_interrupt(interrupt.record, resume or out)
        return interrupts.exit_code()
    folder, summary = resume or out, _summarize(trained, seeds)
    if json:
        settings = trained.settings
        about = {
            "problem": problem,
            "folder": None if folder is None else str(folder),
            "step_rule": settings.step_rule,
            "parameterization": settings.parameterization,
            "lr": settings.lr,
            "complete": trained.is_complete,
        }
        print_json(about | summary)
    else:
        _print(summary["exponents"], trained.settings.parameterization == "joint", folder, quiet)
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

    train = mm.train_joint if joint else mm.train_attention
    threads = options["threads"]
    with Destination(out, KIND, "", overwrite).hold():
        return train_safely(
            lambda progress: train(problems, **options, progress=progress),
            lambda record, progress: mm.resume_training(record, threads=threads, progress=progress),
            out,
            quiet,
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
    from mirrormargin.runs import hold_folder

    more: dict[str, Any] = {}
    if steps is not None:
        more["num_steps"] = _flatten(steps)
        if record is not None:
            more["record_steps"] = _flatten(record)
    elif record is not None:
        raise ProblemError("--record goes with --resume only if --steps says how far: add it")

    def resume(record: AttentionRecord, progress: Any, **options: Any) -> AttentionRecord:
        return mm.resume_training(record, **options, threads=threads, progress=progress)

    mm.AttentionRecord.load(folder)  # raises before a folder is made that is not there
    with hold_folder(folder):
        before = mm.AttentionRecord.load(folder)
        return train_safely(
            lambda progress: resume(before, progress, **more), resume, folder, quiet
        )


def _refuse_real(folder: Path) -> None:
    """A training on real data is resumed by the command that began it: say which."""
    from mirrormargin.training.folder import TrainingFolder

    real = TrainingFolder(folder)
    if real.status not in ("empty", "foreign"):
        from mirrormargin.training.configurations import format_command

        raise ProblemError(
            f"{folder} holds a training on real data; resume it with"
            f" {format_command(real.read_config())} --out {shlex.quote(str(folder))}"
        )


def _read_options(training: Training) -> dict[str, Any]:
    """The arguments of the library's function, except the problems."""
    _check_together(training)
    import mirrormargin as mm

    options: dict[str, Any] = {
        "p": training.p or (2.0,),
        "step_rule": training.step_rule or "normalized",
        "lr": _flatten(training.lr or (0.1,)),
        "keep_path": training.keep_path,
    }
    for name in ("eps", "max_lr", "decay", "head_decay", "rank"):
        if getattr(training, name) is not None:
            options[name] = getattr(training, name)
    if not training.joint:
        options["parameterization"] = training.parameterization or "W"
    if training.init_std:
        init = mm.NormalInit(training.init_std, training.init_seeds or (0,))
        options |= {"init": init, "head_init": init} if training.joint else {"init": init}
    return options


def _check_together(training: Training) -> None:
    """Options that would have no effect are a mistake."""
    joint, rule, std = training.joint, training.step_rule or "normalized", training.init_std
    factored = training.parameterization == "KQ"
    wrong = {
        "--decay needs --joint": training.decay is not None and not joint,
        "--head-decay needs --joint": training.head_decay is not None and not joint,
        "--joint trains W, not K and Q": joint and factored,
        "--joint has no --step-rule polyak": joint and rule == "polyak",
        "--rank needs --parameterization KQ": training.rank is not None and not factored,
        "--eps needs --step-rule normalized": training.eps is not None and rule != "normalized",
        "--max-lr needs --step-rule polyak": training.max_lr is not None and rule != "polyak",
        "--init-seeds needs an --init-std above 0": training.init_seeds is not None and not std,
        "--parameterization KQ needs an --init-std above 0, for K = Q = 0 never moves": factored
        and not std,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ProblemError(f"{message}: change one of the two")


def _flatten(values: tuple[Any, ...]) -> Any:
    """A single number instead of a list of one: it counts for all exponents."""
    return values[0] if len(values) == 1 else list(values)


def _explain_interrupt(record: AttentionRecord, folder: Path | None) -> None:
    done = int(record.state["step"].sum())
    shape = record.norm.shape
    total = int(record.planned[:, -1].sum()) * shape[0] * shape[2]
    warn(f"{interrupts.describe()} after {done:,} of {total:,} steps")
    if folder is not None:
        warn(f"to resume: mirrormargin lab train --resume {shlex.quote(str(folder))}")


def _summarize(record: AttentionRecord, seeds: Sequence[int | None]) -> dict[str, Any]:
    """One row for each exponent, medians over its runs, and one for each run."""
    import numpy as np

    from mirrormargin.dynamics.descent.record import End

    P, E, inits = record.norm.shape[:3]
    last = _measure_last(record)
    names = {int(end): end.name.lower().replace("_", " ") for end in End}
    names[int(End.RUNNING)] = "done" if record.is_complete else "interrupted"
    rows, runs = [], []
    for j, p in enumerate(record.settings.p):
        row: dict[str, Any] = {"p": p, "runs": P * inits, "steps": record.settings.num_steps[j]}
        for name, values in last.items():
            row[name] = _reduce(np.median, values[:, j])
        row["worst_divergence"] = None
        if "divergence" in last:
            row["worst_divergence"] = _reduce(np.max, last["divergence"][:, j])
        if "optimal" in last:
            row["optimal"] = float(last["optimal"][:, j].mean())
        found = [names[int(end)] for end in record.end[:, j].ravel()]
        row["ends"] = {name: found.count(name) for name in names.values() if name in found}
        rows.append(row)
    for i, j, k in np.ndindex(P, E, inits):
        run: dict[str, Any] = {"problem": i, "p": record.settings.p[j], "init": k}
        if any(seed is not None for seed in seeds):
            run["seed"] = seeds[i]
        run["step"] = int(record.steps[i, j, k, -1])
        run |= {name: float(values[i, j, k]) for name, values in last.items()}
        run["selection"] = record.final_selection[i, j, k].tolist()
        runs.append(run | {"end": names[int(record.end[i, j, k])]})
    return {"exponents": rows, "runs": runs}


def _measure_last(record: AttentionRecord) -> dict[str, Any]:
    """Numbers at the last recorded step, (P, E, I) each."""
    import numpy as np

    ten = np.log(10)
    last = {
        "norm": record.norm[..., -1],
        "log10_loss": record.log_loss[..., -1] / ten,
        "log10_loss_gap": record.log_loss_gap[..., -1] / ten,
        "attention": record.attention[..., -1],
    }
    if record.head is None:  # else the problems' own heads play no role
        optimal = np.stack([problem.optimal_tokens for problem in record.problems])
        last["optimal"] = (record.final_selection == optimal[:, None, None]).mean(axis=-1)
    for name in ("divergence", "head_divergence", "head_norm"):
        values = getattr(record, name)
        if values is not None:
            last[name] = values[..., -1]
    return last


def _reduce(reduce: Any, values: Any) -> float | None:
    """Reduce the numbers of the runs that have one."""
    import numpy as np

    known = values[~np.isnan(values)]
    return float(reduce(known)) if known.size else None


def _print(
    exponents: list[dict[str, Any]], is_joint: bool, folder: Path | None, quiet: bool
) -> None:
    rows = [
        row | {"ends": ", ".join(f"{count} {end}" for end, count in row["ends"].items())}
        for row in exponents
    ]
    columns = JOINT_COLUMNS if is_joint else COLUMNS
    print_rows((*FIRST_COLUMNS, *columns, ("ends", "ends", "")), rows)
    if not quiet:
        say(LEGEND + ("" if is_joint else OPTIMAL_LEGEND))
        if folder is not None:
            say(f"wrote {folder}")
