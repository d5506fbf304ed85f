"""What each of several ranks does in the tests of sharded steps; see test_shards.py.

A rank steps tensors of which it has a part, and beside it the same tensors whole: every comparison
is made on every rank, against one process that has everything.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_processes import set_environment
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import mirrormargin as mm
from mirrormargin.errors import NonFiniteGradientError, OptimizerError
from tools.soak.processes import report

warnings.simplefilter("error", mm.MirrorMarginWarning)

# The first dimension cannot be shared evenly, and ranks after the first have nothing of (1, 4).
SHAPES = [(5, 4), (1, 4), (7,), (3, 2, 3), (1,)]
NUM_STEPS = 4
EXPONENTS = (1.1, 1.5, 2.0, 3.0, 5.0)
PATHS = {"plain": {"fused": False}, "foreach": {"foreach": True}, "compiled": {}}


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


def list_cases(dtype, full):
    """Options of both optimizers, at every exponent or at two."""
    for p, path in itertools.product(EXPONENTS if full else (1.1, 2.0), PATHS):
        if path == "compiled" and dtype is not torch.float32:
            continue
        rules = ["constant", "normalized", "polyak"]
        for rule, momentum, scale in itertools.product(rules, (0.0, 0.9), (None, "rms")):
            options = {"lr": 0.05, "p": p, "step_rule": rule, "momentum": momentum, "scale": scale}
            yield mm.MirrorDescent, {**options, **PATHS[path], "max_lr": 0.5}, path
        adam = {"lr": 0.02, "p": p, **PATHS[path]}
        for scale in (None, "rms"):
            yield mm.MirrorAdam, {**adam, "scale": scale}, path
        if full or p == 1.1:
            grouped = {"lr": 0.05, "p": p, **PATHS[path], "norm_over": "group"}
            yield mm.MirrorDescent, {**grouped, "step_rule": "normalized"}, path
            yield mm.MirrorDescent, {**grouped, "clip": 0.5, "weight_decay": 0.1}, path
            yield mm.MirrorDescent, {"lr": 0.5, "p": p, "step_rule": "polyak", "max_lr": 0.5,
                                     "polyak": "dual_norm", **PATHS[path]}, path  # fmt: skip
            yield mm.MirrorDescent, {**grouped, "momentum": 0.9, "caution": True}, path
            yield mm.MirrorAdam, {**adam, "caution": True, "amsgrad": True}, path
            yield mm.MirrorAdam, {**adam, "clip": 0.5, "weight_decay": 0.1}, path
            if path != "compiled" and dtype is torch.float32:
                yield mm.MirrorAdam, {**adam, "state_dtype": torch.bfloat16}, path
                options = {"momentum": 0.9, "state_dtype": torch.bfloat16}
                yield mm.MirrorDescent, {"lr": 0.05, "p": p, **PATHS[path], **options}, path


def step_both(kind, options, one, two, whole, parts, grads, rank, count):
    losses = [2.0 + 0.1 * k for k in range(count)]  # of the ranks; one process has their mean
    polyak = options.get("step_rule") == "polyak"
    for step in grads:
        give(whole, step)
        give(parts, step)
        one.step(**({"loss": sum(losses) / count} if polyak else {}))
        two.step(**({"loss": losses[rank]} if polyak else {}))


def check_product(launch, dtype_name, full):
    """Every rule, exponent, path and option: equal to one process."""
    dtype, worst, num = getattr(torch, dtype_name), {}, 0
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        weights, grads = draw(dtype)
        for kind, options, path in list_cases(dtype, full):
            own = dict(options)
            if own.get("step_rule") == "polyak":
                own["loss_over"] = "rank"  # of whole tensors: they get the mean
            whole, parts, one, two = make(kind, weights, mesh, [Shard(0)], own, num_whole=1)
            step_both(kind, own, one, two, whole, parts, grads, rank, count)
            tolerance = 1e-12 if dtype is torch.float64 else 1e-6
            difference = compare(whole, parts, one, two, tolerance)
            if own.get("state_dtype") is torch.bfloat16:
                assert difference == 0, (kind, own)  # the same bits are drawn
            assert difference <= tolerance, (kind, own, difference)
            worst[path] = max(worst.get(path, 0.0), difference)
            num += 1
    report(json.dumps({"cases": num, "worst": worst}))


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
    from torch.distributed.fsdp import fully_shard

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
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model = shard(make_net(torch.float32), mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    optimizer = mm.MirrorAdam(model.parameters(), lr=0.02, p=1.1, scale=0.3)
    batches = draw_batches(torch.float32)
    train(model, optimizer, batches, rank, count)
    for param in model.parameters():
        dual = optimizer.state[param]["dual"]
        assert dual.dtype is torch.float32
        image = mm.LpPotential(1.1).to_primal(dual.to_local())
        assert torch.allclose(image, param.to_local(), rtol=1e-5)


def check_rules(launch):
    """What ranks must agree on, and what is refused."""
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        weights, grads = draw(torch.float32)
        # nan on one rank only: nobody steps, and the tensor is named by all.
        for policy in ("skip", "raise"):
            options = {"lr": 0.1, "p": 1.1, "nonfinite": policy}
            _, parts, _, optimizer = make(mm.MirrorDescent, weights, mesh, [Shard(0)], options)
            give(parts, grads[0])
            if rank == count - 1:
                parts[0].grad.to_local()[-1, -1] = math.nan
            if policy == "skip":
                optimizer.step()
            else:
                with pytest.raises(NonFiniteGradientError, match="parameter 0 of group 0"):
                    optimizer.step()
            assert torch.equal(parts[0].full_tensor(), weights[0])
        # nan also reaches the norm of every part.
        _, parts, _, optimizer = make(
            mm.MirrorDescent, weights, mesh, [Shard(0)], {"lr": 0.1, "step_rule": "normalized"}
        )
        give(parts, grads[0])
        if rank == 0:
            parts[0].grad.to_local()[0, 0] = math.nan
        optimizer.step()
        assert parts[0].full_tensor().isnan().all()
        # A step that only makes state changes no bit, for Polyak without a loss too.
        for kind, options in (
            (mm.MirrorAdam, {"lr": 0.0, "p": 1.1}),
            (mm.MirrorDescent, {"lr": 0.0, "p": 1.1, "step_rule": "polyak", "momentum": 0.9}),
        ):
            _, parts, _, optimizer = make(kind, weights, mesh, [Shard(0)], options)
            give(parts, [torch.zeros_like(one) for one in weights])
            optimizer.step()
            for part, weight in zip(parts, weights, strict=True):
                assert torch.equal(part.full_tensor(), weight)
        check_writes(mesh, weights, grads)
        check_refusals(mesh, weights, grads)
        check_groups(mesh)


@torch.no_grad()
def check_writes(mesh, weights, grads):
    """u follows weights that someone writes to, as a pruner does, or to the part that is here."""
    for find in (lambda part: part, lambda part: part.to_local()):
        options = {"lr": 0.1, "p": 1.1}
        whole, parts, one, two = make(mm.MirrorAdam, weights, mesh, [Shard(0)], options)
        for step in grads:
            give(whole, step)
            give(parts, step)
            one.step()
            two.step()
            for tensor in (*whole, *map(find, parts)):
                tensor.mul_(tensor > 0.05)
        assert compare(whole, parts, one, two, 1e-6) <= 1e-6


class Coupled(mm.Potential):
    """Half the square of the l2 norm, said to couple entries."""

    is_separable = False

    def value(self, weight):
        return (weight * weight).sum() / 2

    def to_dual(self, weight):
        return weight

    def to_primal(self, dual):
        return dual

    def __repr__(self):
        return "Coupled()"


class WithNorm(Coupled):
    is_separable = True

    def dual_norm(self, x):
        return x.norm()


def check_refusals(mesh, weights, grads):
    refused = [
        ({"potential": Coupled()}, "couples entries of parameter 0"),
        ({"potential": WithNorm(), "step_rule": "normalized"}, "dual norm of Coupled"),
        ({"capturable": True, "step_rule": "normalized"}, "adds up over processes"),
    ]
    for options, message in refused:
        options = {"lr": 0.1, **options}
        _, parts, _, optimizer = make(mm.MirrorDescent, weights, mesh, [Shard(0)], options)
        give(parts, grads[0])
        with pytest.raises(OptimizerError, match=message):
            optimizer.step()
    param = nn.Parameter(spread(weights[0], mesh, [Shard(0)]))
    optimizer = mm.MirrorDescent([param], lr=0.1, p=1.5, scale="rms")
    param.detach().zero_()
    give([param], [grads[0][0]])
    with pytest.raises(OptimizerError, match="starts at 0"):
        optimizer.step()


def check_groups(mesh):
    """mirror_groups finds tensors that start at 0, though no rank sees all of them."""
    model = Net()
    nn.init.zeros_(model.second.weight)
    shard(model, mesh)
    groups = mm.mirror_groups(model, p=1.1)
    mirrored = [p for one in groups if one.get("p") == 1.1 for p in one["params"]]
    assert len(mirrored) == 1, mm.describe_groups(groups)


# -- distributed checkpoints


def save(launch, folder, name, flat):
    """Three steps on these ranks, saved with torch.distributed.checkpoint."""
    continue_training(launch, folder, name, flat, None, 0, 3)


def continue_training(launch, folder, name, flat, source, start, end):
    """Load what others have saved, step, and save again."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_state_dict,
        set_state_dict,
    )

    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        model = shard(make_net(), mesh)
        optimizer = KINDS[name](model.parameters())
        batches = tuple(one[:end] for one in draw_batches())
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        if source is not None:
            weights, state = get_state_dict(model, optimizer, options=options)
            held = {"model": weights, "optimizer": state}
            dcp.load(held, checkpoint_id=source)
            set_state_dict(
                model,
                optimizer,
                model_state_dict=held["model"],
                optim_state_dict=held["optimizer"],
                options=options,
            )
        train(model, optimizer, batches, rank, count, start=start)
        weights, state = get_state_dict(model, optimizer, options=options)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
        alone = make_net()
        reference = KINDS[name](alone.parameters())
        if name == "polyak":
            reference.param_groups[0]["loss_over"] = "rank"
        train(alone, reference, batches)
        check_weights(model, alone)
    report(str(Path(folder).exists()))


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


# -- what is sent


def count_messages(launch):
    """How many reductions, and bytes, a step takes with 5 and with 50 tensors."""
    counts = {}
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        original, sent = dist.all_reduce, []

        def spy(tensor, *arguments, **options):
            sent.append(tensor.numel() * tensor.element_size())
            return original(tensor, *arguments, **options)

        dist.all_reduce = spy
        for repeats in (1, 10):
            weights, grads = draw(torch.float32)
            weights, grads = weights * repeats, [step * repeats for step in grads]
            for name, kind, options in (
                ("constant", mm.MirrorDescent, {}),
                ("MirrorAdam", mm.MirrorAdam, {}),
                ("normalized", mm.MirrorDescent, {"step_rule": "normalized"}),
                ("group", mm.MirrorDescent, {"step_rule": "normalized", "norm_over": "group"}),
                ("clip", mm.MirrorAdam, {"clip": 1.0}),
                ("caution", mm.MirrorAdam, {"caution": True}),
                ("polyak, p = 2", mm.MirrorDescent, {"step_rule": "polyak", "p": 2.0}),
                ("polyak", mm.MirrorDescent, {"step_rule": "polyak"}),
            ):
                options = {"lr": 0.01, "p": 1.1, **options}
                _, parts, _, optimizer = make(kind, weights, mesh, [Shard(0)], options)
                for step in grads[:3]:
                    give(parts, step)
                    sent.clear()
                    optimizer.step(**({"loss": 1.0} if "polyak" in name else {}))
                counts[f"{name}, {len(weights)} tensors"] = len(sent), sum(sent)
    report(json.dumps(counts))
