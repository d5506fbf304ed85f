"""Compiling what the tests call from outside, once and for all: it takes ten seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import typeof

from mirrormargin.attention import compiled as attention
from mirrormargin.geometry.compiler import CompiledFunction


def compile_once(make: Callable[[int], Any], *examples: Any) -> Callable[..., Any]:
    """The function of a :class:`CompiledFunction`, for arguments of the types of the examples."""
    signature = tuple(typeof(example) for example in examples)
    sources = (*attention.SOURCES, make.__code__.co_filename)
    return CompiledFunction(make, signature, sources).load()
