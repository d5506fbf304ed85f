"""Tensors whole and in parts: what every rank builds, steps and compares; see test_shards.py.

A rank steps tensors of which it has a part, and beside it the same tensors whole: every comparison
is made on every rank, against one process that has everything.
"""

from __future__ import annotations

import math
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from rank_processes import set_environment
from torch import nn
from torch.distributed.tensor import distribute_tensor

import mirrormargin as mm

warnings.simplefilter("error", mm.MirrorMarginWarning)

# The first dimension cannot be shared evenly, and ranks after the first have nothing of (1, 4).
SHAPES = [(5, 4), (1, 4), (7,), (3, 2, 3), (1,)]
NUM_STEPS = 4


@contextmanager
def group(launch):
    set_environment(launch)
    dist.init_process_group("gloo", rank=launch["rank"], world_size=launch["count"])
    try:
        yield
    finally:
        dist.destroy_process_group()


def draw(dtype, seed=0):
    """Weights, and the gradients of every step."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, generator=generator).mul_(0.3).to(dtype) for shape in SHAPES]
    grads = [
        [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
        for _ in range(NUM_STEPS)
    ]
    return weights, grads


def spread(tensor, mesh, placements):
    return distribute_tensor(tensor.clone(), mesh, placements, src_data_rank=None)


def make(kind, weights, mesh, placements, options, num_whole=0):
    """The same parameters whole and spread, each with its optimizer; the last may stay whole."""
    whole = [nn.Parameter(w.clone()) for w in weights]
    parts = [
        nn.Parameter(spread(w, mesh, placements) if i < len(weights) - num_whole else w.clone())
        for i, w in enumerate(weights)
    ]
    return whole, parts, kind(whole, **options), kind(parts, **options)


def get_whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def give(params, grads):
    for param, grad in zip(params, grads, strict=True):
        is_spread = hasattr(param, "device_mesh")
        param.grad = (
            spread(grad, param.device_mesh, param.placements) if is_spread else grad.clone()
        )


def compare(whole, parts, one, two, tolerance):
    """The largest difference of weights and of states."""
    worst = 0.0
    for w, part in zip(whole, parts, strict=True):
        pairs = [(w, part)] if tolerance < 1e-9 or "dual" not in one.state[w] else []
        assert one.state[w].keys() == two.state[part].keys()
        for key, value in one.state[w].items():
            if isinstance(value, torch.Tensor):
                pairs.append((value, two.state[part][key]))
            else:
                assert math.isclose(value, two.state[part][key], rel_tol=tolerance)
        for a, b in pairs:
            a, b = a.detach().double(), get_whole(b.detach()).double()
            difference = (b - a).abs() / a.abs().clamp(min=1.0)
            worst = max(worst, float(difference.max()))
    return worst


def step_both(kind, options, one, two, whole, parts, grads, rank, count):
    losses = [2.0 + 0.1 * k for k in range(count)]  # of the ranks; one process has their mean
    polyak = options.get("step_rule") == "polyak"
    for step in grads:
        give(whole, step)
        give(parts, step)
        one.step(**({"loss": sum(losses) / count} if polyak else {}))
        two.step(**({"loss": losses[rank]} if polyak else {}))
