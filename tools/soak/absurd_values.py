"""Values that make no sense, and which of them no argument of a kind may accept.

The tests of public arguments and the trial of bad calls share this catalogue. Every value is made
by a function, for some are used up or changed by those they are given to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mirrormargin as mm

__all__ = ["ABSURD", "NEVER", "PROBLEM", "find_kind"]

PROBLEM = mm.synthetic.unit_sphere(1, num_sequences=2, num_tokens=3, dim=2)


class Silent:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("there is nothing to see")


class Raising:
    """An object that promises to be a number and an array, and raises when taken at its word."""

    def __float__(self) -> float:
        raise RuntimeError("not a number after all")

    __index__ = __len__ = __iter__ = __float__  # pyright: ignore[reportAssignmentType]

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise KeyError("not an array after all")


class Lying:
    """An object with a shape and a type, and nothing behind them."""

    shape, dtype, ndim, size = (2, 2), np.dtype(float), 2, 4


class TextOfItsOwn(str):
    """A text that is equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def _nest(depth: int) -> Any:
    nested: Any = 1.0
    for _ in range(depth):
        nested = [nested]
    return nested


def _contain_itself() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


ABSURD: dict[str, Callable[[], Any]] = {
    # no numbers
    "None": lambda: None,
    "a text": lambda: "x",
    "an empty text": lambda: "",
    "a number as text": lambda: "2",
    "a text with a zero byte": lambda: "a\0b",
    "half a character": lambda: "\ud800",
    "a text of a million letters": lambda: "x" * 1_000_000,
    "a text that equals all": lambda: TextOfItsOwn("x"),
    "bytes": lambda: b"2",
    "a path": lambda: Path("nowhere"),
    "an object": object,
    "an object without a repr": Silent,
    "an object that raises": Raising,
    "an object that lies": Lying,
    "a class": lambda: int,
    "a function": lambda: len,
    "a module": lambda: np,
    "a generator": lambda: (one for one in (1, 2)),
    "an ellipsis": lambda: ...,
    # single numbers
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "a fraction": lambda: 0.5,
    "-0.5": lambda: -0.5,
    "a complex number": lambda: 2 + 1j,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "1e6": lambda: 1e6,
    "1e308": lambda: 1e308,
    "5e-324": lambda: 5e-324,
    "2**40": lambda: 2**40,
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "a decimal nan": lambda: Decimal("nan"),
    "a large fraction": lambda: Fraction(10**400, 3),
    "a date": lambda: np.datetime64("2020-01-01"),
    "a float16 nan": lambda: np.float16(np.nan),
    # lists
    "an empty list": list,
    "a list of texts": lambda: ["a", "b"],
    "a list of objects": lambda: [object(), None],
    "a ragged list": lambda: [[1.0], [1.0, 2.0]],
    "a list of numbers": lambda: [1.0, 2.0, 3.0, 4.0, 5.0],
    "a list of nan": lambda: [math.nan, math.nan],
    "a list in itself": _contain_itself,
    "a list of 100 levels": lambda: _nest(100),
    "a dictionary": lambda: {"a": 1},
    "a set": lambda: {1, 2},
    "a range": lambda: range(3),
    # arrays
    "an array of nan": lambda: np.full((2, 2), np.nan),
    "an array of inf": lambda: np.full((2, 2), np.inf),
    "an array of 1e308": lambda: np.full((2, 2), 1e308),
    "an array of objects": lambda: np.array([None, "a"], dtype=object),
    "an array of complex numbers": lambda: np.ones((2, 2), complex),
    "an array of texts": lambda: np.array(["a", "b"]),
    "an array of dates": lambda: np.zeros(2, "M8[s]"),
    "an array of records": lambda: np.zeros(2, [("a", float)]),
    "an array of four axes": lambda: np.ones((1, 2, 3, 4)),
    "an empty array": lambda: np.zeros((0, 2)),
    "an array of 10^12 entries": lambda: np.broadcast_to(1.0, (10**6, 10**6)),
    "a masked array": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "a tensor": lambda: torch.ones(3),
    "a complex tensor": lambda: torch.ones(2, dtype=torch.complex64),
    "a sparse tensor": lambda: torch.ones(2, 2).to_sparse(),
    "a tensor without contents": lambda: torch.ones(2, 2, device="meta"),
    "a tensor of nan": lambda: torch.full((2, 2), math.nan),
    # objects of ours, in other places than theirs
    "a problem": lambda: PROBLEM,
    "a list of problems": lambda: [PROBLEM],
    "a list of a problem and a number": lambda: [PROBLEM, 3],
    "a potential": lambda: mm.LpPotential(1.5),
    "a model": lambda: torch.nn.Linear(3, 2),
    "an optimizer": lambda: mm.MirrorAdam([torch.nn.Parameter(torch.ones(2))]),
}

_NO_NUMBERS = {
    "a text", "an empty text", "a number as text", "a text with a zero byte", "half a character",
    "a text of a million letters", "a text that equals all", "bytes", "a path", "an object",
    "an object without a repr", "an object that raises", "an object that lies", "a class",
    "a function", "a module", "a generator", "an ellipsis", "a complex number", "nan",
    "a decimal nan", "a date", "a float16 nan", "an empty list", "a list of texts",
    "a list of objects", "a ragged list", "a list of nan", "a list in itself", "a dictionary",
    "a set", "an array of nan", "an array of objects", "an array of complex numbers",
    "an array of texts", "an array of dates", "an array of records", "an empty array",
    "an array of 10^12 entries", "a complex tensor", "a tensor without contents",
    "a tensor of nan", "a problem", "a list of problems", "a list of a problem and a number",
    "a potential", "a model", "an optimizer",
}  # fmt: skip
_BEYOND = {"inf", "-inf", "1e308", "10**400", "10**5000", "a large fraction"}
_NEGATIVE = {"-1", "-0.5", "-inf"}
_BROKEN = {"a fraction", "-0.5", "5e-324", "1e308", "inf", "-inf"}

# Of each kind of argument, what it may never accept. None is allowed where it is the default.
NEVER: dict[str, set[str]] = {
    "exponent": _NO_NUMBERS | _BEYOND | _NEGATIVE | {"True", "0", "a fraction", "5e-324", "1e6"},
    "count": _NO_NUMBERS | _BEYOND | _NEGATIVE | _BROKEN | {"True"},
    "seed": _NO_NUMBERS | _BEYOND | _NEGATIVE | _BROKEN | {"True"},
    "seeds": (_NO_NUMBERS | _BEYOND | _NEGATIVE | _BROKEN | {"True"}) - {"a generator"},
    "steps": (_NO_NUMBERS | _BEYOND | _NEGATIVE | _BROKEN | {"True"}) - {"an empty list"},
    "loss": _NO_NUMBERS - {"nan", "a decimal nan", "a float16 nan"},
    "nonnegative": _NO_NUMBERS | _NEGATIVE | {"True"},
    "positive": _NO_NUMBERS | _NEGATIVE | {"True", "0"},
    "number": _NO_NUMBERS | {"True", "-inf"},
    "array": (_NO_NUMBERS | {"inf", "-inf", "an array of inf"}) - {"an empty list"},
    "choice": set(ABSURD) - {"None", "a text that equals all"},
    "flag": set(ABSURD) - {"None", "True", "0"},
    "problem": set(ABSURD) - {"a problem", "a list of problems"},
    "record": set(ABSURD),
    "function": set(ABSURD) - {"None", "a function", "a class", "a module", "an optimizer"},
    "model": set(ABSURD) - {"a model"},
    "folder": set(ABSURD) - {"a text", "a number as text", "a path", "a text that equals all"},
    "patterns": set(ABSURD),
    "params": set(ABSURD) - {"a tensor", "a tensor of nan", "a generator"},
}

_KINDS: Mapping[str, str] = {
    "p": "exponent", "seed": "seed", "seeds": "seeds", "record_steps": "steps",
    **dict.fromkeys(("num_sequences", "num_tokens", "dim", "num_radii", "num_starts", "max_iter",
                     "rank", "threads", "num_steps", "block"), "count"),
    **dict.fromkeys(("keep", "num_values"), "count"),
    **dict.fromkeys(("lr", "tol", "target_tol", "decades", "C", "beta"), "positive"),
    **dict.fromkeys(("std", "weight_decay", "eps", "decay", "head_decay"), "nonnegative"),
    **dict.fromkeys(("momentum", "f_min", "max_lr", "head_lr", "confidence", "clip"), "number"),
    **dict.fromkeys(("tokens", "queries", "labels", "head", "W", "features", "selection",
                     "selections", "rhs"), "array"),
    **dict.fromkeys(("step_rule", "parameterization", "form", "quantity", "loss", "norm_over",
                     "polyak", "nonfinite", "state_dtype", "scope"), "choice"),
    **dict.fromkeys(("keep_path", "raise_on_failure", "compiled", "nesterov", "amsgrad",
                     "maximize", "same_for_all_p", "foreach", "fused", "caution",
                     "capturable", "check"), "flag"),
    "problem": "problem", "problems": "problem",
    **dict.fromkeys(("progress", "rate", "closure", "evaluate", "forward"), "function"),
    "model": "model", "patterns": "patterns", "params": "params", "folder": "folder",
}  # fmt: skip


def find_kind(function: str, parameter: str) -> str:
    """The kind of an argument, "" for one of which nothing is known in general."""
    if (function, parameter) in {
        ("basin_statistics", "record"),
        ("compare_exponents", "record"),
        ("resume_training", "record"),
    }:
        return "record"
    if (function, parameter) == ("AttentionRecord.fit_rate", "problem"):
        return ""  # an index, or several
    if function.endswith(".step") and parameter == "loss":
        return "loss"
    if parameter == "lr" and function.startswith("Mirror"):
        return "nonnegative"  # schedulers may bring it to 0
    if parameter == "tol" and function.endswith("fit_rate"):
        return "nonnegative"
    return _KINDS.get(parameter, "")
