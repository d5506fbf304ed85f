"""How do weights move? Mirror optimizers, their step rules, and parameter groups by name."""

from mirrormargin.optim.groups import describe_groups, mirror_groups, param_groups
from mirrormargin.optim.mirror_adam import MirrorAdam
from mirrormargin.optim.mirror_descent import MirrorDescent
from mirrormargin.optim.sparsity_schedule import SparsitySchedule

__all__ = [
    "MirrorAdam",
    "MirrorDescent",
    "SparsitySchedule",
    "describe_groups",
    "mirror_groups",
    "param_groups",
]
