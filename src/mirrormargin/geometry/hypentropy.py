r"""The hypentropy potential  psi(w) = sum_i w_i asinh(w_i / beta) - sqrt(w_i^2 + beta^2).

    to_dual:    u_i = asinh(w_i / beta)          to_primal:  w_i = beta sinh(u_i)

It is quadratic for |w| << beta and like the entropy for |w| >> beta (Ghai, Hazan and Singer,
"Exponentiated gradient meets gradient descent", ALT 2020). It is no power of a norm, so it has
no dual norm and cannot be used with normalized steps.
"""

from __future__ import annotations

from typing import Any

from mirrormargin.arguments import check_number
from mirrormargin.errors import GeometryError
from mirrormargin.geometry.norms import widen, working_copy
from mirrormargin.geometry.potential import Potential, as_tensors

__all__ = ["HypentropyPotential"]


class HypentropyPotential(Potential):
    """Between gradient descent (beta large) and exponentiated gradient (beta small).

    Args:
        beta: The size of weight at which the two regimes meet, ``beta > 0``.

    Example:
        >>> potential = HypentropyPotential(beta=0.5)
        >>> round(float(potential.to_primal(potential.to_dual(2.0))), 12)
        2.0
    """

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = check_number("beta", beta, above=0.0, error=GeometryError)

    def __repr__(self) -> str:
        return f"HypentropyPotential(beta={self.beta!r})"

    def value(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        w = widen(w)
        return restore((w * (w / self.beta).asinh() - (w * w + self.beta**2).sqrt()).sum())

    def to_dual(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        return restore((working_copy(w) / self.beta).asinh().to(w.dtype))

    def to_primal(self, dual: Any) -> Any:
        (u,), restore = as_tensors(dual)
        return restore((working_copy(u).sinh() * self.beta).to(u.dtype))
