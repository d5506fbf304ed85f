"""The figures of each experiment: from evidence to plain numbers, by name.

A builder takes all evidence, by experiment, and returns None where its own is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from mirrormargin.figures import Figure
from mirrormargin.report.figures.attention_maps import build_attention_maps
from mirrormargin.report.figures.basins import build_basins
from mirrormargin.report.figures.cifar10_vit import build_cifar10_vit
from mirrormargin.report.figures.cones import build_cones
from mirrormargin.report.figures.curves import build_curves
from mirrormargin.report.figures.digits import build_digits
from mirrormargin.report.figures.directions import build_directions
from mirrormargin.report.figures.factors import build_factors
from mirrormargin.report.figures.imdb import build_imdb
from mirrormargin.report.figures.imdb_optimizers import build_imdb_optimizers
from mirrormargin.report.figures.imdb_weights import build_imdb_weights
from mirrormargin.report.figures.joint import build_joint
from mirrormargin.report.figures.joint_paths import build_joint_paths
from mirrormargin.report.figures.joint_prompts import build_joint_prompts
from mirrormargin.report.figures.joint_steps import build_joint_steps
from mirrormargin.report.figures.linear import build_linear
from mirrormargin.report.figures.multi_token import build_multi_token
from mirrormargin.report.figures.paths import build_paths
from mirrormargin.report.figures.planar_matrices import build_planar_matrices
from mirrormargin.report.figures.prompt_losses import build_prompt_losses
from mirrormargin.report.figures.prompts import build_prompts
from mirrormargin.report.figures.pruning import build_pruning
from mirrormargin.report.figures.rank import build_rank
from mirrormargin.report.figures.rates import build_rates
from mirrormargin.report.figures.step_rules import build_step_rules
from mirrormargin.report.figures.token_selection import build_token_selection
from mirrormargin.report.figures.trajectories import build_trajectories
from mirrormargin.report.figures.weights import build_weights
from mirrormargin.report.sources import Evidence

__all__ = ["FIGURES"]

FIGURES: Mapping[str, Callable[[Evidence], Figure | None]] = MappingProxyType(
    {
        "directions": build_directions,
        "basins": build_basins,
        "trajectories": build_trajectories,
        "attention": build_attention_maps,
        "rates": build_rates,
        "cones": build_cones,
        "steps": build_step_rules,
        "paths": build_paths,
        "joint": build_joint,
        "joint-steps": build_joint_steps,
        "joint-paths": build_joint_paths,
        "weights": build_weights,
        "factors": build_factors,
        "prompts": build_prompts,
        "joint-prompts": build_joint_prompts,
        "prompt-losses": build_prompt_losses,
        "planar-matrices": build_planar_matrices,
        "multi-token": build_multi_token,
        "rank": build_rank,
        "linear": build_linear,
        "imdb": build_imdb,
        "imdb-optimizers": build_imdb_optimizers,
        "imdb-weights": build_imdb_weights,
        "token-selection": build_token_selection,
        "pruning-imdb": partial(build_pruning, "pruning-imdb"),
        "pruning-plain": partial(build_pruning, "pruning-plain"),
        "pruning-sst2": partial(build_pruning, "pruning-sst2"),
        "pruning-mnist": partial(build_pruning, "pruning-mnist"),
        "pruning-cifar10": partial(build_pruning, "pruning-cifar10"),
        "mnist": partial(build_curves, "mnist"),
        "cifar10": partial(build_curves, "cifar10"),
        "mnli": partial(build_curves, "mnli"),
        "civil": partial(build_curves, "civil"),
        "cifar10-vit": build_cifar10_vit,
        "digits": build_digits,
    }
)
