r"""How the entries of weight matrices are spread: counts, a histogram, and two indices of sparsity.

    l1_l2 = |w|_1 / (sqrt(N) |w|_2)                     1 if all |w_i| are equal, 1/sqrt(N) for one
    hoyer = (sqrt(N) - |w|_1/|w|_2) / (sqrt(N) - 1)     0 if all |w_i| are equal, 1 for one

with w the N entries of all the matrices together. Neither changes when w is scaled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_count, check_number
from mirrormargin.errors import TrainingError
from mirrormargin.figures.weights import KINDS
from mirrormargin.training.distributed import get_local

__all__ = [
    "WeightStatistics",
    "count_underflowed",
    "measure_sparsity",
    "select_matrices",
    "summarize_attention_weights",
    "underflowed",
]

# The last part of a name before ".weight": ours, Hugging Face BERT and ViT, DistilBERT, Llama.
# ModernBERT has query, key and value below each other in one matrix.
PATTERNS = {kind: rf"(^|\.)({kind}|{kind[0]}_lin|{kind[0]}_proj)\.weight$" for kind in KINDS}
FUSED = r"(^|\.)Wqkv\.weight$"
GROUPS = {
    "attention": "|".join([*PATTERNS.values(), FUSED]),
    "blocks": r"(^|\.)(blocks|layers?|h)\.\d+\.(.*\.)?\w*weight$",
    "all": "",
}


@dataclass(frozen=True)
class WeightStatistics:
    """The entries of some matrices, counted together.

    Attributes:
        entries: How many there are, N.
        threshold: What ``above`` is counted with.
        above: Entries with |w| > threshold.
        zeros: Entries that are exactly zero, whatever made them so.
        largest: The largest |w|.
        below_hundredth: Entries with |w| < ``largest`` / 100, zeros included.
        below_thousandth: Entries with |w| < ``largest`` / 1000, zeros included.
        l1_l2: |w|_1 / (sqrt(N) |w|_2); None if all entries are zero.
        hoyer: Hoyer's index; None if all entries are zero or there is only one.
        bin_width: Bin k of the histogram holds k * bin_width <= |w| < (k + 1) * bin_width.
        histogram: Entries in each bin.
        beyond: Entries to the right of the last bin.
    """

    entries: int
    threshold: float
    above: int
    zeros: int
    largest: float
    below_hundredth: int
    below_thousandth: int
    l1_l2: float | None
    hoyer: float | None
    bin_width: float
    histogram: tuple[int, ...]
    beyond: int

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        return {**asdict(self), "histogram": list(self.histogram)}


def measure_sparsity(
    matrices: Mapping[str, Tensor],
    threshold: float = 0.06,
    *,
    bin_width: float = 0.005,
    num_bins: int = 200,
) -> WeightStatistics:
    """Count the entries of all the matrices together.

    Args:
        matrices: Name -> weights of any shape, dtype and device; compared in float64.
        threshold: Entries of a larger magnitude are counted in ``above``.
        bin_width: Of the histogram of magnitudes.
        num_bins: Of the histogram of magnitudes.

    Raises:
        TrainingError: If there are no entries, some are nan or inf, or an option makes no sense.

    Example:
        >>> found = measure_sparsity({"query": torch.tensor([[0.3, -0.012], [0.0, 0.0]])})
        >>> found.entries, found.above, found.zeros, found.histogram[:3]
        (4, 1, 2, (2, 0, 1))
    """
    check_number("threshold", threshold, least=0.0, error=TrainingError)
    check_number("bin_width", bin_width, above=0.0, error=TrainingError)
    check_count("num_bins", num_bins, error=TrainingError)
    entries = sum(weight.numel() for weight in matrices.values())
    if entries == 0:
        raise TrainingError("there are no entries to measure: give at least one matrix")
    largest = max(_largest(name, weight) for name, weight in matrices.items())
    edges = torch.arange(num_bins + 1, dtype=torch.float64) * bin_width
    histogram = torch.zeros(num_bins + 2, dtype=torch.int64)
    above = zeros = hundredth = thousandth = 0
    l1 = l2_squared = 0.0  # of w / largest: squares neither overflow nor vanish
    for weight in matrices.values():
        magnitude = _magnitudes(weight)
        above += int((magnitude > threshold).sum())
        zeros += int((magnitude == 0).sum())
        hundredth += int((magnitude < 1e-2 * largest).sum())
        thousandth += int((magnitude < 1e-3 * largest).sum())
        bins = torch.bucketize(magnitude, edges, right=True)
        histogram += torch.bincount(bins, minlength=num_bins + 2)
        if largest > 0:
            magnitude /= largest
            l1 += float(magnitude.sum())
            l2_squared += float(magnitude.square_().sum())
    ratio = l1 / math.sqrt(l2_squared) if largest > 0 else None
    root = math.sqrt(entries)
    return WeightStatistics(
        entries=entries,
        threshold=float(threshold),
        above=above,
        zeros=zeros,
        largest=largest,
        below_hundredth=hundredth,
        below_thousandth=thousandth,
        l1_l2=None if ratio is None else ratio / root,
        hoyer=None if ratio is None or entries == 1 else (root - ratio) / (root - 1),
        bin_width=float(bin_width),
        histogram=tuple(histogram[1:-1].tolist()),  # nothing lies left of the first edge, 0
        beyond=int(histogram[-1]),
    )


def summarize_attention_weights(
    model: nn.Module | Mapping[str, Tensor], threshold: float = 0.06, **options: Any
) -> dict[str, WeightStatistics]:
    """Statistics of the key, query and value matrices, apart and (``"all"``) together.

    Args:
        model: A model, or its state dict.
        threshold: As in :func:`measure_sparsity`.
        **options: As in :func:`measure_sparsity`.

    Raises:
        TrainingError: If the model has no matrices of one of these names.
    """
    model = _split_fused(model)
    groups = {kind: select_matrices(model, pattern) for kind, pattern in PATTERNS.items()}
    groups["all"] = {name: w for group in groups.values() for name, w in group.items()}
    return {kind: measure_sparsity(group, threshold, **options) for kind, group in groups.items()}


def _split_fused(model: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters by name, matrices of query, key and value in one as three of them."""
    tensors: dict[str, Tensor] = {
        **(dict(model.named_parameters()) if isinstance(model, nn.Module) else model)
    }
    for name in [name for name in tensors if re.search(FUSED, name)]:
        parts = tensors.pop(name).chunk(3)
        for kind, part in zip(("query", "key", "value"), parts, strict=True):
            tensors[name.replace("Wqkv", kind)] = part
    return tensors


def select_matrices(
    model: nn.Module | Mapping[str, Tensor], matrices: str = "blocks"
) -> dict[str, Tensor]:
    """The weight matrices of a model that a name stands for, in the model's order.

    Args:
        model: A model, or its state dict. A tied weight of a model appears once.
        matrices: ``"attention"`` (key, query and value), ``"blocks"`` (every matrix inside the
            blocks: attention, its output, MLP), ``"all"`` (embeddings, positions and the head
            too), or a regular expression that is searched for in qualified names such as
            ``blocks.0.query.weight``.

    Returns:
        Name -> the tensor itself, not a copy; only real tensors of two dimensions.

    Raises:
        TrainingError: If nothing matches, or the regular expression is malformed.
    """
    try:
        pattern = re.compile(GROUPS.get(matrices, matrices))
    except re.error as error:
        raise TrainingError(f"{matrices!r} is no regular expression: {error}") from None
    tensors = dict(model.named_parameters()) if isinstance(model, nn.Module) else model
    candidates = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.ndim == 2 and tensor.is_floating_point()
    }
    chosen = {name: tensor for name, tensor in candidates.items() if pattern.search(name)}
    if not chosen:
        raise TrainingError(
            f'{matrices!r} matches no matrix: give "attention", "blocks", "all" or a regular'
            f" expression for some of {', '.join(candidates) or 'none, for there are no matrices'}"
        )
    return chosen


def underflowed(dual: Tensor, weight: Tensor) -> int:
    """Entries that vanished in the number format: w is zero or subnormal while u is not zero.

    With p near 1, w = sign(u) |u|^(1/(p-1)) leaves the range of the format long before u does:
    these zeros are a matter of bits, not of training.

    Args:
        dual: The optimizer's u, ``optimizer.state[param]["dual"]``.
        weight: The weights that belong to it.

    Raises:
        TrainingError: If the shapes differ.
    """
    if dual.shape != weight.shape:
        raise TrainingError(
            f"the dual state has shape {tuple(dual.shape)}, the weight {tuple(weight.shape)}: "
            "give those of one parameter"
        )
    vanished = weight.detach().abs() < torch.finfo(weight.dtype).tiny
    return int((vanished & (dual.detach() != 0).to(weight.device)).sum())


def count_underflowed(
    optimizer: torch.optim.Optimizer, matrices: Mapping[str, Tensor]
) -> dict[str, int]:
    """:func:`underflowed` for each matrix whose u the optimizer keeps.

    Ask after a step: weights that were pruned since count too, because u still has them.

    Args:
        optimizer: A mirror optimizer. It keeps no u at p = 1.5, 2 and 3, nor before the first step.
        matrices: Name -> parameter of the optimizer; others are left out of the answer.
    """
    duals = {name: optimizer.state.get(weight, {}).get("dual") for name, weight in matrices.items()}
    return {
        name: underflowed(get_local(dual), get_local(matrices[name]))
        for name, dual in duals.items()
        if isinstance(dual, Tensor)
    }


def _magnitudes(weight: Tensor) -> Tensor:
    return weight.detach().flatten().to("cpu", torch.float64).abs()


def _largest(name: str, weight: Tensor) -> float:
    if weight.numel() == 0:
        return 0.0
    largest = float(_magnitudes(weight).max())  # nan if there is one
    if not math.isfinite(largest):
        raise TrainingError(
            f"{name} holds nan or inf: the training diverged; measure an earlier checkpoint"
        )
    return largest
