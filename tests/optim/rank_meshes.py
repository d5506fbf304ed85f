"""Tensors and models on four ranks in a square: copies of shards, and shards cut twice."""

from __future__ import annotations

import itertools
import warnings

import torch
from rank_models import (
    KINDS,
    check_weights,
    draw_batches,
    make_net,
    shard,
    train,
    train_alone,
)
from rank_tensors import compare, draw, give, group, make, spread, step_both
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import mirrormargin as mm
from mirrormargin.optim.shards import find_entries


def check_meshes(launch):
    """HSDP and two axes that cut: four ranks in a square."""
    with group(launch):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
        for placements in (
            [Replicate(), Shard(0)],
            [Shard(0), Shard(0)],
            [Replicate(), Replicate()],
        ):
            for rule, p in itertools.product(("normalized", "polyak"), (1.1, 2.0)):
                weights, grads = draw(torch.float64, seed=1)
                options = {"lr": 0.05, "p": p, "step_rule": rule, "max_lr": 0.5, "scale": "rms"}
                whole, parts, one, two = make(
                    mm.MirrorDescent, weights, mesh, placements, {**options, "loss_over": "rank"}
                )
                step_both(mm.MirrorDescent, options, one, two, whole, parts, grads,
                          launch["rank"], launch["count"])  # fmt: skip
                difference = compare(whole, parts, one, two, 1e-12)
                assert difference <= 1e-12, (placements, rule, p, difference)
        weights, grads = draw(torch.float32)
        matrix = nn.Parameter(spread(weights[0], mesh, [Shard(0), Shard(1)]))
        other = nn.Parameter(weights[0].clone())
        for param in (matrix, other):
            optimizer = mm.MirrorAdam([param], lr=0.02, p=1.1, state_dtype=torch.bfloat16)
            for step in grads:
                give([param], [step[0]])
                optimizer.step()
        assert torch.equal(matrix.full_tensor(), other)


def check_models_on_squares(launch):
    """HSDP, and FSDP2 of tensors that tensor parallelism has cut before."""
    rank, count = launch["rank"], launch["count"]
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    with group(launch):
        mesh, batches = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")), draw_batches()
        for name, build in KINDS.items():
            model = shard(make_net(), mesh)
            assert next(model.parameters()).placements == (Replicate(), Shard(0))
            train(model, build(model.parameters()), batches, rank, count)
            check_weights(model, train_alone(name, batches))
            model = cut_twice(make_net(width=6), mesh)
            train(model, build(model.parameters()), batches, rank // 2, 2)
            check_weights(model, train_alone(name, batches, width=6))
        check_places(mesh)


def cut_twice(model, mesh):
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    return fully_shard(parallelize_module(model, mesh["b"], plan), mesh=mesh["a"])


@torch.no_grad()
def check_places(mesh):
    """bfloat16 states are rounded by an entry's place in the whole tensor: here it is its value."""
    for place in (shard, cut_twice):
        model = make_net(width=6)
        for param in model.parameters():
            param.copy_(torch.arange(param.numel()).view(param.shape))
        for param in place(model, mesh).parameters():
            local = param.to_local()
            assert torch.equal(find_entries(param), local.to(torch.int64)), param.placements
