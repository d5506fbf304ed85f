"""The columns of a record: which axes each has, and whether those of a file fit together.

NumPy would broadcast an array of another shape, and the numbers would mean something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.descent.settings import TrainingSettings
from mirrormargin.errors import ProblemError

__all__ = ["check_columns", "check_kind"]

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


def check_columns(
    columns: Mapping[str, Any], settings: TrainingSettings, tokens: tuple[int, ...]
) -> None:
    """Make sure that the arrays of a record fit together.

    Args:
        columns: All arrays of the record by name; None for those that it does not have.
        settings: How it was trained.
        tokens: The shape of the tokens of all problems, (P, n, T, d).

    Raises:
        ProblemError: If they do not.
    """
    count = len(settings.p)
    norm = check_kind("norm", columns["norm"], "f")
    num_problems, n, _, d = tokens
    if norm.ndim != 4 or norm.shape[:2] != (num_problems, count):
        raise ProblemError(
            f"norm has shape {norm.shape}, but there are {num_problems} problems and {count}"
            " exponents"
        )
    sizes = {"R": norm.shape[3], "n": n, "d": d, "k": settings.rank, "2": 2}
    for name, axes in AXES.items():
        array = columns[name]
        if array is None and name in (*OPTIONAL, *OF_HEADS):
            continue
        array = check_kind(name, array, "i" if name in WHOLE else "f")
        expected = (*norm.shape[:3], *(sizes[axis] for axis in axes))
        if name in ("path", "head_path") and array.ndim == len(expected):
            # Training may have gone further after the path was forgotten.
            expected = (*expected[:3], min(array.shape[3], expected[3]), *expected[4:])
        if array.shape != expected:
            raise ProblemError(f"{name} has shape {array.shape}, not {expected}")
    planned = check_kind("planned", columns["planned"], "i")
    if planned.ndim != 2 or len(planned) != count or planned.shape[1] < norm.shape[3]:
        raise ProblemError(f"planned has shape {planned.shape}")
    if (np.diff(planned, axis=1) < 0).any() or (planned < 0).any():
        raise ProblemError("planned steps do not ascend")
    if planned[:, -1].tolist() != list(settings.num_steps):
        raise ProblemError(f"num_steps is {settings.num_steps}, but {planned[:, -1]} are planned")


def check_kind(name: str, array: Any, kind: str) -> NDArray[Any]:
    """An array of integers (kind "i") or of real numbers ("f").

    Raises:
        ProblemError: If it is something else.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind != kind:
        raise ProblemError(f"{name} holds no {'integers' if kind == 'i' else 'real numbers'}")
    return array
