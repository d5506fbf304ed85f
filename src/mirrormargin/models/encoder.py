r"""A pretrained encoder with a new head, read out at the first token, [CLS].

    logits = head(dropout(h_[CLS])),   h = last layer of the pretrained encoder

Token ids are those of bert-base-uncased ([PAD] 0, [CLS] 101, [SEP] 102, pairs as
``[CLS] a [SEP] b [SEP]``) or of the encoder's own tokenizer. Everything else follows from them: the
mask is ``ids != padding``, the token type is 0 up to and including the first [SEP] and 1 after it,
for encoders that have token types. (RoBERTa numbers its positions itself.)

Parameters are named as Hugging Face names them, below ``backbone``; for BERT and MiniLM

    backbone.embeddings.{word,position,token_type}_embeddings.weight
    backbone.encoder.layer.<i>.attention.self.{query,key,value}.{weight,bias}
    backbone.encoder.layer.<i>.attention.output.dense.{weight,bias}
    backbone.encoder.layer.<i>.{intermediate,output}.dense.{weight,bias}
    backbone.{embeddings,encoder.layer.<i>.attention.output,encoder.layer.<i>.output}.LayerNorm.*
    head.{weight,bias}

so ``*.self.query.weight`` and ``*.self.key.weight`` are the key-query matrices, and
``*.attention.*`` is all of attention with its LayerNorm. RoBERTa has the same names; DistilBERT has
``backbone.transformer.layer.<i>.attention.{q,k,v,out}_lin.*`` instead, and ModernBERT
``backbone.layers.<i>.attn.{Wqkv,Wo}.weight``, query, key and value in one.

torch's global random numbers are drawn by building, for the head's weights, and by training, for
dropout. Seed before building, inside ``torch.random.fork_rng()`` if their state must survive it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_count, check_number
from mirrormargin.errors import ModelError
from mirrormargin.models.block import stack_maps
from mirrormargin.models.checkpoints import (
    VOCAB_SIZE,
    build_backbone,
    describe_backbone,
    load_backbone,
    silence_transformers,
)

__all__ = ["PretrainedEncoder", "SpecialTokens"]


class SpecialTokens(NamedTuple):
    """What an encoder must know of the tokenizer; the default is that of bert-base-uncased.

    Attributes:
        padding: Fills a row where a text has ended, and is not attended to.
        first: Begins every row: the head reads what the encoder makes of it.
        separator: Stands between two texts.
        has_types: Whether token types tell two texts apart.
        num_tokens: How many tokens there are.
    """

    padding: int = 0
    first: int = 101
    separator: int = 102
    has_types: bool = True
    num_tokens: int = VOCAB_SIZE


WORDPIECE = SpecialTokens()


class PretrainedEncoder(nn.Module):
    """Classifies sequences, or pairs of them, with a pretrained encoder.

    Args:
        name_or_path: "minilm", the folder of a Hugging Face checkpoint, or the name of one that
            has been downloaded before. Nothing is downloaded here.
        num_classes: One logit each.
        dropout: Of the head, and in place of the rates that the checkpoint was trained with.
        special: What ids mean that were made by a tokenizer of the encoder's own.
        architecture: Of an encoder whose weights are going to be loaded: it is built without the
            checkpoint.

    Raises:
        ModelError: If the checkpoint is absent or has another vocabulary, or sizes are wrong.

    Attributes:
        backbone: The encoder, a ``transformers`` model without its pooler.
        head: The linear layer, N(0, 0.02^2) with zero bias.
        architecture: The encoder's type and sizes, for JSON; of one that was shrunk, how many
            heads and hidden units each layer has left.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str] = "minilm",
        num_classes: int = 2,
        dropout: float = 0.1,
        *,
        special: SpecialTokens = WORDPIECE,
        architecture: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes, hint="one logit each", error=ModelError)
        check_number("dropout", dropout, least=0.0, below=1.0, error=ModelError)
        with torch.random.fork_rng(devices=[]):
            if architecture is None:
                self.backbone = load_backbone(name_or_path, dropout)
            else:
                self.backbone = build_backbone(architecture)
        config = self.backbone.config
        _check_vocabulary(str(name_or_path), config, special)
        self.special, self.architecture = special, describe_backbone(self.backbone)
        if architecture is not None and "sizes" in architecture:
            self.architecture["sizes"] = architecture["sizes"]
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(config.hidden_size, num_classes)
        nn.init.normal_(self.head.weight, 0.0, 0.02)
        nn.init.zeros_(self.head.bias)
        # Some kin of BERT have no token types, or one only.
        self._has_types = (
            special.has_types
            and "token_type_ids" in inspect.signature(self.backbone.forward).parameters
            and getattr(config, "type_vocab_size", 0) >= 2
        )
        self.train()  # checkpoints come in evaluation mode

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, num_classes).

        Args:
            ids: (B, T), int32 or int64, each row starting with [CLS] and padded on the right.
                Columns at the end that are padding in every row cost nothing.

        Raises:
            ModelError: If ids are of another form, or more than the encoder has positions for.
        """
        hidden = self.backbone(**self._inputs(ids)).last_hidden_state
        return self.head(self.dropout(hidden[:, 0]))

    @torch.no_grad()
    def attention(self, ids: Tensor) -> Tensor:
        """Attention maps (B, layers, heads, T, T) without dropout; rows are queries.

        T is the longest of these sequences. Columns of padding are 0; what its rows hold means
        nothing. Where a layer has fewer heads than another one there is nan.
        """
        inputs = self._inputs(ids)
        modes = [(module, module.training) for module in self.backbone.modules()]
        # The fused attention of forward never forms the maps.
        with silence_transformers():
            try:
                self.backbone.eval()
                self.backbone.set_attn_implementation("eager")
                maps = self.backbone(**inputs, output_attentions=True).attentions
            finally:
                self.backbone.set_attn_implementation("sdpa")
                for module, training in modes:
                    module.training = training
        return stack_maps(maps)

    def _inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """What the backbone is called with, without the columns that are padding throughout."""
        self._check_ids(ids)
        mask = ids != self.padding
        length = int(mask.any(dim=0).nonzero()[-1]) + 1
        limit = self.backbone.config.max_position_embeddings
        # RoBERTa begins to count behind the number of its padding.
        if (offset := getattr(self.backbone.embeddings, "padding_idx", None)) is not None:
            limit -= offset + 1
        if length > limit:
            raise ModelError(
                f"a sequence of {length} tokens was given to an encoder with {limit} positions:"
                " cut it when tokenizing"
            )
        ids, mask = ids[:, :length], mask[:, :length]
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if self._has_types:
            inputs["token_type_ids"] = find_token_types(ids, self.special)
        return inputs

    @property
    def padding(self) -> int:
        """The id where a text has ended."""
        return self.special.padding

    def _check_ids(self, ids: Tensor) -> None:
        if ids.ndim != 2 or not ids.numel() or ids.dtype not in (torch.int32, torch.int64):
            raise ModelError(
                f"ids are a non-empty (B, T) tensor of int32 or int64, got {ids.dtype} of shape"
                f" {tuple(ids.shape)}"
            )
        if bool((ids[:, 0] != self.special.first).any()):
            whose = "vocabulary of bert-base-uncased"
            if self.special != WORDPIECE:
                whose = "encoder's own tokenizer"
            raise ModelError(
                f"every row of ids starts with [CLS] = {self.special.first}, got"
                f" {ids[:, 0].unique().tolist()}: tokenize with the {whose}, padding on the right"
            )
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= self.backbone.config.vocab_size:
            raise ModelError(
                f"ids are in [0, {self.backbone.config.vocab_size}), got {low} to {high}"
            )


def find_token_types(ids: Tensor, special: SpecialTokens = WORDPIECE) -> Tensor:
    """0 up to and including the first [SEP] of each row, 1 after it, 0 for padding.

    Example:
        >>> find_token_types(torch.tensor([[101, 7, 102, 8, 9, 102, 0]]))
        tensor([[0, 0, 0, 1, 1, 1, 0]])
    """
    separators = (ids == special.separator).long()
    before = separators.cumsum(dim=1) - separators  # [SEP]s strictly before each token
    return ((before > 0) & (ids != special.padding)).long()


def _check_vocabulary(name: str, config: Any, special: SpecialTokens) -> None:
    """Refuse an encoder that does not know the tokens that it is to read."""
    padding = getattr(config, "pad_token_id", None)
    if special == WORDPIECE:
        largest = -(-VOCAB_SIZE // 128) * 128
        if not VOCAB_SIZE <= config.vocab_size <= largest or padding not in (None, 0):
            raise ModelError(
                f"the checkpoint {name!r} has {config.vocab_size} tokens and pads with {padding},"
                f" not the {VOCAB_SIZE} tokens of bert-base-uncased, padded with 0: choose an"
                " encoder with that vocabulary, or one with a tokenizer of its own"
            )
    elif config.vocab_size < special.num_tokens or padding not in (None, special.padding):
        raise ModelError(
            f"the checkpoint {name!r} has {config.vocab_size} tokens and pads with {padding}, but"
            f" its tokenizer has {special.num_tokens} and pads with {special.padding}: give one"
            " whose parts belong together"
        )
