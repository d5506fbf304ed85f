"""What a potential is: a strictly convex psi whose gradient maps weights to the dual and back.

Arrays in, arrays out: torch tensors stay torch tensors, everything else becomes NumPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mirrormargin.arguments import read_numbers
from mirrormargin.errors import GeometryError, NotNumbersError
from mirrormargin.geometry.norms import check_dense, widen

__all__ = ["Potential", "as_pair", "as_tensors"]


class Potential(ABC):
    r"""A differentiable, strictly convex function of the weights.

    Mirror descent with psi moves in the dual coordinates ``u = grad psi(w)``:

        u <- to_dual(w) - lr * gradient,      w <- to_primal(u).

    To add your own, give ``value``, ``to_dual`` and ``to_primal``: they act on each entry, take
    and return tensors or arrays of any shape, and ``to_primal(to_dual(w)) = w``. ``bregman``
    follows. A
    potential that is a power of a norm also has ``norm``, ``dual_norm`` and ``dual_exponent``;
    the normalized step rule needs those. ``repr`` must show every parameter: checkpoints are
    matched by it.

    Attributes:
        is_separable: Whether each entry is mapped by itself. One that couples entries sets it to
            False: it is then refused for tensors that are spread over processes. All entries of a
            tensor count as coupled, unless ``find_coupled`` says otherwise.
        is_invertible: Whether ``to_dual(to_primal(u)) = u`` as well. One that maps many u to one
            weight, as thresholds do, sets it to False, and ``to_dual`` gives one of them.
    """

    is_separable = True
    is_invertible = True

    @abstractmethod
    def value(self, weight: Any) -> Any:
        """psi(w), summed over all entries."""

    @abstractmethod
    def to_dual(self, weight: Any) -> Any:
        """grad psi(w), entry by entry."""

    @abstractmethod
    def to_primal(self, dual: Any) -> Any:
        """The weights whose gradient of psi is ``dual``."""

    def find_misfit(self, shape: tuple[int, ...]) -> str | None:
        """Why tensors of this shape have no such geometry, None if they have: optimizers ask."""
        return None

    def find_coupled(self, changed: Tensor) -> Tensor:
        """Which entries are mapped elsewhere once those that are marked have changed."""
        return changed if self.is_separable else changed.any().expand_as(changed)

    def bregman(self, first: Any, second: Any) -> Any:
        """D_psi(a, b) = psi(a) - psi(b) - <grad psi(b), a - b>, at least 0."""
        (a, b), restore = as_pair(first, second)
        a, b = widen(a), widen(b)
        inner = (self.to_dual(b) * (a - b)).sum()
        return restore((self.value(a) - self.value(b) - inner).clamp_min(0))


def as_pair(first: Any, second: Any) -> tuple[list[Tensor], Callable[[Tensor], Any]]:
    """The same of two arrays whose entries are compared.

    Raises:
        GeometryError: (a ValueError) If their shapes do not fit.
    """
    pair, restore = as_tensors(first, second)
    shapes = [tuple(tensor.shape) for tensor in pair]
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        raise GeometryError(
            f"the two arrays have shapes {shapes[0]} and {shapes[1]}: give equal ones"
        ) from None
    return pair, restore


def as_tensors(*arrays: Any) -> tuple[list[Tensor], Callable[[Tensor], Any]]:
    """Return floating tensors, and the function that turns a result into the caller's kind."""
    tensors = [a if isinstance(a, Tensor) else torch.from_numpy(_to_numpy(a)) for a in arrays]
    for tensor in tensors:
        check_dense(tensor)
    tensors = [t if t.is_floating_point() else t.double() for t in tensors]
    if any(isinstance(a, Tensor) for a in arrays):
        return tensors, lambda result: result
    return tensors, lambda result: result.numpy()[()]


def _to_numpy(array: Any) -> np.ndarray:
    converted = read_numbers("the array", array, error=NotNumbersError)
    native = converted.dtype.newbyteorder("=")
    # torch shares memory and wants it writable, native and without negative strides.
    return np.array(converted, dtype=native, order="C")
