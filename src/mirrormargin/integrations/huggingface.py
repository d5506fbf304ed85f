"""For Hugging Face's Trainer: our parameter groups, and callbacks for sparsity, Polyak and deltas.

    trainer = Trainer(
        model=model,
        args=TrainingArguments("out", **mirror_defaults()),
        train_dataset=data,
        optimizer_cls_and_kwargs=mirror_optimizer(p=1.1, lr=1e-3),
        callbacks=[SparsityCallback(0.95)],
    )

By itself the Trainer sorts parameters into groups of its own, and tells callbacks no losses.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from mirrormargin.arguments import check_kind, check_path, show
from mirrormargin.deltas import SparseDelta
from mirrormargin.errors import DeltaError, MirrorMarginWarning, OptimizerError
from mirrormargin.integrations import miss
from mirrormargin.integrations.callbacks import StepLoss, end_schedule, warn_of_clipping
from mirrormargin.optim import MirrorAdam, MirrorDescent, SparsitySchedule, mirror_groups
from mirrormargin.optim.shards import is_sharded

try:
    import transformers.trainer_optimizer  # noqa: F401 (which calls factories)
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise miss("transformers with its Trainer", "huggingface") from error

__all__ = [
    "DeltaCallback",
    "PolyakCallback",
    "SparsityCallback",
    "mirror_defaults",
    "mirror_optimizer",
]


def mirror_defaults() -> dict[str, Any]:
    """What a Trainer has to be told so that steps are those of the optimizer alone.

    By default it clips gradients to a Euclidean norm of 1 over all parameters, which makes constant
    steps shorter and Polyak's longer, and lets the learning rate fall to 0 in a straight line.
    ``docs/integrations.md`` has what this does to each kind of step.

    Returns:
        Arguments of ``TrainingArguments`` that switch both off. To fine-tune with ``MirrorAdam``
        you may well want the falling rate: give another ``lr_scheduler_type``.
    """
    return {"max_grad_norm": 0.0, "lr_scheduler_type": "constant"}


def mirror_optimizer(
    kind: type[MirrorAdam] | type[MirrorDescent] = MirrorAdam,
    p: float = 1.1,
    *,
    groups: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[type[Any], dict[str, Any]]:
    """The ``optimizer_cls_and_kwargs`` of a Trainer: an optimizer of :func:`mirror_groups`.

    The Trainer builds it once it knows the model, so ``model_init``, searches over hyper-parameters
    and FSDP2 work. Its own groups, and ``learning_rate`` and ``weight_decay`` of its arguments,
    have no effect.

    Args:
        kind: ``MirrorAdam`` or ``MirrorDescent``.
        p: Exponent of the matrices.
        groups: More arguments of :func:`mirror_groups`, such as ``{"center": True}``.
        **options: Of the optimizer, such as ``lr``.
    """
    if kind not in (MirrorAdam, MirrorDescent):
        raise OptimizerError(f"kind is {show(kind)}: give MirrorAdam or MirrorDescent")
    if groups is not None:
        check_kind("groups", groups, Mapping, "such as {'embeddings': True}", error=OptimizerError)
    return _Factory, {"kind": kind, "groups": {"p": p, **(groups or {})}, "options": options}


class _Factory:
    """What the Trainer makes and calls, for it is no class of optimizers."""

    def __call__(
        self, model: nn.Module, kind: Any, groups: dict[str, Any], options: dict[str, Any]
    ) -> Optimizer:
        return kind(mirror_groups(model, **groups), **options)


class SparsityCallback(TrainerCallback, ExportableState):
    """Removes a rising share of the weights: a :class:`SparsitySchedule` of the whole training.

    The schedule is in the Trainer's checkpoints. ``resume_from_checkpoint`` continues it, to the
    same bits; with another share or another number of steps it is refused.

    Args:
        share: Of the weights that are removed in the end.
        **options: More arguments of :class:`SparsitySchedule` but the number of steps, which is
            the Trainer's. Tensors are named by patterns; heads and units are found in its model.

    Attributes:
        schedule: The schedule of the training that runs; None before the first one.
        removed_share: The share that has been removed, once a training has ended.
    """

    def __init__(self, share: float, **options: Any) -> None:
        self.options = {"share": share, **options}
        try:
            json.dumps(self.options)
        except (TypeError, ValueError):
            raise OptimizerError(
                f"the options {show(self.options)} cannot be written to a checkpoint: name tensors"
                " by patterns, and give texts and Python's own numbers"
            ) from None
        self.schedule: SparsitySchedule | None = None
        self.removed_share: float | None = None

    def state(self) -> dict[str, Any]:
        """What the Trainer writes to a checkpoint."""
        saved = None if self.schedule is None else self.schedule.state_dict()
        return {"args": self.options, "attributes": {"saved": saved}}

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        """Make the schedule, or continue it where a checkpoint was."""
        options = dict(self.options)
        if options.get("groups") in ("heads", "units"):
            options["model"] = model
        # The Trainer keeps what it found in a checkpoint, and fails where a callback is missing.
        absent = {"args": self.options, "attributes": {"saved": None}}
        own = state.stateful_callbacks.setdefault(type(self).__name__, absent)
        self.schedule = SparsitySchedule(optimizer, num_steps=state.max_steps, **options)
        if state.global_step:
            own = own[0] if isinstance(own, list) else own
            if own["attributes"]["saved"]:
                self.schedule.load_state_dict(own["attributes"]["saved"])
            self.schedule.num_calls = state.global_step

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step; gradients are still there."""
        assert self.schedule is not None
        self.schedule.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave a plain optimizer, and weights some of which are 0."""
        assert self.schedule is not None
        best = state.best_global_step if args.load_best_model_at_end else None
        if best and self.schedule.share_at(best) < self.schedule.share:
            warnings.warn(
                f"load_best_model_at_end=True has brought back the weights of step {best}, of which"
                f" at most {self.schedule.share_at(best):.1%} were removed, and not"
                f" {self.schedule.share:.1%}",
                MirrorMarginWarning,
                stacklevel=2,
            )
        self.removed_share = end_schedule(self.schedule)


class PolyakCallback(TrainerCallback):
    """Tells ``MirrorDescent(step_rule="polyak")`` the loss of each step.

    It is the sum over the batches whose gradients are accumulated, as the Trainer differentiates
    them: your own ``compute_loss`` counts as well. It listens to the Trainer's ``training_step``:

        trainer.add_callback(PolyakCallback(trainer))

    With several processes give the optimizer ``loss_over="world"``.

    Args:
        trainer: The Trainer that it is added to.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._train = check_kind("trainer", trainer, Trainer, error=OptimizerError).training_step
        self._loss: StepLoss | None = None
        trainer.training_step = self._listen

    def _listen(self, *args: Any, **kwargs: Any) -> Tensor:
        part = self._train(*args, **kwargs)
        if self._loss is not None:
            self._loss.add(part)
        return part

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any
    ) -> None:
        """Listen to the optimizer of this training."""
        self._release()
        if args.max_grad_norm:
            warn_of_clipping(optimizer, f"max_grad_norm={args.max_grad_norm}")
        self._loss = StepLoss(optimizer)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the optimizer as it was."""
        self._release()

    def _release(self) -> None:
        if self._loss is not None:
            self._loss.remove()
        self._loss = None


class DeltaCallback(TrainerCallback):
    """Writes what a training has changed as a :class:`SparseDelta`, at its end.

    It tries to do so before the first step, so that a wrong argument costs no training.

    Args:
        base: The model before the training: a copy of it, a state dict, or the path of a
            safetensors file.
        path: Where to; ``delta.safetensors`` in the Trainer's folder if it is None.
        **options: Of :meth:`SparseDelta.extract`, such as ``keep=10_000``.

    Attributes:
        delta: What was written; None before, and on other ranks than the first.
    """

    def __init__(
        self, base: Any, path: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        self.base, self.options = base, options
        self.path = None if path is None else Path(check_path("path", path, error=DeltaError))
        self.delta: SparseDelta | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Find out whether a delta can be written."""
        options: dict[str, Any] = dict(self.options)
        search = {"tolerance", "evaluate"}
        if search <= options.keys():  # which would take long
            options = {key: options[key] for key in options.keys() - search} | {"keep": 0}
        weights = _gather(model)
        if state.is_world_process_zero:
            SparseDelta.extract(weights, self.base, **options)
            place = self._find_path(args)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DeltaError(f"{place.parent} cannot be made: {error.strerror}") from error

    def on_train_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Write it, from one process."""
        weights = _gather(model)
        if state.is_world_process_zero:
            self.delta = SparseDelta.extract(weights, self.base, **self.options)
            self.delta.save(self._find_path(args))

    def _find_path(self, args: Any) -> Path:
        return Path(args.output_dir, "delta.safetensors") if self.path is None else self.path


def _gather(model: nn.Module) -> Any:
    """The model, or its weights where processes have parts of them (empty on all but the first)."""
    if not any(map(is_sharded, model.parameters())):
        return model
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=whole)
