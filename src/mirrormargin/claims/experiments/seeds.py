"""Which seeds an experiment uses: those of the papers, or as many others."""

from __future__ import annotations

from typing import Any

__all__ = ["list_seeds", "split_seeds"]

STRIDE = 1000  # more than any experiment uses: other seeds of a command share no problem


def list_seeds(settings: dict[str, Any], first: int = 1) -> list[int]:
    """As many as ``settings["num_seeds"]``, from ``first`` on if the command's seed is 0."""
    start = first + STRIDE * settings["seed"]
    return list(range(start, start + settings["num_seeds"]))


def split_seeds(settings: dict[str, Any], first: int = 1, size: int = 10) -> list[list[int]]:
    """The seeds in groups of ``size``, each a part."""
    seeds = list_seeds(settings, first)
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]
