"""Grids of lab runs: which settings a run has, what they may be, and how their runs are numbered.

A run is one call of :func:`mirrormargin.train_attention` with one problem, one exponent and one
start. Settings on which a whole call depends come first in the numbering and exponents last, so
that runs that follow each other go through compiled code together:

    problem, sizes, step rule, ... > init_std > seed > init_seed > p > lr > num_steps
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mirrormargin.arguments import (
    check_choice,
    check_count,
    check_exponent,
    check_number,
    read_items,
    show,
)
from mirrormargin.errors import SweepError, suggest
from mirrormargin.sweep.axes import Axis, Product

__all__ = [
    "CALL",
    "COLUMNS",
    "FAST",
    "RECIPE",
    "ROWS",
    "SIZES",
    "LabGrid",
    "count_calls",
    "list_sizes",
]

RECIPE = 1  # to be raised when code changes in a way that gives other results for the same settings
ROWS = ("init_std", "seed", "init_seed")  # one problem and one start
COLUMNS = ("p", "lr", "num_steps")  # one exponent of a call
FAST = (*ROWS, *COLUMNS)
SIZES = ("num_sequences", "num_tokens", "dim")
FIRST_SEED = 1


@dataclass(frozen=True)
class _Setting:
    """What a setting is if it is not given, and the check of a value, which returns it."""

    default: Any
    check: Callable[[str, Any], Any]


def _number(**limits: Any) -> Callable[[str, Any], float]:
    return lambda name, value: check_number(name, value, **limits)


def _choice(*names: str) -> Callable[[str, Any], str]:
    return lambda name, value: check_choice(name, value, names)


def _count(least: int) -> Callable[[str, Any], int]:
    return lambda name, value: check_count(name, value, least=least)


def _or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _check_seed(name: str, value: Any) -> int:
    return check_count(name, value, least=0)


def _check_record(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [check_count(name, step, least=0) for step in value]
    return check_count(name, value, least=0)


CALL = {
    "step_rule": _Setting("normalized", _choice("constant", "normalized", "polyak")),
    "parameterization": _Setting("W", _choice("W", "KQ")),
    "rank": _Setting(None, _or_none(_count(1))),
    "eps": _Setting(0.0, _number(least=0.0)),
    "max_lr": _Setting(math.inf, _number(above=0.0, most=math.inf)),
    "target": _Setting("own", _choice("own", "none")),
    "target_tol": _Setting(1e-8, _number(above=0.0, below=1.0)),
    "record": _Setting(0, _check_record),
}
_FAST = {
    "init_std": _Setting(0.0, _number(least=0.0)),
    "seed": _Setting(None, _check_seed),
    "init_seed": _Setting(None, _or_none(_check_seed)),
    "p": _Setting(2.0, lambda name, value: check_exponent(value, error=SweepError)),
    "lr": _Setting(0.1, _number(above=0.0)),
    "num_steps": _Setting(1000, _count(0)),
}


class LabGrid:
    """Every combination of some settings of the lab.

    Args:
        problem: Names of synthetic problems, see :mod:`mirrormargin.synthetic`.
        settings: One value or several of each: the arguments of
            :func:`mirrormargin.train_attention`, ``seed`` and whatever else the problem takes, such
            as ``dim``; ``init_std`` and ``init_seed`` of a normal start (that seed is the
            problem's own if it is not given); ``target``, "own" or "none". Seeds may be a range or
            a text such as "1-1000". ``record``, a number of steps or a list of them, is one value.

    Raises:
        SweepError: (a ValueError) If a setting is unknown, or takes no such value.

    Example:
        >>> LabGrid(p=[1.75, 2, 3], seed=range(1, 1001), lr=[0.03, 0.1]).size
        6000
    """

    kind = "lab"

    def __init__(self, problem: str | Iterable[str] = "unit_sphere", **settings: Any) -> None:
        names = [problem] if isinstance(problem, str) else read_items("problem", problem, "names")
        self.products = [_make_product(name, settings) for name in names]
        self.size = sum(product.size for product in self.products)

    def __repr__(self) -> str:
        return f"LabGrid({self.size:,} runs)"


def _make_product(problem: Any, given: Mapping[str, Any]) -> Product:
    from mirrormargin.attention import synthetic

    if not isinstance(problem, str) or problem not in synthetic.GENERATORS:
        advice = suggest(str(problem), list(synthetic.GENERATORS))
        raise SweepError(f"there is no problem {show(problem)}: {advice}")
    own = _list_own(problem)
    fast = {name: setting for name, setting in _FAST.items() if name != "seed" or "seed" in own}
    if "seed" in own:
        fast["seed"] = own.pop("seed")
    known = {**own, **CALL, **fast}
    for name in given:
        if name not in known:
            near = suggest(name, list(known))
            raise SweepError(f"{problem} has no setting {name!r} in the lab: {near}")
    axes = {"problem": Axis([problem])}
    for name, setting in known.items():
        axes[name] = _read_axis(name, given.get(name, setting.default), setting)
    return Product(axes)


def _list_own(problem: str) -> dict[str, _Setting]:
    """The settings of a generator of problems, its seed among them if it has one."""
    from mirrormargin.attention import synthetic
    from mirrormargin.attention.losses import LOSSES

    found: dict[str, _Setting] = {}
    for name, parameter in inspect.signature(synthetic.GENERATORS[problem]).parameters.items():
        default: Any = parameter.default
        if name == "seed":
            first = FIRST_SEED if default is parameter.empty else default
            found[name] = _Setting(first, _check_seed)
        elif name == "loss":
            found[name] = _Setting(default, _choice(*LOSSES))
        elif isinstance(default, int):
            found[name] = _Setting(default, _count(1))
        elif isinstance(default, float):
            found[name] = _Setting(default, _number())
    return found


def _read_axis(name: str, given: Any, setting: _Setting) -> Axis:
    """The values of a setting, each as its check returns it."""
    try:
        if isinstance(given, str) and name in ("seed", "init_seed"):
            given = _read_range(name, given)
        if isinstance(given, range) and given.step == 1:
            for end in given[:1], given[-1:]:
                for value in end:
                    setting.check(name, value)
            is_whole = name.endswith("seed") or name == "num_steps"
            return Axis(given) if is_whole else Axis(setting.check(name, v) for v in given)
        if name == "record" or given is None or isinstance(given, (str, int, float)):
            return Axis([setting.check(name, given)])
        values = read_items(name, given, "a value, or a list of values", error=SweepError)
        return Axis(setting.check(name, value) for value in values)
    except ValueError as error:
        text = str(error)
        raise SweepError(text if text.startswith(f"{name} ") else f"{name}: {text}") from error


def _read_range(name: str, text: str) -> range:
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()) or int(last) < int(first):
        raise SweepError(f"{name} is {show(text)}: give integers >= 0, or a range such as '1-1000'")
    return range(int(first), int(last) + 1)


def count_calls(product: Product) -> int:
    """How many parts of a product, one behind the other, differ in what a whole call depends on."""
    return math.prod(len(axis) for name, axis in product.axes.items() if name not in FAST)


def list_sizes(product: Product, number: int) -> tuple[int, int, int]:
    """n, T and d of a run."""
    settings = product.settings(number)
    if all(name in settings for name in SIZES):
        n, T, d = (settings[name] for name in SIZES)
        return n, T, d
    from mirrormargin.attention import synthetic

    problem = synthetic.GENERATORS[settings["problem"]]()
    return problem.num_sequences, problem.num_tokens, problem.dim
