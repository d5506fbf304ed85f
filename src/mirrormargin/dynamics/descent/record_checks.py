"""Whether a record is whole: what it was read from may have been damaged, or edited by hand.

A record is checked like any other input. Its arrays must have the shapes that its settings give
them, for NumPy would broadcast others. Before a training resumes, its state must be one that these
settings lead to: exponents, rates and codes in it are compared with them, and runs that are still
running must have finite numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_choice, check_count, check_flag, check_number
from mirrormargin.dynamics.descent.plan import read_counts, read_lrs
from mirrormargin.errors import ProblemError

if TYPE_CHECKING:
    from mirrormargin.dynamics.descent.batch import Batch
    from mirrormargin.dynamics.descent.record import AttentionRecord, TrainingSettings

__all__ = ["check_columns", "check_settings", "check_state", "digest_settings"]

# Axes of the columns of a record besides (problem, p, init): R recorded steps, n sequences,
# d entries, k the rank.
AXES = {
    "W": "dd",
    "steps": "R",
    "log_loss": "R",
    "log_loss_gap": "R",
    "norm": "R",
    "logit_gap": "R",
    "margin": "R",
    "attention": "R",
    "log_unattended": "R",
    "selection": "Rn",
    "divergence": "R",
    "target": "dd",
    "path": "Rdd",
    "head": "d",
    "head_norm": "R",
    "head_divergence": "R",
    "head_target": "d",
    "head_path": "Rd",
    "factors": "2dk",
    "capped": "",
    "end": "",
}
OPTIONAL = ("divergence", "target", "path", "factors")
OF_HEADS = ("head", "head_norm", "head_divergence", "head_target", "head_path")
WHOLE = ("steps", "selection", "capped", "end")  # these hold integers, the others real numbers


def digest_settings(settings: TrainingSettings, losses: Sequence[str]) -> str:
    """A digest of everything that the state of a training depends on."""
    text = json.dumps([{**asdict(settings), "max_lr": str(settings.max_lr)}, list(losses)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_settings(settings: TrainingSettings) -> None:
    """Make sure that a training could have these settings.

    Raises:
        ProblemError: If it could not.
    """
    from mirrormargin.dynamics.descent.record import MODES, RULES

    count = len(settings.p)
    for p in settings.p:
        check_number("p", p, above=1.0)
    for name in ("lr", "head_lr", "num_steps"):
        values = getattr(settings, name)
        if not isinstance(values, tuple) or len(values) != count:
            raise ProblemError(f"{name} is {values}: there must be one for each of the {count} p")
    read_lrs("lr", settings.lr, count)
    read_lrs("head_lr", settings.head_lr, count)
    read_counts(settings.num_steps, count)
    for name in ("decay", "head_decay", "eps"):
        check_number(name, getattr(settings, name), least=0.0)
    check_number("max_lr", settings.max_lr, above=0.0, most=np.inf)
    check_number("target_tol", settings.target_tol, above=0.0, below=1.0)
    check_choice("step_rule", settings.step_rule, RULES)
    check_choice("parameterization", settings.parameterization, MODES)
    check_choice("target", settings.target, ("none", "own", "given"))
    check_count("rank", settings.rank)
    check_flag("keep_path", settings.keep_path)


def check_columns(record: AttentionRecord) -> None:
    """Make sure that the arrays of a record fit together.

    Raises:
        ProblemError: If they do not.
    """
    settings, first = record.settings, record.problems[0]
    norm = _read_kind("norm", record.norm, "f")
    if norm.ndim != 4 or norm.shape[:2] != (len(record.problems), len(settings.p)):
        raise ProblemError(
            f"norm has shape {norm.shape}: there are {len(record.problems)} problems and"
            f" {len(settings.p)} exponents"
        )
    if any(one.tokens.shape != first.tokens.shape for one in record.problems):
        raise ProblemError("its problems have different shapes")
    n, _, d = first.tokens.shape
    sizes = {"R": norm.shape[3], "n": n, "d": d, "k": settings.rank, "2": 2}
    for name, axes in AXES.items():
        array = getattr(record, name)
        if array is None:
            if name not in (*OPTIONAL, *OF_HEADS):
                raise ProblemError(f"{name} is missing")
            continue
        expected = (*norm.shape[:3], *(sizes[axis] for axis in axes))
        _read_kind(name, array, "i" if name in WHOLE else "f")
        if name in ("path", "head_path") and array.ndim == len(expected):
            # Training may have gone further after the path was forgotten.
            expected = (*expected[:3], min(array.shape[3], expected[3]), *expected[4:])
        if array.shape != expected:
            raise ProblemError(f"{name} has shape {array.shape}, not {expected}")
    planned = _read_kind("planned", record.planned, "i")
    if planned.ndim != 2 or len(planned) != len(settings.p) or planned.shape[1] < norm.shape[3]:
        raise ProblemError(f"planned has shape {planned.shape}")
    if (np.diff(planned, axis=1) < 0).any() or (planned < 0).any():
        raise ProblemError("planned steps do not ascend")
    if planned[:, -1].tolist() != list(settings.num_steps):
        raise ProblemError(f"num_steps is {settings.num_steps}, but {planned[:, -1]} are planned")


def check_state(record: AttentionRecord, batch: Batch) -> None:
    """Make sure that training can resume from the state of a record.

    Args:
        record: The record.
        batch: A new one with the settings of the record.

    Raises:
        ProblemError: If the state is not one that these settings lead to.
    """
    from mirrormargin.dynamics.descent.record import End
    from mirrormargin.dynamics.descent.recording import STATE
    from mirrormargin.dynamics.descent.training_loop import NUMBERS

    state = record.state
    for name in STATE:
        own = getattr(batch, name)
        found = _read_kind(f"the state {name}", state.get(name), own.dtype.kind)
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


def _read_kind(name: str, array: Any, kind: str) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.kind != kind:
        raise ProblemError(f"{name} holds no {'integers' if kind == 'i' else 'real numbers'}")
    return array
