r"""What callbacks for other people's loops share: the loss of a step, and the end of a schedule.

    L = sum_j L_j

where L_j is the loss of part j of a batch as it was differentiated, so divided by the number of
parts where their gradients are averaged. Polyak's rule needs L, and loops know L_j alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from mirrormargin.arguments import check_kind
from mirrormargin.errors import MirrorMarginWarning, OptimizerError
from mirrormargin.optim import MirrorDescent, SparsitySchedule
from mirrormargin.optim.sparsity_schedule import find_mirror_optimizer

__all__ = ["StepLoss", "end_schedule", "warn_of_clipping"]

_ADVICE = 'with step_rule="polyak", which alone needs the loss'


class StepLoss:
    """Adds up the losses of the parts of a batch, and hands the sum to the optimizer's next step.

    Args:
        optimizer: A :class:`MirrorDescent`, or what a loop has wrapped one in. Its steps may have
            a closure, which evaluates the last part.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        found = find_mirror_optimizer(optimizer)
        check_kind("optimizer", found, MirrorDescent, _ADVICE, error=OptimizerError)
        self._sum: Tensor | None = None
        self._hook = found.register_step_pre_hook(self._hand_over)

    def add(self, part: Tensor) -> None:
        """Count in the loss of one part."""
        part = part.detach()
        self._sum = part if self._sum is None else self._sum + part

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        self._hook.remove()

    def _hand_over(
        self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a step with the loss; ``args`` are the optimizer and a closure."""
        own = dict(zip(("optimizer", "closure"), args, strict=False)) | kwargs
        closure: Callable[[], Any] | None = own.get("closure")
        if closure is None or own.get("loss") is not None:
            return args, {"loss": self._take(), **kwargs}

        def evaluate() -> Tensor | None:
            closure()
            return self._take()

        return args[:1], {**kwargs, "closure": evaluate}

    def _take(self) -> Tensor | None:
        taken, self._sum = self._sum, None
        return taken


def warn_of_clipping(optimizer: Optimizer, setting: str) -> None:
    """Warn that a loop clips the gradients of Polyak's steps, which makes them too long."""
    if any(group.get("step_rule") == "polyak" for group in optimizer.param_groups):
        warnings.warn(
            f"{setting} clips gradients and not the loss: Polyak's steps, which divide by the"
            " squared norm, become longer where it does. Switch it off",
            MirrorMarginWarning,
            stacklevel=3,
        )


def end_schedule(schedule: SparsitySchedule) -> float:
    """Finalize a schedule; the share that it has removed.

    It warns if the training has ended before.
    """
    removed = schedule.removed_share
    if not schedule.is_over:
        warnings.warn(
            f"the training ended after {schedule.num_calls} of {schedule.num_steps} steps:"
            f" {removed:.1%} of the weights are removed, and not {schedule.share:.1%}",
            MirrorMarginWarning,
            stacklevel=3,
        )
    schedule.finalize()
    return removed
