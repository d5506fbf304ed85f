r"""Deep networks trained by mirror descent on CIFAR-10 at p = 1.1, 2, 3 and 10.

Arrays of a stored record (N networks, E exponents, S seeds):
    network (N,)             names, such as "resnet18"
    p (E,)
    accuracy (N, E, S)       on the test set, of 1
    small (N, E, S)          share of weights below 1% of the largest of their tensor
    l1_l2 (N, E, S)          |w|_1 / (sqrt(size) |w|_2) of all weights: 1 if all are alike
"""

from __future__ import annotations

from mirrormargin.claims.experiment import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(
    name="deep-networks",
    title="deep networks trained by mirror descent on CIFAR-10",
    needs="VGG-11, ResNet-18, MobileNet-v2 and RegNet trained on CIFAR-10 at four p, on a GPU",
)
