"""Regularisation paths: the least loss on lp balls of growing radius."""

from mirrormargin.dynamics.paths.joint_regularization_path import joint_regularization_path
from mirrormargin.dynamics.paths.regularization_path import regularization_path

__all__ = ["joint_regularization_path", "regularization_path"]
