r"""Mirror descent on (1/p)||w||_p^p as a torch optimizer.

    u = sign(w) |w|^(p-1)
    u <- u - (step) * g            step: lr, lr / ||g||_q, or Polyak's root
    w = sign(u) |u|^(1/(p-1))

At p = 2 this is stochastic gradient descent, bit patterns apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mirrormargin.errors import NonFiniteGradientError, OptimizerError
from mirrormargin.geometry import LpPotential
from mirrormargin.optim.item import Item, by_path
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer, check_choice, check_number
from mirrormargin.optim.plain import foreach_mirror_descent, plain_mirror_descent
from mirrormargin.optim.step_rules import dual_norms, polyak_root

__all__ = ["MirrorDescent"]

_Batches = list[tuple[dict[str, Any], list[Item]]]


class MirrorDescent(MirrorOptimizer):
    r"""Drop-in optimizer whose exponent ``p`` chooses the geometry of training.

    p near 1 gives sparse, prunable weights; p = 2 is SGD; large p spreads the weights.

    Args:
        params: Parameters, named parameters, or groups (see :func:`mirrormargin.param_groups`).
            Every option below may differ between groups.
        lr: Step size in the dual; with ``step_rule="polyak"`` the factor of Polyak's target,
            1 being the classical rule.
        p: Exponent, ``1 < p < inf``. May be changed between steps.
        step_rule: ``"constant"``; ``"normalized"``, the gradient divided by its dual norm;
            ``"polyak"``, the Bregman projection on the half-space where the linearised loss is
            ``f_min`` (needs the loss: a closure or ``step(loss=...)``).
        momentum: Heavy-ball factor in the dual. It averages the already normalized (Polyak:
            already scaled) gradient.
        nesterov: Look one momentum step ahead.
        weight_decay: With constant steps exact mirror descent on ``L + weight_decay * psi``, that
            is ``weight_decay * u`` added to the gradient (SGD's at p = 2). With the other rules
            the direction comes from the gradient alone and u is multiplied by
            ``1 - step * weight_decay``, where step is lr or Polyak's step.
        scale: Fixed scale of the potential (:class:`mirrormargin.LpPotential`): a number,
            ``"rms"`` of each initial tensor, or None.
        potential: Another :class:`mirrormargin.Potential` instead of p and scale.
        norm_over: ``"tensor"`` normalizes each tensor on its own, ``"group"`` all of a group
            together (SNGD is p = 2 over the group).
        polyak: ``"bregman"``, or ``"dual_norm"`` for ``(L - f_min) / ||g||_q^2``, which depends
            on the units of the data unless p = 2.
        f_min: The loss that Polyak's rule aims for. 0 is too low for most models: a run that
            cannot reach it takes ever longer steps, so give ``max_lr`` as well.
        max_lr: Cap of Polyak's step; None for none.
        maximize: Climb instead of descend (not with Polyak).
        nonfinite: What to do with a gradient that holds nan or inf: ``"propagate"`` as torch
            does, ``"raise"``, or ``"skip"`` the step. The last two change no parameter.
        foreach: Use torch's multi-tensor operations; for many small tensors on accelerators.
        fused: Use the compiled path; by default wherever it can be (dense float32 on the CPU).

    Raises:
        OptimizerError: For a hyper-parameter, gradient or state that cannot be used; parameters
            are untouched then.

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
        step_rule: str = "constant",
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        scale: float | str | None = None,
        potential: Any = None,
        norm_over: str = "tensor",
        polyak: str = "bregman",
        f_min: float = 0.0,
        max_lr: float | None = None,
        maximize: bool = False,
        nonfinite: str = "propagate",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = dict(locals())
        for name in ("self", "params", "__class__"):
            defaults.pop(name)
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
        check_choice(group, "step_rule", ("constant", "normalized", "polyak"))
        check_choice(group, "norm_over", ("tensor", "group"))
        check_choice(group, "polyak", ("bregman", "dual_norm"))
        check_number(group, "momentum", 0.0, 1.0, "a number in [0, 1)")
        check_number(group, "f_min", -math.inf, math.inf, "a finite number", strict=True)
        if group["max_lr"] is not None:
            check_number(group, "max_lr", 0.0, math.inf, "None or a number > 0", strict=True)
        if group["nesterov"] and not group["momentum"]:
            raise OptimizerError("nesterov=True needs momentum > 0")
        rule = group["step_rule"]
        if rule == "polyak" and group["maximize"]:
            raise OptimizerError("Polyak steps aim for the least loss: minimize -loss instead")
        needs_norm = rule == "normalized" or (rule == "polyak" and group["polyak"] == "dual_norm")
        if needs_norm and not hasattr(self._potential(group), "dual_norm"):
            raise OptimizerError(
                f"{group['potential']!r} has no dual norm, which this step rule needs: use "
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
            closure: Re-evaluates the model and returns the loss; called once, with gradients.
            loss: The loss at the current weights, for Polyak's rule, if there is no closure.

        Returns:
            The closure's loss, or ``loss``.
        """
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        batches = list(self._items())
        if not self._is_admitted(batches) or not self._is_loss_admitted(batches, loss):
            return loss
        polyak = self._polyak_multiplier(batches, loss)
        lengths = [
            float(group["lr"]) * (polyak if group["step_rule"] == "polyak" else 1.0)
            for group, _ in batches
        ]
        for (group, items), length in zip(batches, lengths, strict=True):
            if items:
                self._step_group(group, items, length)
        self._remember(batches)
        self.effective_lr = lengths
        return loss

    def _step_group(self, group: dict[str, Any], items: list[Item], length: float) -> None:
        decay, rule = float(group["weight_decay"]), group["step_rule"]
        if rule == "normalized":
            lr, grad_scales = length, _inverse_norms(group, items)
        elif rule == "polyak":
            lr, grad_scales = 1.0, [(1.0, length)] * len(items)  # momentum averages these
        else:
            lr, grad_scales = length, [(1.0, 1.0)] * len(items)
        if group["maximize"]:
            grad_scales = [(first, -second) for first, second in grad_scales]
        columns: list[list[Any]] = [
            [item.param for item in items],
            [item.grad for item in items],
            [self._dual(group, item) for item in items],
            [item.zeros("momentum_buffer") if group["momentum"] else None for item in items],
            grad_scales,
            [lr / item.factor for item in items],
            [decay * item.factor if rule == "constant" else 0.0 for item in items],
        ]
        for path, (*tensors, scales, lrs, coupled_decays) in by_path(items, columns):
            _path_function(path)(
                *tensors,
                potential=self._potential(group),
                grad_scales=scales,
                lrs=lrs,
                coupled_decays=coupled_decays,
                decay=1.0 if rule == "constant" else max(0.0, 1.0 - length * decay),
                momentum=float(group["momentum"]),
                nesterov=bool(group["nesterov"]),
            )

    def _is_loss_admitted(self, batches: _Batches, loss: Any) -> bool:
        """Whether Polyak's rule may use this loss, after the groups' policy on nan and inf."""
        groups = [group for group, items in batches if group["step_rule"] == "polyak" and items]
        policies = {group["nonfinite"] for group in groups} - {"propagate"}
        if loss is None or not policies or math.isfinite(_number(loss)):
            return True
        if "raise" in policies:
            raise NonFiniteGradientError(f"the loss is {_number(loss)}; no parameter was changed")
        return False

    def _polyak_multiplier(self, batches: _Batches, loss: Any) -> float:
        """The number that turns each Polyak group's lr into its step.

        All Polyak groups share one loss, so they share one root; groups with different lr step
        in proportion to them.
        """
        ours = [
            (group, items)
            for group, items in batches
            if group["step_rule"] == "polyak" and items and float(group["lr"]) > 0
        ]
        top = max((float(group["lr"]) for group, _ in ours), default=0.0)
        norms = [_norm(group, items) for group, items in ours]
        if top == 0 or not any(norms):  # nothing to step, or nowhere to go
            return 0.0
        first = ours[0][0]
        for name in ("f_min", "max_lr", "polyak"):
            if any(group[name] != first[name] for group, _ in ours):
                raise OptimizerError(
                    f"groups with Polyak steps share one loss: their {name} must be equal"
                )
        if loss is None:
            raise OptimizerError(
                "Polyak steps need the loss: pass a closure, or call step(loss=loss)"
            )
        gap = _number(loss) - float(first["f_min"])
        if math.isnan(gap):
            return math.nan
        target = top * max(gap, 0.0)
        cap = math.inf if first["max_lr"] is None else float(first["max_lr"]) / top
        # sum of lr ||g||^2 with the largest norm taken out: the squares underflow.
        largest = max(norms)
        lrs = [float(group["lr"]) for group, _ in ours]
        spread = sum(lr * (norm / largest) ** 2 for lr, norm in zip(lrs, norms, strict=True))
        quotient = target / largest / spread / largest
        plain = all(group["potential"] is None and group["p"] == 2 for group, _ in ours)
        if plain or first["polyak"] == "dual_norm":
            return min(quotient, cap)
        return polyak_root(self._decrease(ours), target, quotient, cap)

    def _decrease(self, batches: _Batches) -> Callable[[float], float]:
        """k -> < g, w - to_primal(u - k lr g) >, summed over all tensors in float64."""
        terms = []
        for group, items in batches:
            potential, lr = self._potential(group), float(group["lr"])
            for item in items:
                dual = self._dual(group, item)
                u = potential.to_dual(item.param.double()) if dual is None else dual.double()
                gradient = item.grad.double()
                step = gradient * (lr / item.factor)
                terms.append((potential, potential.to_primal(u), u, gradient, step))

        def decrease(k: float) -> float:
            return sum(
                float((g * (w - potential.to_primal(u - k * step))).sum())
                for potential, w, u, g, step in terms
            )

        return decrease


def _norm(group: dict[str, Any], items: list[Item]) -> float:
    """||g||_2 of a Polyak group, or its dual norm under ``polyak="dual_norm"``."""
    if group["polyak"] == "dual_norm":
        return _dual_norms(group, items, together=True)[0]
    return dual_norms(_grads(items), 2.0, _compiled(items), together=True)[0]


def _inverse_norms(group: dict[str, Any], items: list[Item]) -> list[tuple[float, float]]:
    """1 / ||g||_q as two factors, of each tensor or of the group; 0 for a zero gradient: no step.

    Pinned by ``test_a_normalized_step_has_dual_length_lr``: one factor overflows for denormals.
    """
    norms = _dual_norms(group, items, group["norm_over"] == "group")
    return [
        (1.0, 0.0) if norm == 0 else (1.0, 1 / norm) if norm > _TINY else (1 / _TINY, _TINY / norm)
        for norm in norms
    ]


_TINY = 2.0**-100


def _dual_norms(group: dict[str, Any], items: list[Item], together: bool) -> list[float]:
    potential = group["potential"]
    if potential is None:
        exponent = LpPotential(group["p"]).dual_exponent
        return dual_norms(_grads(items), exponent, _compiled(items), together)
    grads = _grads(items)
    if together:
        everything = torch.cat([g.flatten() for g in grads])
        return [float(potential.dual_norm(everything))] * len(grads)
    return [float(potential.dual_norm(g)) for g in grads]


def _grads(items: list[Item]) -> list[Tensor]:
    return [item.grad for item in items]


def _compiled(items: list[Item]) -> list[bool]:
    return [item.path == "fused" for item in items]


def _number(loss: Any) -> float:
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def _path_function(path: str) -> Callable[..., None]:
    if path == "fused":
        from mirrormargin.optim.fused import fused_mirror_descent

        return fused_mirror_descent
    return foreach_mirror_descent if path == "foreach" else plain_mirror_descent
