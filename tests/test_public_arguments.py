"""Every public function and class answers an absurd argument with an error of our own.

For each of them there is a call that works; every argument in turn is replaced by values that make
no sense. The call must then still work, or raise a :class:`MirrorMarginError` that names what is
wrong, as it must for what its kind of argument never accepts. The catalogue is that of
``tools/soak``, whose trial of bad calls replaces two arguments at a time and also
has commands and files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mirrormargin as mm
from tools.soak.absurd_values import ABSURD, NEVER, find_kind
from tools.soak.valid_calls import CALLS, LONG, METHODS, NOT_CALLED, TORCH, find, list_parameters

# What a function of the caller raises is the caller's.
FUNCTIONS = {"closure", "evaluate", "forward", "progress", "rate"}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _cases() -> Iterator[Any]:
    for name in (*CALLS, *METHODS):
        for parameter in list_parameters(name):
            yield pytest.param(name, parameter, id=f"{name}-{parameter.name}")


def test_every_public_function_and_class_has_a_call():
    errors = {name for name in mm.__all__ if name.endswith(("Error", "Warning", "Interrupted"))}
    assert set(mm.__all__) - errors - NOT_CALLED == {name for name in CALLS if "." not in name}


def test_every_public_method_has_a_call():
    """Inherited ones, and those that take nothing, aside."""
    for name in mm.__all__:
        if isinstance(kind := getattr(mm, name), type) and not issubclass(kind, Exception):
            methods = (one for one in vars(kind) if one in ("save", "load", "fit_rate", "step"))
            assert all(f"{name}.{one}" in METHODS for one in methods)


@pytest.mark.parametrize("name", [*CALLS, *METHODS])
def test_the_call_works(name):
    function, arguments = find(name)
    function(**arguments)


@pytest.mark.parametrize(("name", "parameter"), list(_cases()))
def test_an_absurd_argument_works_or_raises_our_error(name, parameter):
    kind = find_kind(name, parameter.name)
    allowed = (mm.MirrorMarginError, *TORCH.get((name, parameter.name), ()))
    wrong = []
    for what, make in ABSURD.items():
        value = make()
        is_long = what in LONG.get((name, parameter.name), ())
        if is_long or (parameter.name in FUNCTIONS and callable(value)):
            continue
        function, arguments = find(name)
        try:
            function(**{**arguments, parameter.name: value})
        except allowed as error:
            if not str(error).strip():
                wrong.append(f"{what}: an error without a message")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:120]}")
        else:
            if kind and what in NEVER[kind] and not (value is None and parameter.default is None):
                wrong.append(f"{what}: accepted")
    assert not wrong, "\n".join(wrong)
