"""Compiling what the tests call from outside, once and for all: it takes ten seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import typeof

from mirrormargin.attention import compiled as attention
from mirrormargin.attention import losses
from mirrormargin.geometry import compiled as geometry
from mirrormargin.geometry import doubles
from mirrormargin.geometry.routine import Routine

SOURCES = [str(module.__file__) for module in (attention, losses, geometry, doubles)]


def compile_once(make: Callable[[int], Any], *examples: Any) -> Callable[..., Any]:
    """The function of a :class:`Routine`, for arguments of the types of the examples."""
    signature = tuple(typeof(example) for example in examples)
    return Routine(make, signature, [make.__code__.co_filename, *SOURCES]).load()
