r"""Adam's direction taken as a step in the dual: AdamW at p = 2, sparse weights at p near 1.

    m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
    u <- (1 - lr weight_decay) u - lr m^ / (sqrt(v^) + eps),       w = to_primal(u)

with m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t). A finite gradient above 2^63 = 9.2e18
(2^511 for float64 weights) counts as that number: its square would leave the range of v, and an
infinite v would stop the weight for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mirrormargin.arguments import check_flag, check_function, check_number, show
from mirrormargin.errors import OptimizerError
from mirrormargin.geometry import Potential
from mirrormargin.geometry.norms import widen
from mirrormargin.optim import caution as cautious
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer
from mirrormargin.optim.norms import as_pairs, clip_factors, find_norms, want_clipping
from mirrormargin.optim.options import NonFinite, NormOver, select_options
from mirrormargin.optim.plain import find_direction
from mirrormargin.optim.plain import state_dtype as find_dtype
from mirrormargin.optim.tensor_batch import AnyBatch

__all__ = ["MirrorAdam"]


class MirrorAdam(MirrorOptimizer):
    """Adam in the geometry of p. The default, p = 2, is ``torch.optim.AdamW`` without decay.

    Take p = 1.05 to 1.1 for weights of which few are needed, and leave p = 2 for tensors that
    start at zero, which hardly move near p = 1: :func:`mirrormargin.mirror_groups` sorts the
    parameters of any model so.

        optimizer = MirrorAdam(mirror_groups(model, p=1.1), lr=1e-3)

    With ``scale="rms"`` half of AdamW's learning rate is a good first try at every p. Without a
    scale take AdamW's for p from 1.1 to 1.5, a third of it at p = 1.05, and at p = 3 a tenth or
    less. p above 2 spreads the weights.

    Finite gradients above 9.2e18 in float32, bfloat16 or float16, and above 6.7e153 in float64,
    are clipped to that: v cannot hold their squares.

    Of bfloat16 and float16 weights u is kept in float32 at every p, as their master copy: steps too
    short to change a weight add up.

    Args:
        params: Groups (see :func:`mirrormargin.mirror_groups`), named parameters, or parameters.
            Every option below may differ between groups.
        lr: Step size in the dual u = sign(w) |w|^(p-1).
        p: Exponent, ``1 < p < inf``. May be changed between steps.
        betas: Decay rates of the averages of g and g^2; numbers or tensors.
        eps: Added to the denominator.
        weight_decay: Decoupled, on the dual: ``u <- (1 - lr weight_decay) u``. The default is 0,
            AdamW's is 0.01.
        amsgrad: Divide by the largest average of g^2 so far.
        scale: Fixed scale of the potential (see :class:`mirrormargin.LpPotential`): a number,
            ``"rms"`` for the root mean square of each initial tensor, or None.
        potential: Another :class:`mirrormargin.Potential` instead of p and scale.
        clip: Largest dual norm ||g||_q, q = p / (p - 1), of a gradient: a longer one is shortened
            to it. Shorter ones are taken as they are, to the bit. None for no limit.
        norm_over: ``"tensor"`` clips each tensor on its own, ``"group"`` all tensors of a group
            together.
        caution: Hold still the entries whose direction disagrees in sign with the gradient, and
            enlarge the step of the others to make up for them, at most 1000 times (cautious
            AdamW, Liang et al. 2024).
        maximize: Climb instead of descend.
        nonfinite: What to do when a gradient holds nan or inf: ``"propagate"`` it as torch does,
            ``"raise"`` an error, or ``"skip"`` the step. The last two change no parameter.
        state_dtype: ``torch.bfloat16`` keeps u, m and v in half the memory. The step is computed in
            float32, and its results are rounded up or down at random, so that short steps add up;
            the same run gives the same bits, also after a checkpoint. Where u is kept, a weight
            is as exact as the 8 bits of its u. None, the default, keeps float32, and float64 of
            float64 weights, for which nothing else is allowed.
        foreach: Use torch's multi-tensor operations: for many small tensors on an accelerator.
        fused: Use compiled code, for dense float32, bfloat16 or float16 tensors on the CPU, or on a
            GPU with Triton. None, the default, uses it wherever it can be used.
        center: Whether u is that of w - c, c being the weights at the first step, or those that
            :meth:`center_at` was given: u starts at 0, weights move only where gradients agree
            step after step, and decay draws them to c. Keeps c in the dtype of the weights.
        capturable: Take steps in plain torch operations that read nothing back from the device, as
            CUDA graphs need. The counts of steps are kept there, and lr and betas may be tensors,
            to be changed by ``fill_``. These checks of values are left out: of tensors as lr or
            betas (but for the constructor's), of weights too large for p, of tensors that start
            at 0, and of steps in a scaled potential that float32 cannot hold. ``scale="rms"``
            reads the weights once, in the first step.

    ``torch.compile(optimizer.step, fullgraph=True)`` compiles such steps, capturable or not, and
    does so once if the numbers that change are tensors. Compiled steps, and graphs that are
    replayed, do not notice what someone else writes into weights: call :meth:`resync` then.

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
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        scale: float | Literal["rms"] | None = None,
        potential: Potential | None = None,
        clip: float | None = None,
        norm_over: NormOver = "tensor",
        caution: bool = False,
        maximize: bool = False,
        nonfinite: NonFinite = "propagate",
        state_dtype: torch.dtype | None = None,
        foreach: bool | None = None,
        fused: bool | None = None,
        center: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, select_options(locals()))

    def _check_group(self, group: dict[str, Any], *, reads: bool = True) -> None:
        super()._check_group(group, reads=reads)
        check_flag("amsgrad", group["amsgrad"], error=OptimizerError)
        check_number("eps", group["eps"], least=0.0, error=OptimizerError)
        try:
            beta1, beta2 = group["betas"]
        except Exception:  # objects may raise what they like
            raise OptimizerError(f"betas is {show(group['betas'])}: give two numbers") from None
        for i, beta in enumerate((beta1, beta2)):
            if reads or not isinstance(beta, Tensor):
                check_number(f"betas[{i}]", beta, least=0.0, below=1.0, error=OptimizerError)

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
        batches = self._collect()
        if self._is_admitted(batches):
            grads = _clip(batches)
            for batch, its_grads in zip(batches, grads, strict=True):
                self._step_batch(batch, its_grads)
            self._remember(batches)
        return loss

    def _step_batch(self, batch: AnyBatch, grads: list[Tensor]) -> None:
        group = batch.group
        lr, (beta1, beta2) = group["lr"], group["betas"]
        batch.count_step()
        if batch.is_captured:
            times: list[Any] = [widen(step) for step in batch.steps]
        else:
            lr, beta1, beta2 = float(lr), float(beta1), float(beta2)
            times = [step.item() for step in batch.steps]
        lrs = [lr / (1 - beta1**t) / k for t, k in zip(times, batch.kappas, strict=True)]
        corrections = [(1 - beta2**t) ** -0.5 for t in times]
        decay: Any = 1.0 - lr * float(group["weight_decay"]) if group["weight_decay"] else 1.0
        path = batch.path
        options: dict[str, Any] = {
            "potential": batch.potential,
            "lrs": lrs,
            "sq_corrections": corrections,
            "decay": decay,
            "betas": (beta1, beta2),
            "eps": float(group["eps"]),
            "maximize": bool(group["maximize"]),
            **self._find_options(batch),
        }
        tensors = (
            batch.params,
            grads,
            batch.duals,
            batch.tensors("exp_avg"),
            batch.tensors("exp_avg_sq"),
            batch.tensors("max_exp_avg_sq") if group["amsgrad"] else None,
        )
        if group["caution"]:
            cautious.mirror_adam(path, batch.owners, *tensors, held=batch.held, **options)
        else:
            path.mirror_adam(*tensors, **options)
        batch.hide()


def _clip(batches: Sequence[AnyBatch]) -> list[list[Tensor]]:
    """The gradients of each batch, clipped where the group asks for it."""
    norms = find_norms(batches, [want_clipping(batch) for batch in batches])
    clipped = []
    for batch, its_norms in zip(batches, norms, strict=True):
        if its_norms is None:
            clipped.append(batch.grads)
            continue
        factors = as_pairs(clip_factors(float(batch.group["clip"]), its_norms), batch)
        tensors = [g.to(find_dtype(w)) for g, w in zip(batch.grads, batch.params, strict=True)]
        pairs = zip(tensors, factors, strict=True)
        clipped.append([find_direction(g, None, None, pair, 0.0, 0.0, False) for g, pair in pairs])
    return clipped
