"""For Lightning: callbacks for sparsity and for Polyak's rule.

    def configure_optimizers(self):
        return mm.MirrorAdam(mm.mirror_groups(self, p=1.1), lr=1e-3)

    trainer = Trainer(max_epochs=10, callbacks=[SparsityCallback(0.95)])

The optimizers need nothing else.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from mirrormargin.errors import OptimizerError
from mirrormargin.integrations import miss
from mirrormargin.integrations.callbacks import StepLoss, end_schedule, warn_of_clipping
from mirrormargin.optim import SparsitySchedule
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer

try:
    from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]
except ImportError:
    try:  # the same code by its other name
        from pytorch_lightning import Callback  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise miss("lightning", "lightning") from error

__all__ = ["PolyakCallback", "SparsityCallback"]


class SparsityCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Removes a rising share of the weights: a :class:`SparsitySchedule` of the whole training.

    It counts the steps of the optimizer, in automatic and in manual optimization. Its state is in
    Lightning's checkpoints, and ``fit(..., ckpt_path=...)`` continues it to the same bits; with
    another share or another number of steps it is refused.

    Args:
        share: Of the weights that are removed in the end.
        num_steps: Of the optimizer in the whole training; None for what Lightning expects of
            ``max_epochs`` or ``max_steps``, which in manual optimization is one for each batch.
        **options: More arguments of :class:`SparsitySchedule`; heads and units are found in the
            module.

    Attributes:
        schedule: The schedule of the training that runs; None before the first one.
        removed_share: The share that has been removed, once a training has ended.
    """

    def __init__(self, share: float, num_steps: int | None = None, **options: Any) -> None:
        self.share, self.num_steps, self.options = share, num_steps, options
        self.schedule: SparsitySchedule | None = None
        self.removed_share: float | None = None
        self._saved: dict[str, Any] = {}
        self._hook: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the schedule, or continue it where a checkpoint was."""
        self._release()
        optimizer = _find_optimizer(trainer)
        num_steps = self.num_steps
        if num_steps is None:
            expected = trainer.estimated_stepping_batches
            if not 0 < expected < math.inf:
                raise OptimizerError(
                    "Lightning does not know how many steps the training has: give the callback"
                    " num_steps, or the Trainer max_epochs or max_steps"
                )
            num_steps = int(expected)
        parts = {"model": pl_module} if self.options.get("groups") in ("heads", "units") else {}
        self.schedule = SparsitySchedule(optimizer, self.share, num_steps, **parts | self.options)
        if self._saved:
            self.schedule.load_state_dict(self._saved)
            self._saved = {}
        self._hook = optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        assert self.schedule is not None
        self.schedule.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave a plain optimizer, and weights some of which are 0."""
        assert self.schedule is not None
        self._release()
        self.removed_share = end_schedule(self.schedule)

    def _release(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = None

    def state_dict(self) -> dict[str, Any]:
        """What Lightning writes to a checkpoint."""
        return {} if self.schedule is None else self.schedule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep what a checkpoint has until there is a schedule."""
        self._saved = state_dict


class PolyakCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Tells ``MirrorDescent(step_rule="polyak")`` the loss of each step.

    It is the sum over the batches whose gradients are accumulated, as they are differentiated.
    Without accumulation automatic optimization needs no callback: the optimizer gets a closure. In
    manual optimization ``optimizer.step(loss=loss)`` does the same.

    With several processes give the optimizer ``loss_over="world"``.
    """

    def __init__(self) -> None:
        self._loss: StepLoss | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Listen to the optimizer of this training."""
        self._release()
        optimizer = _find_optimizer(trainer)
        if trainer.gradient_clip_val:
            warn_of_clipping(optimizer, f"gradient_clip_val={trainer.gradient_clip_val}")
        self._loss = StepLoss(optimizer)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Count in a batch."""
        if self._loss is not None:
            # With precision="16-mixed" the loss is scaled, and gradients are unscaled before steps.
            scaler = getattr(trainer.precision_plugin, "scaler", None)
            self._loss.add(loss if scaler is None else loss / scaler.get_scale())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the optimizer as it was."""
        self._release()

    def _release(self) -> None:
        if self._loss is not None:
            self._loss.remove()
        self._loss = None


def _find_optimizer(trainer: Any) -> Optimizer:
    found = [one for one in trainer.optimizers if isinstance(one, MirrorOptimizer)]
    if len(found) != 1:
        raise OptimizerError(
            f"configure_optimizers has given {len(found)} mirror optimizers: this callback needs"
            " exactly one MirrorAdam or MirrorDescent"
        )
    return found[0]
