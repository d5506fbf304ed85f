"""Parameter groups by name: patterns on qualified names, first match wins."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from mirrormargin.arguments import check_kind
from mirrormargin.errors import OptimizerError

__all__ = ["param_groups"]


def param_groups(
    model: nn.Module, patterns: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Sort a model's trainable parameters into groups with their own hyper-parameters.

    Args:
        model: Its ``named_parameters()`` are matched; frozen ones (``requires_grad=False``) are
            left out, and a tied weight appears once, under its first name.
        patterns: Shell-style pattern -> options of that group, in order of precedence.

    Returns:
        One group per pattern, with named parameters, ready for an optimizer.

    Raises:
        OptimizerError: If a pattern matches nothing, a pattern is shadowed by earlier ones, or a
            parameter is matched by no pattern.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, 16)
        >>> groups = param_groups(model, {"*attn*": {"p": 1.1}, "*": {"p": 2.0}})
        >>> [(g["p"], len(g["params"])) for g in groups]
        [(1.1, 4), (2.0, 8)]
    """
    check_kind("model", model, nn.Module, "whose parameters to group", error=OptimizerError)
    check_kind("patterns", patterns, Mapping, "such as {'*': {'p': 1.1}}", error=OptimizerError)
    for pattern, options in patterns.items():
        check_kind("a pattern", pattern, str, "such as '*attn*'", error=OptimizerError)
        advice = "such as {'p': 1.1}"
        check_kind(f"patterns[{pattern!r}]", options, Mapping, advice, error=OptimizerError)
    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    members: dict[str, list[tuple[str, nn.Parameter]]] = {pattern: [] for pattern in patterns}
    orphans = []
    for name, param in named:
        home = next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)
        (orphans if home is None else members[home]).append((name, param))
    if orphans:
        raise OptimizerError(
            f"{len(orphans)} parameters match no pattern, such as {orphans[0][0]!r}: add a pattern "
            'for them, or "*" at the end for all the rest'
        )
    for pattern, group in members.items():
        if not group:
            matches = [name for name, _ in named if fnmatchcase(name, pattern)]
            why = (
                f"all it matches (such as {matches[0]!r}) is taken by earlier patterns"
                if matches
                else "it matches no parameter; names look like "
                + ", ".join(repr(name) for name, _ in named[:3])
            )
            raise OptimizerError(f"pattern {pattern!r} gives an empty group: {why}")
    return [{"params": group, **patterns[pattern]} for pattern, group in members.items()]
