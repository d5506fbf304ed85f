r"""Mirror descent on (1/p)||w||_p^p as a torch optimizer.

    u = sign(w) |w|^(p-1)
    u <- u - (step) * g            step: lr, lr / ||g||_q, or Polyak's root
    w = sign(u) |u|^(1/(p-1))

At p = 2 this is stochastic gradient descent, up to rounding.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mirrormargin.arguments import (
    StepRule,
    check_choice,
    check_flag,
    check_function,
    check_number,
)
from mirrormargin.errors import MirrorMarginWarning, NonFiniteGradientError, OptimizerError
from mirrormargin.geometry import Potential
from mirrormargin.optim import caution as cautious
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer
from mirrormargin.optim.norms import (
    Wanted,
    as_pairs,
    clip_factors,
    divide,
    find_dual_exponent,
    find_norms,
    want_clipping,
)
from mirrormargin.optim.options import NonFinite, NormOver, select_options
from mirrormargin.optim.polyak import as_number, find_polyak_multiplier
from mirrormargin.optim.shards import average_loss, is_distributed, is_sharded
from mirrormargin.optim.tensor_batch import AnyBatch

__all__ = ["MirrorDescent"]

_STEP_RULES = get_args(StepRule)


class MirrorDescent(MirrorOptimizer):
    r"""Drop-in optimizer whose exponent ``p`` chooses the geometry of training.

    p near 1 gives sparse weights that can be pruned; p = 2 is SGD; large p spreads the weights.
    After a step ``effective_lr`` holds the length of the step of each group.

    Of bfloat16 and float16 weights u is kept in float32 at every p, as their master copy: steps too
    short to change a weight add up.

    Args:
        params: Groups (see :func:`mirrormargin.mirror_groups`), named parameters, or parameters.
            Every option below may differ between groups.
        lr: Step size in the dual. With ``step_rule="polyak"`` it multiplies the decrease that
            the step aims for; 1 is the classical rule.
        p: Exponent, ``1 < p < inf``. May be changed between steps.
        step_rule: ``"constant"``; ``"normalized"``, the gradient divided by its dual norm;
            ``"polyak"``, the Bregman projection on the half-space where the linearised loss is
            ``f_min`` (it needs the loss: a closure, or ``step(loss=...)``).
        momentum: Heavy-ball factor in the dual. It averages gradients after they have been
            normalized, or multiplied by Polyak's step.
        nesterov: Look one momentum step ahead.
        weight_decay: With constant steps this is exact mirror descent on
            ``L + weight_decay * psi``: ``weight_decay * u`` is added to the gradient, as in SGD
            at p = 2. With the other rules the direction comes from the gradient alone, and u is
            multiplied by ``1 - step * weight_decay``, where step is lr or Polyak's step.
        scale: Fixed scale of the potential (see :class:`mirrormargin.LpPotential`): a number,
            ``"rms"`` for the root mean square of each initial tensor, or None.
        potential: Another :class:`mirrormargin.Potential` instead of p and scale.
        clip: Largest dual norm ||g||_q, q = p / (p - 1), of a gradient, with constant steps: a
            longer one is shortened to it. Shorter ones are taken as they are, to the bit. None for
            no limit.
        norm_over: ``"tensor"`` normalizes or clips each tensor on its own, ``"group"`` all tensors
            of a group together (SNGD is p = 2 over the group).
        caution: With momentum, hold still the entries whose direction disagrees in sign with the
            gradient (with its coupled decay), and enlarge the step of the others to make up for
            them, at most 1000 times (Liang et al. 2024).
        polyak: ``"bregman"``, or ``"dual_norm"`` for ``(L - f_min) / ||g||_q^2``, which depends
            on the units of the data unless p = 2.
        f_min: The loss that Polyak's rule aims for. 0 is too low for most models: a run that
            cannot reach it takes longer and longer steps, so give ``max_lr`` as well.
        max_lr: Largest step that Polyak's rule may take; None for no limit.
        loss_over: Whose loss Polyak's rule gets, where several processes hold copies of the weights
            (DDP): ``"world"`` averages it over all of them, ``"rank"`` takes it as it is, because
            you have averaged it. None does so too, and warns once. Of parameters that are spread
            over processes (FSDP2) the loss is always averaged over those.
        maximize: Climb instead of descend (not with Polyak).
        nonfinite: What to do when a gradient holds nan or inf: ``"propagate"`` it as torch does,
            ``"raise"`` an error, or ``"skip"`` the step. The last two change no parameter.
        state_dtype: ``torch.bfloat16`` keeps u and the momentum buffer in half the memory. The
            step is computed in float32, and its results are rounded up or down at random, so that
            short steps add up; the same run gives the same bits, also after a checkpoint. Where u
            is kept, a weight is as exact as the 8 bits of its u. None, the default, keeps float32,
            and float64 of float64 weights, for which nothing else is allowed.
        foreach: Use torch's multi-tensor operations: for many small tensors on an accelerator.
        fused: Use compiled code, for dense float32, bfloat16 or float16 tensors on the CPU, or on a
            GPU with Triton. None, the default, uses it wherever it can be used.
        center: Whether u is that of w - c, c being the weights at the first step, or those that
            :meth:`center_at` was given: u starts at 0, weights move only where gradients agree
            step after step, and decay draws them to c. Keeps c in the dtype of the weights.
        capturable: Take steps in plain torch operations that read nothing back from the device, as
            CUDA graphs need (not with Polyak). lr may be a tensor, to be changed by ``fill_``.
            These checks of values are left out: of an lr that is a tensor (but for the
            constructor's), of weights too large for p, of tensors that start at 0, and of steps
            in a scaled potential that float32 cannot hold. ``scale="rms"`` reads the weights
            once, in the first step. ``effective_lr`` is not set.

    ``torch.compile(optimizer.step, fullgraph=True)`` compiles such steps, capturable or not, and
    does so once if lr is a tensor. Compiled steps, and graphs that are replayed, do not notice what
    someone else writes into weights: call :meth:`resync` then.

    Raises:
        OptimizerError: If an option, a gradient or a saved state cannot be used. No parameter
            has been changed then.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        >>> optimizer = MirrorDescent([weight], lr=0.5, p=3.0)
        >>> weight.sum().backward(); _ = optimizer.step()
        >>> [round(x, 4) for x in weight.tolist()]
        [0.7071, -2.1213]
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        p: float = 2.0,
        *,
        step_rule: StepRule = "constant",
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        scale: float | Literal["rms"] | None = None,
        potential: Potential | None = None,
        clip: float | None = None,
        norm_over: NormOver = "tensor",
        caution: bool = False,
        polyak: Literal["bregman", "dual_norm"] = "bregman",
        f_min: float = 0.0,
        max_lr: float | None = None,
        loss_over: Literal["rank", "world"] | None = None,
        maximize: bool = False,
        nonfinite: NonFinite = "propagate",
        state_dtype: torch.dtype | None = None,
        foreach: bool | None = None,
        fused: bool | None = None,
        center: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = select_options(locals())
        self.effective_lr: list[float] = []
        self._has_warned = False
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.effective_lr = [float(group["lr"]) for group in self.param_groups]
        self._has_warned = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.effective_lr.append(float(self.param_groups[-1]["lr"]))

    def _check_group(self, group: dict[str, Any], *, reads: bool = True) -> None:
        super()._check_group(group, reads=reads)
        check_choice("step_rule", group["step_rule"], _STEP_RULES, error=OptimizerError)
        check_choice("polyak", group["polyak"], ("bregman", "dual_norm"), error=OptimizerError)
        check_number("momentum", group["momentum"], least=0.0, below=1.0, error=OptimizerError)
        check_number("f_min", group["f_min"], error=OptimizerError)
        if group["max_lr"] is not None:
            check_number("max_lr", group["max_lr"], above=0.0, hint="or None", error=OptimizerError)
        if group["loss_over"] is not None:
            choices = ("rank", "world")
            check_choice("loss_over", group["loss_over"], choices, error=OptimizerError)
        check_flag("nesterov", group["nesterov"], error=OptimizerError)
        if group["nesterov"] and not group["momentum"]:
            raise OptimizerError("nesterov=True needs momentum: give a number above 0")
        if group["caution"] and not group["momentum"]:
            raise OptimizerError(
                "caution=True needs momentum: without it every step follows the gradient"
            )
        rule = group["step_rule"]
        if rule == "polyak" and "min_lr" in group:
            raise OptimizerError(
                "OneCycleLR has written its own max_lr over the one that bounds Polyak's steps: use"
                " another scheduler, such as CosineAnnealingLR"
            )
        if group["clip"] is not None and rule != "constant":
            why = "divides by the norm" if rule == "normalized" else "needs the loss's own gradient"
            raise OptimizerError(
                f"clip={group['clip']} does not go with step_rule={rule!r}, which"
                f" {why}: use clip=None"
            )
        if rule == "polyak" and group["maximize"]:
            raise OptimizerError("Polyak steps aim for the least loss: minimize -loss instead")
        needs_norm = rule == "normalized" or (rule == "polyak" and group["polyak"] == "dual_norm")
        own = group["potential"]
        if needs_norm and own is not None and not hasattr(own, "dual_norm"):
            raise OptimizerError(
                f"{own!r} has no dual norm, which this step rule needs: use "
                'step_rule="constant" or polyak="bregman"'
            )

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: float | Tensor | None = None,
    ) -> Any:
        """Take one step.

        Args:
            closure: Evaluates the model and returns the loss; called once, with gradients enabled.
            loss: The loss at the current weights, for Polyak's rule. It counts more than that of a
                closure, which may know a part of the batch alone.

        Returns:
            The closure's loss, or ``loss``.
        """
        if loss is not None:
            as_number(loss)  # refuses what is none, whether the rule needs it or not
        if closure is not None:
            check_function("closure", closure, "closure()", error=OptimizerError)
            with torch.enable_grad():
                evaluated = closure()
            loss = evaluated if loss is None else loss
        batches = self._collect()
        mean_loss = self._average(batches, loss)
        if not self._is_admitted(batches) or not self._is_loss_admitted(batches, mean_loss):
            return loss
        norms = find_norms(batches, [_want(batch) for batch in batches])
        if any(batch.is_captured for batch in batches):
            for batch, its_norms in zip(batches, norms, strict=True):
                self._step_batch(batch, batch.group["lr"], its_norms)
            self._remember(batches)
            return loss
        # Only groups with step_rule="polyak" have a multiplier; the step of the others is lr.
        multiplier = find_polyak_multiplier(batches, norms, mean_loss)
        lengths = [
            float(group["lr"]) * (multiplier if group["step_rule"] == "polyak" else 1.0)
            for group in self.param_groups
        ]
        for batch, its_norms in zip(batches, norms, strict=True):
            self._step_batch(batch, lengths[batch.number], its_norms)
        self._remember(batches)
        self.effective_lr = lengths
        return loss

    def _step_batch(self, batch: AnyBatch, length: Any, norms: Tensor | None) -> None:
        group, rule = batch.group, batch.group["step_rule"]
        decay, momentum = float(group["weight_decay"]), float(group["momentum"])
        lr, num = length, len(batch.params)
        grad_scales: list[tuple[Any, Any]] = [(1.0, 1.0)] * num
        if rule == "polyak":
            lr, grad_scales = 1.0, [(1.0, length)] * num  # momentum averages these
        elif norms is not None:
            is_unit = rule == "normalized"
            factors = divide(1.0, norms) if is_unit else clip_factors(float(group["clip"]), norms)
            grad_scales = as_pairs(factors, batch)
        if group["maximize"]:
            grad_scales = [(first, -second) for first, second in grad_scales]
        coupled = decay if rule == "constant" else 0.0
        options: dict[str, Any] = {
            "potential": batch.potential,
            "grad_scales": grad_scales,
            "lrs": [lr / kappa for kappa in batch.kappas],
            "coupled_decays": [coupled * kappa for kappa in batch.kappas],
            "decay": 1.0 if rule == "constant" else _find_decay(length, decay),
            "momentum": momentum,
            "nesterov": bool(group["nesterov"]),
            **self._find_options(batch),
        }
        if group["state_dtype"] is torch.bfloat16:
            batch.count_step()
        buffers = batch.tensors("momentum_buffer") if momentum else None
        tensors = batch.params, batch.grads, batch.duals
        if group["caution"] and buffers is not None:
            own = batch.owners
            cautious.mirror_descent(batch.path, own, *tensors, buffers, held=batch.held, **options)
        else:
            batch.path.mirror_descent(*tensors, buffers, **options)
        batch.hide()

    def _refuse_capture(self, group: dict[str, Any]) -> None:
        super()._refuse_capture(group)
        if group["step_rule"] == "polyak":
            raise OptimizerError(
                "Polyak's step is found by reading the loss and norms of the gradient, which"
                ' capturable=True and torch.compile do not allow: use step_rule="normalized"'
            )

    def _list_tensors(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        step = ("step",) if group["state_dtype"] is torch.bfloat16 else ()
        return (*step, "momentum_buffer") if group["momentum"] else step

    def _average(
        self, batches: Sequence[AnyBatch], loss: float | Tensor | None
    ) -> float | Tensor | None:
        """The loss that Polyak's rule gets: the mean over processes that share the training."""
        ours = [batch for batch in batches if batch.group["step_rule"] == "polyak"]
        if loss is None or not ours or not is_distributed():
            return loss
        owners = [owner for batch in ours for owner in batch.owners]
        over = ours[0].group["loss_over"]
        if over is None and not self._has_warned and not any(map(is_sharded, owners)):
            self._has_warned = True
            warnings.warn(
                "several processes train, and Polyak's step is taken from the loss of each: with"
                ' DDP their weights drift apart. Give loss_over="world" to average it, or "rank" if'
                " you do so yourself",
                MirrorMarginWarning,
                stacklevel=5,
            )
        return average_loss(as_number(loss), owners, over_world=over == "world")

    def _is_loss_admitted(self, batches: Sequence[AnyBatch], loss: float | Tensor | None) -> bool:
        """Whether Polyak's rule may use this loss, by the groups' policy on nan and inf."""
        groups = [batch.group for batch in batches if batch.group["step_rule"] == "polyak"]
        policies = {group["nonfinite"] for group in groups} - {"propagate"}
        if loss is None or not policies or math.isfinite(as_number(loss)):
            return True
        if "raise" in policies:
            raise NonFiniteGradientError(f"the loss is {as_number(loss)}; no parameter was changed")
        return False


def _want(batch: AnyBatch) -> Wanted | None:
    """The norm of the gradients that the batch's step divides by."""
    group, rule = batch.group, batch.group["step_rule"]
    if rule == "constant":
        return want_clipping(batch)
    if rule == "normalized":
        return find_dual_exponent(batch), group["norm_over"] == "group"
    return 2.0 if group["polyak"] == "bregman" else find_dual_exponent(batch), True


def _find_decay(length: Any, decay: float) -> Any:
    """max(0, 1 - length decay), the factor of u."""
    if isinstance(length, Tensor):
        return (1.0 - length * decay).clamp(min=0.0) if decay else 1.0
    return max(0.0, 1.0 - length * decay)
