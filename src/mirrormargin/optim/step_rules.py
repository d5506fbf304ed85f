r"""How long a step is.

constant:     u <- u - lr g
normalized:   u <- u - lr g / ||g||_q,  the dual norm over one tensor or over a group
polyak:       u <- u - lr_k g,  where  < g, w - to_primal(u - lr_k g) > = lr (L - f_min)_+

Polyak's rule is the Bregman projection on the half-space where the linearised loss is at most
its floor. The left side grows with lr_k, so the root is unique; at p = 2 it is the classical
lr (L - f_min) / ||g||^2. ``polyak="dual_norm"`` takes (L - f_min) / ||g||_q^2 at every p, which
changes when the units of the data do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from mirrormargin.geometry.norms import scaled_power_sum

__all__ = ["dual_norms", "polyak_root"]


def dual_norms(
    grads: list[Tensor], exponent: float, compiled: list[bool], together: bool = False
) -> list[float]:
    """||g||_q of each gradient, or the norm of all of them once for each.

    Args:
        grads: The gradients.
        exponent: q.
        compiled: Which of them the compiled kernel may read (dense float32 on the CPU).
        together: Whether to take the norm over all tensors.
    """
    largest, sums = np.zeros(len(grads)), np.zeros(len(grads))
    fast = [i for i, is_compiled in enumerate(compiled) if is_compiled]
    if fast:
        from mirrormargin.geometry.sums import scaled_power_sums

        largest[fast], sums[fast] = scaled_power_sums([grads[i] for i in fast], exponent)
    for i in sorted(set(range(len(grads))) - set(fast)):
        largest[i], sums[i] = scaled_power_sum(grads[i], exponent)
    if not together:
        return [float(m * s ** (1 / exponent)) for m, s in zip(largest, sums, strict=True)]
    top = float(np.max(largest, initial=0.0))
    if top == 0 or not math.isfinite(top):
        return [top] * len(grads)
    # Sums are relative to their own tensor's largest entry: combined, nothing overflows.
    total = float(np.sum(sums * (largest / top) ** exponent))
    return [top * total ** (1 / exponent)] * len(grads)


def polyak_root(
    decrease: Callable[[float], float], target: float, guess: float, max_lr: float
) -> float:
    """Solve ``decrease(lr) = target`` for an increasing function with ``decrease(0) = 0``.

    In logarithms the function is nearly straight (linear for short steps, a power of lr for
    long ones), so a bracketed secant there takes a handful of evaluations.

    Args:
        decrease: Predicted decrease < g, w - to_primal(u - lr g) > of the linearised loss.
        target: lr (L - f_min)_+ of the rule.
        guess: Where to look first, > 0.
        max_lr: The cap; returned if the root lies above it.
    """
    if target <= 0 or max_lr <= 0:
        return 0.0
    if math.isnan(target):
        return math.nan
    cap = min(max_lr, 1e300)
    low, high = math.log(1e-300), math.log(cap)

    def excess(log_lr: float) -> float:
        value = decrease(math.exp(log_lr))
        if math.isnan(value) or value == math.inf:  # only overflow makes nan here
            return math.inf
        return math.log(value) - math.log(target) if value > 0 else -math.inf

    if math.isinf(target):
        return cap
    x = min(max(math.log(guess), low), high) if 0 < guess < math.inf else high
    fx = excess(x)
    # Bracket the root, doubling the stride: a finds too little decrease, b too much.
    a, b, fa, fb, stride = x, x, fx, fx, 0.5
    while fb < 0:
        if b == high:
            return cap
        a, fa = b, fb
        b = min(b + stride, high)
        fb, stride = excess(b), 2 * stride
    stride = 0.5
    while fa > 0:
        if a == low:
            return 0.0
        b, fb = a, fa
        a = max(a - stride, low)
        fa, stride = excess(a), 2 * stride
    side = 0
    for _ in range(200):
        if fa == 0 or b - a <= 1e-14 * max(1.0, abs(a)):
            return math.exp(a)
        if fb == 0:
            return math.exp(b)
        finite = math.isfinite(fa) and math.isfinite(fb)
        c = (a * fb - b * fa) / (fb - fa) if finite else (a + b) / 2
        c = c if a < c < b else (a + b) / 2
        fc = excess(c)
        if abs(fc) <= 1e-13:
            return math.exp(c)
        # Illinois: halve the weight of an end that stays twice, or the other never moves.
        if fc < 0:
            a, fa = c, fc
            fb = fb / 2 if side < 0 else fb
            side = -1
        else:
            b, fb = c, fc
            fa = fa / 2 if side > 0 else fa
            side = 1
    return math.exp((a + b) / 2)
