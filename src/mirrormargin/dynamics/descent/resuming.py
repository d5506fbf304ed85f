"""From a record back to the batch that it was made of, once its state is found right.

The state must be one that the settings of the record lead to: exponents, rates and codes in it are
compared with them, and runs that are still running must have finite numbers. With others the
compiled loop might never end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.dynamics.descent.batch import Batch, make_batch
from mirrormargin.dynamics.descent.columns import check_kind
from mirrormargin.dynamics.descent.record import AttentionRecord, End
from mirrormargin.dynamics.descent.training_loop import NUMBERS
from mirrormargin.errors import ProblemError

__all__ = ["STATE", "restore_batch"]

# What a batch is made of besides its problems.
STATE = ("u", "w", "u2", "w2", "numbers", "codes", "step", "end")


def restore_batch(record: AttentionRecord) -> Batch:
    """The batch of a record, where it stood.

    Raises:
        ProblemError: If its state is not one that its settings lead to.
    """
    settings, d = record.settings, record.problems[0].dim
    shape = record.norm.shape[:3]
    mode, rank = settings.parameterization, settings.rank
    first = np.zeros((*shape, d, rank))
    second = {"W": None, "KQ": first, "joint": np.zeros((*shape, d, 1))}[mode]
    names = ["lr", "head_lr", "decay", "head_decay", "eps"]
    names += [] if mode == "joint" else ["max_lr"]
    numbers: dict[str, Any] = {name: np.array(getattr(settings, name)) for name in names}
    batch = make_batch(record.problems, record.p, mode, settings.step_rule, first, second, numbers)
    _check_state(record, batch)
    for name in STATE:
        getattr(batch, name)[...] = record.state[name]
    return batch


def _check_state(record: AttentionRecord, batch: Batch) -> None:
    """Make sure that training can resume from the state of a record.

    Args:
        record: The record.
        batch: A new one with its settings.

    Raises:
        ProblemError: If the state is not one that these settings lead to.
    """
    state = record.state
    for name in STATE:
        own = getattr(batch, name)
        found = check_kind(f"the state {name}", state.get(name), own.dtype.kind)
        if found.shape != own.shape or found.dtype != own.dtype:
            raise _refuse(f"{name} is {found.dtype} {found.shape}, not {own.dtype} {own.shape}")
    if (state["codes"] != batch.codes).any():
        raise _refuse("it is of another step rule, parameterization or loss")
    for column, name in enumerate(NUMBERS):
        is_fixed = name not in ("guess", "capped")
        if is_fixed and (state["numbers"][:, column] != batch.numbers[:, column]).any():
            raise _refuse(f"it was trained with another {name}")
    step, end = state["step"], state["end"]
    last = np.broadcast_to(record.planned[:, -1:], record.norm.shape[1:3])
    if (step < record.steps[..., -1].reshape(-1)).any() or (
        step.reshape(record.norm.shape[:3]) > last
    ).any():
        raise _refuse("its steps are not between those that are recorded and those planned")
    if not np.isin(end, [int(one) for one in End]).all():
        raise _refuse("it ended for no known reason")
    running = end == End.RUNNING
    free = [NUMBERS.index(name) for name in ("guess", "capped")]
    parts = [state[name][running] for name in ("u", "w", "u2", "w2")]
    if not all(np.isfinite(part).all() for part in [*parts, state["numbers"][running][:, free]]):
        raise _refuse("runs that are still running have numbers that are not finite")


def _refuse(why: str) -> ProblemError:
    return ProblemError(
        f"the state of the record does not belong to its settings: {why}; take a copy of the record"
        " as it was saved, or train again"
    )
