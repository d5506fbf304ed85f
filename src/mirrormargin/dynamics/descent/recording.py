"""Following a plan of steps, and making the record of what was seen there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.dynamics.descent.batch import Batch
from mirrormargin.dynamics.descent.record import AttentionRecord, TrainingSettings
from mirrormargin.dynamics.descent.resuming import STATE
from mirrormargin.dynamics.descent.targets import solve_joint_targets, solve_targets
from mirrormargin.dynamics.descent.training_loop import NUMBERS
from mirrormargin.dynamics.metrics import MEASURES, measure
from mirrormargin.errors import ProblemError, TrainingInterrupted
from mirrormargin.geometry.threads import count_cores
from mirrormargin.geometry.vector_batches import divergence_each, norm_each

__all__ = ["Progress", "train"]

Array = NDArray[np.float64]
Progress = Callable[[int, int], object]

TARGETS = ("target", "divergence", "head_target", "head_divergence")
MOST_MEMORY = 2**31  # bytes of recorded matrices


def train(
    problems: tuple[AttentionProblem, ...],
    settings: TrainingSettings,
    batch: Batch,
    planned: NDArray[np.int64],
    before: AttentionRecord | None,
    aim: Array | None,
    threads: int | None,
    progress: Progress | None,
) -> AttentionRecord:
    """Follow the plan from where the batch is, and append to the record before.

    Args:
        problems: P of them.
        settings: How the batch is trained.
        batch: All runs.
        planned: Steps to record, (E, R).
        before: The record whose batch it is.
        aim: Given targets, (P, E, I, d, d).
        threads: Cores to use; None for all.
        progress: Called with the steps done and their total.
    """
    cores = threads or count_cores()
    P, E, count = batch.shape
    first = 0 if before is None else before.steps.shape[-1]
    size = P * E * count * (planned.shape[1] - first) * batch.dim**2 * 8
    if size > MOST_MEMORY:
        raise ProblemError(
            f"{planned.shape[1]} recorded steps of {P * E * count} runs are {size / 2**30:.1f} GiB"
            " of matrices: record fewer steps, or train fewer runs in a call"
        )
    total = int(planned[:, -1].sum()) * P * count
    seen = _Seen(batch)

    def finish(solve: bool) -> AttentionRecord:
        return _make_record(problems, settings, batch, planned, before, aim, seen, solve, threads)

    try:
        for column in planned[:, first:].T:
            targets = np.broadcast_to(column[:, None], batch.shape).reshape(-1)
            for piece in batch.plan_pieces(targets, cores):
                restore = batch.keep(piece)
                try:
                    batch.advance(piece, cores)
                except KeyboardInterrupt:
                    restore()
                    raise
                if progress is not None:
                    progress(int(batch.step.sum()), total)
            seen.look()
        return finish(solve=True)
    except KeyboardInterrupt:
        if not seen.rows and before is None:
            raise
        raise TrainingInterrupted(
            f"interrupted after {int(batch.step.sum()):,} of {total:,} steps:"
            " resume_training(error.record) continues it",
            # Solving for the targets takes time, and the selected tokens may still change.
            finish(solve=False),
        ) from None


class _Seen:
    """Matrices and heads at the recorded steps."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.rows: list[tuple[Any, ...]] = []

    def look(self) -> None:
        batch = self.batch
        heads = batch.heads() if batch.is_joint else None
        # All of a row at once: an interrupt must not leave a part of it.
        self.rows.append((batch.step.reshape(batch.shape).copy(), batch.matrices(), heads))


def _make_record(
    problems: tuple[AttentionProblem, ...],
    settings: TrainingSettings,
    batch: Batch,
    planned: NDArray[np.int64],
    before: AttentionRecord | None,
    aim: Array | None,
    seen: _Seen,
    solve: bool,
    threads: int | None,
) -> AttentionRecord:
    """The record; without ``solve`` it lacks targets that would have to be solved for."""
    columns: dict[str, Any] = {}
    if seen.rows:
        columns = _measure(problems, settings.p, seen)
    columns = _append(before, columns)
    known = columns["steps"].shape[-1]
    if settings.target == "given" or solve:
        columns |= _find_divergences(problems, settings, columns, before, aim, threads)
    else:
        columns |= dict.fromkeys(TARGETS)
    # Its own target is known in the end: till then the path must be.
    is_last = solve and known == planned.shape[1]
    if not settings.keep_path and (settings.target != "own" or is_last):
        columns["path"] = columns["head_path"] = None
    factored = settings.parameterization == "KQ"
    return AttentionRecord(
        W=batch.matrices(),
        head=batch.heads() if batch.is_joint else None,
        factors=np.stack(batch.factors(), axis=3) if factored else None,
        capped=batch.numbers[:, NUMBERS.index("capped")].astype(np.int64).reshape(batch.shape),
        end=batch.end.reshape(batch.shape).copy(),
        planned=planned,
        settings=settings,
        problems=problems,
        state={name: getattr(batch, name).copy() for name in STATE},
        **columns,
    )


def _measure(
    problems: tuple[AttentionProblem, ...], exponents: tuple[float, ...], seen: _Seen
) -> dict[str, Any]:
    """The columns of a record, (P, E, I, R, ...), without divergences."""
    steps, path = (np.stack([row[k] for row in seen.rows], axis=3) for k in (0, 1))
    heads = None
    if seen.batch.is_joint:
        heads = np.stack([row[2] for row in seen.rows], axis=3)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        measured = [
            measure(problems, path[:, j], p, None if heads is None else heads[:, j])
            for j, p in enumerate(exponents)
        ]
    columns = {name: np.stack([one[name] for one in measured], axis=1) for name in MEASURES}
    columns |= {"steps": steps, "path": path, "head_path": heads}
    columns["head_norm"] = None
    if heads is not None:
        columns["head_norm"] = norm_each(heads, np.array(exponents)[:, None, None])
    return columns


def _append(before: AttentionRecord | None, columns: dict[str, Any]) -> dict[str, Any]:
    """New columns behind those of the record before."""
    if before is None:
        return columns
    names = (*MEASURES, "steps", "path", "head_path", "head_norm")
    parts = {name: [getattr(before, name), columns.get(name)] for name in names}
    return {
        name: np.concatenate([part for part in two if part is not None], axis=3)
        if any(part is not None for part in two)
        else None
        for name, two in parts.items()
    }


def _find_divergences(
    problems: tuple[AttentionProblem, ...],
    settings: TrainingSettings,
    columns: dict[str, Any],
    before: AttentionRecord | None,
    aim: Array | None,
    threads: int | None,
) -> dict[str, Array | None]:
    """The targets, and the divergences of all recorded steps from them."""
    found: dict[str, Array | None] = dict.fromkeys(TARGETS)
    if settings.target == "none":
        return found
    chosen = columns["selection"][..., -1, :]
    if aim is not None:
        found["target"] = aim
    elif columns["head_path"] is None:
        found["target"] = solve_targets(problems, chosen, settings.p, settings.target_tol, threads)
    else:
        found["target"], found["head_target"] = solve_joint_targets(
            problems, chosen, settings.p, settings.target_tol
        )
    for prefix in ("", "head_"):
        target, path = found[f"{prefix}target"], columns[f"{prefix}path"]
        if target is not None:
            found[f"{prefix}divergence"] = _diverge(
                target, path, settings.p, columns["steps"].shape[-1], before, prefix
            )
    return found


def _diverge(
    target: Array,
    path: Array | None,
    exponents: tuple[float, ...],
    num_steps: int,
    before: AttentionRecord | None,
    prefix: str,
) -> Array:
    """D of ``num_steps`` steps; those that the path lacks come from the record before."""
    parts = []
    missing = num_steps - (0 if path is None else path.shape[3])
    if missing:
        assert before is not None
        old, earlier = (getattr(before, f"{prefix}{name}") for name in ("target", "divergence"))
        if old is None:  # interrupted, after it had forgotten the path
            parts.append(np.full((*target.shape[:3], missing), np.nan))
        else:
            same = (old == target).all(axis=tuple(range(3, target.ndim)))[..., None]
            parts.append(np.where(same, earlier[..., :missing], np.nan))
    if path is not None:
        p = np.array(exponents)[:, None, None]
        parts.append(divergence_each(target[:, :, :, None], path, p, axes=target.ndim - 3))
    return np.concatenate(parts, axis=-1)
