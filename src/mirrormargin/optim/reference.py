r"""The optimizers written literally: slow, obvious, in float64, one formula a line.

Every other path is compared with these, step by step. They take a list of tensors with ``.grad``
and keep their own float64 weights, duals and moments, rounded only if those are kept in bfloat16;
the tensors receive the rounded weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mirrormargin.optim.stochastic_rounding import AVERAGE, DUAL, LARGEST, SQUARE, round_literally

__all__ = [
    "ReferenceMirrorAdam",
    "ReferenceMirrorDescent",
    "ReferenceSchedule",
    "bisect_step",
]


class _Reference:
    def __init__(
        self,
        params: Sequence[Tensor],
        p: float,
        scale: float | None,
        clip: float | None,
        norm_over: str,
        caution: bool,
        state_dtype: torch.dtype | None,
        center: bool,
    ) -> None:
        self.params = list(params)
        self.p, self.clip, self.norm_over, self.caution = p, clip, norm_over, caution
        self.is_narrow = state_dtype is torch.bfloat16
        self.t = 0
        self.held: list[Tensor] = []  # of each tensor, what a schedule has removed
        self.kappa = 1.0 if scale is None else scale ** (2 - p) / (p - 1)
        self.w = [param.detach().double() for param in self.params]
        self.is_centered = center
        self.c = [w.clone() if center else torch.zeros_like(w) for w in self.w]
        self.u = [self.to_dual(w - c) for w, c in zip(self.w, self.c, strict=True)]
        for i in range(len(self.u)):
            if self.has_narrow_dual(i):
                self.u[i] = self.kappa * (self.u[i] / self.kappa).bfloat16().double()

    def to_dual(self, w: Tensor) -> Tensor:
        return self.kappa * w.sign() * w.abs() ** (self.p - 1)

    def to_primal(self, u: Tensor) -> Tensor:
        return u.sign() * (u.abs() / self.kappa) ** (1 / (self.p - 1))

    def gradients(self, maximize: bool) -> list[Tensor]:
        sign = -1.0 if maximize else 1.0
        grads = [sign * param.grad.detach().double() for param in self.params]  # pyright: ignore
        if self.held:
            pairs = zip(grads, self.held, strict=True)
            grads = [g.masked_fill(held, 0.0) for g, held in pairs]
        if self.clip is None:
            return grads
        norms = self.find_norms(grads)
        return [g * min(1.0, self.clip / n) if n else g for g, n in zip(grads, norms, strict=True)]

    def find_norms(self, grads: list[Tensor]) -> list[float]:
        q = self.p / (self.p - 1)
        if self.norm_over == "group":
            return [_norm(torch.cat([g.flatten() for g in grads]), q)] * len(grads)
        return [_norm(g, q) for g in grads]

    def mask(self, x: Tensor, g: Tensor) -> Tensor:
        """The direction where it agrees with the gradient, enlarged for the rest."""
        if not self.caution:
            return x
        agrees = (x.sign() == g.sign()) & (g != 0)
        share = float(agrees.double().mean())
        return x * agrees / max(share, 1e-3)

    def keep(self, i: int, role: int, x: Tensor) -> Tensor:
        """A state of tensor i as it is kept."""
        if not self.is_narrow:
            return x
        rounded = round_literally(x.float().numpy(), i, role, self.t)
        return torch.from_numpy(rounded).double()

    def has_narrow_dual(self, i: int) -> bool:
        is_wide = self.params[i].dtype.itemsize >= 4
        is_kept = self.p not in (1.5, 2.0, 3.0) or not is_wide or self.is_centered
        return self.is_narrow and is_kept

    @torch.no_grad()
    def move(self, i: int, u: Tensor) -> None:
        if self.has_narrow_dual(i):
            u = self.kappa * self.keep(i, DUAL, u / self.kappa)
        changed = u != self.u[i]
        self.w[i] = torch.where(changed, self.c[i] + self.to_primal(u), self.w[i])
        self.u[i] = u
        self.params[i].copy_(
            torch.where(changed, self.w[i].to(self.params[i].dtype), self.params[i])
        )


class ReferenceMirrorDescent(_Reference):
    """Mirror descent by the formulas of :class:`mirrormargin.MirrorDescent`."""

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float,
        p: float = 2.0,
        *,
        step_rule: str = "constant",
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        scale: float | None = None,
        norm_over: str = "tensor",
        f_min: float = 0.0,
        max_lr: float = float("inf"),
        maximize: bool = False,
        clip: float | None = None,
        caution: bool = False,
        state_dtype: torch.dtype | None = None,
        center: bool = False,
    ) -> None:
        super().__init__(params, p, scale, clip, norm_over, caution, state_dtype, center)
        self.lr, self.step_rule = lr, step_rule
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay
        self.f_min, self.max_lr, self.maximize = f_min, max_lr, maximize
        self.buffers = [torch.zeros_like(w) for w in self.w]

    def step(self, loss: float | None = None) -> None:
        self.t += 1
        grads = self.gradients(self.maximize)
        if self.step_rule == "constant":
            steps = [self.lr] * len(grads)
            directions = grads
            if self.weight_decay:  # 0 u would be nan where u is infinite
                directions = [g + self.weight_decay * u for g, u in zip(grads, self.u, strict=True)]
            decay = 1.0
        elif self.step_rule == "normalized":
            steps = [self.lr] * len(grads)
            directions = self.normalize(grads)
            decay = 1 - self.lr * self.weight_decay
        else:
            assert loss is not None, "Polyak steps need the loss"
            length = self.polyak(grads, self.lr * max(loss - self.f_min, 0.0))
            steps = [1.0] * len(grads)
            directions = [length * g for g in grads]
            decay = max(0.0, 1 - length * self.weight_decay)
        for i, (step, x) in enumerate(zip(steps, directions, strict=True)):
            if self.momentum:
                g, b = x, self.momentum * self.buffers[i] + x
                x = self.mask(g + self.momentum * b if self.nesterov else b, g)
                self.buffers[i] = self.keep(i, AVERAGE, b)
            self.move(i, decay * self.u[i] - step * x)

    def normalize(self, grads: list[Tensor]) -> list[Tensor]:
        norms = self.find_norms(grads)
        return [g / n if n != 0 else torch.zeros_like(g) for g, n in zip(grads, norms, strict=True)]

    def polyak(self, grads: list[Tensor], target: float) -> float:
        """The root of < g, w - to_primal(u - lr g) > = target."""

        def decrease(lr: float) -> float:
            pairs = zip(self.u, grads, strict=True)
            return sum(float((g * self.primal_change(u, lr * g)).sum()) for u, g in pairs)

        if not any(g.any() for g in grads):
            return 0.0
        if not all(g.isfinite().all() for g in grads):
            return float("nan")
        return bisect_step(decrease, target, self.max_lr)

    def primal_change(self, u: Tensor, step: Tensor) -> Tensor:
        """to_primal(u) - to_primal(u - step); a short step would cancel in the difference."""
        w, share = self.to_primal(u), step / u
        short = -w * torch.expm1(torch.log1p(-share) / (self.p - 1))
        return torch.where(share.abs() < 0.5, short, w - self.to_primal(u - step))


def bisect_step(decrease: Callable[[float], float], target: float, max_lr: float) -> float:
    """Solve ``decrease(lr) = target`` by bisection, where decrease grows with lr, from 0 at 0."""
    if target == 0:
        return 0.0
    low, high = 0.0, 1.0
    while decrease(high) < target and high < max_lr:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if decrease(middle) < target else (low, middle)
    return min(high, max_lr)


class ReferenceMirrorAdam(_Reference):
    """MirrorAdam by the formulas of :class:`mirrormargin.MirrorAdam`."""

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 1e-3,
        p: float = 2.0,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        scale: float | None = None,
        maximize: bool = False,
        clip: float | None = None,
        norm_over: str = "tensor",
        caution: bool = False,
        state_dtype: torch.dtype | None = None,
        center: bool = False,
    ) -> None:
        super().__init__(params, p, scale, clip, norm_over, caution, state_dtype, center)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.amsgrad, self.maximize = amsgrad, maximize
        self.m = [torch.zeros_like(w) for w in self.w]
        self.v = [torch.zeros_like(w) for w in self.w]
        self.v_max = [torch.zeros_like(w) for w in self.w]
        # The moments are float32 except for float64 weights: there g^2 leaves the range earlier.
        self.limits = [
            2.0**511 if param.dtype is torch.float64 else 2.0**63 for param in self.params
        ]

    def step(self) -> None:
        beta1, beta2 = self.betas
        self.t += 1
        for i, g in enumerate(self.gradients(self.maximize)):
            g = torch.where(g.isinf(), g, g.clamp(-self.limits[i], self.limits[i]))
            self.m[i] = beta1 * self.m[i] + (1 - beta1) * g
            self.v[i] = beta2 * self.v[i] + (1 - beta2) * g**2
            self.v_max[i] = torch.maximum(self.v_max[i], self.v[i])
            second = self.v_max[i] if self.amsgrad else self.v[i]
            m_hat, v_hat = self.m[i] / (1 - beta1**self.t), second / (1 - beta2**self.t)
            x = self.mask(m_hat / (v_hat.sqrt() + self.eps), g)
            self.m[i] = self.keep(i, AVERAGE, self.m[i])
            self.v[i] = self.keep(i, SQUARE, self.v[i])
            self.v_max[i] = self.keep(i, LARGEST, self.v_max[i])
            self.move(i, (1 - self.lr * self.weight_decay) * self.u[i] - self.lr * x)


class ReferenceSchedule:
    """A sparsity schedule by the formulas of :class:`mirrormargin.SparsitySchedule`, which forgets.

    Weights are sorted, and what is removed is set to 0, with its u and averages, after every step;
    its gradients count as 0.
    """

    def __init__(
        self,
        optimizer: ReferenceMirrorAdam | ReferenceMirrorDescent,
        share: float,
        num_steps: int,
        start: float = 0.0,
        end: float = 0.7,
        every: int = 20,
    ) -> None:
        self.optimizer, self.share, self.every = optimizer, share, every
        self.first, self.last = start * num_steps, max(1, math.ceil(end * num_steps))
        self.t = 0
        self.removed = [torch.zeros_like(w, dtype=torch.bool) for w in optimizer.w]

    @torch.no_grad()
    def step(self) -> None:
        self.t += 1
        is_due = self.first < self.t < self.last and self.t % self.every == 0
        if is_due or self.t == self.last:
            progress = (self.t - self.first) / (self.last - self.first)
            self.rank(self.share * (1 - (1 - progress) ** 3) if self.t < self.last else self.share)
        own = self.optimizer
        own.held = self.removed
        for i, gone in enumerate(self.removed):
            own.w[i] = torch.where(gone, own.c[i], own.w[i])
            own.u[i] = own.u[i].masked_fill(gone, 0.0)
            own.params[i].copy_(torch.where(gone, own.c[i].to(own.params[i].dtype), own.params[i]))
            averages = own.m if isinstance(own, ReferenceMirrorAdam) else own.buffers
            averages[i] = averages[i].masked_fill(gone, 0.0)

    def rank(self, share: float) -> None:
        """The smallest first, what is removed before all others; of equal ones the last first."""
        own = self.optimizer
        sizes = [
            torch.where(gone, -1.0, (param.detach().double() - c).abs()).flatten()
            for gone, param, c in zip(self.removed, own.params, own.c, strict=True)
        ]
        sizes = torch.cat(sizes).tolist()
        order = sorted(range(len(sizes)), key=lambda k: (sizes[k], -k))
        gone = torch.zeros(len(sizes), dtype=torch.bool)
        gone[order[: math.floor(share * len(sizes) + 1e-9)]] = True
        parts = gone.split([w.numel() for w in own.w])
        self.removed = [part.view_as(w) for part, w in zip(parts, own.w, strict=True)]


def _norm(x: Tensor, exponent: float) -> float:
    top = float(x.abs().max()) if x.numel() else 0.0
    if not math.isfinite(top):
        return top
    return top * float(((x / top).abs() ** exponent).sum() ** (1 / exponent)) if top else 0.0
