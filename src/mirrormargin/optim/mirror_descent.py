r"""Mirror descent on (1/p)||w||_p^p as a torch optimizer.

    u = sign(w) |w|^(p-1)
    u <- u - (step) * g            step: lr, lr / ||g||_q, or Polyak's root
    w = sign(u) |u|^(1/(p-1))

At p = 2 this is stochastic gradient descent, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from mirrormargin.arguments import (
    StepRule,
    check_choice,
    check_flag,
    check_function,
    check_number,
)
from mirrormargin.errors import NonFiniteGradientError, OptimizerError
from mirrormargin.geometry import LpPotential, Potential
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer, NonFinite, select_options
from mirrormargin.optim.polyak import as_number, find_polyak_multiplier
from mirrormargin.optim.tensor_batch import Batch

__all__ = ["MirrorDescent"]

_STEP_RULES = get_args(StepRule)


class MirrorDescent(MirrorOptimizer):
    r"""Drop-in optimizer whose exponent ``p`` chooses the geometry of training.

    p near 1 gives sparse weights that can be pruned; p = 2 is SGD; large p spreads the weights.
    After a step ``effective_lr`` holds the length of the step of each group.

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
        norm_over: ``"tensor"`` normalizes each tensor on its own, ``"group"`` all tensors of a
            group together (SNGD is p = 2 over the group).
        polyak: ``"bregman"``, or ``"dual_norm"`` for ``(L - f_min) / ||g||_q^2``, which depends
            on the units of the data unless p = 2.
        f_min: The loss that Polyak's rule aims for. 0 is too low for most models: a run that
            cannot reach it takes longer and longer steps, so give ``max_lr`` as well.
        max_lr: Largest step that Polyak's rule may take; None for no limit.
        maximize: Climb instead of descend (not with Polyak).
        nonfinite: What to do when a gradient holds nan or inf: ``"propagate"`` it as torch does,
            ``"raise"`` an error, or ``"skip"`` the step. The last two change no parameter.
        foreach: Use torch's multi-tensor operations: for many small tensors on an accelerator.
        fused: Use compiled code, for dense float32 tensors on the CPU. None, the default, uses it
            wherever it can be used.

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
        norm_over: Literal["tensor", "group"] = "tensor",
        polyak: Literal["bregman", "dual_norm"] = "bregman",
        f_min: float = 0.0,
        max_lr: float | None = None,
        maximize: bool = False,
        nonfinite: NonFinite = "propagate",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = select_options(locals())
        self.effective_lr: list[float] = []
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.effective_lr = [float(group["lr"]) for group in self.param_groups]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.effective_lr.append(float(self.param_groups[-1]["lr"]))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        check_choice("step_rule", group["step_rule"], _STEP_RULES, error=OptimizerError)
        check_choice("norm_over", group["norm_over"], ("tensor", "group"), error=OptimizerError)
        check_choice("polyak", group["polyak"], ("bregman", "dual_norm"), error=OptimizerError)
        check_number("momentum", group["momentum"], least=0.0, below=1.0, error=OptimizerError)
        check_number("f_min", group["f_min"], error=OptimizerError)
        if group["max_lr"] is not None:
            check_number("max_lr", group["max_lr"], above=0.0, hint="or None", error=OptimizerError)
        check_flag("nesterov", group["nesterov"], error=OptimizerError)
        if group["nesterov"] and not group["momentum"]:
            raise OptimizerError("nesterov=True needs momentum: give a number above 0")
        rule = group["step_rule"]
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
            loss: The loss at the current weights, for Polyak's rule without a closure.

        Returns:
            The closure's loss, or ``loss``.
        """
        if closure is not None:
            check_function("closure", closure, "closure()", error=OptimizerError)
            with torch.enable_grad():
                loss = closure()
        elif loss is not None:
            as_number(loss)  # refuses what is none, whether the rule needs it or not
        batches = self._make_batches()
        if not self._is_admitted(batches) or not self._is_loss_admitted(batches, loss):
            return loss
        norms = _find_norms(batches)
        # Only groups with step_rule="polyak" have a multiplier; the step of the others is lr.
        multiplier = find_polyak_multiplier(batches, norms, loss)
        lengths = [
            float(group["lr"]) * (multiplier if group["step_rule"] == "polyak" else 1.0)
            for group in self.param_groups
        ]
        for batch, its_norms in zip(batches, norms, strict=True):
            self._step_batch(batch, lengths[batch.number], its_norms)
        self._remember(batches)
        self.effective_lr = lengths
        return loss

    def _step_batch(self, batch: Batch, length: float, norms: list[float]) -> None:
        group, rule = batch.group, batch.group["step_rule"]
        decay, momentum = float(group["weight_decay"]), float(group["momentum"])
        if rule == "normalized":
            lr, grad_scales = length, [_invert(norm) for norm in norms]
        elif rule == "polyak":
            lr, grad_scales = 1.0, [(1.0, length)] * len(batch.params)  # momentum averages these
        else:
            lr, grad_scales = length, [(1.0, 1.0)] * len(batch.params)
        if group["maximize"]:
            grad_scales = [(first, -second) for first, second in grad_scales]
        coupled = decay if rule == "constant" else 0.0
        batch.path.mirror_descent(
            batch.params,
            batch.grads,
            batch.duals,
            batch.tensors("momentum_buffer") if momentum else None,
            potential=batch.potential,
            grad_scales=grad_scales,
            lrs=[lr / kappa for kappa in batch.kappas],
            coupled_decays=[coupled * kappa for kappa in batch.kappas],
            decay=1.0 if rule == "constant" else max(0.0, 1.0 - length * decay),
            momentum=momentum,
            nesterov=bool(group["nesterov"]),
        )

    def _is_loss_admitted(self, batches: list[Batch], loss: float | Tensor | None) -> bool:
        """Whether Polyak's rule may use this loss, by the groups' policy on nan and inf."""
        groups = [batch.group for batch in batches if batch.group["step_rule"] == "polyak"]
        policies = {group["nonfinite"] for group in groups} - {"propagate"}
        if loss is None or not policies or math.isfinite(as_number(loss)):
            return True
        if "raise" in policies:
            raise NonFiniteGradientError(f"the loss is {as_number(loss)}; no parameter was changed")
        return False


# The norms that step rules divide by, with 1/p + 1/q = 1:
#
#     normalized:    ||g||_q of each tensor, or of its whole group
#     polyak:        ||g||_2 of the group, or ||g||_q with polyak="dual_norm"
#
# With polyak="bregman" the l2 norm gives the step only at p = 2; elsewhere it just seeds the search
# for the root.
#
# Each comes from two parts of every tensor, m = max |g| and s = sum (|g| / m)^q, which combine over
# tensors without overflow.

_Parts = tuple[np.ndarray, np.ndarray]
_TINY = 2.0**-100


def _find_norms(batches: Sequence[Batch]) -> list[list[float]]:
    """For each batch the norm that its step rule asks for, of every gradient.

    Where the rule asks for the norm of the whole group, each tensor gets that; where it asks for
    none, the list is empty. The parts of all tensors are known before any norm is made of them:
    gradients that are spread over several processes need a single reduction in between.
    """
    measured = [(batch, _measure(batch)) for batch in batches]
    norms: list[list[float]] = []
    for _, members in groupby(measured, key=lambda pair: pair[0].number):
        norms += _combine(list(members))
    return norms


def _measure(batch: Batch) -> _Parts | None:
    """m and s of each gradient; None where no norm is asked for, or it is not made of those."""
    exponent = _find_exponent(batch)
    return None if exponent is None else batch.path.scaled_power_sums(batch.grads, exponent)


def _find_exponent(batch: Batch) -> float | None:
    rule = batch.group["step_rule"]
    if rule == "polyak" and batch.group["polyak"] == "bregman":
        return 2.0
    if rule == "constant" or not isinstance(batch.potential, LpPotential):
        return None
    return batch.potential.dual_exponent


def _combine(measured: list[tuple[Batch, _Parts | None]]) -> list[list[float]]:
    """The norms of one group, batch by batch."""
    batches = [batch for batch, _ in measured]
    parts = [part for _, part in measured if part is not None]
    group, exponent = batches[0].group, _find_exponent(batches[0])
    if group["step_rule"] == "constant":
        return [[] for _ in batches]
    together = group["step_rule"] == "polyak" or group["norm_over"] == "group"
    if exponent is None:
        return _measure_by_potential(batches, together)
    if not together:
        return [
            [float(m * s ** (1 / exponent)) for m, s in zip(largest, sums, strict=True)]
            for largest, sums in parts
        ]
    largest, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    top = norm = float(np.max(largest))
    if 0 < top < math.inf:
        norm = top * float(np.sum(sums * (largest / top) ** exponent)) ** (1 / exponent)
    return [[norm] * len(batch.params) for batch in batches]


def _measure_by_potential(batches: list[Batch], together: bool) -> list[list[float]]:
    """The same by the ``dual_norm`` of a potential that has its own."""
    potential: Any = batches[0].potential
    if not together:
        return [[float(potential.dual_norm(grad)) for grad in b.grads] for b in batches]
    everything = torch.cat([grad.flatten() for batch in batches for grad in batch.grads])
    norm = float(potential.dual_norm(everything))
    return [[norm] * len(batch.params) for batch in batches]


def _invert(norm: float) -> tuple[float, float]:
    """1 / norm as two factors; 0 for a zero gradient, which makes no step.

    One factor would overflow for denormal gradients. Pinned by
    ``test_a_normalized_step_has_dual_length_lr``.
    """
    if norm == 0:
        return 1.0, 0.0
    return (1.0, 1 / norm) if norm > _TINY else (1 / _TINY, _TINY / norm)
