"""Regularisation paths: the least loss on lp balls of growing radius.

block_losses               the loss by head or by W, known by its logarithm
ball                       Newton's method for one minimiser on one ball
branches                   minimisers followed from radius to radius, the lowest kept
regularization_path        the path of W for a fixed head
local_path                 the path inside the cone of a locally optimal selection
joint_candidates           selections that joint training may end at
joint_landscape            head and W minimised in turns
joint_regularization_path  the path of both
path_files                 both paths as run folders
"""

from mirrormargin.dynamics.paths.joint_regularization_path import joint_regularization_path
from mirrormargin.dynamics.paths.local_path import find_local_path
from mirrormargin.dynamics.paths.regularization_path import RegularizationPath, regularization_path

__all__ = [
    "RegularizationPath",
    "find_local_path",
    "joint_regularization_path",
    "regularization_path",
]
