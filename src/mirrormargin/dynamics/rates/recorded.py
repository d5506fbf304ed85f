r"""The rate of a record as it comes: which values, which law, which steps.

    steps         divergence                 loss gap, unattended
    constant      the proven law of p        power, C k^-a
    normalized    power, C k^-a              exp(b - C k^a)
    Polyak        power, C k^-a              exp(b - C k^a)

The first part of a trajectory is about its start, so by default only the end is fitted.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_choice, show
from mirrormargin.dynamics.rates.fit import RateFit, fit_rate
from mirrormargin.dynamics.rates.laws import FORMS, MIN_POINTS, FormName, Interval, claimed_rate
from mirrormargin.errors import ProblemError

__all__ = ["Claimed", "Quantity", "fit_recorded", "log_of"]

Array = NDArray[np.float64]
Quantity = Literal["divergence", "loss_gap", "unattended"]
Claimed = float | Literal["proven"] | None
QUANTITIES: tuple[Quantity, ...] = ("divergence", "loss_gap", "unattended")


def fit_recorded(
    log_steps: Array,
    log_values: dict[str, Array | None],
    p: float,
    step_rule: str,
    *,
    quantity: Quantity,
    form: FormName | None,
    claimed: Claimed,
    window: Interval,
    confidence: float,
    tol: float,
) -> RateFit:
    """Fit the rate of one quantity of a record.

    Args:
        log_steps: Natural logs of the recorded steps, shape (R,), increasing.
        log_values: Natural logs of each quantity, (S, R) for S runs; None if it was not recorded.
        p: Exponent of the runs.
        step_rule: Of the runs; a flow has constant steps.
        quantity: Which of the values.
        form: The law; None for that of the table above.
        claimed: An exponent; "proven" for the proven one, if that is known for these runs and
            this form; None for no claim.
        window: First and last log step to use.
        confidence: As in :func:`fit_rate`.
        tol: As in :func:`fit_rate`.

    Raises:
        ProblemError: (a ValueError) If the quantity was not recorded, or is not defined.
    """
    values = log_values[check_choice("quantity", quantity, QUANTITIES)]
    if values is None:
        raise ProblemError(
            f'the {quantity} was not recorded, for there is no target: train with target="own", or'
            ' fit quantity="loss_gap"'
        )
    proven = claimed_rate(p)[1] if (quantity, step_rule) == ("divergence", "constant") else None
    if form is not None:
        form = check_choice("form", form, FORMS)
    else:
        if proven is not None:
            form = proven.form
        else:
            falls_as_power = quantity == "divergence" or step_rule == "constant"
            form = "power" if falls_as_power else "exp"
    if isinstance(claimed, str):
        if claimed != "proven":
            raise ProblemError(f'claimed is {show(claimed)}: give a number, "proven" or None')
        claimed = proven.exponent if proven is not None and proven.form == form else None
    inside = (log_steps >= window[0]) & (log_steps <= window[1])
    missing = np.flatnonzero(np.isnan(values[:, inside]).any(axis=1))
    if missing.size:
        raise ProblemError(
            f"the {quantity} of run {missing[0]} of {len(values)} is not defined at some of these"
            " steps, as where W is 0 or the selected tokens cannot be separated: choose other runs"
            " or another window"
        )
    if inside.sum() < MIN_POINTS:
        raise ProblemError(
            f"{int(inside.sum())} recorded steps are in the window: record more of them, train for"
            f" longer or widen the window, to have {MIN_POINTS} at least"
        )
    return fit_rate(
        form,
        log_steps=log_steps[inside],
        log_values=values[:, inside],
        claimed=claimed,
        confidence=confidence,
        tol=tol,
    )


def log_of(values: Any) -> Array | None:
    """Natural logs of values that may be zero, or None."""
    if values is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values)
