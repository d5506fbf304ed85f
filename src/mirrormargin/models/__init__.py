"""Which models? Paper A's text classifier and vision transformer, and pretrained encoders."""

from mirrormargin.models.encoder import PretrainedEncoder
from mirrormargin.models.text_transformer import TextTransformer
from mirrormargin.models.vision_transformer import VisionTransformer

__all__ = ["PretrainedEncoder", "TextTransformer", "VisionTransformer"]
