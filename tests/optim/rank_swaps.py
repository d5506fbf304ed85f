"""Parameters that are replaced, spread over ranks or converted after an optimizer was built."""

from __future__ import annotations

import torch
from rank_models import KINDS, check_weights, draw_batches, make_net, shard, train, train_alone
from rank_tensors import compare, draw, give, group, make, spread
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.utils import swap_tensors

import mirrormargin as mm

OPTIONS = (
    (mm.MirrorAdam, {"lr": 0.02, "p": 1.1, "scale": 0.3}),
    (mm.MirrorDescent, {"lr": 0.02, "p": 1.1, "step_rule": "normalized", "momentum": 0.9}),
    (mm.MirrorDescent, {"lr": 0.02, "p": 1.5, "step_rule": "normalized"}),
)


def check_swaps(launch):
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh, batches = init_device_mesh("cpu", (count,)), draw_batches()
        for name in ("adam", "normalized"):  # converted before and after it is sharded
            model = make_net()
            optimizer = KINDS[name](model.parameters())
            shard(model.float(), mesh).double()
            optimizer.param_groups[0]["params"] = list(model.parameters())  # as Accelerate does
            train(model, optimizer, batches, rank, count)
            check_weights(model, train_alone(name, batches), 1e-6)
        for kind, options in OPTIONS:
            swap_alike(kind, options, mesh)
            swap_others(kind, options, mesh)
            for swaps in (False, True):
                convert(kind, options, mesh, swaps)


def step_alike(whole, parts, one, two, grads):
    for step in grads:
        for params, optimizer in ((whole, one), (parts, two)):
            give(params, step)
            optimizer.step()
            optimizer.zero_grad()


def swap_alike(kind, options, mesh):
    """Shards are replaced by equal ones elsewhere in memory: u is kept, to the bit."""
    weights, grads = draw(torch.float64)
    _, parts, _, one = make(kind, weights, mesh, [Shard(0)], options)
    _, others, _, two = make(kind, weights, mesh, [Shard(0)], options)
    for step in grads:
        step_alike(parts, others, one, two, [step])
        for param in others:
            swap_tensors(param, nn.Parameter(param.detach().clone()))
    for part, other in zip(parts, others, strict=True):
        assert torch.equal(part.to_local(), other.to_local())


def swap_others(kind, options, mesh):
    """Shards are replaced by others: u follows, as that of whole tensors does."""
    weights, grads = draw(torch.float64)
    others, _ = draw(torch.float64, seed=1)
    whole, parts, one, two = make(kind, weights, mesh, [Shard(0)], options)
    step_alike(whole, parts, one, two, grads[:2])
    for w, part, other in zip(whole, parts, others, strict=True):
        swap_tensors(w, nn.Parameter(other.clone()))
        swap_tensors(part, nn.Parameter(spread(other, mesh, [Shard(0)])))
    step_alike(whole, parts, one, two, grads[2:])
    assert compare(whole, parts, one, two, 1e-12) <= 1e-12


def convert(kind, options, mesh, swaps):
    """model.to(...) between steps, which writes to parameters or swaps them."""
    weights, grads = draw(torch.float64)
    whole, parts, one, two = make(kind, weights, mesh, [Shard(0)], options)
    torch.__future__.set_swap_module_params_on_conversion(swaps)
    try:
        for k, dtype in enumerate((torch.float64, torch.float32, torch.float64)):
            for params in (whole, parts):
                nn.ParameterList(params).to(dtype)
            assert all(param.dtype is dtype for param in parts)
            step_alike(whole, parts, one, two, [[grad.to(dtype) for grad in grads[k]]])
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert compare(whole, parts, one, two, 1e-12) <= 1e-6
