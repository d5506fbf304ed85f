"""Models that several ranks train with FSDP2 and DDP, and one process beside them."""

from __future__ import annotations

import torch
from rank_tensors import get_whole, group
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import mirrormargin as mm


class Net(nn.Module):
    """Layers with fewer rows than ranks, and no key biases, whose gradients are rounding noise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def make_net(dtype=torch.float64):
    torch.manual_seed(0)
    return Net().to(dtype)


def draw_batches(dtype=torch.float64, num=6):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(num, 12, 6, generator=generator, dtype=torch.float64)
    return x.to(dtype), x[..., :1].to(dtype)


KINDS = {
    "adam": lambda params: mm.MirrorAdam(params, lr=0.02, p=1.1, scale=0.3),
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


def train(model, optimizer, batches, rank=0, count=1, accumulate=1, start=0):
    """Steps of a training on this rank's rows, each in so many parts."""
    for x, y in list(zip(*batches, strict=True))[start:]:
        rows, targets = x.chunk(count)[rank], y.chunk(count)[rank]
        total = 0.0
        for own, target in zip(rows.chunk(accumulate), targets.chunk(accumulate), strict=True):
            loss = (model(own) - target).square().mean() / accumulate
            loss.backward()
            total += float(loss)
        is_polyak = optimizer.param_groups[0].get("step_rule") == "polyak"
        optimizer.step(**({"loss": total} if is_polyak else {}))
        optimizer.zero_grad()


def check_weights(model, alone, tolerance=1e-12):
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        difference = float((get_whole(a.detach()) - b.detach()).abs().max())
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
        for name, build in KINDS.items():
            alone = make_net()
            reference = build(alone.parameters())
            if name == "polyak":
                reference.param_groups[0]["loss_over"] = "rank"
            train(alone, reference, batches)
            spread_out = shard(make_net(), mesh)
            train(spread_out, build(spread_out.parameters()), batches, rank, count)
            check_weights(spread_out, alone)
            copied = make_net()
            wrapped = nn.parallel.DistributedDataParallel(copied)
            train(wrapped, build(copied.parameters()), batches, rank, count, accumulate=2)
            check_weights(copied, alone)
        check_clipping(rank, count, mesh, batches)
        check_mixed_precision(rank, count, mesh)


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


def check_mixed_precision(rank, count, mesh):
    """Computed in bfloat16, kept in float32: the state follows the weights that are kept."""
    model = shard(make_net(torch.float32), mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    optimizer = mm.MirrorAdam(model.parameters(), lr=0.02, p=1.1, scale=0.3)
    batches = draw_batches(torch.float32)
    train(model, optimizer, batches, rank, count)
    for param in model.parameters():
        dual = optimizer.state[param]["dual"]
        assert dual.dtype is torch.float32
        image = mm.LpPotential(1.1).to_primal(dual.to_local())
        assert torch.allclose(image, param.to_local(), rtol=1e-5)


def check_swaps(launch):
    """Parameters that are replaced after the optimizer was built, as Accelerate does."""
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh, batches = init_device_mesh("cpu", (count,)), draw_batches()
        alone = make_net()
        train(alone, KINDS["adam"](alone.parameters()), batches)
        model = make_net()
        optimizer = KINDS["adam"](model.parameters())
        shard(model, mesh)
        optimizer.param_groups[0]["params"] = list(model.parameters())
        train(model, optimizer, batches, rank, count)
        check_weights(model, alone)
