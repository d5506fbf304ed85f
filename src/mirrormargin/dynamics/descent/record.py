"""What a training leaves behind: numbers along the way, and all that it takes to resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_count, check_kind, read_array, show
from mirrormargin.attention import AttentionProblem
from mirrormargin.dynamics.descent.columns import check_columns
from mirrormargin.dynamics.descent.settings import MODES, RULES, TrainingSettings
from mirrormargin.dynamics.rates import RateFit
from mirrormargin.dynamics.rates.laws import FormName, Interval, read_window
from mirrormargin.dynamics.rates.recorded import Claimed, Quantity, fit_recorded, log_of
from mirrormargin.errors import ProblemError, RunError
from mirrormargin.geometry.vector_batches import divergence_each
from mirrormargin.runs import read_run, write_run

__all__ = ["MODES", "RULES", "AttentionRecord", "End", "TrainingSettings", "check_record"]

Array = NDArray[np.float64]
KIND = "attention training"
SETTINGS = "settings.digest"


def check_record(record: Any) -> AttentionRecord:
    """A record of a training.

    Raises:
        ProblemError: If it is something else.
    """
    return check_kind("record", record, AttentionRecord, "as train_attention returns it")


class End(IntEnum):
    """Why a run has ended, if it has."""

    RUNNING = 0
    ZERO_GRADIENT = 1  # nothing moves any more
    DIVERGED = 2  # the weights, or the next step, are not finite
    OUT_OF_REACH = 3  # Polyak's floor is too far, and max_lr does not bound the step


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionRecord:
    """All runs of one training; every array leads with the axes (problem, p, init).

    Attributes:
        W: The last matrices, (P, E, I, d, d).
        steps: Recorded steps, (P, E, I, R); runs that end early repeat their last one.
        log_loss: log of the loss, natural, (P, E, I, R).
        log_loss_gap: log of the loss above its floor, natural, (P, E, I, R).
        norm: |W|_p.
        logit_gap: Smallest lead of a selected token, in logits.
        margin: ``logit_gap / norm``.
        attention: Mean attention on the selected tokens.
        log_unattended: log of the most that some sequence does not give its selected token.
        selection: The most attended tokens, (P, E, I, R, n).
        divergence: D from the target, (P, E, I, R); None without a target, or if the training was
            interrupted before its own targets were known.
        target: The targets, (P, E, I, d, d); nan where there is none.
        path: W at each recorded step, (P, E, I, R, d, d), if asked for.
        head: The last head of a joint training, (P, E, I, d); None if the head was fixed, as the
            following ones.
        head_norm: |v|_p, (P, E, I, R).
        head_divergence: D of the head from its target, (P, E, I, R).
        head_target: The targets of the heads, (P, E, I, d).
        head_path: The head at each recorded step, (P, E, I, R, d), if asked for.
        factors: K and Q of a factored training, (P, E, I, 2, d, rank).
        capped: How many of Polyak's steps ``max_lr`` cut, (P, E, I): with any, the floor was not
            where the run ended, or ``max_lr`` is small.
        end: Why each run has ended, if it has, see :class:`End`, (P, E, I).
        planned: Steps that were to be recorded, (E, more than R if it was interrupted).
        settings: How it was trained.
        problems: What was trained on.
        state: Duals and memory of the runs, for resuming.
    """

    W: Array
    steps: NDArray[np.int64]
    log_loss: Array
    log_loss_gap: Array
    norm: Array
    logit_gap: Array
    margin: Array
    attention: Array
    log_unattended: Array
    selection: NDArray[np.intp]
    divergence: Array | None
    target: Array | None
    path: Array | None
    head: Array | None
    head_norm: Array | None
    head_divergence: Array | None
    head_target: Array | None
    head_path: Array | None
    factors: Array | None
    capped: NDArray[np.int64]
    end: NDArray[np.int64]
    planned: NDArray[np.int64]
    settings: TrainingSettings
    problems: tuple[AttentionProblem, ...]
    state: Mapping[str, NDArray[Any]]

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.norm.shape[:3]))
        done = "" if self.is_complete else ", interrupted"
        rule, steps = self.settings.step_rule, int(self.steps.max(initial=0))
        p = ", ".join(f"{one:g}" for one in self.settings.p)
        return (
            f"AttentionRecord({shape} problems x exponents x inits, p = {p}, {rule}, {steps:,}"
            f" steps{done})"
        )

    @property
    def p(self) -> Array:
        """The exponents, (E,)."""
        return np.array(self.settings.p)

    @property
    def loss_gap(self) -> Array:
        """The loss above its floor; zero where that underflows, see ``log_loss_gap``."""
        return np.exp(self.log_loss_gap)

    @property
    def final_selection(self) -> NDArray[np.intp]:
        """The most attended tokens at the end, (P, E, I, n)."""
        return self.selection[..., -1, :]

    @property
    def is_complete(self) -> bool:
        """Whether all planned steps were recorded."""
        return self.steps.shape[-1] == self.planned.shape[-1]

    def divergence_from(self, target: Array) -> Array:
        """D of the recorded path from other targets, (P, E, I, R).

        Args:
            target: Broadcastable to (P, E, I, d, d).

        Raises:
            ProblemError: If the path was not kept.
        """
        if self.path is None:
            raise ProblemError("the path of W was not kept: train with keep_path=True")
        given = read_array("target", target, finite=True)
        try:
            wanted = np.broadcast_to(given, self.W.shape)[..., None, :, :]
        except ValueError:
            raise ProblemError(
                f"target has shape {given.shape}, which does not broadcast to {self.W.shape},"
                " (problem, p, init, d, d): give one matrix, or one for each run"
            ) from None
        return divergence_each(wanted, self.path, self.p[:, None, None], axes=2)

    def fit_rate(
        self,
        form: FormName | None = None,
        *,
        problem: int | Sequence[int] | None = None,
        p: float | None = None,
        init: int | Sequence[int] | None = None,
        quantity: Quantity = "divergence",
        claimed: Claimed = "proven",
        window: Interval | None = None,
        confidence: float = 0.95,
        tol: float = 0.02,
    ) -> RateFit:
        """How fast something falls along these runs, and whether as fast as proven.

        Several runs are fitted one by one, and the exponent is their mean.

        Args:
            form: The law, as of :func:`mirrormargin.fit_rate`; None for the one that the theory
                has for these steps: of the divergence (log k)^-a or (log log k / log k)^a with
                constant steps and k^-a with others; of the loss gap and of the attention elsewhere
                k^-a with constant steps and exp(b - C k^a) with others.
            problem: Index of a problem, or several; None for all.
            p: Which of the exponents; may be left out if there is only one.
            init: Index of a start, or several; None for all.
            quantity: "divergence", "loss_gap", or "unattended": the most that a sequence does not
                give its selected token.
            claimed: Exponent to compare with; "proven" for that of :func:`claimed_rate`, which
                is for the divergence with constant steps; None for no claim.
            window: First and last step to use; None for the later half of the decades, from
                the square root of the number of steps on.
            confidence: Nominal coverage of the interval.
            tol: Share of the claimed exponent that may be missing.

        Raises:
            ProblemError: (a ValueError) If there are no such runs, or they have no such values.
        """
        column = self._find_exponent(p)
        shape = self.norm.shape
        rows = _read_indices("problem", problem, shape[0])
        starts = _read_indices("init", init, shape[2])
        chosen = np.ix_(rows, [column], starts)
        steps = self.steps[chosen].reshape(-1, shape[3])
        # Runs that ended repeat their last step, and so do those of an exponent with fewer steps.
        count = int((np.diff(steps, axis=1) > 0).all(axis=0).cumprod().sum()) + 1
        logs = {
            "divergence": log_of(self.divergence),
            "loss_gap": self.log_loss_gap,
            "unattended": self.log_unattended,
        }
        log_steps = np.log(np.maximum(steps[0, 1:count], 1))  # at step 0 nothing falls
        return fit_recorded(
            log_steps,
            {
                name: None if value is None else value[chosen].reshape(-1, shape[3])[:, 1:count]
                for name, value in logs.items()
            },
            self.settings.p[column],
            self.settings.step_rule,
            quantity=quantity,
            form=form,
            claimed=claimed,
            window=_read_late_window(window, log_steps),
            confidence=confidence,
            tol=tol,
        )

    def _find_exponent(self, p: Any) -> int:
        exponents = self.settings.p
        if p is None and len(exponents) == 1:
            return 0
        found = [j for j, one in enumerate(exponents) if isinstance(p, (int, float)) and one == p]
        if not found:
            names = ", ".join(f"{one:g}" for one in exponents)
            raise ProblemError(f"p is {show(p)}: give one of the record's exponents, {names}")
        return found[0]

    def describe_ends(self) -> dict[str, int]:
        """How many runs ended for which reason."""
        return {end.name.lower(): int((self.end == end).sum()) for end in End}

    def save(self, folder: str | Path) -> None:
        """Write the record as a folder of plain files, from which training can resume.

        Raises:
            RunError: If it cannot be written.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        arrays |= {f"state.{name}": value for name, value in self.state.items()}
        for name in ("tokens", "queries", "labels", "head"):
            arrays[f"problem.{name}"] = np.stack([getattr(one, name) for one in self.problems])
        settings = asdict(self.settings)
        settings["max_lr"] = str(self.settings.max_lr)  # JSON has no inf
        losses = [problem.loss_name for problem in self.problems]
        # With the state, so that neither can be taken for that of another training.
        arrays[SETTINGS] = np.array(self.settings.digest(losses))
        write_run(folder, KIND, {"settings": settings, "losses": losses}, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> AttentionRecord:
        """Read a record that :meth:`save` wrote.

        Raises:
            RunError: If there is none, or a damaged one.
        """
        document, arrays = read_run(folder, KIND)
        try:
            return cls._assemble(document, arrays)
        except ProblemError as error:
            raise RunError(f"the run in {folder} is damaged, or was edited: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise RunError(f"the run in {folder} is damaged: {error!r}") from error

    @classmethod
    def _assemble(
        cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> AttentionRecord:
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in document["settings"].items()
        }
        settings["max_lr"] = float(settings["max_lr"])
        read = TrainingSettings(**settings)
        read.check()
        # Records of earlier versions have no digest.
        if str(arrays.get(SETTINGS, "")) not in ("", read.digest(document["losses"])):
            raise ProblemError("its settings are not those that its state was trained with")
        parts = (arrays[f"problem.{name}"] for name in ("tokens", "queries", "labels", "head"))
        record = cls(
            **{name: arrays.get(name) for name in _ARRAYS},  # pyright: ignore[reportArgumentType]
            settings=read,
            problems=tuple(
                AttentionProblem(*one, loss=loss)
                for *one, loss in zip(*parts, document["losses"], strict=True)
            ),
            state={
                name.removeprefix("state."): value
                for name, value in arrays.items()
                if name.startswith("state.")
            },
        )
        columns = {name: getattr(record, name) for name in _ARRAYS}
        check_columns(columns, read, arrays["problem.tokens"].shape)
        return record


def _read_indices(name: str, given: Any, count: int) -> list[int]:
    """Indices along an axis of so many; None for all."""
    if given is None:
        return list(range(count))
    several = list(given) if isinstance(given, (list, tuple, range, np.ndarray)) else [given]
    if not several:
        raise ProblemError(f"{name} is empty: give at least one index, or None for all")
    return [check_count(name, one, least=0, most=count - 1) for one in several]


def _read_late_window(window: Any, log_steps: Array) -> Interval:
    if window is None and log_steps.size:
        return float(log_steps[-1]) / 2, np.inf
    return read_window(window, is_log=False)


_ARRAYS = tuple(
    field.name
    for field in fields(AttentionRecord)
    if field.name not in ("settings", "problems", "state")
)
