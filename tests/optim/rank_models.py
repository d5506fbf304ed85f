"""Models that several ranks train with FSDP2 and DDP, and one process beside them."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import torch
from rank_tensors import get_whole, group
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

import mirrormargin as mm


class Net(nn.Module):
    """Layers with fewer rows than ranks, and no key biases, whose gradients are rounding noise."""

    def __init__(self, width=5) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def make_net(dtype=torch.float64, width=5):
    torch.manual_seed(0)
    return Net(width).to(dtype)


def draw_batches(dtype=torch.float64, num=6):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(num, 12, 6, generator=generator, dtype=torch.float64)
    return x.to(dtype), x[..., :1].to(dtype)


KINDS = {
    "adam": lambda params: mm.MirrorAdam(params, lr=0.02, p=1.1, scale=0.3),
    "centred": lambda params: mm.MirrorAdam(params, lr=0.1, p=1.1, center=True),
    "normalized": lambda params: mm.MirrorDescent(
        params, lr=0.02, p=1.5, step_rule="normalized", momentum=0.9
    ),
    "polyak": lambda params: mm.MirrorDescent(
        params, lr=0.5, p=1.1, step_rule="polyak", max_lr=0.1, loss_over="world"
    ),
    "hypentropy": lambda params: mm.MirrorDescent(
        params, lr=0.02, potential=mm.HypentropyPotential(0.1), momentum=0.9
    ),
}


def train(model, optimizer, batches, rank=0, count=1, *, start=0, accumulate=1, sends_once=False):
    """Steps of a training on this rank's rows, each in so many parts."""
    for x, y in list(zip(*batches, strict=True))[start:]:
        parts = [one.chunk(count)[rank].chunk(accumulate) for one in (x, y)]
        total = 0.0
        for number, (own, target) in enumerate(zip(*parts, strict=True), start=1):
            with hold_gradients(model, sends_once and number < accumulate):
                loss = (model(own) - target).square().mean()
                loss.backward()
            total += float(loss.detach()) / accumulate
        for param in model.parameters():
            param.grad.div_(accumulate)  # here, in the precision of the weights
        is_polyak = optimizer.param_groups[0].get("step_rule") == "polyak"
        optimizer.step(**({"loss": total} if is_polyak else {}))
        optimizer.zero_grad()


@contextmanager
def hold_gradients(model, are_held):
    """In here FSDP2 and DDP add gradients up on every rank, and send nothing, if they are held."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(not are_held)
    with model.no_sync() if are_held and hasattr(model, "no_sync") else nullcontext():
        yield


def train_alone(name, batches, width=5):
    """What one process makes of the same model."""
    alone = make_net(batches[0].dtype, width)
    optimizer = KINDS[name](alone.parameters())
    if name == "polyak":
        optimizer.param_groups[0]["loss_over"] = "rank"
    train(alone, optimizer, batches)
    return alone


def check_weights(model, alone, tolerance=1e-12):
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        difference = float((get_whole(a.detach()) - get_whole(b.detach())).abs().max())
        assert difference <= tolerance, difference


def shard(model, mesh, **options):
    for layer in model.children():
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def check_models(launch):
    """FSDP2 and DDP, with accumulated gradients and clipping, train what one process trains."""
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh, batches = init_device_mesh("cpu", (count,)), draw_batches()
        in_parts = {"accumulate": 2}, {"accumulate": 2, "sends_once": True}
        for name, build in KINDS.items():
            alone = train_alone(name, batches)
            for options in ({}, *in_parts):
                model = shard(make_net(), mesh)
                train(model, build(model.parameters()), batches, rank, count, **options)
                check_weights(model, alone)
            for options in in_parts:
                copied = make_net()
                wrapped = nn.parallel.DistributedDataParallel(copied)
                train(wrapped, build(copied.parameters()), batches, rank, count, **options)
                check_weights(copied, alone)
        check_clipping(rank, count, mesh, batches)
        check_mixed_precision(rank, count)


def check_clipping(rank, count, mesh, batches):
    models = make_net(), shard(make_net(), mesh)
    for model, share in zip(models, ((0, 1), (rank, count)), strict=True):
        optimizer = KINDS["adam"](model.parameters())
        for x, y in zip(*batches, strict=True):
            own, target = x.chunk(share[1])[share[0]], y.chunk(share[1])[share[0]]
            (model(own) - target).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    check_weights(models[1], models[0])


def check_mixed_precision(rank, count):
    """Computed in bfloat16, kept in float32: what one process makes of the same parts of batches.

    Gradients that are sent in bfloat16 are rounded once more, and may differ by that.
    """
    meshes = init_device_mesh("cpu", (count, 1), mesh_dim_names=("all", "alone"))
    batches = draw_batches(torch.float32)
    for sent_in, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=sent_in)
        for name in ("adam", "normalized"):
            alone = shard(make_net(torch.float32), meshes["alone"], mp_policy=policy)
            train(alone, KINDS[name](alone.parameters()), batches, accumulate=count)
            model = shard(make_net(torch.float32), meshes["all"], mp_policy=policy)
            optimizer = KINDS[name](model.parameters())
            train(model, optimizer, batches, rank, count)
            check_weights(model, alone, tolerance)
            for param in model.parameters() if name == "adam" else ():  # at p = 1.5 u is not kept
                dual = optimizer.state[param]["dual"]
                assert dual.dtype is torch.float32
                image = mm.LpPotential(1.1).to_primal(dual.to_local())
                assert torch.allclose(image, param.to_local(), rtol=1e-5)
