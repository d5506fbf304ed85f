r"""The lp potential  psi_p(w) = (1/p) sum_i |w_i|^p,  1 < p < inf.

    to_dual:    u_i = sign(w_i) |w_i|^(p-1)          to_primal:  w_i = sign(u_i) |u_i|^(1/(p-1))

With a ``scale`` c > 0 it is  c^2 / (p (p-1)) sum_i |w_i / c|^p,  whose curvature is 1 at |w| = c
for every p, so that one learning rate suits many exponents. It equals kappa * psi_p with
kappa = c^(2-p) / (p-1). In particular scale = 1 is not the same as no scale: it divides psi_p
by p - 1.

How far apart two directions are in this geometry is the directional divergence

    D(U, V) = D_psi(U / ||U||_p, V / ||V||_p) = 1 - < sign(V~) |V~|^(p-1), U~ >.

It is what the convergence theorems bound: at least 0, at most 2, zero only for equal directions,
1 - cosine at p = 2, and not symmetric.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor

from mirrormargin.arguments import check_exponent, check_number
from mirrormargin.errors import GeometryError
from mirrormargin.geometry.norms import (
    bregman_terms,
    lp_norm,
    signed_power,
    sum_powers,
    widen,
    working_copy,
)
from mirrormargin.geometry.potential import Potential, as_pair, as_tensors

__all__ = ["LpPotential", "check_scale", "directional_divergence"]


class LpPotential(Potential):
    """The potential (1/p) ||w||_p^p and the geometry around it.

    Args:
        p: Exponent, ``1 < p < inf``. Near 1 solutions are sparse, p = 2 is gradient descent,
            large p spreads the weights.
        scale: ``None``; a number c > 0; or ``"rms"``, the root mean square of the tensor given
            to :meth:`bind` (1 where that is 0).

    Raises:
        GeometryError: If ``p`` or ``scale`` is not allowed.

    Example:
        >>> potential = LpPotential(3.0)
        >>> potential.to_dual([-2.0, 0.0, 3.0]).tolist()
        [-4.0, 0.0, 9.0]
        >>> round(float(potential.norm([3.0, 4.0, 5.0])), 6)
        6.0
    """

    def __init__(self, p: float, scale: float | Literal["rms"] | None = None) -> None:
        self.p = check_exponent(p)
        self.scale = check_scale(scale)

    def __repr__(self) -> str:
        return f"LpPotential(p={self.p!r}, scale={self.scale!r})"

    @property
    def dual_exponent(self) -> float:
        """q = p / (p - 1)."""
        return self.p / (self.p - 1)

    @property
    def factor(self) -> float:
        """kappa: this potential is kappa times psi_p. 1 without a scale."""
        if self.scale is None:
            return 1.0
        if isinstance(self.scale, str):
            raise GeometryError(
                'scale="rms" is the root mean square of a tensor that is not known yet: '
                "use potential.bind(initial_weight), or give scale a number"
            )
        log = (2 - self.p) * math.log(self.scale) - math.log(self.p - 1)
        return math.exp(log) if log < 709 else math.inf

    def bind(self, weight: Any) -> LpPotential:
        """This potential with ``scale="rms"`` replaced by the number it is for this tensor."""
        if self.scale != "rms":
            return self
        (w,), _ = as_tensors(weight)
        rms = float(lp_norm(w.detach(), 2.0)) / math.sqrt(max(w.numel(), 1))
        return LpPotential(self.p, rms if 0 < rms < math.inf else 1.0)

    def value(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        return restore(sum_powers(working_copy(w).abs(), self.p) * (self.factor / self.p))

    def to_dual(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        if self.factor == 1:
            return restore(_to_dual(w, self.p))
        return restore((_to_dual(widen(w), self.p) * self.factor).to(w.dtype))

    def to_primal(self, dual: Any) -> Any:
        (u,), restore = as_tensors(dual)
        if self.factor == 1:
            return restore(_to_primal(u, self.p))
        return restore(_to_primal(widen(u) / self.factor, self.p).to(u.dtype))

    def bregman(self, first: Any, second: Any) -> Any:
        (a, b), restore = as_pair(first, second)
        terms = bregman_terms(widen(a), widen(b), self.p)
        return restore((terms.sum() * self.factor).clamp_min(0))

    def norm(self, weight: Any) -> Any:
        """||w||_p, without overflow or underflow on the way."""
        return lp_norm(weight, self.p)

    def dual_norm(self, gradient: Any) -> Any:
        """||g||_q, q = p / (p - 1)."""
        return lp_norm(gradient, self.dual_exponent)


def directional_divergence(target: Any, iterate: Any, p: float) -> Any:
    """Directional Bregman divergence between a target direction and an iterate's.

    With both divided by their lp norms,

        D(U, V) = 1 - <sign(V) |V|^(p-1), U>

    which is 0 for equal directions, and 1 - cosine at p = 2.

    Args:
        target: U, the direction to be reached, such as a max-margin solution.
        iterate: V, of the same shape.
        p: Exponent of the geometry the iterate was trained in.

    Raises:
        GeometryError: If the shapes differ or an array is zero or not finite.

    Example:
        >>> round(float(directional_divergence([1.0, 0.0], [1.0, 1.0], p=2.0)), 6)
        0.292893
    """
    potential = LpPotential(p)
    (u, v), restore = as_tensors(target, iterate)
    if u.shape != v.shape:
        raise GeometryError(
            f"target has shape {tuple(u.shape)} and iterate {tuple(v.shape)}: they must be equal"
        )
    u, v = widen(u.detach()), widen(v.detach())
    norms = {"target": potential.norm(u), "iterate": potential.norm(v)}
    for name, norm in norms.items():
        if not 0 < float(norm) < float("inf"):
            raise GeometryError(f"{name} has p-norm {float(norm)}: it has no direction")
    return restore(potential.bregman(u / norms["target"], v / norms["iterate"]))


def check_scale(
    scale: Any, *, error: type[Exception] = GeometryError
) -> float | Literal["rms"] | None:
    """Return a scale as None, "rms" or a positive float."""
    if scale is None:
        return None
    if isinstance(scale, str) and scale == "rms":
        return "rms"
    hint = '"rms" for that of the initial weights, None for none'
    return check_number("scale", scale, above=0.0, hint=hint, error=error)


# Three exponents need no power: exact operations, or one correctly rounded square root.


def _to_dual(w: Tensor, p: float) -> Tensor:
    if p == 2:
        return w.clone()
    if p == 1.5:
        return w.abs().sqrt().copysign(w)
    if p == 3:
        return w * w.abs()
    return signed_power(w, p - 1)


def _to_primal(u: Tensor, p: float) -> Tensor:
    if p == 2:
        return u.clone()
    if p == 1.5:
        return u * u.abs()
    if p == 3:
        return u.abs().sqrt().copysign(u)
    return signed_power(u, 1 / (p - 1))
