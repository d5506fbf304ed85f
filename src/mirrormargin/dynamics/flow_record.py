r"""A mirror flow as it is kept: its points, how it ended, and how fast things fall along it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.rates import RateFit
from mirrormargin.dynamics.rates.laws import FormName, Interval, read_window
from mirrormargin.dynamics.rates.recorded import Claimed, Quantity, fit_recorded, log_of
from mirrormargin.errors import RunError
from mirrormargin.runs import check_document, read_run, write_run

__all__ = ["KIND", "FlowRecord", "FlowStatus"]

Array = NDArray[np.float64]

KIND = "mirror flow"


class FlowStatus(str, Enum):
    """How a flow ended; compares equal to its text."""

    FOLLOWED = "followed to the end"
    UNSETTLED = "followed, but the selection is not locally optimal: training may still leave it"
    NOT_SEPARABLE = "followed, but no W separates the selected tokens: there is no target"
    NO_TARGET = "followed, but no max-margin solution could be certified: there is no target"
    STATIONARY = "not moved: the gradient is zero at the start"
    BALANCED = "stopped early: gradients cancel beyond rounding, as at a minimum of the loss"
    STUCK = "stopped early: the integrator found no way on"

    __str__ = str.__str__


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FlowRecord:
    """A flow and how far it is from its target, at R recorded points.

    Attributes:
        log10_k: Decades of steps, shape (R,); of a flow that stopped early, those it reached.
        divergence: D from the target, (R,); nan where the target or W has no direction.
        norm: |W|_p, (R,).
        log_loss_gap: log of the loss above its floor, natural, (R,).
        logit_gap: Smallest lead of a selected token, in logits, (R,).
        log_unattended: log of the most that some sequence does not give its selected token, (R,).
        selection: The most attended tokens, (R, n).
        path: W at each recorded point, (R, d, d).
        W: W at the end, (d, d).
        target: What D is measured from, (d, d); nan if there is none.
        target_selection: The tokens that the target selects, (n,).
        p: Exponent of the potential.
        lr: Rate that turns time into steps.
        tol: Error that was allowed in each step.
        num_steps: Steps of the integrator.
        num_rejected: Steps that it took back.
        status: How the flow ended, see :class:`FlowStatus`.
    """

    log10_k: Array
    divergence: Array
    norm: Array
    log_loss_gap: Array
    logit_gap: Array
    log_unattended: Array
    selection: NDArray[np.intp]
    path: Array
    W: Array
    target: Array
    target_selection: NDArray[np.intp]
    p: float
    lr: float
    tol: float
    num_steps: int
    num_rejected: int
    status: FlowStatus

    def __repr__(self) -> str:
        end = ""
        if self.log10_k.size:
            end = f" divergence={self.divergence[-1]:.4g} at k=1e{self.log10_k[-1]:g},"
        return (
            f"FlowRecord(p={self.p:g},{end} points={self.log10_k.size}, steps={self.num_steps},"
            f" status={str(self.status)!r})"
        )

    def fit_rate(
        self,
        form: FormName | None = None,
        *,
        quantity: Quantity = "divergence",
        claimed: Claimed = "proven",
        window: Interval | None = None,
        confidence: float = 0.95,
        tol: float = 0.02,
    ) -> RateFit:
        """How fast something falls along the flow, and whether as fast as proven.

        Args:
            form: The law, as of :func:`mirrormargin.fit_rate`; None for the proven one of the
                divergence, and for k^-a of the other quantities.
            quantity: "divergence", "loss_gap", or "unattended": the most that a sequence does not
                give its selected token.
            claimed: Exponent to compare with; "proven" for that of :func:`claimed_rate`, which
                is for the divergence; None for no claim.
            window: First and last log10 of the steps to use; None for the last third.
            confidence: Nominal coverage of the interval.
            tol: Share of the claimed exponent that may be missing.

        Raises:
            ProblemError: (a ValueError) If the flow has no target, or too few points.
        """
        if window is None and self.log10_k.size:
            window = float(self.log10_k[-1]) * 2 / 3, np.inf
        first, last = read_window(window, is_log=True)
        logs = {
            "divergence": log_of(self.divergence[None]),
            "loss_gap": self.log_loss_gap[None],
            "unattended": self.log_unattended[None],
        }
        return fit_recorded(
            self.log10_k * np.log(10),
            logs,
            self.p,
            "constant",
            quantity=quantity,
            form=form,
            claimed=claimed,
            window=(first * np.log(10), last * np.log(10)),
            confidence=confidence,
            tol=tol,
        )

    def save(self, folder: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the record as a folder of plain files.

        Args:
            folder: Where; a record that is there already is replaced.
            about: What else ``run.json`` shall say, such as where the problem comes from.

        Raises:
            RunError: If it cannot be written.
        """
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        document = {**numbers, "status": str(self.status), "about": check_document("about", about)}
        write_run(folder, KIND, document, {name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, folder: str | Path) -> FlowRecord:
        """Read a record that :meth:`save` wrote.

        Raises:
            RunError: If there is none, or a damaged one.
        """
        document, arrays = read_run(folder, KIND)
        try:
            numbers = {name: document[name] for name in _NUMBERS}
            status = FlowStatus(document["status"])
            return cls(**{name: arrays[name] for name in _ARRAYS}, **numbers, status=status)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"the run in {folder} is damaged: {error!r}") from error


_NUMBERS = ("p", "lr", "tol", "num_steps", "num_rejected")
_ARRAYS = tuple(
    field.name for field in fields(FlowRecord) if field.name not in (*_NUMBERS, "status")
)
