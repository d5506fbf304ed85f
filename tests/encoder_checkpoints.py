"""Tiny random checkpoints of pretrained encoders, each with a tokenizer of its own kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

__all__ = ["KINDS", "save_checkpoint"]

TEXTS = (
    "a dull film with a good cast",
    "the plot of the film was good",
    "women are poorly represented in parliament",
    "nothing follows from a sentence like this",
)
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.5,
}
KINDS = ("Bert", "Roberta", "DistilBert", "ModernBert")


def save_checkpoint(kind: str, folder: Path) -> Path:
    """A random encoder of a kind that transformers has, and its tokenizer.

    Padding is 0 for BERT and DistilBERT, 1 for RoBERTa and the last of the special tokens for
    ModernBERT, as it is for those that were trained.
    """
    import transformers

    make = _make_bytes if kind in ("Roberta", "ModernBert") else _make_wordpieces
    names = ("<s>", "</s>", "<pad>") if kind == "Roberta" else ("[CLS]", "[SEP]", "[PAD]")
    backend, special = make(kind)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=names[0],
        sep_token=names[1],
        pad_token=names[2],
        bos_token=names[0],
        eos_token=names[1],
        unk_token=special[-1],
    )
    first, separator, padding = (backend.token_to_id(name) for name in names)
    sizes: dict[str, Any] = {**SIZES, "max_position_embeddings": 40}
    if kind == "DistilBert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
        sizes |= {"max_position_embeddings": 40, "initializer_range": 0.5}
    if kind == "Roberta":
        sizes["type_vocab_size"] = 1
    if kind in ("Roberta", "ModernBert"):
        sizes |= {"bos_token_id": first, "eos_token_id": separator}
    if kind == "ModernBert":
        sizes |= {"cls_token_id": first, "sep_token_id": separator, "local_attention": 8}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=backend.get_vocab_size(), pad_token_id=padding, **sizes
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _make_wordpieces(kind: str) -> tuple[Any, list[str]]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer, special


def _make_bytes(kind: str) -> tuple[Any, list[str]]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "ModernBert":
        special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if kind == "Roberta":
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    else:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
        )
    return tokenizer, special
