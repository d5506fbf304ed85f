r"""The elastic net as a potential  psi(w) = l1 sum_i |w_i| + (1 / (2 delta)) sum_i w_i^2.

    to_dual:    u_i = w_i / delta + l1 sign(w_i)          to_primal:  w_i = delta soft(u_i, l1)

with the soft threshold soft(u, l1) = sign(u) max(|u| - l1, 0). All u of size at most l1 stand for
w = 0, so that weights are zero exactly until their gradients have added up to l1: this is the
geometry of AdaBreg and LinBreg (Bungert, Roith, Tenbrinck and Burger, "A Bregman learning framework
for sparse neural networks", JMLR 2022). Of w = 0 ``to_dual`` gives the middle of these, u = 0.
"""

from __future__ import annotations

from typing import Any

from mirrormargin.arguments import check_number
from mirrormargin.errors import GeometryError
from mirrormargin.geometry.norms import widen, working_copy
from mirrormargin.geometry.potential import Potential, as_tensors

__all__ = ["ElasticNetPotential"]


class ElasticNetPotential(Potential):
    """Gradient descent whose weights are exactly zero until u has passed a threshold.

    Args:
        l1: The threshold, ``l1 >= 0``. 0 is gradient descent.
        delta: What w gains for each unit of u beyond the threshold, ``delta > 0``.

    Example:
        >>> potential = ElasticNetPotential(l1=1.0, delta=2.0)
        >>> potential.to_primal([-3.0, 0.5, 1.5]).tolist()
        [-4.0, 0.0, 1.0]
    """

    is_invertible = False

    def __init__(self, l1: float, delta: float = 1.0) -> None:
        self.l1 = check_number("l1", l1, least=0.0, error=GeometryError)
        self.delta = check_number("delta", delta, above=0.0, error=GeometryError)

    def __repr__(self) -> str:
        return f"ElasticNetPotential(l1={self.l1!r}, delta={self.delta!r})"

    def value(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        w = widen(w)
        return restore(self.l1 * w.abs().sum() + (w * w).sum() / (2 * self.delta))

    def to_dual(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        wide = working_copy(w)
        return restore((wide / self.delta + self.l1 * wide.sign()).to(w.dtype))

    def to_primal(self, dual: Any) -> Any:
        (u,), restore = as_tensors(dual)
        wide = working_copy(u)
        beyond = (wide.abs() - self.l1).clamp_min(0)  # keeps nan
        return restore((self.delta * beyond.copysign(wide) + 0.0).to(u.dtype))  # no -0.0
