"""Which parameters of a model are trained: those that patterns name, and no others.

("head.*",)              a probe: the pretrained encoder stays as it is
("*.bias", "head.*")     BitFit: biases and the head
("blocks", "head.*")     the matrices inside the blocks and the head, without norms and embeddings
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from mirrormargin.errors import TrainingError
from mirrormargin.training.sparsity import select_matrices

__all__ = ["freeze_others"]

BLOCKS = "blocks"


def freeze_others(model: nn.Module, trainable: Sequence[str]) -> None:
    """Set ``requires_grad`` to False for every parameter that no pattern matches.

    Args:
        model: Its parameters are matched by their names.
        trainable: Shell-style patterns, and the word ``blocks`` for all block matrices.

    Raises:
        TrainingError: If a pattern matches nothing, or there is none.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        >>> freeze_others(model, ["1.*"])
        >>> [name for name, param in model.named_parameters() if param.requires_grad]
        ['1.weight', '1.bias']
    """
    if not trainable:
        raise TrainingError(
            "trainable is an empty list, so that nothing would be trained: name parameters, such as"
            ' ["head.*"], or give null for all'
        )
    names = [name for name, _ in model.named_parameters()]
    chosen: set[str] = set()
    for pattern in trainable:
        if pattern == BLOCKS:
            matches = set(select_matrices(model, BLOCKS))
        else:
            matches = {name for name in names if fnmatchcase(name, pattern)}
        if not matches:
            shown = ", ".join(repr(name) for name in (*names[:3], *names[-2:]))
            raise TrainingError(
                f"trainable has {pattern!r}, which matches no parameter: names look like {shown}"
            )
        chosen |= matches
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen)
