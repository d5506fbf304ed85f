"""How do weights move? Mirror optimizers, their step rules, and parameter groups by name."""

from mirrormargin.optim.groups import describe_groups, mirror_groups, param_groups
from mirrormargin.optim.mirror_adam import MirrorAdam
from mirrormargin.optim.mirror_descent import MirrorDescent

__all__ = ["MirrorAdam", "MirrorDescent", "describe_groups", "mirror_groups", "param_groups"]
