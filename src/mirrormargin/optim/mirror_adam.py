r"""Adam's direction taken as a step in the dual: AdamW at p = 2, sparse weights at p near 1.

    m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
    u <- (1 - lr weight_decay) u - lr m^ / (sqrt(v^) + eps),       w = to_primal(u)

with m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t). A finite gradient above 2^63 = 9.2e18
(2^511 for float64 weights) counts as that number: its square would leave the range of v, and an
infinite v would stop the weight for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from mirrormargin.arguments import check_flag, check_function, check_number, show
from mirrormargin.errors import OptimizerError
from mirrormargin.geometry import Potential
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer, NonFinite, select_options
from mirrormargin.optim.tensor_batch import Batch

__all__ = ["MirrorAdam"]


class MirrorAdam(MirrorOptimizer):
    """Adam in the geometry of p. The default, p = 2, is ``torch.optim.AdamW`` without decay.

    Take p = 1.05 to 1.1 for weights of which few are needed, and leave p = 2 for tensors that
    start at zero, which hardly move near p = 1: :func:`mirrormargin.mirror_groups` sorts the
    parameters of any model so.

        optimizer = MirrorAdam(mirror_groups(model, p=1.1), lr=1e-3)

    AdamW's learning rate is a good first try at every p from 1.05 to 2, three times it a second;
    at p = 3 take a third. p above 2 spreads the weights.

    Finite gradients above 9.2e18 in float32, bfloat16 or float16, and above 6.7e153 in float64,
    are clipped to that: v cannot hold their squares.

    Args:
        params: Groups (see :func:`mirrormargin.mirror_groups`), named parameters, or parameters.
            Every option below may differ between groups.
        lr: Step size in the dual u = sign(w) |w|^(p-1).
        p: Exponent, ``1 < p < inf``. May be changed between steps.
        betas: Decay rates of the averages of g and g^2.
        eps: Added to the denominator.
        weight_decay: Decoupled, on the dual: ``u <- (1 - lr weight_decay) u``. The default is 0,
            AdamW's is 0.01.
        amsgrad: Divide by the largest average of g^2 so far.
        scale: Fixed scale of the potential (see :class:`mirrormargin.LpPotential`): a number,
            ``"rms"`` for the root mean square of each initial tensor, or None.
        potential: Another :class:`mirrormargin.Potential` instead of p and scale.
        maximize: Climb instead of descend.
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
        scale: float | Literal["rms"] | None = None,
        potential: Potential | None = None,
        maximize: bool = False,
        nonfinite: NonFinite = "propagate",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, select_options(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        check_flag("amsgrad", group["amsgrad"], error=OptimizerError)
        check_number("eps", group["eps"], least=0.0, error=OptimizerError)
        try:
            beta1, beta2 = group["betas"]
        except Exception:  # objects may raise what they like
            raise OptimizerError(f"betas is {show(group['betas'])}: give two numbers") from None
        check_number("betas[0]", beta1, least=0.0, below=1.0, error=OptimizerError)
        check_number("betas[1]", beta2, least=0.0, below=1.0, error=OptimizerError)

    def _list_state(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        more = ("max_exp_avg_sq",) if group["amsgrad"] else ()
        return ("step", "exp_avg", "exp_avg_sq", *more)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Args:
            closure: Evaluates the model and returns the loss; called once, with gradients enabled.

        Returns:
            The closure's loss.
        """
        loss = None
        if closure is not None:
            check_function("closure", closure, "closure()", error=OptimizerError)
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
