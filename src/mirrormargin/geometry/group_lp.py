r"""The group potential  psi(w) = (1/p) sum_g ||w_g||_2^p,  1 < p < inf, over rows or columns.

    to_dual:    u_g = ||w_g||^(p-2) w_g        to_primal:  w_g = ||u_g||^(q-2) u_g,    1/p + 1/q = 1
    norm:       (sum_g ||w_g||^p)^(1/p)        dual_norm:  (sum_g ||v_g||^q)^(1/q)

Inside a group the geometry is Euclidean, between groups it is that of lp. With a^ = a / ||a|| the
summands of the divergence are at least 0, like those of ``bregman_terms``:

    D(a, b) = sum_g D_p(||a_g||, ||b_g||) + ||b_g||^(p-1) ||a_g|| ||a^_g - b^_g||^2 / 2
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mirrormargin.arguments import check_choice, check_count, check_exponent
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

__all__ = ["GroupLpPotential"]

Groups = Literal["rows", "columns"]


class GroupLpPotential(Potential):
    """Whole rows, columns or heads of a matrix become small, instead of single weights.

    Near p = 1 few groups keep most of the weight, p = 2 is gradient descent, and large p makes
    groups alike. For every p > 1 groups become small, not zero: whoever wants to take them out
    removes them with :class:`mirrormargin.SparsitySchedule` and its ``groups``, with which
    this potential goes well.

    An attention head is a block of rows of query, key and value, and a block of columns of the
    output. Groups do not reach beyond one tensor:

        width = model.width // model.num_heads
        groups = mm.param_groups(model, {
            "*.query.weight": {"potential": mm.GroupLpPotential(1.2, "rows", block=width)},
            "*.output.weight": {"potential": mm.GroupLpPotential(1.2, "columns", block=width)},
            "*": {},
        })

    ``mm.mirror_groups(model, potential=mm.GroupLpPotential(1.2))`` gives it to all matrices.

    Args:
        p: Exponent, ``1 < p < inf``.
        groups: ``"rows"``, along the first axis: what goes into one output of a linear layer; or
            ``"columns"``, along the second: what one input goes into. Of a convolution, the
            filters or the channels.
        block: How many adjacent rows or columns are one group. It must divide their number.

    Raises:
        GeometryError: If an argument is not allowed, or a tensor has no such groups.

    Example:
        >>> potential = GroupLpPotential(3.0)
        >>> potential.to_dual(torch.tensor([[3.0, -4.0], [0.0, 0.0]]))
        tensor([[ 15., -20.],
                [  0.,   0.]])
        >>> float(potential.norm([[3.0, -4.0], [0.0, 0.0]]))
        5.0
    """

    is_separable = False

    def __init__(self, p: float, groups: Groups = "rows", block: int = 1) -> None:
        self.p = check_exponent(p)
        self.groups = check_choice("groups", groups, get_args(Groups), error=GeometryError)
        self.block = check_count("block", block, error=GeometryError)

    def __repr__(self) -> str:
        return f"GroupLpPotential(p={self.p!r}, groups={self.groups!r}, block={self.block!r})"

    @property
    def dual_exponent(self) -> float:
        """q = p / (p - 1)."""
        return self.p / (self.p - 1)

    def find_misfit(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) < 2:
            return (
                f"{self!r} needs a matrix, and was given the shape {shape}: train vectors in a"
                " group of their own, as mirrormargin.mirror_groups(model, potential=...) makes it"
            )
        if shape[self._axis] % self.block:
            return (
                f"block={self.block} does not divide the {shape[self._axis]} {self.groups} of the"
                f" shape {shape}: give the number that makes one group, such as the width of a head"
            )
        return None

    def find_coupled(self, changed: Tensor) -> Tensor:
        blocks = self._split(changed)
        return blocks.any(self._inside(blocks), keepdim=True).expand_as(blocks).reshape_as(changed)

    def value(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        return restore(sum_powers(self._find_sizes(working_copy(w)), self.p) / self.p)

    def to_dual(self, weight: Any) -> Any:
        (w,), restore = as_tensors(weight)
        return restore(self._multiply(w, self.p - 2))

    def to_primal(self, dual: Any) -> Any:
        (u,), restore = as_tensors(dual)
        return restore(self._multiply(u, (2 - self.p) / (self.p - 1)))  # q - 2

    def bregman(self, first: Any, second: Any) -> Any:
        (a, b), restore = as_pair(first, second)
        a, b = torch.broadcast_tensors(widen(a), widen(b))
        size_a, size_b = self._find_sizes(a), self._find_sizes(b)
        gap = self._split(a) / _or_one(size_a) - self._split(b) / _or_one(size_b)
        gap = gap.square().sum(self._inside(gap), keepdim=True)
        turn = signed_power(size_b, self.p - 1) * size_a * gap / 2
        return restore((bregman_terms(size_a, size_b, self.p) + turn).sum().clamp_min(0))

    def norm(self, weight: Any) -> Any:
        """(sum_g ||w_g||^p)^(1/p), without overflow or underflow on the way."""
        return self._find_norm(weight, self.p)

    def dual_norm(self, gradient: Any) -> Any:
        """(sum_g ||v_g||^q)^(1/q), q = p / (p - 1)."""
        return self._find_norm(gradient, self.dual_exponent)

    def _find_norm(self, array: Any, exponent: float) -> Any:
        (x,), restore = as_tensors(array)
        dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
        return restore(lp_norm(self._find_sizes(working_copy(x)), exponent).to(dtype))

    def _multiply(self, x: Tensor, r: float) -> Tensor:
        """||x_g||^r x_g.

        By ||x_g||^(r/2) twice: ||x_g||^r itself may be out of range where the product is not.
        Pinned by ``test_maps_reach_the_ends_of_the_range``.
        """
        wide = working_copy(x)
        largest, rest = self._measure(wide)
        if r == 0:
            return x.clone()
        factor = signed_power(largest.sqrt() * rest.sqrt(), abs(r))
        factor = 1 / factor if r < 0 else factor
        blocks = self._split(wide)
        product = torch.where(blocks == 0, blocks, blocks * factor * factor)  # not 0 times inf
        return product.reshape_as(x).to(x.dtype)

    def _find_sizes(self, x: Tensor) -> Tensor:
        """||x_g||, with the axes of the blocks."""
        largest, rest = self._measure(x)
        return largest * rest

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Two factors of ||x_g||: its largest entry, 1 if that is 0, and the norm of the others."""
        blocks = self._split(x)
        inside = self._inside(blocks)
        size = blocks.detach().abs()
        largest = size.amax(inside, keepdim=True) if x.numel() else size.sum(inside, keepdim=True)
        largest = _or_one(torch.where(largest.isfinite(), largest, 0.0))
        return largest, torch.linalg.vector_norm(blocks / largest, dim=inside, keepdim=True)

    @property
    def _axis(self) -> int:
        return 0 if self.groups == "rows" else 1

    def _split(self, x: Tensor) -> Tensor:
        """With two axes, of groups and inside them, in the place of one."""
        misfit = self.find_misfit(tuple(x.shape))
        if misfit is not None:
            raise GeometryError(misfit)
        num_groups = x.shape[self._axis] // self.block
        # Sums are in the order of the entries, not of memory, whose order may be another.
        return x.contiguous().unflatten(self._axis, (num_groups, self.block))

    def _inside(self, blocks: Tensor) -> tuple[int, ...]:
        return tuple(axis for axis in range(blocks.ndim) if axis != self._axis)


def _or_one(size: Tensor) -> Tensor:
    """A divisor that is not 0."""
    return torch.where(size == 0, 1.0, size)
