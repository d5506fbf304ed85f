"""The step on a GPU: all tensors of a batch in one launch of a Triton kernel, no temporaries.

    x  = scale_1 scale_2 g + coupled u              (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit; c + to_primal(u') with c

For float32, bfloat16 and float16 weights; u, b, m and v are float32. The functions are those of
``plain.py``, which documents their arguments; ``reference.py`` has the formulas. This has run in
Triton's interpreter alone, never on a GPU.

Such kernels are limited by memory. With u as state, w is written and never read. Bytes per value,
for float32 weights (with bfloat16 and float16 2 less for each w and g, and u at every p):

    ===============================  ==============  ==============  =====
    kernel                           reads           writes          bytes
    ===============================  ==============  ==============  =====
    MirrorDescent, p = 1.5, 2, 3     w g             w                  12
    MirrorDescent, u as state        g u             u w                16
    the same with momentum           + b             + b                +8
    normalized steps                 + g                                +4
    MirrorAdam, p = 1.5, 2, 3        w g m v         w m v              28
    MirrorAdam, u as state           g u m v         u w m v            32
    the same with AMSGrad            + v_max         + v_max            +8
    weights with a centre            + c                                +4
    torch.optim.AdamW, fused         w g m v         w m v              28
    ===============================  ==============  ==============  =====
"""

# What Triton compiles is not quite Python.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportMissingImports=false
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mirrormargin.geometry import LpPotential
from mirrormargin.geometry.torch_powers import split_exponent
from mirrormargin.geometry.triton_kernels import (
    DTYPES,
    agree_on_type,
    find_address,
    find_block,
    find_number,
    launch,
    load_floats,
    load_number,
    store_floats,
)
from mirrormargin.geometry.triton_powers import (
    find_kind,
    power_tensors,
    scaled_power_sums,
    signed_power,
)
from mirrormargin.optim.plain import square_limit

__all__ = ["mirror_adam", "mirror_descent", "scaled_power_sums", "to_dual", "to_primal"]

takes_masks = False

# Options follow the constants of the power; rows of addresses, then rows of numbers.
_DECAY, _MOMENTUM = (tl.constexpr(9 + i) for i in range(2))
_BETA1, _REST1, _BETA2, _REST2, _EPS, _SIGN = (tl.constexpr(10 + i) for i in range(6))
_W, _G, _U, _C, _B = (tl.constexpr(i) for i in range(5))
_SCALE_1, _SCALE_2, _DESCENT_LR, _COUPLED = (tl.constexpr(5 + i) for i in range(4))
_M, _V, _V_MAX, _ADAM_LR, _CORRECTION = (tl.constexpr(4 + i) for i in range(5))

_LIMIT = tl.constexpr(square_limit(torch.float32))
_INFINITY = tl.constexpr(float("inf"))


def mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    buffers: list[Tensor] | None,
    *,
    potential: LpPotential,
    grad_scales: list[tuple[float, float]],
    lrs: list[float],
    coupled_decays: list[float],
    decay: float,
    momentum: float,
    nesterov: bool,
    centers: list[Tensor] | None = None,
) -> None:
    """Take one step of mirror descent; arguments as in ``plain.py``."""
    grads = list(agree_on_type(grads))
    first, second = zip(*grad_scales, strict=True)
    launch(
        descent_kernel,
        [params, grads, duals, centers, buffers],
        [first, second, lrs, coupled_decays],
        [*split_exponent(1 / (potential.p - 1)), decay, momentum],
        HAS_BUFFER=buffers is not None,
        NESTEROV=nesterov,
        **_find_variant(params, grads, duals, centers, potential.p),
    )
    torch.autograd.graph.increment_version(params)


def mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor] | None,
    *,
    potential: LpPotential,
    lrs: list[float],
    sq_corrections: list[float],
    decay: float,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
    centers: list[Tensor] | None = None,
) -> None:
    """Take one step of MirrorAdam; arguments as in ``plain.py``."""
    grads, (beta1, beta2) = list(agree_on_type(grads)), betas
    rates = [beta1, 1 - beta1, beta2, 1 - beta2, eps, -1.0 if maximize else 1.0]
    launch(
        adam_kernel,
        [params, grads, duals, centers, exp_avgs, exp_avg_sqs, max_exp_avg_sqs],
        [lrs, sq_corrections],
        [*split_exponent(1 / (potential.p - 1)), decay, *rates],
        AMSGRAD=max_exp_avg_sqs is not None,
        **_find_variant(params, grads, duals, centers, potential.p),
    )
    torch.autograd.graph.increment_version(params)


def to_dual(weight: Tensor, potential: LpPotential) -> Tensor:
    """u of a tensor, in float32."""
    return _power(weight, potential.p - 1)


def to_primal(dual: Tensor, potential: LpPotential) -> Tensor:
    """w of a tensor, in float32, to the bit as the step computes it from u."""
    return _power(dual, 1 / (potential.p - 1))


def _power(x: Tensor, r: float) -> Tensor:
    y = torch.empty_like(x, dtype=torch.float32)
    power_tensors([x], [y], r)
    return y


def _find_variant(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    centers: list[Tensor] | None,
    p: float,
) -> dict[str, Any]:
    """The compile-time constants that both kernels have."""
    return {
        "DUAL_KIND": 0 if duals is not None else find_kind(p - 1),  # 0: u is read
        "KIND": find_kind(1 / (p - 1)),
        "DTYPE": DTYPES[params[0].dtype],
        "GRAD_DTYPE": DTYPES[grads[0].dtype],
        "HAS_CENTER": centers is not None,
    }


@triton.jit
def descent_kernel(
    table, owners, num_tensors, out,
    HAS_BUFFER: tl.constexpr, NESTEROV: tl.constexpr,
    DUAL_KIND: tl.constexpr, KIND: tl.constexpr, DTYPE: tl.constexpr, GRAD_DTYPE: tl.constexpr,
    HAS_CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of mirror descent."""
    tensor, indices, mask = find_block(table, owners, num_tensors, BLOCK)
    scale_1 = find_number(table, num_tensors, tensor, _SCALE_1)
    scale_2 = find_number(table, num_tensors, tensor, _SCALE_2)
    coupled = find_number(table, num_tensors, tensor, _COUPLED)
    g = load_floats(find_address(table, num_tensors, tensor, _G), indices, mask, GRAD_DTYPE)
    u = _find_dual(table, num_tensors, tensor, indices, mask, DUAL_KIND, DTYPE)
    x = (g * scale_1) * scale_2
    x = tl.where(coupled != 0.0, tl.fma(coupled, u, x), x)  # 0 u is nan where u is infinite
    if HAS_BUFFER:
        mu, address = load_number(table, _MOMENTUM), find_address(table, num_tensors, tensor, _B)
        b = tl.fma(mu, load_floats(address, indices, mask, tl.float32), x)
        store_floats(address, indices, b, mask, tl.float32)
        x = tl.fma(mu, b, x) if NESTEROV else b
    lr = find_number(table, num_tensors, tensor, _DESCENT_LR)
    _move(table, num_tensors, tensor, indices, mask, u, x, lr, DUAL_KIND, KIND, DTYPE, HAS_CENTER)


@triton.jit
def adam_kernel(
    table, owners, num_tensors, out,
    AMSGRAD: tl.constexpr,
    DUAL_KIND: tl.constexpr, KIND: tl.constexpr, DTYPE: tl.constexpr, GRAD_DTYPE: tl.constexpr,
    HAS_CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of MirrorAdam."""
    tensor, indices, mask = find_block(table, owners, num_tensors, BLOCK)
    m_address = find_address(table, num_tensors, tensor, _M)
    v_address = find_address(table, num_tensors, tensor, _V)
    g = load_floats(find_address(table, num_tensors, tensor, _G), indices, mask, GRAD_DTYPE)
    m = load_floats(m_address, indices, mask, tl.float32)
    v = load_floats(v_address, indices, mask, tl.float32)
    u = _find_dual(table, num_tensors, tensor, indices, mask, DUAL_KIND, DTYPE)
    g = g * load_number(table, _SIGN)
    g = tl.where((g > _LIMIT) & (g < _INFINITY), _LIMIT, g)
    g = tl.where((g < -_LIMIT) & (g > -_INFINITY), -_LIMIT, g)
    beta1, rest1 = load_number(table, _BETA1), load_number(table, _REST1)
    beta2, rest2 = load_number(table, _BETA2), load_number(table, _REST2)
    # From the nearer end, as torch's lerp: a small g after a large m keeps its digits.
    m = tl.where(rest1 < 0.5, tl.fma(rest1, g - m, m), tl.fma(-beta1, g - m, g))
    v = tl.fma(rest2 * g, g, beta2 * v)
    store_floats(m_address, indices, m, mask, tl.float32)
    store_floats(v_address, indices, v, mask, tl.float32)
    if AMSGRAD:
        address = find_address(table, num_tensors, tensor, _V_MAX)
        v_max = load_floats(address, indices, mask, tl.float32)
        v = tl.where(v_max > v, v_max, v)
        store_floats(address, indices, v, mask, tl.float32)
    correction = find_number(table, num_tensors, tensor, _CORRECTION)
    x = tl.div_rn(m, tl.fma(tl.sqrt_rn(v), correction, load_number(table, _EPS)))
    lr = find_number(table, num_tensors, tensor, _ADAM_LR)
    _move(table, num_tensors, tensor, indices, mask, u, x, lr, DUAL_KIND, KIND, DTYPE, HAS_CENTER)


@triton.jit
def _find_dual(
    table, num_tensors, tensor, indices, mask, DUAL_KIND: tl.constexpr, DTYPE: tl.constexpr
):
    """u, read from the state, or computed from w by a closed form."""
    if DUAL_KIND == 0:
        u = load_floats(find_address(table, num_tensors, tensor, _U), indices, mask, tl.float32)
    else:
        w = load_floats(find_address(table, num_tensors, tensor, _W), indices, mask, DTYPE)
        u = signed_power(w, table, DUAL_KIND)
    return u


@triton.jit
def _move(
    table, num_tensors, tensor, indices, mask, u, x, lr,
    DUAL_KIND: tl.constexpr, KIND: tl.constexpr, DTYPE: tl.constexpr, HAS_CENTER: tl.constexpr,
):  # fmt: skip
    """Write u' and, where it differs from u, w'."""
    moved = tl.fma(-lr, x, load_number(table, _DECAY) * u)
    if DUAL_KIND == 0:
        address = find_address(table, num_tensors, tensor, _U)
        store_floats(address, indices, moved, mask, tl.float32)
    w = signed_power(moved, table, KIND)
    if HAS_CENTER:
        address = find_address(table, num_tensors, tensor, _C)
        w = load_floats(address, indices, mask, DTYPE) + w
    changed = mask & (moved != u) & (u == u)
    store_floats(find_address(table, num_tensors, tensor, _W), indices, w, changed, DTYPE)
