"""What is run for claims: one file for each experiment, whose first lines list its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mirrormargin.claims.experiment import Experiment
from mirrormargin.claims.experiments import (
    cones,
    deep_networks,
    digits,
    directions,
    factors,
    identities,
    joint,
    joint_paths,
    joint_prompts,
    joint_steps,
    linear_flow,
    linear_steps,
    multi_token,
    nonlinear_head,
    paths,
    planar_matrices,
    prompt_losses,
    prompts,
    rank,
    rates,
    real_data,
    shards,
    steps,
    trajectories,
    uniform_starts,
    vision_attention,
    weights,
)

__all__ = ["EXPERIMENTS"]

# In the order in which they begin. The first compiles the training loop while another process runs
# those after it, which do without, and compiles what they share.
_MODULES = (
    directions,
    digits,
    rates,
    paths,
    joint_paths,
    linear_flow,
    rank,
    multi_token,
    linear_steps,
    identities,
    shards,
    cones,
    steps,
    joint_steps,
    factors,
    weights,
    trajectories,
    joint,
    prompts,
    prompt_losses,
    joint_prompts,
    nonlinear_head,
    uniform_starts,
    planar_matrices,
    vision_attention,
    deep_networks,
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {one.name: one for one in (*(module.EXPERIMENT for module in _MODULES), *real_data.EXPERIMENTS)}
)
