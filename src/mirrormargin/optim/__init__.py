"""How do weights move? Mirror optimizers, their step rules, and parameter groups by name."""

from mirrormargin.optim.groups import param_groups
from mirrormargin.optim.mirror_adam import MirrorAdam
from mirrormargin.optim.mirror_descent import MirrorDescent

__all__ = ["MirrorAdam", "MirrorDescent", "param_groups"]
