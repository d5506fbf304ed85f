r"""Patterns that hardware can use: of m neighbours in a row of a matrix, at most n are left.

2:4 is what the sparse tensor cores of NVIDIA's GPUs multiply twice as fast (Mishra et al., 2021,
arXiv 2104.08378). While the share of removed weights rises, the smallest of those that the pattern
will remove go first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mirrormargin.arguments import check_kind
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.shards import get_local

__all__ = ["Pattern"]


@dataclass(frozen=True)
class Pattern:
    """At most ``num_left`` of ``size`` neighbours are not 0."""

    num_left: int
    size: int

    @classmethod
    def read(cls, text: str, share: float) -> Pattern:
        """The pattern of such a text as "2:4".

        Raises:
            OptimizerError: If it is none, or removes another share than this one.
        """
        check_kind("pattern", text, str, "such as '2:4'", error=OptimizerError)
        found = re.fullmatch(r"(\d{1,3}):(\d{1,3})", text)
        if found is None or not 0 < int(found[1]) < int(found[2]):
            raise OptimizerError(f"pattern is {text!r}: give n:m with 0 < n < m, such as '2:4'")
        own = cls(int(found[1]), int(found[2]))
        if abs(own.share - share) > 1e-6:
            raise OptimizerError(
                f"the pattern {text} removes {own.share:g} of the weights, and share is {share:g}:"
                f" give share={own.share:g}"
            )
        return own

    @property
    def share(self) -> float:
        """Of the weights that are removed."""
        return 1 - self.num_left / self.size

    def check(self, params: Sequence[Tensor]) -> None:
        """Raise unless rows can be cut into neighbours, in the parts that are here."""
        for param in params:
            width = param.shape[-1] if param.ndim else 1
            if width % self.size or get_local(param).shape[-1] != width:
                raise OptimizerError(
                    f"a tensor of shape {tuple(param.shape)} has rows that cannot be cut into"
                    f" {self.size} neighbours: name other tensors with params"
                )

    def restrict(self, scores: Tensor) -> Tensor:
        """Infinite scores for those that the pattern leaves: the largest, of equal ones the first.

        Example:
            >>> Pattern(1, 2).restrict(torch.tensor([[0.3, 0.1, 0.2, 0.2]]))
            tensor([[   inf, 0.1000,    inf, 0.2000]])
        """
        rows = scores.reshape(-1, self.size)
        order = rows.argsort(dim=1, descending=True, stable=True)
        return rows.scatter(1, order[:, : self.num_left], torch.inf).view(scores.shape)
