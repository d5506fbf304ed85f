"""Which data? Verified files, word pieces, splits."""

from mirrormargin.data.dataset import DataSet, InputForm, Split, augment_images, order_epoch
from mirrormargin.data.encoding import encode_images, encode_labelled, encode_texts, make_encoder
from mirrormargin.data.loading import DATA_SETS, load_data

__all__ = [
    "DATA_SETS",
    "DataSet",
    "InputForm",
    "Split",
    "augment_images",
    "encode_images",
    "encode_labelled",
    "encode_texts",
    "load_data",
    "make_encoder",
    "order_epoch",
]
