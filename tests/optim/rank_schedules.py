"""Sparsity schedules of tensors that are spread over ranks; see test_shards.py."""

from __future__ import annotations

import torch
from rank_tensors import get_whole, give, group, spread
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

import mirrormargin as mm

# Uneven, and too few rows for all ranks.
SHAPES = [(7, 4), (1, 4), (5, 8)]
NUM_STEPS = 12
SCHEDULES = (
    {},
    {"scope": "tensor"},
    {"removed": "kept"},
    {"removed": "clipped"},
    {"regrow": 0.3},
    {"pattern": "2:4", "share": 0.5},
    {"groups": "rows"},
)
OPTIMIZERS = (
    (mm.MirrorAdam, {"lr": 0.02, "p": 1.1}),
    (mm.MirrorAdam, {"lr": 0.02, "p": 1.5}),
    (mm.MirrorAdam, {"lr": 0.02, "p": 1.3, "caution": True}),
    (mm.MirrorDescent, {"lr": 0.02, "p": 1.5, "step_rule": "normalized", "momentum": 0.9}),
    (mm.MirrorAdam, {"lr": 0.1, "p": 1.1, "center": True}),
)


def draw(shapes, seed, ties):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [(2 * one).round() / 2 for one in tensors] if ties else tensors


def check_schedules(launch):
    """The same weights go, ties included, and the same values stay, as in one process."""
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        for kind, options in OPTIMIZERS:
            for more in SCHEDULES:
                if options.get("center") and "groups" in more:
                    continue
                for ties in (False, True):
                    check_schedule(mesh, kind, options, more, ties)


def check_schedule(mesh, kind, options, more, ties):
    weights = draw(SHAPES, 0, ties)
    whole = [nn.Parameter(w.clone()) for w in weights]
    parts = [nn.Parameter(spread(w, mesh, [Shard(0)])) for w in weights]
    settings = {"share": 0.6, "num_steps": NUM_STEPS, "every": 3} | more
    trained = [(params, kind(params, **options)) for params in (whole, parts)]
    schedules = [mm.SparsitySchedule(optimizer, **settings) for _, optimizer in trained]
    for step in range(NUM_STEPS):
        grads = draw(SHAPES, step + 1, ties)
        for (params, optimizer), schedule in zip(trained, schedules, strict=True):
            give(params, grads)
            optimizer.step()
            schedule.step()
        for one, two in zip(whole, parts, strict=True):
            own, its = (
                opt.state[w].get("mask") for (_, opt), w in zip(trained, (one, two), strict=True)
            )
            assert (own is None) == (its is None)
            if own is not None and its is not None:
                assert torch.equal(own, get_whole(its)), (kind, options, more, ties, step)
            torch.testing.assert_close(get_whole(two), one, rtol=1e-10, atol=1e-12)
    assert schedules[0].removed_share == schedules[1].removed_share
