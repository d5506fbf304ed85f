r"""Optimizer steps of every kind against the literal formulas, from the same state each time.

After each step the state of the reference is set to that of the optimizer, so that what is compared
is one step:

    |u - u_ref|  <=  1e-6 max(|u_ref|, lr |x|)  +  what denormal numbers cannot hold
    |w - to_primal(u)|  <=  4 ulp

with the optimizer's own u, and to the bit the old w where u did not change. |x| is the direction
with the absolute values of its terms, since a sum that cancels keeps their rounding. Where u is not
part of the state (p = 1.5, 2, 3) w must lie between the images of ``u_ref`` plus and minus the
first bound, up to 4 ulp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

import mirrormargin as mm
from mirrormargin.errors import NonFiniteGradientError, OptimizerError
from mirrormargin.optim.reference import ReferenceMirrorAdam, ReferenceMirrorDescent
from tools.soak.trial import Outcome, Trial

__all__ = ["STEPS", "Case", "check_step", "make_case"]

ACCURACY = 1e-6
ULPS = 4
NUM_STEPS = 3
SHAPES = [(), (0,), (1,), (7,), (3, 5), (0, 4), (5, 1, 2), (2, 3, 4, 5), (129,), (33, 31), (5000,)]
DTYPES = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]
PATHS: list[dict[str, Any]] = [{}, {}, {"fused": False}, {"foreach": True}]
EXPONENTS = [1.02, 1.05, 1.1, 1.25, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0]


@dataclass
class Case:
    """An optimizer with its parameters, and the reference with parameters of its own."""

    kind: str
    options: dict[str, Any]
    path: dict[str, Any]
    nonfinite: str
    params: list[Tensor]
    scale: float  # of the gradients, as a power of ten
    holds_nonfinite: bool
    twins: list[Tensor] = field(default_factory=list)

    def describe(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        shapes = [tuple(p.shape) for p in self.params[:4]]
        return (
            f"{self.kind}({options}, {self.path}), {len(self.params)} tensors {shapes}"
            f" of {self.params[0].dtype}, gradients of 1e{self.scale:.0f}"
            f"{' and not finite' if self.holds_nonfinite else ''}, nonfinite={self.nonfinite}"
        )


def try_case(rng: Generator, folder: Path) -> Outcome:
    case = make_case(rng)
    optimizer, reference = build(case)
    what = case.describe()
    kind = "held"
    for _ in range(NUM_STEPS):
        loss = set_gradients(rng, case)
        before = [p.detach().clone() for p in case.params]
        finite = all(bool(p.grad.isfinite().all()) for p in case.params if p.grad is not None)
        sync(case, optimizer, reference)
        try:
            take_step(optimizer, loss)
        except NonFiniteGradientError:
            if finite or case.nonfinite != "raise":
                return Outcome("wrong", f"{what}: raises on finite gradients")
            kind = "refused"
        except OptimizerError as error:
            pairs = zip(case.params, before, strict=True)
            if not is_vast(case) or any(not _same(*pair) for pair in pairs):
                return Outcome("wrong", f"{what}: {error}")
            return Outcome("refused", f"{what}: {error}")
        if not finite and case.nonfinite != "propagate":
            if any(not _same(a, b) for a, b in zip(case.params, before, strict=True)):
                return Outcome("wrong", f"{what}: changes weights although the step is refused")
            kind = "refused"
            continue
        with np.errstate(all="ignore"):
            old, terms = list(reference.u), size_terms(case, reference)
            take_step(reference, loss)
            if case.options.get("step_rule") == "polyak":  # its length is known only now
                moves = [(new - u).abs() for new, u in zip(reference.u, old, strict=True)]
                terms = [(torch.maximum(x, d), q) for (x, q), d in zip(terms, moves, strict=True)]
        for i in range(len(case.params)):
            wrong = check_step(case, optimizer, reference, i, before[i], terms[i])
            if wrong is not None:
                return Outcome("wrong", f"{what}: tensor {i}: {wrong}")
    return Outcome(kind, what)


def is_vast(case: Case) -> bool:
    """Whether |w|^(p-1) of a weight is beyond the range of the state, or next to its end."""
    power = max(case.options["p"] - 1, 1.0)
    wide = torch.float64 if case.params[0].dtype is torch.float64 else torch.float32
    top = 0.999 * torch.finfo(wide).max ** (1 / power)
    return any(p.numel() > 0 and float(p.detach().double().abs().max()) > top for p in case.params)


def make_case(rng: Generator) -> Case:
    """Random optimizer, options, tensors and size of gradients."""
    p = float(rng.choice(EXPONENTS)) if rng.random() < 0.8 else float(1 + 10 ** rng.uniform(-2, 1))
    options: dict[str, Any] = {"lr": float(10 ** rng.uniform(-4, 0)), "p": p}
    if rng.random() < 0.3:
        options["weight_decay"] = float(rng.choice([0.01, 0.3]))
    if rng.random() < 0.2:
        options["scale"] = float(rng.choice([0.1, 1.0, 3.0]))
    kind = str(rng.choice(["adam", "descent"]))
    if kind == "adam":
        options["betas"] = (float(rng.choice([0.0, 0.9, 0.95])), float(rng.choice([0.9, 0.999])))
        options["eps"] = float(rng.choice([1e-8, 1e-8, 1e-6, 1e-3]))
        options["amsgrad"] = bool(rng.random() < 0.3)
    else:
        options["step_rule"] = str(rng.choice(["constant", "normalized", "polyak"]))
        if options["step_rule"] == "normalized":
            options["norm_over"] = str(rng.choice(["tensor", "group"]))
        if rng.random() < 0.4:
            options["momentum"] = 0.9
            options["nesterov"] = bool(rng.random() < 0.5)
    if options.get("step_rule") == "polyak":
        options["lr"] = float(rng.choice([0.5, 1.0]))
        options["max_lr"] = 1e3
    else:
        options["maximize"] = bool(rng.random() < 0.2)
    dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    count = int(rng.choice([1, 1, 2, 5, 20]))
    exponent = 0.0 if rng.random() < 0.6 else float(rng.uniform(-38, 30))
    # In one of ten cases u = |w|^(p-1) may leave the range of the state.
    top = (300 if dtype is torch.float64 else 37) / max(p - 1, 1.0) if rng.random() < 0.9 else 300
    params = [_make_tensor(rng, dtype, exponent, 10.0**top) for _ in range(count)]
    scale = 0.0 if rng.random() < 0.4 else float(rng.uniform(-38, 30))
    nonfinite = str(rng.choice(["propagate", "propagate", "raise", "skip"]))
    holds = bool(rng.random() < 0.2)
    path = PATHS[int(rng.integers(len(PATHS)))]
    return Case(kind, options, path, nonfinite, params, scale, holds)


def _values(rng: Generator, shape: tuple[int, ...], exponent: float) -> Tensor:
    """Normal numbers times a power of ten, with zeros, denormals and numbers of other sizes."""
    x = rng.normal(size=shape) * 10.0**exponent
    pick = rng.random(shape)
    x = np.where(pick < 0.1, 0.0, x)
    x = np.where((pick >= 0.1) & (pick < 0.15), x * 10.0 ** rng.uniform(-6, 6, size=shape), x)
    return torch.from_numpy(np.asarray(np.where((pick >= 0.15) & (pick < 0.17), 1e-41, x)))


def _cast(x: Tensor, dtype: torch.dtype, top: float = math.inf) -> Tensor:
    """In the range of the dtype: what overflows is no number to begin with."""
    top = min(top, torch.finfo(dtype).max)
    return x.clamp(-top, top).to(dtype)


def _make_tensor(rng: Generator, dtype: torch.dtype, exponent: float, top: float) -> Tensor:
    """A leaf tensor of a random shape and layout."""
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    return _lay_out(rng, _cast(_values(rng, shape, exponent), dtype, top)).requires_grad_()


def _lay_out(rng: Generator, x: Tensor) -> Tensor:
    layout = rng.random()
    if layout < 0.6 or x.ndim == 0:
        return x.clone()
    if x.ndim == 4 and layout < 0.8:
        return x.contiguous(memory_format=torch.channels_last)
    if x.ndim >= 2 and layout < 0.8:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def build(case: Case) -> tuple[Any, Any]:
    case.twins = [p.detach().clone().requires_grad_() for p in case.params]
    # As a group, so that tensors which start at zero are meant, and not warned of.
    group = {**case.options, "params": case.params}
    options = {"lr": case.options["lr"], **case.path, "nonfinite": case.nonfinite}
    if case.kind == "adam":
        return mm.MirrorAdam([group], **options), ReferenceMirrorAdam(case.twins, **case.options)
    optimizer = mm.MirrorDescent([group], **options)
    return optimizer, ReferenceMirrorDescent(case.twins, **case.options)


def set_gradients(rng: Generator, case: Case) -> float:
    for p, twin in zip(case.params, case.twins, strict=True):
        g = _cast(_values(rng, tuple(p.shape), case.scale), p.dtype)
        if case.holds_nonfinite and g.numel() and rng.random() < 0.5:
            g.view(-1)[int(rng.integers(g.numel()))] = float(rng.choice([np.nan, np.inf, -np.inf]))
        p.grad = _lay_out(rng, g)
        twin.grad = g.clone()
    return float(10 ** rng.uniform(-3, 1))


def take_step(optimizer: Any, loss: float) -> None:
    if isinstance(optimizer, (mm.MirrorDescent, ReferenceMirrorDescent)):
        optimizer.step(loss=loss)
    else:
        optimizer.step()


def sync(case: Case, optimizer: Any, reference: Any) -> None:
    """Set the state of the reference to that of the optimizer."""
    names = {"m": "exp_avg", "v": "exp_avg_sq", "v_max": "max_exp_avg_sq"}
    for i, p in enumerate(case.params):
        state = optimizer.state.get(p, {})
        reference.params[i].data.copy_(p.detach())
        reference.w[i] = p.detach().double().clone()
        dual = state.get("dual")
        if dual is not None:
            reference.u[i] = dual.double() * reference.kappa
        else:
            reference.u[i] = reference.to_dual(reference.w[i])
        if case.kind == "descent" and "momentum_buffer" in state:
            reference.buffers[i] = state["momentum_buffer"].double().clone()
        for name, key in names.items():
            if case.kind == "adam" and key in state:
                getattr(reference, name)[i] = state[key].double().clone()


def size_terms(case: Case, reference: Any) -> list[tuple[Tensor, Tensor]]:
    """For each tensor the terms of the next step, ``lr |x|``, and what a denormal counts in it."""
    o, quantum = case.options, 2.0**-149 if case.params[0].dtype is not torch.float64 else 0.0
    lr, decay = o["lr"], o.get("weight_decay", 0.0)
    grads = [twin.grad.double().abs() for twin in case.twins]  # pyright: ignore
    sizes = []
    if case.kind == "adam":
        (b1, b2), t = o["betas"], reference.t + 1
        for i, g in enumerate(grads):
            g = g.clamp(max=reference.limits[i])
            m = (b1 * reference.m[i].abs() + (1 - b1) * g) / (1 - b1**t)
            v = b2 * reference.v[i] + (1 - b2) * g**2
            if o.get("amsgrad"):
                v = torch.maximum(v, reference.v_max[i])
            bottom = (v / (1 - b2**t)).sqrt() + o["eps"]
            sizes.append((lr * m / bottom, lr * quantum / (1 - b1**t) / bottom))
        return sizes
    lengths = [lr] * len(grads)
    if o["step_rule"] == "normalized":
        ones = [torch.ones_like(g) for g in grads]
        signed = reference.normalize(reference.gradients(False))
        grads = [x.abs() for x in signed]
        quanta = [lr * quantum * x for x in ones]
    elif o["step_rule"] == "polyak":
        quanta = [quantum * torch.ones_like(g) for g in grads]
        lengths = [1.0] * len(grads)
    else:
        grads = [g + decay * u.abs() for g, u in zip(grads, reference.u, strict=True)]
        quanta = [lr * quantum * torch.ones_like(g) for g in grads]
    mu = o.get("momentum", 0.0)
    for i, (g, step) in enumerate(zip(grads, lengths, strict=True)):
        sizes.append((step * (g + mu * reference.buffers[i].abs() * (1 + mu)), quanta[i]))
    return sizes


def check_step(
    case: Case, optimizer: Any, reference: Any, i: int, before: Tensor, terms: tuple[Tensor, Tensor]
) -> str | None:
    """What is wrong with the step of tensor i, None if nothing is."""
    param, expected = case.params[i].detach(), reference.u[i]
    if param.numel() == 0:
        return None
    size, quantum = terms
    wide = torch.float64 if param.dtype is torch.float64 else torch.float32
    limits = torch.finfo(wide)
    smallest = 2.0**-149 if wide is torch.float32 else 2.0**-1074
    kappa = reference.kappa
    bound = ACCURACY * torch.maximum(expected.abs(), size) + 4 * (quantum + smallest * kappa)
    low, high = expected - bound, expected + bound
    state = optimizer.state[case.params[i]]
    dual = state.get("dual")
    if dual is not None:
        u = dual.double() * kappa
        beyond = (expected.abs() / kappa > 0.999 * limits.max) & (u.sign() == expected.sign())
        right = ((u >= low) & (u <= high)) | (u == expected) | (u.isnan() & expected.isnan())
        right |= beyond & u.isinf()
        if not bool(right.all()):
            k = int((~right).reshape(-1).nonzero()[0])
            return f"u[{k}] is {_at(u, k)!r}, not {_at(expected, k)!r} +- {_at(bound, k):.1e}"
        low = high = dual.double()
    else:
        low, high = low / kappa, high / kappa
    return _check_image(case, param, before, low, high, dual is not None)


def _check_image(
    case: Case, w: Tensor, before: Tensor, low: Tensor, high: Tensor, has_dual: bool
) -> str | None:
    """w between the images of low and high, up to 4 ulp, or untouched."""
    power = 1 / (case.options["p"] - 1)
    bottom, top = (_round(_image(x, power), w.dtype) for x in (low, high))
    value = w.double()
    ulp = _ulp(torch.maximum(bottom.abs(), top.abs()), w.dtype)
    right = (value >= bottom - ULPS * ulp) & (value <= top + ULPS * ulp)
    right |= (value == bottom) | (value == top) | (w == before)
    right |= value.isnan() & (low.isnan() | high.isnan())
    if bool(right.all()):
        return None
    k = int((~right).reshape(-1).nonzero()[0])
    of = "its own u" if has_dual else "u"
    return f"w[{k}] is {_at(value, k)!r}, the image of {of} {_at(bottom, k)!r} to {_at(top, k)!r}"


def _image(u: Tensor, power: float) -> np.ndarray:
    wide = u.numpy().astype(np.longdouble)
    with np.errstate(all="ignore"):
        return np.sign(wide) * np.abs(wide) ** np.longdouble(power)


def _round(x: np.ndarray, dtype: torch.dtype) -> Tensor:
    """To the nearest number of the dtype, in float64."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(x, np.float64)).to(dtype).double()


def _ulp(x: Tensor, dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    exponent = torch.frexp(x.clamp(info.tiny, info.max))[1] - 1
    return torch.ldexp(torch.full_like(x, info.eps), exponent)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _at(x: Tensor, k: int) -> float:
    return float(x.reshape(-1)[k])


@contextmanager
def one_thread(folder: Path) -> Iterator[None]:
    """Small tensors: several threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


STEPS = Trial(
    name="steps",
    title="optimizer steps against the reference over dtypes, shapes, scales, non-finite values",
    number=2000,
    try_case=try_case,
    session=one_thread,
)
