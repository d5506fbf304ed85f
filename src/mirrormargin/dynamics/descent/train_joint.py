r"""Mirror descent on the key-query matrix and the head together.

    u_W <- u_W - lr (k + 1)^-decay       G_W / |G_W|_q
    u_v <- u_v - lr (k + 1)^-head_decay  G_v / |G_v|_q

both gradients taken at the same point. From W = 0, v = 0 with no decay this is the joint training
of "Optimizing Attention with Mirror Descent" (the first step moves v alone, for all scores are
equal); decay = 1 and head_decay = 2/3 is the schedule of "Implicit Bias and Fast Convergence Rates
for Self-attention", under which |W| grows like log k and |v| like k^(1/3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from mirrormargin.arguments import (
    check_choice,
    check_flag,
    check_function,
    check_number,
    check_threads,
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
from mirrormargin.dynamics.descent.record import AttentionRecord, TrainingSettings
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.compiler import require_numba

if TYPE_CHECKING:
    from mirrormargin.dynamics.descent.recording import Progress

__all__ = ["train_joint"]


def train_joint(
    problems: AttentionProblem | Sequence[AttentionProblem],
    p: float | ArrayLike = 2.0,
    *,
    step_rule: Literal["normalized", "constant"] = "normalized",
    lr: float | ArrayLike = 0.1,
    head_lr: float | ArrayLike | None = None,
    decay: float = 0.0,
    head_decay: float = 0.0,
    num_steps: int | ArrayLike = 1000,
    init: ArrayLike | NormalInit | Any = 0.0,
    head_init: ArrayLike | NormalInit | Any = 0.0,
    record: int | ArrayLike = 50,
    target: Literal["own"] | None = "own",
    target_tol: float = 1e-8,
    eps: float = 0.0,
    keep_path: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AttentionRecord:
    """Train W and the head v of every combination of problem, exponent and start.

    The record is that of :func:`train_attention`, with the head's part filled in; the problems' own
    heads play no role. :func:`resume_training` continues it.

    Args:
        problems: One problem, or P of them of one shape and loss.
        p: One exponent, or E of them, for W and v alike.
        step_rule: ``"normalized"``, each tensor by its own dual norm, or ``"constant"``.
        lr: Learning rate of W; one number, or one for each p.
        head_lr: That of v; the same if not given.
        decay: lr is divided by ``(k + 1)^decay`` at step k = 0, 1, ...
        head_decay: Likewise for v.
        num_steps: How many steps; one number, or one for each p.
        init: Where W starts, as in :func:`train_attention`.
        head_init: Where v starts, broadcastable to (P, E, I, d).
        record: How many log-spaced steps to record, or which.
        target: ``"own"``: v diverges from the max-margin decoder of the tokens selected in the end,
            W from the max-margin solution with a lead in the sequences that support that decoder.
            None for no divergence.
        target_tol: Gap to which targets are certified.
        eps: Added to the dual norm that normalised steps are divided by.
        keep_path: Whether the record keeps W and v at each recorded step.
        threads: Cores to use; None for all that the process may use.
        progress: Called as ``progress(done, total)`` with numbers of steps of all runs.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.
        MissingNumbaError: (an ImportError) If there is no Numba to compile with.
        TrainingInterrupted: (a KeyboardInterrupt) On Ctrl-C, with the record so far.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> record = train_joint(synthetic.joint_toy(), p=[1.75, 2.0, 3.0], num_steps=1000)
        >>> record.final_selection[0, :, 0].tolist()
        [[1, 0], [1, 0], [0, 0]]
    """
    require_numba("train_joint")
    from mirrormargin.dynamics.descent.batch import make_batch
    from mirrormargin.dynamics.descent.recording import train

    members = read_problems(problems, same_loss=True)
    exponents = read_exponents(p)
    d = members[0].dim
    check_choice("step_rule", step_rule, ("normalized", "constant"))
    if target is not None and not (isinstance(target, str) and target == "own"):
        given = show(target) if isinstance(target, str) else f"a {type(target).__name__}"
        raise ProblemError(f'target is {given}: give "own" or None')
    check_threads(threads)
    eps = check_number("eps", eps, least=0.0)
    target_tol = check_number("target_tol", target_tol, above=0.0, below=1.0)
    decays = {
        "decay": check_number("decay", decay, least=0.0),
        "head_decay": check_number("head_decay", head_decay, least=0.0),
    }
    W = read_init(init, len(members), exponents, (d, d))
    v = read_init(head_init, len(members), exponents, (d,), "head_init")
    if 1 not in (W.shape[2], v.shape[2]) and W.shape[2] != v.shape[2]:
        raise ProblemError(
            f"init gives {W.shape[2]} starts and head_init {v.shape[2]}: give as many, or one"
        )
    count = max(W.shape[2], v.shape[2])
    rates = read_lrs("lr", lr, len(exponents))
    head_rates = rates if head_lr is None else read_lrs("head_lr", head_lr, len(exponents))
    counts = read_counts(num_steps, len(exponents))
    batch = make_batch(
        members,
        exponents,
        "joint",
        step_rule,
        W.repeat(count // W.shape[2], axis=2),
        v.repeat(count // v.shape[2], axis=2)[..., None],
        {"lr": rates, "head_lr": head_rates, "eps": eps, **decays},
    )
    settings = TrainingSettings(
        p=tuple(exponents.tolist()),
        lr=tuple(rates.tolist()),
        head_lr=tuple(head_rates.tolist()),
        num_steps=tuple(counts.tolist()),
        step_rule=step_rule,
        parameterization="joint",
        rank=d,
        eps=float(eps),
        max_lr=float("inf"),
        target="none" if target is None else "own",
        target_tol=target_tol,
        keep_path=check_flag("keep_path", keep_path),
        **decays,
    )
    planned = plan_steps(record, counts)
    if progress is not None:
        check_function("progress", progress, "progress(done, total)")
    return train(members, settings, batch, planned, None, None, threads, progress)
