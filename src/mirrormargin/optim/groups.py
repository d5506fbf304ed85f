"""Parameter groups: by patterns on names, or by what each tensor of a model is.

Near p = 1 the map from u to w is flat at 0 (w = u^10 at p = 1.1), so that a tensor which starts
there hardly moves, and biases, norms and tables of embeddings gain nothing from sparse values.
:func:`mirror_groups` therefore takes the matrices of linear and attention layers for the geometry
of p, and the rest for p = 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_exponent, check_flag, check_kind, read_items
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.shards import combine_largest, get_local, is_sharded

__all__ = [
    "are_zero",
    "describe_groups",
    "find_largest_of",
    "is_zero",
    "mirror_groups",
    "param_groups",
]

Named = list[tuple[str, nn.Parameter]]

MATRIX = "matrix of a linear or attention layer"
_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_LAYERS = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, *_CONVOLUTIONS)
_TABLES = (nn.Embedding, nn.EmbeddingBag)
_POSITIONS = re.compile(r"pos(ition)?(s|al)?(_|\b)|wpe\b")  # as BERT, GPT-2 and others name them


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
    named = _list_trainable(model)
    groups, orphans = _match(named, patterns)
    if orphans:
        raise OptimizerError(
            f"{len(orphans)} parameters match no pattern, such as {orphans[0][0]!r}: add a pattern "
            'for them, or "*" at the end for all the rest'
        )
    return groups


class _Groups(list[dict[str, Any]]):
    """Groups that remember why each tensor is where it is."""

    def __init__(self, groups: Iterable[dict[str, Any]], reasons: Mapping[str, str]) -> None:
        super().__init__(groups)
        self.reasons = reasons


def mirror_groups(
    model: nn.Module,
    p: float = 1.1,
    *,
    patterns: Mapping[str, Mapping[str, Any]] | None = None,
    embeddings: bool = False,
    rest: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Sort any model's trainable parameters into those for the geometry of p and those for p = 2.

    The matrices of linear, convolutional, recurrent and attention layers, GPT-2's ``Conv1D`` and
    fused projections (``in_proj_weight``) among them, take p. Biases, norms, embeddings, position
    tables and other single tensors, weights that two layers share, and tensors that are 0 now (the
    second matrix of LoRA) take p = 2: there they train as with Adam or SGD.

    Args:
        model: Any module, with its initial or pretrained weights in place.
        p: Exponent of the matrices, ``1 < p < inf``.
        patterns: Shell-style pattern on names -> options of that group; what a pattern matches is
            taken out of the two groups, whatever it is. Such as ``{"*.head.weight": {"p": 1.5}}``.
        embeddings: Whether tables of embeddings take p as well, if no layer shares them; those of
            positions, known by their names, do not.
        rest: More options of the group with p = 2, such as ``{"weight_decay": 0.0}``.
        **options: More options of the group with p, such as ``lr``, ``weight_decay`` or ``scale``;
            a ``potential``, such as :class:`mirrormargin.GroupLpPotential`, takes the place of p.

    Returns:
        Groups for :class:`mirrormargin.MirrorAdam` or :class:`mirrormargin.MirrorDescent`: those
        of the patterns, the matrices, the rest. :func:`mirrormargin.describe_groups` says what is
        where, and why.

    Raises:
        OptimizerError: If p is out of range, a pattern gives an empty group, or there is nothing
            to train.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, 16)
        >>> groups = mirror_groups(model, p=1.1)
        >>> [(group["p"], len(group["params"])) for group in groups]
        [(1.1, 4), (2.0, 8)]
    """
    p = check_exponent(p, error=OptimizerError)
    check_flag("embeddings", embeddings, error=OptimizerError)
    for name, more in (("rest", rest), ("options", options)):
        if more is not None:
            check_kind(name, more, Mapping, "such as {'lr': 1e-3}", error=OptimizerError)
        if more and {"params", "p"} & more.keys():
            raise OptimizerError(f"{name} holds {sorted(more)}: p and params are set here")
    named = _list_trainable(model)
    if not named:
        raise OptimizerError(
            f"{type(model).__name__} has no parameter to train: is requires_grad False in all?"
        )
    groups, others = _match(named, {} if patterns is None else patterns)
    homes: dict[int, list[str]] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        homes.setdefault(id(param), []).append(name)
    reasons = {name: _find_reason(model, name, param, homes[id(param)]) for name, param in others}
    wanted = {MATRIX, *(["embedding"] if embeddings else [])}
    geometry = {} if options.get("potential") is not None else {"p": p}
    matrices = {**geometry, "is_matrices": True, **options}  # what a sparsity schedule is about
    for is_matrix, group in ((True, matrices), (False, {"p": 2.0, **(rest or {})})):
        members = [
            (name, param) for name, param in others if (reasons[name] in wanted) is is_matrix
        ]
        if members:
            groups.append({"params": members, **group})
    return _Groups(groups, reasons)


def describe_groups(groups: Iterable[Mapping[str, Any]]) -> str:
    """What is in parameter groups, as text: a paragraph for each group, a line for each kind.

    Args:
        groups: As :func:`mirror_groups` or :func:`param_groups` makes them, or the
            ``param_groups`` of an optimizer that was built from them.

    Example:
        >>> print(describe_groups(mirror_groups(nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)))))
        p = 1.1: 1 tensor, 12 values
          matrix of a linear or attention layer (1): 0.weight
        p = 2: 3 tensors, 9 values
          bias (2): 0.bias, 1.bias
          norm (1): 1.weight
    """
    reasons, lines = getattr(groups, "reasons", {}), []
    allowed = "as mirrormargin.mirror_groups makes them"
    for number, group in enumerate(read_items("groups", groups, allowed, error=OptimizerError)):
        check_kind(f"groups[{number}]", group, Mapping, allowed, error=OptimizerError)
        names, tensors = _split(group)
        values = sum(tensor.numel() for tensor in tensors)
        own = group.get("potential")
        shown = ("p" if own is None else "potential", "lr", "scale", "weight_decay")
        options = ", ".join(
            f"{key} = {value:g}" if isinstance(value, (int, float)) else f"{key} = {value}"
            for key, value in group.items()
            if key in shown and value is not None
        )
        options += ", centred" * bool(group.get("center"))
        count = f"{len(tensors):,} tensor{'s' * (len(tensors) != 1)}"
        lines.append(f"{options or f'group {number}'}: {count}, {values:,} values")
        kinds: dict[str, list[str]] = {}
        for name in names:
            kinds.setdefault(reasons.get(name, "named"), []).append(name)
        lines += [
            f"  {kind} ({len(members)}): {', '.join(_fold(members))}"
            for kind, members in kinds.items()
        ]
    return "\n".join(lines)


def _split(group: Mapping[str, Any]) -> tuple[list[str], list[Tensor]]:
    """The names, if they are known, and the tensors of a group, before or after an optimizer."""
    given = group.get("params")
    allowed = "tensors, such as model.parameters()"
    entries: list[Any] = (
        [given]
        if isinstance(given, Tensor)
        else list(read_items("params", given, allowed, error=OptimizerError))
    )
    if entries and all(isinstance(one, tuple) and len(one) == 2 for one in entries):
        names, entries = [name for name, _ in entries], [tensor for _, tensor in entries]
    else:
        names = list(group.get("param_names", ()))
    for entry in entries:
        check_kind("a parameter", entry, Tensor, allowed, error=OptimizerError)
    return names, entries


def _fold(names: list[str], shown: int = 6) -> list[str]:
    """Names with their numbers as ``*``: the same layer of every block is one of them."""
    folded = ["*".join(re.split(r"(?<=\.)\d+(?=\.)", name)) for name in names]
    if len(set(folded)) == len(names):
        folded = names
    folded = list(dict.fromkeys(folded))
    more = len(folded) - shown
    return folded if more <= 0 else [*folded[:shown], f"and {more} more"]


def _list_trainable(model: nn.Module) -> Named:
    check_kind("model", model, nn.Module, "whose parameters to group", error=OptimizerError)
    return [(name, param) for name, param in model.named_parameters() if param.requires_grad]


def _match(
    named: Named, patterns: Mapping[str, Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], Named]:
    """A group for each pattern, and what no pattern matches."""
    check_kind("patterns", patterns, Mapping, "such as {'*': {'p': 1.1}}", error=OptimizerError)
    for pattern, options in patterns.items():
        check_kind("a pattern", pattern, str, "such as '*attn*'", error=OptimizerError)
        advice = "such as {'p': 1.1}"
        check_kind(f"patterns[{pattern!r}]", options, Mapping, advice, error=OptimizerError)
    members: dict[str, Named] = {pattern: [] for pattern in patterns}
    orphans: Named = []
    for name, param in named:
        home = next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)
        (orphans if home is None else members[home]).append((name, param))
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
    return [{"params": group, **patterns[pattern]} for pattern, group in members.items()], orphans


def _find_reason(model: nn.Module, name: str, param: nn.Parameter, homes: list[str]) -> str:
    """What a tensor is, in a word or two; MATRIX if it is for the geometry of p.

    Args:
        model: The model.
        name: Of the tensor.
        param: The tensor.
        homes: All names that it has in the model.
    """
    path, _, short = name.rpartition(".")
    owner = model.get_submodule(path)
    if "bias" in short:
        return "bias"
    if len(homes) > 1:
        return "shared by two layers"
    if is_zero(param):
        return "starts at zero"
    if isinstance(owner, _TABLES):
        return "position table" if _POSITIONS.search(path.lower()) else "embedding"
    if short == "in_proj_weight" and param.ndim == 2:
        return MATRIX
    if param.ndim < 2:
        return "norm" if "norm" in type(owner).__name__.lower() else "vector or scalar"
    if isinstance(owner, _LAYERS) or _is_conv1d(owner):
        return MATRIX
    return f"tensor of {type(owner).__name__}, which is no known layer"


def _is_conv1d(module: nn.Module) -> bool:
    """GPT-2's linear layer, whose matrix is transposed; transformers need not be imported."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def is_zero(param: Tensor) -> bool:
    """Whether all entries are 0; quick for whole tensors that are not."""
    if param.numel() == 0 or param.is_meta:
        return False
    if not is_sharded(param) and bool(param.detach()[(0,) * param.ndim]):
        return False
    return find_largest_of([param]) == [0.0]


def are_zero(params: Sequence[Tensor]) -> list[bool]:
    """Whether all entries of each tensor are 0; processes are asked once."""
    here = [is_zero(param) for param in params if not is_sharded(param)]
    spread = [param for param in params if is_sharded(param)]
    elsewhere = [size == 0 for size in find_largest_of(spread)]
    return [(elsewhere if is_sharded(param) else here).pop(0) for param in params]


def find_largest_of(params: Sequence[Tensor]) -> list[float]:
    """max |w| of each tensor, 0 for one without values; processes are asked once."""
    own = [_find_largest_here(get_local(param.detach())) for param in params]
    return combine_largest(torch.tensor(own, dtype=torch.float64), params).tolist()


def _find_largest_here(param: Tensor) -> float:
    if param.numel() == 0 or param.is_meta or type(param.data) is not Tensor:
        return 0.0
    if param.device.type == "cpu" and param.dtype in (torch.float32, torch.float64):
        values = param.detach().numpy()  # torch's threads would hang in a forked child
        return max(float(values.max()), -float(values.min()))
    return float(param.detach().abs().max())
