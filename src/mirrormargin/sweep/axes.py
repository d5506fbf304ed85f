r"""The values of a setting, and grids as products of such sets.

    runs = A_1 x A_2 x ... x A_k,    number of a run = (...(i_1 |A_2| + i_2) ...) |A_k| + i_k

A set is a list of values or a range of integers, so a product of a billion runs is a few numbers.
What one product has beyond another is again a few products,

    A \ B = union over j of (A_1 & B_1) x ... x (A_{j-1} & B_{j-1}) x (A_j \ B_j) x A_{j+1} x ...,

no two of which share a run. So what is asked for and not known yet is found without going through
the runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import show
from mirrormargin.errors import SweepError

__all__ = ["Axis", "Product", "find_missing"]

FROM, TO = "from", "to"  # the keys of a range in a document, both ends included


class Axis:
    """The values of one setting, no two alike, in their order.

    Args:
        values: Whatever JSON can hold. Integers that follow each other become a range.

    Raises:
        SweepError: If there is none, or one twice.

    Example:
        >>> Axis([1, 2, 3]), Axis([1.5, 2.0]), len(Axis(range(1, 10**9)))
        (Axis(1-3), Axis(1.5, 2.0), 999999999)
    """

    def __init__(self, values: Iterable[Any]) -> None:
        if not (isinstance(values, range) and values.step == 1):
            values = _find_range(tuple(values))
        self.values: Sequence[Any] = values
        if not len(self.values):
            raise SweepError("there are no values: give at least one")
        if not isinstance(self.values, range):
            self._places = {_key(value): place for place, value in enumerate(self.values)}
            if len(self._places) < len(self.values):
                twice = next(v for i, v in enumerate(self.values) if self._places[_key(v)] != i)
                raise SweepError(f"{show(twice)} is given with repetitions: give each value once")

    def __repr__(self) -> str:
        if isinstance(self.values, range) and len(self.values) > 1:
            return f"Axis({self.values[0]}-{self.values[-1]})"
        return f"Axis({', '.join(map(repr, self.values))})"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> Any:
        return self.values[place]

    def __contains__(self, value: Any) -> bool:
        if isinstance(self.values, range):
            return type(value) is int and value in self.values
        return _key(value) in self._places

    def common(self, other: Axis) -> Axis | None:
        """The values that are in both, in this order; None if there is none."""
        if isinstance(self.values, range) and isinstance(other.values, range):
            both = range(
                max(self.values.start, other.values.start), min(self.values.stop, other.values.stop)
            )
            return Axis(both) if both else None
        few = self.values if len(self) <= len(other) else other.values
        both = [value for value in few if value in self and value in other]
        return Axis(both) if both else None

    def without(self, other: Axis) -> list[Axis]:
        """The values that are not in the other, as few axes."""
        if not isinstance(self.values, range):
            rest = [value for value in self.values if value not in other]
            return [Axis(rest)] if rest else []
        common = self.common(other)
        if common is None:
            return [self]
        # Ranges from the end of one removed stretch to the beginning of the next.
        removed = common.values if isinstance(common.values, range) else sorted(common.values)
        stretches = [removed] if isinstance(removed, range) else [range(i, i + 1) for i in removed]
        pieces, first = [], self.values.start
        for stretch in stretches:
            pieces.append(range(first, stretch.start))
            first = stretch.stop
        pieces.append(range(first, self.values.stop))
        return [Axis(piece) for piece in pieces if piece]

    def to_document(self) -> Any:
        """A list, or a range as its two ends."""
        if isinstance(self.values, range):
            return {FROM: self.values[0], TO: self.values[-1]}
        return ["inf" if value == math.inf else value for value in self.values]

    @classmethod
    def from_document(cls, document: Any) -> Axis:
        """Inverse of :meth:`to_document`."""
        if isinstance(document, dict):
            return cls(range(document[FROM], document[TO] + 1))
        return cls(math.inf if value == "inf" else value for value in document)


class Product:
    """Every combination of the values of some settings, numbered; the last axis is the fastest.

    Args:
        axes: By the name of the setting, in the order of the numbering.

    Example:
        >>> product = Product({"seed": Axis(range(1, 4)), "p": Axis([1.5, 2.0])})
        >>> product.size, product.settings(3)
        (6, {'seed': 2, 'p': 2.0})
    """

    def __init__(self, axes: Mapping[str, Axis]) -> None:
        self.axes = dict(axes)
        self.shape = tuple(len(axis) for axis in self.axes.values())
        self.size = math.prod(self.shape)

    def __repr__(self) -> str:
        axes = (f"{name}={repr(axis)[5:-1]}" for name, axis in self.axes.items())
        return f"Product({self.size:,} runs: {'; '.join(axes)})"

    def settings(self, number: int) -> dict[str, Any]:
        """The settings of one run."""
        places = np.unravel_index(number, self.shape)
        return {
            name: axis[int(i)] for (name, axis), i in zip(self.axes.items(), places, strict=True)
        }

    def places(self, first: int, stop: int) -> dict[str, NDArray[np.intp]]:
        """Of the runs ``first <= number < stop``, the places of their values on each axis."""
        found = np.unravel_index(np.arange(first, stop), self.shape)
        return dict(zip(self.axes, found, strict=True))

    def replace(self, **axes: Axis) -> Product:
        """The same with other axes of these names."""
        return Product({**self.axes, **axes})

    def to_document(self) -> dict[str, Any]:
        """For JSON, in the order of the axes."""
        return {name: axis.to_document() for name, axis in self.axes.items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Product:
        """Inverse of :meth:`to_document`."""
        return cls({name: Axis.from_document(axis) for name, axis in document.items()})


def find_missing(
    wanted: Product, known: Sequence[Product], find_default: Callable[[Product, str], Any]
) -> list[Product]:
    """The runs of a product that no known product has, as products that share none.

    Args:
        wanted: All of the runs.
        known: Other products, with the same axes or others.
        find_default: The value that a setting has in a product without an axis for it.

    Example:
        >>> old = Product({"seed": Axis(range(1, 3)), "p": Axis([2.0])})
        >>> new = Product({"seed": Axis(range(1, 5)), "p": Axis([2.0])})
        >>> find_missing(new, [old], lambda product, name: None)
        [Product(2 runs: seed=3-4; p=2.0)]
    """
    pieces = [wanted]
    for other in known:
        pieces = [rest for piece in pieces for rest in _subtract(piece, other, find_default)]
    return pieces


def _subtract(
    product: Product, other: Product, find_default: Callable[[Product, str], Any]
) -> list[Product]:
    names = [*product.axes, *(name for name in other.axes if name not in product.axes)]
    mine, theirs = (
        {name: one.axes.get(name) or Axis([find_default(one, name)]) for name in names}
        for one in (product, other)
    )
    common = {name: mine[name].common(theirs[name]) for name in names}
    if None in common.values():
        return [product]
    pieces, head = [], {}
    for name in names:
        tail = {one: mine[one] for one in names[len(head) + 1 :]}
        for rest in mine[name].without(theirs[name]):
            pieces.append(Product({**head, name: rest, **tail}))
        head[name] = common[name]
    return pieces


def _key(value: Any) -> str:
    """Equal for equal values, which need not be hashable; 1, 1.0 and True differ."""
    return json.dumps(value, sort_keys=True)


def _find_range(values: tuple[Any, ...]) -> Sequence[Any]:
    """A range if the values are integers that follow each other."""
    if len(values) > 1 and all(type(value) is int for value in values):
        whole = range(values[0], values[-1] + 1)
        if len(whole) == len(values) and all(a == b for a, b in zip(values, whole, strict=True)):
            return whole
    return values
