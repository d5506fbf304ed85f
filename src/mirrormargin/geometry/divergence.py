r"""How far apart two directions are, in the geometry of psi_p.

    D(U, V) = D_psi(U / ||U||_p, V / ||V||_p) = 1 - < sign(V~) |V~|^(p-1), U~ >

It is what the convergence theorems bound: at least 0, at most 2, zero only for equal directions,
1 - cosine at p = 2, and not symmetric.
"""

from __future__ import annotations

from typing import Any

from mirrormargin.errors import GeometryError
from mirrormargin.geometry.arrays import as_tensors, widen
from mirrormargin.geometry.lp import LpPotential

__all__ = ["directional_divergence"]


def directional_divergence(target: Any, iterate: Any, p: float) -> Any:
    """Directional Bregman divergence between a target direction and an iterate's.

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
