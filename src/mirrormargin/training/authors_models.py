r"""The trained IMDB models that paper A's repository carries, read without running their code.

A file ``results/<p>/6/1.pt`` of github.com/aaronk2002/AttentionMD is a pickle of a whole module and
four curves. Unpickling it as it is would import and run whatever the file names. Here every class
that belongs to the layout is replaced by an empty one, which only holds what the file stores in it,
and torch's ``weights_only`` reader refuses all others. What is left are names and tensors:

    theirs                          ours
    emb_static, emb_pos             embedding, position
    blocks.l.attn.attn_matrix       query, key, value: its rows in three equal parts, in this order
    blocks.l.attn.linear            output
    blocks.l.mlp.lin1, .lin2        expand, contract
    blocks.l.ln1, .ln2              attention_norm, mlp_norm
    lin                             head

Post-LN blocks, GELU, no biases, epsilon 1e-5: the same function as
:class:`~mirrormargin.models.TextTransformer`, pinned by ``test_the_models_compute_the_same``.
"""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.errors import ModelError
from mirrormargin.models import TextTransformer

__all__ = ["AuthorsModel", "read_authors_model"]

LARGEST = 2_000_000_000  # bytes of a file; one has about 90 million
CURVES = ("train_loss", "train_acc", "test_loss", "test_acc")
# Everything that a file of this layout names, as it names it.
CLASSES = (
    "tools.sent_analysis_model.TransformerClassifier",
    "tools.sent_analysis_model.Block",
    "tools.sent_analysis_model.SelfAttention",
    "tools.sent_analysis_model.FeedForward",
    "tools.sent_analysis_model.LayerNorm",
    "torch.nn.modules.sparse.Embedding",
    "torch.nn.modules.container.Sequential",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.dropout.Dropout",
    "torch.nn.modules.activation.GELU",
)
WEIGHTS = {
    "attn.linear": "output",
    "mlp.lin1": "expand",
    "mlp.lin2": "contract",
    "ln1": "attention_norm",
    "ln2": "mlp_norm",
}


@dataclass(frozen=True, eq=False)
class AuthorsModel:
    """A published model and the curves of its training, (epochs,).

    Attributes:
        model: With our names, in evaluation mode.
        train_loss: Mean loss by epoch.
        train_acc: Share of training reviews classified rightly.
        test_loss: Of the test reviews.
        test_acc: Of the test reviews.
    """

    model: TextTransformer
    train_loss: NDArray[np.float64]
    train_acc: NDArray[np.float64]
    test_loss: NDArray[np.float64]
    test_acc: NDArray[np.float64]


def read_authors_model(path: str | Path, num_heads: int = 6) -> AuthorsModel:
    """Read one of paper A's published IMDB models.

    Args:
        path: A file such as ``results/1.1/6/1.pt``.
        num_heads: Heads of a block, which the weights do not tell: as many as blocks in the paper.

    Raises:
        ModelError: If the file cannot be read, names anything that is not part of the layout, or
            has other tensors.
    """
    stored = _load(Path(path))
    if not isinstance(stored, Mapping) or not {"model", *CURVES} <= set(stored):
        raise ModelError(
            f"{path} has no model with the curves {', '.join(CURVES)}: give a file of paper A's"
            " repository, such as results/1.1/6/1.pt"
        )
    tensors = dict(_list_tensors(stored["model"]))
    try:
        state = _rename(tensors)
        width, num_layers = state["embedding.weight"].shape[1], _count_layers(state)
        model = TextTransformer(
            len(state["embedding.weight"]),
            length=len(state["position.weight"]),
            width=width,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden=len(state["blocks.0.expand.weight"]),
        )
        model.load_state_dict(state)
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"{path} is not a model of paper A's layout ({error}): its tensors are"
            f" {', '.join(sorted(tensors)[:5])}, ..."
        ) from error
    if not all(bool(value.isfinite().all()) for value in state.values()):
        raise ModelError(f"{path} has weights that are not finite: download it again")
    curves = {name: _read_curve(path, name, stored[name]) for name in CURVES}
    return AuthorsModel(model.eval(), **curves)


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    if size > LARGEST:
        raise ModelError(f"{path} has {size:,} bytes, but a model has about 90 million")
    # A new class for each name, empty: nothing in the file is run.
    stand_ins: list[Any] = [(type(name.rpartition(".")[2], (), {}), name) for name in CLASSES]
    try:
        with (
            warnings.catch_warnings(),
            torch.serialization.safe_globals([*stand_ins, (set, "__builtin__.set"), set]),
        ):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError,
        OSError,
        RuntimeError,
        EOFError,
        ValueError,
        TypeError,
    ) as error:
        first = str(error).partition("\n")[0]
        raise ModelError(
            f"{path} is damaged, or names what is not part of paper A's layout ({first}): nothing"
            " of it was run"
        ) from error


def _list_tensors(module: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The parameters of a module that was stored whole, by name."""
    if isinstance(module, OrderedDict):  # a state_dict
        yield from ((str(name), value) for name, value in module.items())
        return
    held = vars(module) if hasattr(module, "__dict__") else {}
    for name, value in (held.get("_parameters") or {}).items():
        if isinstance(value, Tensor):
            yield prefix + name, value.detach()
    for name, child in (held.get("_modules") or {}).items():
        yield from _list_tensors(child, f"{prefix}{name}.")


def _rename(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    state = {
        "embedding.weight": tensors["emb_static.weight"],
        "position.weight": tensors["emb_pos.weight"],
        "head.weight": tensors["lin.weight"],
    }
    for name, value in tensors.items():
        if not name.startswith("blocks."):
            continue
        _, layer, rest = name.split(".", 2)
        rest = rest.removesuffix(".weight")
        if rest == "attn.attn_matrix":
            for ours, rows in zip(("query", "key", "value"), value.chunk(3), strict=True):
                state[f"blocks.{layer}.{ours}.weight"] = rows
        else:
            state[f"blocks.{layer}.{WEIGHTS[rest]}.weight"] = value
    return state


def _count_layers(state: Mapping[str, Tensor]) -> int:
    return len({name.split(".")[1] for name in state if name.startswith("blocks.")})


def _read_curve(path: str | Path, name: str, value: Any) -> NDArray[np.float64]:
    curve = np.asarray(value, dtype=np.float64)
    if curve.ndim != 1 or not curve.size:
        raise ModelError(f"{name} of {path} has shape {curve.shape}: a curve over epochs")
    return curve
