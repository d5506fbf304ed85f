r"""Adam's direction taken as a step in the dual: AdamW at p = 2, sparse weights at p near 1.

    m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
    u <- (1 - lr weight_decay) u - lr m^ / (sqrt(v^) + eps),       w = to_primal(u)

with m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mirrormargin.arguments import check_number
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.batch import Batch
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer

__all__ = ["MirrorAdam"]


class MirrorAdam(MirrorOptimizer):
    """The adaptive mirror optimizer: trains as fast as AdamW, in the geometry of p.

    Args:
        params: Parameters, named parameters, or groups (see :func:`mirrormargin.param_groups`).
            Every option below may differ between groups.
        lr: Step size in the dual.
        p: Exponent, ``1 < p < inf``; p = 2 is ``torch.optim.AdamW``.
        betas: Decay rates of the two moments.
        eps: Added to the denominator.
        weight_decay: Decoupled, on the dual: ``u <- (1 - lr weight_decay) u``. (AdamW's default
            is 0.01, this one's 0.)
        amsgrad: Divide by the largest second moment seen so far.
        scale: As in :class:`mirrormargin.MirrorDescent`.
        potential: As in :class:`mirrormargin.MirrorDescent`.
        maximize: Climb instead of descend.
        nonfinite: As in :class:`mirrormargin.MirrorDescent`.
        foreach: As in :class:`mirrormargin.MirrorDescent`.
        fused: As in :class:`mirrormargin.MirrorDescent`.

    Raises:
        OptimizerError: For a hyper-parameter, gradient or state that cannot be used; parameters
            are untouched then.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        >>> optimizer = MirrorAdam([weight], lr=0.1, p=1.5)
        >>> weight.sum().backward(); _ = optimizer.step()
        >>> [round(x, 4) for x in weight.tolist()]
        [0.81, -2.2928]
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        p: float = 2.0,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        scale: float | str | None = None,
        potential: Any = None,
        maximize: bool = False,
        nonfinite: str = "propagate",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = dict(locals())
        for name in ("self", "params", "__class__"):
            defaults.pop(name)
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        check_number("eps", group["eps"], least=0.0, error=OptimizerError)
        try:
            beta1, beta2 = group["betas"]
        except (TypeError, ValueError):
            raise OptimizerError(f"betas is {group['betas']!r}: give two numbers") from None
        check_number("betas[0]", beta1, least=0.0, below=1.0, error=OptimizerError)
        check_number("betas[1]", beta2, least=0.0, below=1.0, error=OptimizerError)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; the closure, if any, is called once, with gradients enabled."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        batches = self._make_batches()
        if self._is_admitted(batches):
            for batch in batches:
                self._step_batch(batch)
            self._remember(batches)
        return loss

    def _step_batch(self, batch: Batch) -> None:
        group = batch.group
        beta1, beta2 = (float(beta) for beta in group["betas"])
        lr = float(group["lr"])
        for state in batch.states:
            state["step"] = int(state.get("step", 0)) + 1
        times = [state["step"] for state in batch.states]
        batch.path.mirror_adam(
            batch.params,
            batch.grads,
            batch.duals,
            batch.tensors("exp_avg"),
            batch.tensors("exp_avg_sq"),
            batch.tensors("max_exp_avg_sq") if group["amsgrad"] else None,
            potential=batch.potential,
            lrs=[lr / (1 - beta1**t) / k for t, k in zip(times, batch.kappas, strict=True)],
            sq_corrections=[(1 - beta2**t) ** -0.5 for t in times],
            decay=1.0 - lr * float(group["weight_decay"]),
            betas=(beta1, beta2),
            eps=float(group["eps"]),
            maximize=bool(group["maximize"]),
        )
