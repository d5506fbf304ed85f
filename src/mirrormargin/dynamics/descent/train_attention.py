r"""Mirror descent on the key-query matrix of one attention layer: many runs in one call.

    u <- u - step grad L(W),    W = to_primal(u) = sign(u) |u|^(1/(p-1))

for every problem, exponent and start at once. Gradients never underflow, so a run can be followed
to logit gaps of thousands; with ``eps`` the normaliser is the published one, |G|_q + eps, under
which training freezes as soon as gradients are of the size of eps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import (
    Parameterization,
    StepRule,
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_number,
    check_threads,
    read_array,
    read_exponents,
    show,
)
from mirrormargin.attention.problem import AttentionProblem, read_problems
from mirrormargin.dynamics.descent.plan import (
    NormalInit,
    plan_steps,
    read_counts,
    read_init,
    read_lrs,
)
from mirrormargin.dynamics.descent.record import (
    RULES,
    AttentionRecord,
    TrainingSettings,
    check_record,
)
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.compiler import require_numba

if TYPE_CHECKING:
    from mirrormargin.dynamics.descent.recording import Progress

__all__ = ["resume_training", "train_attention"]

Array = NDArray[np.float64]


def train_attention(
    problems: AttentionProblem | Sequence[AttentionProblem],
    p: float | ArrayLike = 2.0,
    *,
    step_rule: StepRule = "normalized",
    lr: float | ArrayLike = 0.1,
    num_steps: int | ArrayLike = 1000,
    init: ArrayLike | NormalInit | Any = 0.0,
    record: int | ArrayLike = 50,
    target: ArrayLike | Literal["own"] | None = "own",
    target_tol: float = 1e-8,
    parameterization: Parameterization = "W",
    rank: int | None = None,
    eps: float = 0.0,
    max_lr: float = float("inf"),
    keep_path: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AttentionRecord:
    """Train every combination of problem, exponent and start, in compiled code on all cores.

    The results do not depend on the number of threads, to the last bit. The first call of the
    first process compiles, for some seconds.

    Args:
        problems: One problem, or P of them of one shape and loss.
        p: One exponent, or E of them.
        step_rule: ``"constant"``, ``"normalized"`` (by the dual norm) or ``"polyak"`` (the Bregman
            projection, with the exact floor of the loss).
        lr: Learning rate; under Polyak's rule the factor of the decrease that it aims for, 1 being
            the classical rule. One number, or one for each p.
        num_steps: How many steps; one number, or one for each p.
        init: Where W starts: 0, an array that broadcasts to (P, E, I, d, d), or a
            :class:`NormalInit`. For ``"KQ"`` to (P, E, I, 2, d, rank), K before Q.
        record: How many log-spaced steps to record, or which.
        target: Of the recorded divergence: ``"own"``, the max-margin solution of the tokens that
            the run selects in the end; an array that broadcasts to (P, E, I, d, d); or None.
        target_tol: Gap to which ``"own"`` targets are certified.
        parameterization: ``"W"``, or ``"KQ"`` to train K and Q with W = K Q'.
        rank: Columns of K and Q; d if not given.
        eps: Added to the dual norm that normalised steps are divided by.
        max_lr: Largest step of Polyak's rule. Runs that end at a selection other than the optimal
            one never reach the floor, and their steps grow without it.
        keep_path: Whether the record keeps W at each recorded step.
        threads: Cores to use; None for all that the process may use.
        progress: Called as ``progress(done, total)`` with numbers of steps of all runs.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.
        MissingNumbaError: (an ImportError) If there is no Numba to compile with.
        TrainingInterrupted: (a KeyboardInterrupt) On Ctrl-C; its ``record`` holds what is done,
            and :func:`resume_training` continues it.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> problems = [synthetic.unit_sphere(seed) for seed in (1, 2)]
        >>> record = train_attention(problems, p=[1.75, 2.0], num_steps=[1500, 2000])
        >>> record.W.shape, record.divergence.shape[:3]
        ((2, 2, 1, 10, 10), (2, 2, 1))
        >>> bool((record.divergence[..., -1] < 0.01).all())
        True
    """
    require_numba("train_attention")
    from mirrormargin.dynamics.descent.batch import make_batch
    from mirrormargin.dynamics.descent.recording import train

    members = read_problems(problems, same_loss=True)
    exponents = read_exponents(p)
    n, T, d = members[0].tokens.shape
    check_choice("step_rule", step_rule, RULES)
    check_choice("parameterization", parameterization, ("W", "KQ"))
    check_threads(threads)
    eps = check_number("eps", eps, least=0.0)
    max_lr = check_number("max_lr", max_lr, above=0.0, most=np.inf)
    # Here and not by the solver, which comes after the training.
    target_tol = check_number("target_tol", target_tol, above=0.0, below=1.0)
    factored = parameterization == "KQ"
    columns = d
    if rank is not None:
        columns = check_count("rank", rank, most=d, hint="or None")
        if not factored:
            raise ProblemError(
                f'rank is {rank}, but W has no factors: give parameterization="KQ", or leave it out'
            )
    shape = (2, d, columns) if factored else (d, d)
    start = read_init(init, len(members), exponents, shape)
    if factored and not start.any():
        raise ProblemError(
            "init is 0, where K and Q stay for ever: their gradients are G Q and G' K; give a"
            " NormalInit"
        )
    rates = read_lrs("lr", lr, len(exponents))
    counts = read_counts(num_steps, len(exponents))
    aim = _read_target(target, (*start.shape[:3], d, d))
    batch = make_batch(
        members,
        exponents,
        parameterization,
        step_rule,
        start[..., 0, :, :] if factored else start,
        start[..., 1, :, :] if factored else None,
        {"lr": rates, "head_lr": rates, "eps": eps, "max_lr": max_lr},
    )
    settings = TrainingSettings(
        p=tuple(exponents.tolist()),
        lr=tuple(rates.tolist()),
        head_lr=tuple(rates.tolist()),
        decay=0.0,
        head_decay=0.0,
        num_steps=tuple(counts.tolist()),
        step_rule=step_rule,
        parameterization=parameterization,
        rank=columns,
        eps=float(eps),
        max_lr=max_lr,
        target="none" if target is None else "own" if aim is None else "given",
        target_tol=target_tol,
        keep_path=check_flag("keep_path", keep_path),
    )
    planned = plan_steps(record, counts)
    if progress is not None:
        check_function("progress", progress, "progress(done, total)")
    return train(members, settings, batch, planned, None, aim, threads, progress)


def _read_target(target: Any, shape: tuple[int, ...]) -> Array | None:
    """A target for each run; None for those that are found later, or for none at all."""
    if target is None or (isinstance(target, str) and target == "own"):
        return None
    if isinstance(target, str):
        raise ProblemError(f'target is {show(target)}: give "own", an array or None')
    array = read_array("target", target, finite=True)
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ProblemError(
            f"target has shape {array.shape}, which does not broadcast to {shape}, (problem, p,"
            ' init, d, d): give one matrix, one for each run, "own" or None'
        ) from None


def resume_training(
    record: AttentionRecord,
    num_steps: int | ArrayLike | None = None,
    *,
    record_steps: int | ArrayLike = 20,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AttentionRecord:
    """Resume the runs of a record, as if they had never stopped.

    A complete record without ``keep_path`` has forgotten its matrices: where a run then selects
    other tokens in the end, its own target changes, and earlier divergences become nan.

    Args:
        record: Of an interrupted training, or of a complete one that shall go further.
        num_steps: Where to stop, counted from the beginning; one number or one for each p. Without
            it, where the training was to stop.
        record_steps: If ``num_steps`` lies further: how many log-spaced steps to record on the way
            there, or which.
        threads: As in :func:`train_attention`.
        progress: As in :func:`train_attention`.

    Raises:
        ProblemError: (a ValueError) If ``num_steps`` lies before what was planned.
        MissingNumbaError: (an ImportError) If there is no Numba to compile with.
    """
    require_numba("resume_training")
    from mirrormargin.dynamics.descent.recording import train
    from mirrormargin.dynamics.descent.resuming import restore_batch

    check_threads(threads)
    settings = check_record(record).settings
    if progress is not None:
        check_function("progress", progress, "progress(done, total)")
    planned = record.planned
    plan_steps(record_steps, planned[:, -1])  # refuses what is no number of steps, used or not
    if num_steps is not None:
        counts = read_counts(num_steps, len(settings.p))
        if (counts < planned[:, -1]).any():
            raise ProblemError(
                f"num_steps is {show(num_steps)}, but the record plans"
                f" {planned[:, -1].tolist()} steps already: give at least that many"
            )
        more = plan_steps(record_steps, counts, planned[:, -1])
        planned = np.concatenate([planned, more[:, 1:]], axis=1)
        settings = TrainingSettings(**{**vars(settings), "num_steps": tuple(counts.tolist())})
    aim = record.target if settings.target == "given" else None
    return train(
        record.problems, settings, restore_batch(record), planned, record, aim, threads, progress
    )
