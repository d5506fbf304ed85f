r"""A vision transformer trained on CIFAR-10: do its attention maps become sparser?

Arrays of a stored record (R epochs, L layers):
    epoch (R,)             from 0, before training, to 400
    spread (R, L)          mean over test images, heads and queries of 1 / (T |s|_2^2): the share of
                           the tokens that attention is spread over
    accuracy (R,)          on the test set, of 1
"""

from __future__ import annotations

from mirrormargin.claims.experiment import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(
    name="vision-attention",
    title="attention maps of a vision transformer along its training on CIFAR-10",
    needs="400 epochs of a ViT-base on CIFAR-10 from scratch, on a GPU",
)
