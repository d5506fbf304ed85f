"""Which models? Paper A's text and vision transformers, a language model, pretrained encoders."""

from mirrormargin.models.encoder import PretrainedEncoder, SpecialTokens
from mirrormargin.models.language_transformer import LanguageTransformer
from mirrormargin.models.text_transformer import TextTransformer
from mirrormargin.models.vision_transformer import VisionTransformer

__all__ = [
    "LanguageTransformer",
    "PretrainedEncoder",
    "SpecialTokens",
    "TextTransformer",
    "VisionTransformer",
]
